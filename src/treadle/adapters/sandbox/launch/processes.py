"""The processes of a command, for one that stands beside it: which live below it, by what Linux tells in /proc, and
how it ends itself, after all of them, and as the command did."""

import _signal  # type: ignore[import-not-found]  # what `signal` wraps; that one would load half of the library
import os
import sys

_FORWARDED = (_signal.SIGTERM, _signal.SIGHUP, _signal.SIGUSR1, _signal.SIGUSR2)
_LEFT_TO_THE_COMMAND = (_signal.SIGINT, _signal.SIGQUIT)
"""They come from the terminal, which sends them to the command itself."""
BROKEN_PIPE: int = _signal.SIGPIPE  # Python ignores this signal, and processes that Python starts would inherit that


def block_signals() -> "set[int]":
    """Keep signals until `pass_signals_to`: one that comes as soon as the command has started is passed on, too. Gives
    the mask before, which the command gets."""
    mask: set[int] = _signal.pthread_sigmask(_signal.SIG_BLOCK, _FORWARDED + _LEFT_TO_THE_COMMAND)
    return mask


def become_ordinary(mask: "set[int]") -> None:
    """In the child, before it becomes the command: signals have their usual effect."""
    _signal.signal(BROKEN_PIPE, _signal.SIG_DFL)
    _signal.pthread_sigmask(_signal.SIG_SETMASK, mask)


def pass_signals_to(pid: int) -> None:
    def forward(number: int, _frame: object) -> None:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            return

    for number in _FORWARDED:
        _signal.signal(number, forward)
    for number in _LEFT_TO_THE_COMMAND:
        _signal.signal(number, _signal.SIG_IGN)
    _signal.pthread_sigmask(_signal.SIG_UNBLOCK, _FORWARDED + _LEFT_TO_THE_COMMAND)


def end_descendants() -> None:
    """S-14: end all processes that the command left running, and those that they start meanwhile. This process adopts
    orphans, so all of them become its children sooner or later."""
    while True:
        try:
            ended_pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if ended_pid == 0:
            for pid, (_, _, parent) in _all_processes().items():
                if parent == os.getpid():
                    try:
                        os.kill(pid, _signal.SIGKILL)
                    except OSError:
                        continue


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


def descendants() -> "dict[int, bytes]":
    """The living below this process, with their names."""
    processes = _all_processes()
    children: dict[int, list[int]] = {}
    for pid, (_, _, parent) in processes.items():
        children.setdefault(parent, []).append(pid)
    pids: list[int] = []
    todo = [os.getpid()]
    while todo:
        below = children.get(todo.pop(), [])
        pids += below
        todo += below
    return {pid: processes[pid][0] for pid in pids if processes[pid][1] not in b"ZX"}


def _all_processes() -> "dict[int, tuple[bytes, bytes, int]]":
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
