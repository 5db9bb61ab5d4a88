"""A command under its supervisor: its first process with its descriptors and its session; and its records on disk.

The output is exact up to a cap; of more, the beginning and the end are kept. A piece is a file that is named by where
it begins, so that a reader needs no index and a killed writer leaves nothing wrong. The end is written so that a full
disk cannot prevent it and, at last, a power cut cannot take it."""

# _signal: `signal` itself brings enum along, which takes longer to load than all the rest. For the same reason there is
# no contextlib here.
import _signal as signal  # type: ignore[import-not-found]
import fcntl
import os

from treadle.adapters.sandbox.launch.processes import try_to
from treadle.adapters.sandbox.supervisor import tree
from treadle.adapters.sandbox.supervisor.folder import EXIT, OUTPUT, SYNCED, VIEW
from treadle.adapters.sandbox.supervisor.limits import get_limits, restrain
from treadle.adapters.sandbox.supervisor.tree import ControlGroup

Fields = dict[str, object]
_RESTORED = ("SIGPIPE", "SIGXFSZ", "SIGHUP", "SIGINT", "SIGTERM", "SIGCHLD")
WINDOW = b"\x28\x00\x78\x00\x00\x00\x00\x00"  # 40 lines of 120 columns, as the kernel wants it


class Ends:
    """The supervisor's ends of what the command reads and writes; -1 where there is none."""

    output = input = shell = -1
    pid = 0
    error = ""


def start_child(job: Fields, umask: int, group: ControlGroup) -> Ends:
    """Fork and execute. If that fails, `error` says why, and there is no process."""
    ends = Ends()
    stdin, stdout = _open_streams(job, ends)
    shell = -1
    if job["state_fd"]:
        ends.shell, shell = os.pipe()
        os.set_blocking(ends.shell, False)
    report, report_writer = os.pipe()
    supervisor = os.getpid()
    ends.pid = os.fork()
    if ends.pid == 0:
        try:
            os.setsid()
            tree.die_with_parent()
            if os.getppid() == supervisor:  # else it was killed before, and no process would know of this command
                if job.get("sandbox") == "landlock":
                    job["env"] = group.add_to(job["env"])
                else:
                    group.enter()
                _become(job, stdin, stdout, shell, umask)
        except BaseException as error:
            number = error.errno if isinstance(error, OSError) and error.errno else 5
            os.write(report_writer, str(number).encode())
        finally:
            os._exit(127)
    for descriptor in {stdin, stdout, shell, report_writer} - {-1}:
        os.close(descriptor)
    failed = os.read(report, 16)
    os.close(report)
    if failed:
        os.waitpid(ends.pid, 0)
        ends.error = os.strerror(int(failed))
    return ends


def _open_streams(job: Fields, ends: Ends) -> "tuple[int, int]":
    if job["pty"]:
        import termios  # few commands need it

        ends.output, terminal = os.openpty()
        fcntl.ioctl(ends.output, termios.TIOCSWINSZ, WINDOW)
        os.set_blocking(ends.output, False)
        ends.input = ends.output
        return terminal, terminal
    ends.output, stdout = os.pipe()
    os.set_blocking(ends.output, False)
    if hasattr(fcntl, "F_SETPIPE_SZ"):  # not on macOS; and it fails if the user has many wide pipes already
        try_to(fcntl.fcntl, ends.output, fcntl.F_SETPIPE_SZ, 1 << 20)
    if not job["input"]:
        return os.open(os.devnull, os.O_RDONLY), stdout
    stdin, ends.input = os.pipe()
    os.set_blocking(ends.input, False)
    return stdin, stdout


def _become(job: Fields, stdin: int, stdout: int, shell: int, umask: int) -> None:
    if job["pty"]:
        import termios

        fcntl.ioctl(stdout, termios.TIOCSCTTY, 0)
    for number, descriptor in ((0, stdin), (1, stdout), (2, stdout)):
        os.dup2(descriptor, number)
    if shell >= 0:  # last: its number may be that of one of the others
        state_fd = int(str(job["state_fd"]))
        os.dup2(shell, state_fd)
        os.set_inheritable(state_fd, True)
    restrain(get_limits(job))
    os.umask(umask)
    if job.get("lays"):
        from treadle.adapters.sandbox.launch.become import cover_sockets, lay_view

        view = os.path.abspath(VIEW)
        lay_view(str(job["view"]), f"{view}/upper", f"{view}/work", str(job["lays"]))
        sockets = job.get("covered_sockets", ())
        assert isinstance(sockets, tuple)
        cover_sockets(sockets)
    os.chdir(str(job["cwd"]))
    for name in _RESTORED:
        signal.signal(getattr(signal, name), signal.SIG_DFL)
    argv, env = job["argv"], job["env"]
    assert isinstance(argv, list)
    assert isinstance(env, dict)
    os.execvpe(argv[0], argv, env)


_LEAST = 1 << 12
_EXIT_SIZE = 1024


class Recorder:
    """Half of the cap is for the beginning; the rest for the two newest of the pieces that follow it. A piece of
    output that cannot be written (no space) is dropped, and writing is tried again with the next."""

    def __init__(self, cap: int) -> None:
        self.size, self.trouble = 0, ""
        self._newlines, self._open_line = 0, False
        self._first, self._next = max(cap // 2, _LEAST), max(cap // 4, _LEAST)
        self._tail: list[int] = []
        self._file, self._room = -1, 0

    @property
    def lines(self) -> int:
        return self._newlines + self._open_line

    def feed(self, data: bytes) -> None:
        self._newlines += data.count(b"\n")
        self._open_line = data[-1:] != b"\n"
        remaining = memoryview(data)
        while remaining:
            if not self._room:
                self._begin_piece()
            now, remaining = remaining[: self._room], remaining[self._room :]
            self._room -= len(now)
            self._write(now)
            self.size += len(now)

    def _begin_piece(self) -> None:
        """Begin a new piece; the oldest of the tail goes."""
        self.close()
        self._room = self._next if self.size else self._first
        try:
            self._file = os.open(f"{OUTPUT}{self.size}", os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        except OSError as error:
            self.trouble = error.strerror or str(error)
            self._room = _LEAST
            return
        if self.size:
            self._tail.append(self.size)
        if len(self._tail) > 2:
            # Some file systems need free space to remove a file; then the piece stays readable.
            try_to(os.unlink, f"{OUTPUT}{self._tail.pop(0)}")

    def _write(self, data: memoryview) -> None:
        try:
            while data and self._file >= 0:
                data = data[os.write(self._file, data) :]
        except OSError as error:
            self.trouble = error.strerror or str(error)
            self._room = 0

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def reserve_exit() -> None:
    """Take the space for the end now: when the disk is full, it can still be written."""
    with open(f"{EXIT}.new", "wb") as file:
        file.write(b" " * _EXIT_SIZE)


def write_exit(ending: str, code: int, left_behind: bool, recorder: Recorder, error: str) -> None:
    recorder.close()
    error_text = (error or recorder.trouble).replace("\\", "/").replace('"', "'")
    text = (
        f'{{"ending": "{ending}", "code": {code}, "left_behind": {"true" if left_behind else "false"}, '
        f'"size": {recorder.size}, "lines": {recorder.lines}, "error": "{error_text}"}}'
    )
    with open(f"{EXIT}.new", "r+b") as file:
        file.write(text.encode().ljust(_EXIT_SIZE))
    os.replace(f"{EXIT}.new", EXIT)


def sync_exit(*, layer: bool = False) -> None:
    """Make the output and the end survive a power cut. `layer`: also the files that the command wrote on its view,
    which may be committed much later."""
    try:
        if layer:
            os.sync()
        for name in (*(name for name in os.listdir(".") if name.startswith(OUTPUT)), EXIT, "."):
            file = os.open(name, os.O_RDONLY)
            os.fsync(file)
            os.close(file)
        with open(SYNCED, "wb"):
            pass
    except OSError:
        pass  # a worker that finds no such mark after a power cut takes the command for lost
