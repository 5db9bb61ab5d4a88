"""All that a command has started, however it tried to get away. The supervisor is made the parent of every orphan among
its descendants (Linux), so that a daemon with a session of its own stays in the tree; where that cannot be had, the
process group stands for the tree.

A control group (cgroup v2) is made around a command, if one is delegated to Treadle: then the kernel itself bounds its
processes and its memory, and ends all of it at one stroke. A group is delegated if the service manager has marked it so
and Treadle runs in a plain subgroup of it (systemd: `Delegate=yes`, `DelegateSubgroup=`). No other group is touched,
because another program manages it. If anything fails here, the command runs without a group, watched as usual."""

import os
import sys
from _collections_abc import Callable

from treadle.adapters.sandbox.launch.libc import call_prctl
from treadle.adapters.sandbox.launch.processes import GROUP, list_descendants, try_to
from treadle.base.process_folders import has_process_ended

_SIGKILL, _SIGTERM, _SIGCONT, _SIGSTOP = 9, 15, 18, 19
_BUBBLEWRAP = b"bwrap"
_DEATH_SIGNAL = 1
_LINUX = sys.platform == "linux"


def die_with_parent() -> None:
    """In the command's process: have the kernel kill it with its supervisor, since no other process would."""
    if _LINUX:
        try_to(call_prctl, _DEATH_SIGNAL, _SIGKILL)


def find_launchers(first: int, sandbox: str) -> "set[int]":
    """The sandbox's own processes beside the command, which tidy up when it has ended and then end themselves: with
    Landlock the first process, with bubblewrap all that are outside of it."""
    if not _LINUX:
        return set()
    if sandbox == "landlock":
        return {first}
    outside = list_descendants(_BUBBLEWRAP) if sandbox == "bubblewrap" else {}
    has_begun = _BUBBLEWRAP in outside.values()
    return {pid for pid, name in outside.items() if name != _BUBBLEWRAP} if has_begun else set()


def terminate(group: int, sandbox: str) -> None:
    """Ask everything to end. Bubblewrap stays, which would take everything with it at once; and so do its launchers,
    which would pass the signal on to it."""
    if not _LINUX:
        return try_to(os.killpg, group, _SIGTERM)
    spared_pids = find_launchers(group, sandbox) if sandbox == "bubblewrap" else set()
    for pid, name in list_descendants().items():
        if name != _BUBBLEWRAP and pid not in spared_pids:
            try_to(os.kill, pid, _SIGTERM)


def kill(group: int, spared_pids: "set[int]") -> None:
    """End everything but the spared processes. The sandbox's first process takes all in it along at once; the rest is
    first brought to a standstill, or what forks quickly would get away."""
    if not _LINUX:
        return try_to(os.killpg, group, _SIGKILL)
    for pid, name in list_descendants().items():
        if name == _BUBBLEWRAP:
            try_to(os.kill, pid, _SIGKILL)
    stopped = set(spared_pids)
    for _ in range(50):
        new = list_descendants().keys() - stopped
        if not new:
            break
        for pid in new:
            try_to(os.kill, pid, _SIGSTOP)
        stopped |= new
    for pid in list_descendants():
        try_to(
            os.kill, pid, _SIGCONT if pid in spared_pids else _SIGKILL
        )  # the command may have suspended a spared one


def is_group_gone(group: int) -> bool:
    """True if no process lives. Called when there are no children: on Linux that is sufficient."""
    if _LINUX:
        return True
    try:
        os.killpg(group, 0)
    except OSError:
        return True
    return False


def list_working() -> "list[bytes] | None":
    """The names of all that lives but the sandbox, which may take a moment to end; None where they are unknown."""
    return [name for name in list_descendants().values() if name != _BUBBLEWRAP] if _LINUX else None


def count_tasks() -> int:
    return sum(
        _read_number(pid, "stat", lambda text: int(text.rpartition(b")")[2].split()[17])) for pid in _list_living()
    )


def measure_memory(most: int) -> int:
    """The bytes of memory that they take. Above `most`, shared memory counts once, which takes longer to find out."""
    living = _list_living()
    pages = (_read_number(pid, "statm", lambda text: int(text.split()[1]) - int(text.split()[2])) for pid in living)
    used_bytes = os.sysconf("SC_PAGE_SIZE") * sum(pages)
    return (
        used_bytes
        if used_bytes <= most
        else sum(_read_number(pid, "smaps_rollup", _parse_proportional_memory) for pid in living)
    )


def _list_living() -> "list[int]":
    return list(list_descendants()) if _LINUX else []


def _parse_proportional_memory(text: bytes) -> int:
    lines = (line for line in text.splitlines() if line.startswith((b"Pss_Anon:", b"Pss_Shmem:")))
    return sum(int(line.split()[1]) << 10 for line in lines)


def _read_number(pid: int, name: str, read: "Callable[[bytes], int]") -> int:
    """Of a file of a process; 0 if it is gone."""
    try:
        with open(f"/proc/{pid}/{name}", "rb") as file:
            return read(file.read())
    except (OSError, ValueError, IndexError):
        return 0


_MOUNTS = ("/sys/fs/cgroup", "/sys/fs/cgroup/unified")
_MARKS = ("user.delegate", "trusted.delegate")
_NAME = "command-"


class ControlGroup:
    """`path` is empty where there is none."""

    def __init__(self, path: str = "") -> None:
        self._path = path

    def enter(self) -> None:
        """In the process that becomes the command."""
        self._tell("cgroup.procs", "0")

    def add_to(self, environment: object) -> "dict[str, str]":
        """The environment of a launcher that stays outside the group and starts the command in it."""
        assert isinstance(environment, dict)
        return {**environment, GROUP: self._path} if self._path else environment

    def kill(self) -> None:
        self._tell("cgroup.kill", "1")

    def is_out_of_memory(self) -> bool:
        """True if the kernel ended a process of the group because memory ran out."""
        if not self._path:
            return False
        try:
            with open(f"{self._path}/memory.events", "rb") as file:
                return any(line.startswith(b"oom_kill ") and int(line.split()[1]) > 0 for line in file)
        except OSError:
            return False

    def remove(self) -> None:
        if self._path:
            try_to(os.rmdir, self._path)

    def _tell(self, name: str, word: str) -> None:
        if self._path:
            _write(f"{self._path}/{name}", word)


def make_group(limits: "dict[str, int]", above: str = "") -> ControlGroup:
    """For one command; `above` is the group that was handed over, if that is known."""
    above = above or _find_delegated_group()
    if not above:
        return ControlGroup()
    path = f"{above}/{_NAME}{os.getpid()}"
    try:
        for name in os.listdir(above):
            # The kernel removes any empty group, and a group is empty before its command has entered it.
            if name.startswith(_NAME) and (f"{above}/{name}" == path or has_process_ended(name.removeprefix(_NAME))):
                try_to(os.rmdir, f"{above}/{name}")
        os.mkdir(path)
    except OSError:
        return ControlGroup()
    for controller in ("pids", "memory"):
        _write(f"{above}/cgroup.subtree_control", f"+{controller}")
    if limits["processes"]:  # the watcher ends the command at its limit; this stops one that grows faster
        _write(f"{path}/pids.max", str(2 * limits["processes"]))
    if limits["memory"]:
        for name, word in (("memory.max", str(limits["memory"])), ("memory.swap.max", "0"), ("memory.oom.group", "1")):
            _write(f"{path}/{name}", word)
    return ControlGroup(path)


def _find_delegated_group() -> str:
    """The group above this process's own, if it is Treadle's to manage."""
    try:
        with open("/proc/self/cgroup") as file:
            own_group = next((line[3:].strip() for line in file if line.startswith("0::")), "/")
        mount = next((each for each in _MOUNTS if os.path.exists(f"{each}/cgroup.procs")), "")
        above = os.path.dirname(f"{mount}{own_group}")
        unit = own_group == "/" or "." in os.path.basename(own_group)  # a service or a scope of systemd itself
        if not mount or unit or not os.access(above, os.W_OK):
            return ""
    except OSError:
        return ""
    for mark in _MARKS:
        try:
            if os.getxattr(above, mark) == b"1":
                return above
        except OSError:
            continue
    return ""


def _write(file: str, word: str) -> None:
    try:
        descriptor = os.open(file, os.O_WRONLY)
    except OSError:  # this kernel, or this group, does not have it
        return
    try_to(os.write, descriptor, word.encode())
    os.close(descriptor)
