"""Confinement by macOS's own `sandbox-exec`: a profile in its little language, made for each command."""

import os
from collections.abc import Sequence

from treadle.adapters.sandbox.launcher import Launcher, wrap_at_copy
from treadle.base.file_system import list_folders_between
from treadle.errors import SandboxError
from treadle.ports.sandbox import Confinement, Direct, Level, Sandbox, View, allows_all_hosts

BINARY = "/usr/bin/sandbox-exec"
_BASE = """(version 1)
(allow default)
(deny file-write*)
(allow file-write* (literal "/dev/null") (literal "/dev/zero") (literal "/dev/dtracehelper"))
(allow file-write* (regex #"^/dev/fd/"))
(deny process-info* (target others))
(allow process-info* (target same-sandbox))
(deny signal (target others))
(allow signal (target same-sandbox))
(deny mach-priv-task-port)
(deny file-mknod)
(deny file-write-setugid)"""
_NO_NETWORK = "(deny network*)\n(deny system-socket)"
_NO_SOCKETS = "(deny network-outbound (remote unix-socket))"
_TERMINAL = '(allow file-write* file-ioctl (literal "/dev/tty") (regex #"^/dev/ttys[0-9]+$") (literal "/dev/ptmx"))'


class SandboxExec(Sandbox):
    level: Level = "sandbox-exec"

    def wrap(self, argv: Sequence[str], confinement: Confinement, cwd: str) -> list[str]:
        if (world := confinement.world) is not None:
            return wrap_at_copy(self, Launcher(), argv, confinement, world, cwd)
        if isinstance(confinement.mount, View):
            raise SandboxError("sandbox-exec has no copy-on-write view of the project")
        del cwd  # the caller starts the command in that folder
        return [BINARY, "-p", render_profile(confinement, os.environ.get("TMPDIR", "")), *argv]


def render_profile(confinement: Confinement, temporary: str = "") -> str:
    """The rules in force for one command. Of several that fit, the last one counts, so what is refused stands last."""
    writable = [*confinement.writable, *([temporary] if temporary else [])]
    if isinstance(confinement.mount, Direct):
        writable.insert(0, confinement.root)
    lines = [_BASE, _NO_SOCKETS if allows_all_hosts(confinement.network, "sandbox-exec") else _NO_NETWORK]
    lines += [f"(allow file-write* (subpath {_quote_path(path)}))" for path in writable]
    if home := confinement.home:
        # Homes are closed but for what is visible in them; that they are there may be known, or nothing below could be
        # reached.
        lines += [f"(deny file-read* (subpath {_quote_path(path)}))" for path in home.covered]
        lines += [f"(allow file-read-metadata (subpath {_quote_path(path)}))" for path in home.covered]
        readable_paths = (confinement.root, *writable, *home.visible, *home.caches)
        lines += [f"(allow file-read* (subpath {_quote_path(path)}))" for path in readable_paths]
    lines += [_TERMINAL] if confinement.terminal else []
    for path in confinement.protected:
        lines.append(f"(deny file-write* (subpath {_quote_path(path)}))")
        above = list_folders_between(confinement.root, path)  # a command that could rename them could replace them
        lines += [f"(deny file-write-unlink (literal {_quote_path(folder)}))" for folder in above]
    denied_paths = (*confinement.hidden_paths, *(home.keys if home else ()), *confinement.secrets)
    lines += [f"(deny file-read* file-write* (subpath {_quote_path(path)}))" for path in denied_paths]
    return "\n".join(lines) + "\n"


def _quote_path(path: str) -> str:
    escaped = path.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
