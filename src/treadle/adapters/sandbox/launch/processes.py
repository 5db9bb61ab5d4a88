"""The processes of a command, for one that stands beside it: which live below it, by what Linux tells in /proc, and
how it ends itself, after all of them, and as the command did."""

import _signal  # type: ignore[import-not-found]  # what `signal` wraps; that one would load half of the library
import os
import sys
from _collections_abc import Callable

_FORWARDED = (_signal.SIGTERM, _signal.SIGHUP, _signal.SIGUSR1, _signal.SIGUSR2)
_LEFT_TO_THE_COMMAND = (_signal.SIGINT, _signal.SIGQUIT)
"""They come from the terminal, which sends them to the command itself."""
GROUP = "_TREADLE_GROUP"  # The environment variable that names the folder of the control group for the command
BROKEN_PIPE: int = _signal.SIGPIPE  # Python ignores this signal, and processes that Python starts would inherit that


def try_to(action: "Callable[..., object]", *arguments: object) -> None:
    """Do it as far as the system lets it be done. `contextlib.suppress` would take too long to load."""
    try:  # noqa: SIM105
        action(*arguments)
    except OSError:
        pass


def close_descriptors(*kept_fds: int) -> None:
    """Close all open descriptors but these, where there is /proc also those above the present limit."""
    try:
        numbers = [int(name) for name in os.listdir("/proc/self/fd")]
    except OSError:
        numbers = list(range(min(os.sysconf("SC_OPEN_MAX"), 1 << 16)))
    for number in set(numbers) - {*kept_fds}:
        os.closerange(number, number + 1)  # which does not mind that it is closed


def detach_streams() -> None:
    """Standard input, output and errors lead nowhere from now on."""
    null = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(null, number)
    os.close(null)


def block_signals() -> "set[int]":
    """Keep signals until `pass_signals_to`: one that comes as soon as the command has started is passed on, too. Gives
    the mask before, which the command gets."""
    mask: set[int] = _signal.pthread_sigmask(_signal.SIG_BLOCK, _FORWARDED + _LEFT_TO_THE_COMMAND)
    return mask


def enter_group() -> None:
    """In the child, before it becomes the command: enter the control group that the supervisor made for it. The kernel
    may end all processes of the group, and the launcher has to tidy up after them."""
    group = os.environ.pop(GROUP, "")
    try:
        if group:
            with open(f"{group}/cgroup.procs", "wb", buffering=0) as file:
                file.write(b"0")
    except OSError:  # the command runs without a group, and is watched as usual
        return


def become_ordinary(mask: "set[int]") -> None:
    """In the child, before it becomes the command: signals have their usual effect."""
    _signal.signal(BROKEN_PIPE, _signal.SIG_DFL)
    _signal.pthread_sigmask(_signal.SIG_SETMASK, mask)


def pass_signals_to(pid: int) -> None:
    """A second SIGTERM kills the command: the next signal may be a SIGKILL for this process, which has to tidy up."""
    is_asked_to_end = False

    def forward(number: int, _frame: object) -> None:
        nonlocal is_asked_to_end
        is_second_request = number == _signal.SIGTERM and is_asked_to_end
        is_asked_to_end = is_asked_to_end or number == _signal.SIGTERM
        try:
            os.kill(pid, _signal.SIGKILL if is_second_request else number)
        except ProcessLookupError:
            return

    for number in _FORWARDED:
        _signal.signal(number, forward)
    for number in _LEFT_TO_THE_COMMAND:
        _signal.signal(number, _signal.SIG_IGN)
    _signal.pthread_sigmask(_signal.SIG_UNBLOCK, _FORWARDED + _LEFT_TO_THE_COMMAND)


def fork_ordinary() -> int:
    """Fork. Signals have their usual effect in the child before it can get one: none is passed on by it."""
    mask = block_signals()
    try:
        pid = os.fork()
        if pid == 0:
            for number in _FORWARDED:
                _signal.signal(number, _signal.SIG_DFL)
        return pid
    finally:
        _signal.pthread_sigmask(_signal.SIG_SETMASK, mask)


def wait_for_command(pid: int) -> int:
    """Wait for the end of the process that signals are passed to, and return its exit code; -N if signal N ended it.
    Signals are ignored before its number is free and may be another process's."""
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    _ignore_signals()
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def _ignore_signals() -> None:
    for number in _FORWARDED:
        _signal.signal(number, _signal.SIG_IGN)


def end_descendants() -> None:
    """S-14: end all processes that the command left running, and those that they start meanwhile. This process adopts
    orphans, so all of them become its children sooner or later."""
    _ignore_signals()
    while True:
        try:
            ended_pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if ended_pid == 0:
            for pid, (_, _, parent) in _list_processes().items():
                if parent == os.getpid():
                    try_to(os.kill, pid, _signal.SIGKILL)


def end_as(code: int) -> None:
    """With the command's exit code, or by the signal that ended it."""
    sys.stdout.flush()
    if code < 0:
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if -code not in (_signal.SIGKILL, _signal.SIGSTOP):
            _signal.signal(-code, _signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code & 0xFF)


def list_descendants(boundary: bytes = b"") -> "dict[int, bytes]":
    """The living below this process, with their names; without those below a process of the name `boundary`."""
    processes = _list_processes()
    children: dict[int, list[int]] = {}
    for pid, (_, _, parent) in processes.items():
        children.setdefault(parent, []).append(pid)
    pids: list[int] = []
    todo = [os.getpid()]
    while todo:
        below = children.get(todo.pop(), [])
        pids += below
        todo += [pid for pid in below if not boundary or processes[pid][0] != boundary]
    return {pid: processes[pid][0] for pid in pids if processes[pid][1] not in b"ZX"}


def _list_processes() -> "dict[int, tuple[bytes, bytes, int]]":
    """(name, state, parent) by process number."""
    processes = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                with open(f"/proc/{entry}/stat", "rb") as file:
                    head, _, fields = file.read().rpartition(b")")
            except OSError:  # it is gone
                continue
            state, parent = fields.split()[:2]
            processes[int(entry)] = head.partition(b"(")[2], state, int(parent)
    return processes
