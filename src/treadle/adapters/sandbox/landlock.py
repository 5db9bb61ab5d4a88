"""Confinement by Landlock and a filter of system calls, where namespaces are not to be had. Owns which rights a command
gets; `launch.confine` takes all others from it.

Landlock can only allow, and what it allows in a folder it allows everywhere beneath. So a protected path cannot be
excepted from a writable root: it is put back as it was when the command has ended with everything that it started. A
hidden path cannot be excepted from a readable folder: its siblings are allowed instead, one by one. And what Landlock
does not look at, the filter refuses: sockets, mounts, and changes of modes, owners and times outside."""

import ctypes
import os
import tempfile
from collections.abc import Sequence

from treadle.adapters.sandbox.launcher import Launcher, wrap_at_copy
from treadle.adapters.sandbox.seccomp import AF_INET, AF_INET6, AF_NETLINK, Filter, assemble, list_chores
from treadle.base.file_system import is_below
from treadle.errors import SandboxError
from treadle.ports.sandbox import LINGER_S, Confinement, Direct, Level, Sandbox, View, allows_all_hosts

EXECUTE, WRITE_FILE, READ_FILE, READ_DIR, REMOVE_DIR, REMOVE_FILE = (1 << bit for bit in range(6))
MAKE_CHAR, MAKE_DIR, MAKE_REG, MAKE_SOCK, MAKE_FIFO, MAKE_BLOCK, MAKE_SYM = (1 << bit for bit in range(6, 13))
REFER, TRUNCATE, IOCTL_DEV = (1 << bit for bit in range(13, 16))

READ = EXECUTE | READ_FILE | READ_DIR
WRITE = WRITE_FILE | REMOVE_DIR | REMOVE_FILE | MAKE_DIR | MAKE_REG | MAKE_SOCK | MAKE_FIFO | MAKE_SYM
DEVICES_MADE = MAKE_CHAR | MAKE_BLOCK
OF_FILES = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV
BIND_AND_CONNECT_TCP = 0b11
ABSTRACT_SOCKETS_AND_SIGNALS = 0b11

SCOPES = 6  # The first version that keeps abstract sockets and signals apart
OLDEST = 2  # Before it, files could not be moved from one folder to another
DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/ptmx", "/dev/pts")
_CREATE_RULESET = 444


def read_version() -> int:
    """Return the ABI version of this kernel's Landlock; 0 if it has none."""
    libc = ctypes.CDLL(None, use_errno=True)
    abi_version: int = libc.syscall(ctypes.c_long(_CREATE_RULESET), None, ctypes.c_size_t(0), ctypes.c_uint(1))
    return max(0, abi_version)


class Landlock(Sandbox):
    """In `scratch`, a folder of Treadle's own, files are set aside that commands put in place of protected paths."""

    level: Level = "landlock"

    def __init__(self, scratch: str, *, abi: int | None = None, launcher: Launcher | None = None) -> None:
        self._scratch, self._launcher = scratch, launcher or Launcher()
        self._abi = read_version() if abi is None else abi

    def wrap(self, argv: Sequence[str], confinement: Confinement, cwd: str) -> list[str]:
        if (world := confinement.world) is not None:
            return wrap_at_copy(self, self._launcher, argv, confinement, world, cwd)
        if self._abi < OLDEST:
            raise SandboxError(f"Landlock of this kernel (version {self._abi}) is too old; version {OLDEST} is needed")
        if isinstance(confinement.mount, View):
            raise SandboxError("Landlock has no copy-on-write view of the project; bubblewrap has")
        temporary = tempfile.gettempdir()
        home = confinement.home
        closed_paths = (*confinement.hidden_paths, *(home.covered + home.keys if home else ()))
        hidden_paths = ["/dev", *(os.path.realpath(path) for path in closed_paths if os.path.lexists(path))]
        for path in hidden_paths:
            for readable_folder in (confinement.root, *confinement.writable):
                if is_below(path, readable_folder):
                    raise SandboxError(f"Landlock cannot hide {path} inside {readable_folder}, which commands may read")
        network = allows_all_hosts(confinement.network, self.level)
        families = (AF_INET, AF_INET6, AF_NETLINK) if network else ()
        is_direct = isinstance(confinement.mount, Direct)
        spec = {
            "root": confinement.root,
            "root_writable": is_direct,
            "cwd": cwd,
            "kept": list(confinement.protected) if is_direct else [],
            "aside": os.path.join(self._scratch, "undone"),
            "hidden": hidden_paths,
            "visible": [os.path.realpath(path) for path in home.visible + home.caches] if home else [],
            "gitconfig": home.gitconfig.encode() if home else None,
            "devices": [*DEVICES, "/dev/tty"] if confinement.terminal else list(DEVICES),
            "writable": list(confinement.writable),
            "terminal": confinement.terminal,
            "report_fd": confinement.report_fd,
            "linger_s": LINGER_S if confinement.report_fd else 0.0,
            "temporary": temporary,
            # Unix sockets are closed with or without a network: the way to Docker leads through them.
            "filter": assemble(Filter(families=families, metadata=False, truncate=self._abi >= 3)),
            "chores": list_chores(),
            **self._compute_rights(network),
        }
        return self._launcher.build_line("confine", spec, argv)

    def _compute_rights(self, network: bool) -> dict[str, object]:
        newer = (REFER if self._abi >= 2 else 0) | (TRUNCATE if self._abi >= 3 else 0)
        devices = IOCTL_DEV if self._abi >= 5 else 0
        tcp = BIND_AND_CONNECT_TCP if self._abi >= 4 and not network else 0
        scopes = ABSTRACT_SOCKETS_AND_SIGNALS if self._abi >= SCOPES else 0
        size = 24 if self._abi >= SCOPES else 16 if self._abi >= 4 else 8
        return {
            "handled": (READ | WRITE | DEVICES_MADE | newer | devices, tcp, scopes, size),
            "read": READ,
            "write": WRITE | newer | devices,
            "of_files": OF_FILES & (READ | WRITE | newer | devices),
        }
