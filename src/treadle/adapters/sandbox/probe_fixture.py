"""The world outside a sandbox, set up so that every way out leads to something that can be looked at afterwards: files
that must stay as they are, listeners that must hear nothing, a process that must live."""

import fcntl
import os
import pty
import re
import secrets
import selectors
import shutil
import signal
import socket
import stat
import subprocess
import termios
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Self

from treadle.adapters.sandbox.launcher import Launcher
from treadle.adapters.sandbox.report import ESCAPES
from treadle.adapters.sandbox.sockets import listening
from treadle.errors import SandboxError
from treadle.ports.sandbox import Confinement, PrivateHome, Sandbox

SILENCE_S = 15.0
"""How long nothing may be heard of the attempts; all together they take a fraction of a second."""
RUN_S = 60.0
ANSWER_S = 20.0
"""A surviving process answers after two seconds; a dead one is noticed at once."""
CONTENT = b"untouched"
FILES = (
    "write_outside", "delete_outside", "truncate_outside", "chmod_outside", "touch_outside", "attribute_outside",
    "through_link", "through_hard_link", "through_proc",
)  # fmt: skip
"""One for each attempt, so that it is known which one reached it."""
ROOMY = "/var/tmp"
REPOSITORIES = ("missing", "existing", "moved")


class Stuck(SandboxError):
    """The program that was started in the sandbox did not end."""


class ProbeFixture:
    """`folder` is made and removed. `user`: make the attempts as this user, if the caller may become that user."""

    def __init__(self, folder: Path, launcher: Launcher, user: int | None = None) -> None:
        self._folder = folder
        self._launcher = launcher
        self._become: Mapping[str, Any] = {} if user is None else {"user": user, "group": user, "extra_groups": []}
        self.root = folder / "root"
        self.outside = folder / "outside"
        self.home = folder / "home"
        self._marker = secrets.token_hex(16).encode()
        self._closing: list[Callable[[], object]] = []
        self._owner = user

    def __enter__(self) -> Self:
        self._folder.mkdir(mode=0o755, parents=True)
        self._closing.append(lambda: shutil.rmtree(self._folder, ignore_errors=True))
        try:
            self._make_files()
            self._listen()
            # A process that ends when it is told so, and by nothing else.
            environment = {"SECRET": self._marker.decode(), "PATH": os.defpath}
            self._victim = subprocess.Popen(
                ["/bin/sh", "-c", "read x"], stdin=subprocess.PIPE, env=environment, cwd="/", **self._become
            )
            self._closing.append(self._end_victim)
            self._asked, self._ask = map(_out_of_the_way, os.pipe())
            self._told, self._tell = map(_out_of_the_way, os.pipe())
            self._master, self._terminal = map(_out_of_the_way, pty.openpty())
            self._open = {self._asked, self._ask, self._told, self._tell, self._master, self._terminal}
            self._closing.append(lambda: self._shut(*self._open))
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        while self._closing:
            self._closing.pop()()

    @property
    def confinement(self) -> Confinement:
        home = str(self.home)
        protected = [str(self.root / name / ".git" / part) for name in REPOSITORIES for part in ("hooks", "config")]
        return Confinement(
            root=str(self.root),
            protected=tuple(protected),
            hidden_paths=(str(self.outside / "hidden"),),
            home=PrivateHome(home, (home,), (f"{home}/.tools",), keys=(f"{home}/.tools/id_rsa",)),
        )

    def _make_files(self) -> None:
        self.outside.mkdir()
        for name in FILES:
            (self.outside / name).write_bytes(CONTENT)
            (self.outside / name).chmod(0o600)
        (self.outside / "hidden").write_bytes(self._marker)
        for name in (".keys/id_rsa", ".tools/id_rsa", "notes"):
            (self.home / name).parent.mkdir(parents=True, exist_ok=True)
            (self.home / name).write_bytes(self._marker)
        for name in REPOSITORIES:
            git = self.root / name / ".git"
            git.mkdir(parents=True)
            (git / "config").write_bytes(CONTENT)
        if self._owner is not None:
            for path in (self._folder, *self._folder.rglob("*")):
                os.chown(path, self._owner, self._owner)
        self._before = {name: _status(self.outside / name) for name in FILES}

    def _listen(self) -> None:
        self._abstract = b"\0treadle-" + self._marker
        endpoints: dict[str, tuple[int, int, Any]] = {
            "connect_tcp": (socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", 0)),
            "send_udp": (socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", 0)),
            "connect_unix": (socket.AF_UNIX, socket.SOCK_STREAM, None),
            "connect_young": (socket.AF_UNIX, socket.SOCK_STREAM, None),
            "connect_abstract": (socket.AF_UNIX, socket.SOCK_STREAM, self._abstract),
        }
        self._listeners: dict[str, socket.socket] = {}
        self._sockets: dict[str, Path] = {}
        for name, (family, kind, address) in endpoints.items():
            listener = socket.socket(family, kind)
            self._closing.append(listener.close)
            if address is None:
                # Where Docker's and its like are, if this user may make one there; else, and for the young one, in a
                # folder of one's own; else, because the name of a socket must be short, where everybody may.
                shared = [] if name == "connect_young" else ["/run", os.environ.get("XDG_RUNTIME_DIR") or "/run"]
                self._sockets[name] = path = _bind_somewhere(listener, [*shared, str(self.outside), ROOMY])
                self._closing.append(partial(path.unlink, missing_ok=True))
                if name == "connect_unix":
                    os.utime(path, (1, 1))
            else:
                listener.bind(address)
            if kind == socket.SOCK_STREAM:
                listener.listen()
            listener.setblocking(False)
            self._listeners[name] = listener

    def _end_victim(self) -> int:
        if self._victim.stdin and not self._victim.stdin.closed:
            with suppress(BrokenPipeError):
                self._victim.stdin.write(b"\n")
            with suppress(BrokenPipeError):
                self._victim.stdin.close()
        return self._victim.wait(RUN_S)

    def _shut(self, *descriptors: int) -> None:
        for each in descriptors:
            if each in self._open:
                self._open = self._open - {each}
                os.close(each)

    def attempt(self, sandbox: Sandbox) -> dict[str, str]:
        """Make all attempts; return the report of each about itself. SandboxError as the sandbox raises it, Stuck if it
        does not end."""
        spec = {
            "root": str(self.root),
            "outside": str(self.outside),
            "home": str(self.home),
            "socket": str(self._sockets["connect_unix"]),
            "young": str(self._sockets["connect_young"]),
            "hidden": str(self.outside / "hidden"),
            "marker": self._marker,
            "tcp": self._listeners["connect_tcp"].getsockname()[1],
            "udp": self._listeners["send_udp"].getsockname()[1],
            "abstract": self._abstract,
            "victim": self._victim.pid,
            "terminal": self._terminal,
            "asks": self._asked,
            "tells": self._tell,
            "names": [each.name for each in ESCAPES],
        }
        line = sandbox.wrap(self._launcher.line("escapes", spec), self.confinement, str(self.root))
        line = self._launcher.line(
            "become.take_terminal", {"terminal": self._terminal, "take": termios.TIOCSCTTY}, line
        )
        report_file = self._folder / "said"
        with report_file.open("wb") as out:
            process = subprocess.Popen(
                line,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                cwd=self.root,
                env={"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C"},
                pass_fds=(self._asked, self._tell, self._terminal),
                start_new_session=True,
                **self._become,
            )
            self._wait_for(process, report_file)
        self._shut(self._asked, self._tell)
        lines = [line.partition("\t") for line in report_file.read_text(errors="replace").splitlines()]
        return {name: report for name, tab, report in lines if tab} or {"": "\n".join(name for name, _, _ in lines)}

    def _wait_for(self, process: "subprocess.Popen[bytes]", report_file: Path) -> None:
        """Until it ends. Slow is not stuck: as long as it says something new, it is waited for."""
        size, until = 0, time.monotonic() + RUN_S
        while True:
            try:
                process.wait(SILENCE_S)
                return
            except subprocess.TimeoutExpired:
                previous_size, size = size, report_file.stat().st_size
                if size > previous_size and time.monotonic() < until:
                    continue
            os.killpg(process.pid, signal.SIGKILL)  # it leads a group of its own, and is still there to be waited for
            process.wait()
            raise Stuck(
                f"what runs in it does not end, and was given up after {SILENCE_S:.0f} s of silence; "
                "`treadle doctor sandbox` tries it again"
            )

    def evidence(self) -> dict[str, bool]:
        """By attempt, whether it left a trace outside. Attempts that leave none are not in it."""
        traces = {name: _status(self.outside / name) != self._before[name] for name in FILES}
        traces |= {"create_outside": (self.outside / "create_outside.new").exists(), "set_user_id": False}
        traces |= {name: _was_heard(listener) for name, listener in self._listeners.items()}
        attacked = {"missing": "create_protected", "existing": "change_protected", "moved": "move_protected"}
        for name, attempt in attacked.items():
            git = self.root / name / ".git"
            config = b""
            with suppress(OSError):
                config = (git / "config").read_bytes()
            traces[attempt] = os.path.lexists(git / "hooks") or config != CONTENT
        for name in ("program", "program.new"):
            with suppress(OSError):
                traces["set_user_id"] |= bool((self.root / name).stat().st_mode & stat.S_ISUID)
        traces["survive"] = self._answers()
        traces["kill_process"] = self._end_victim() != 0
        return traces

    def _answers(self) -> bool:
        """True if a process of the sandbox still answers."""
        try:
            os.write(self._ask, b"?")
        except BrokenPipeError:
            return False
        with selectors.DefaultSelector() as selector:
            selector.register(self._told, selectors.EVENT_READ)
            return bool(selector.select(ANSWER_S)) and os.read(self._told, 5) == b"alive"


def _out_of_the_way(descriptor: int) -> int:
    """Sandboxes use some of the low numbers for themselves."""
    new_descriptor = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 20)
    os.close(descriptor)
    return new_descriptor


def _bind_somewhere(listener: socket.socket, folders: Sequence[str]) -> Path:
    for folder in folders:
        path = Path(folder, f"treadle-{secrets.token_hex(6)}.sock")
        try:
            listener.bind(str(path))
        except OSError:
            continue
        path.chmod(0o777)
        return path
    raise SandboxError(f"no socket can be made in {folders[-2]}; choose a home with a shorter path with TREADLE_HOME")


_SOCKET_NAME = re.compile(r"treadle-[0-9a-f]{12}\.sock")
_ABANDONED_S = 3600.0


def sweep_sockets() -> None:
    """Remove the sockets of probes that were killed. Connecting would tell whether one is alive, but a probe takes a
    connection for an escape; so only old ones are removed at which no process listens."""
    live = listening()
    for folder in {"/run", os.environ.get("XDG_RUNTIME_DIR") or "/run", ROOMY}:
        with suppress(OSError):
            for path in Path(folder).iterdir():
                status = path.lstat()
                abandoned = stat.S_ISSOCK(status.st_mode) and status.st_ctime < time.time() - _ABANDONED_S
                is_ours = status.st_uid == os.geteuid() and _SOCKET_NAME.fullmatch(path.name)
                if is_ours and abandoned and str(path) not in live:
                    path.unlink(missing_ok=True)


def _was_heard(listener: socket.socket) -> bool:
    try:
        if listener.type == socket.SOCK_DGRAM:
            listener.recv(16)
        else:
            listener.accept()[0].close()
    except BlockingIOError:
        return False
    return True


def _status(path: Path) -> tuple[object, ...] | None:
    try:
        status = path.stat()
        attributes = tuple(os.listxattr(path)) if hasattr(os, "listxattr") else ()
        return path.read_bytes(), status.st_mode, status.st_mtime_ns, attributes
    except OSError:
        return None
