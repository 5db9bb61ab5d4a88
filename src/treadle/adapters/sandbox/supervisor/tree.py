"""All that a command has started, however it tried to get away. The supervisor is made the parent of every orphan among
its descendants (Linux), so that a daemon with a session of its own stays in the tree; where that cannot be had, the
process group stands for the tree."""

import os
import sys
from _collections_abc import Callable

from treadle.adapters.sandbox.launch.libc import control
from treadle.adapters.sandbox.launch.processes import descendants

_SIGKILL, _SIGTERM, _SIGSTOP = 9, 15, 19
_SUBREAPER, _DEATH_SIGNAL = 36, 1
_LINUX = sys.platform == "linux"


def adopt_orphans() -> None:
    if _LINUX:
        _try_to(_SUBREAPER, 1)


def die_with_parent() -> None:
    """In the command's process: have the kernel kill it with its supervisor, since no other process would."""
    if _LINUX:
        _try_to(_DEATH_SIGNAL, _SIGKILL)


def _try_to(option: int, value: int) -> None:
    try:  # noqa: SIM105
        control(option, value)
    except OSError:  # this kernel, or what stands for one, does not know it
        pass


def terminate(group: int) -> None:
    """Ask everything to end. The sandbox around the command stays: it would take everything with it at once."""
    if not _LINUX:
        return _signal(group, _SIGTERM, os.killpg)
    for pid, name in descendants().items():
        if name != b"bwrap":
            _signal(pid, _SIGTERM)


def kill(group: int) -> None:
    """End everything. The sandbox's first process takes all in it along at once; the rest is first brought to a
    standstill, or what forks quickly would get away."""
    if not _LINUX:
        return _signal(group, _SIGKILL, os.killpg)
    for pid, name in descendants().items():
        if name == b"bwrap":
            _signal(pid, _SIGKILL)
    stopped: set[int] = set()
    for _ in range(50):
        new = descendants().keys() - stopped
        if not new:
            break
        for pid in new:
            _signal(pid, _SIGSTOP)
        stopped |= new
    for pid in descendants():
        _signal(pid, _SIGKILL)


def is_group_gone(group: int) -> bool:
    """True if no process lives. Called when there are no children: on Linux that is sufficient."""
    if _LINUX:
        return True
    try:
        os.killpg(group, 0)
    except OSError:
        return True
    return False


def working() -> "list[bytes] | None":
    """The names of all that lives but the sandbox, which may take a moment to end; None where they are unknown."""
    return [name for name in descendants().values() if name != b"bwrap"] if _LINUX else None


def tasks() -> int:
    """How many processes and threads live below this process."""
    return sum(_number(pid, "stat", lambda text: int(text.rpartition(b")")[2].split()[17])) for pid in _living())


def memory(most: int) -> int:
    """The bytes of memory that they take. Above `most`, shared memory counts once, which takes longer to find out."""
    living = _living()
    private_bytes = os.sysconf("SC_PAGE_SIZE") * sum(_number(pid, "statm", _private_pages) for pid in living)
    return (
        private_bytes if private_bytes <= most else sum(_number(pid, "smaps_rollup", _proportional) for pid in living)
    )


def _living() -> "list[int]":
    return list(descendants()) if _LINUX else []


def _private_pages(text: bytes) -> int:
    _, resident, shared = text.split()[:3]
    return int(resident) - int(shared)


def _proportional(text: bytes) -> int:
    return sum(
        int(line.split()[1]) << 10 for line in text.splitlines() if line.startswith((b"Pss_Anon:", b"Pss_Shmem:"))
    )


def _number(pid: int, name: str, read: "Callable[[bytes], int]") -> int:
    """Of a file of a process; 0 if it is gone."""
    try:
        with open(f"/proc/{pid}/{name}", "rb") as file:
            return read(file.read())
    except (OSError, ValueError, IndexError):
        return 0


def _signal(pid: int, number: int, send: "Callable[[int, int], None]" = os.kill) -> None:
    try:  # noqa: SIM105
        send(pid, number)
    except OSError:  # gone, or another user's
        pass
