"""The first process of a command: its descriptors, its session, and the step from the supervisor into the command."""

# _signal: `signal` itself brings enum along, which takes longer to load than all the rest. For the same reason there is
# no contextlib here.
import _signal as signal  # type: ignore[import-not-found]
import fcntl
import os

from treadle.adapters.sandbox.supervisor import tree
from treadle.adapters.sandbox.supervisor.folder import VIEW
from treadle.adapters.sandbox.supervisor.group import ControlGroup
from treadle.adapters.sandbox.supervisor.limits import limits_of, restrain

Fields = dict[str, object]
_RESTORED = ("SIGPIPE", "SIGXFSZ", "SIGHUP", "SIGINT", "SIGTERM", "SIGCHLD")
WINDOW = b"\x28\x00\x78\x00\x00\x00\x00\x00"
"""40 lines of 120 columns, as the kernel wants it."""


class Ends:
    """The supervisor's ends of what the command reads and writes; -1 where there is none."""

    output = input = shell = -1
    pid = 0
    error = ""


def start(job: Fields, umask: int, group: ControlGroup) -> Ends:
    """Fork and execute. If that fails, `error` says why, and there is no process."""
    ends = Ends()
    stdin, stdout = _streams(job, ends)
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


def _streams(job: Fields, ends: Ends) -> "tuple[int, int]":
    if job["pty"]:
        import termios  # few commands need it

        ends.output, terminal = os.openpty()
        fcntl.ioctl(ends.output, termios.TIOCSWINSZ, WINDOW)
        os.set_blocking(ends.output, False)
        ends.input = ends.output
        return terminal, terminal
    ends.output, stdout = os.pipe()
    os.set_blocking(ends.output, False)
    try:  # noqa: SIM105
        fcntl.fcntl(ends.output, fcntl.F_SETPIPE_SZ, 1 << 20)
    except (AttributeError, OSError):  # not Linux, or the user has many wide pipes already
        pass
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
    restrain(limits_of(job))
    os.umask(umask)
    if job.get("lays"):
        from treadle.adapters.sandbox.launch.overlay import cover_sockets, lay_view

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
