"""A control group (cgroup v2) around a command, if one is delegated to Treadle: then the kernel itself bounds its
processes and its memory, and ends all of it at one stroke. A group is delegated if the service manager has marked it so
and Treadle runs in a plain subgroup of it (systemd: `Delegate=yes`, `DelegateSubgroup=`). No other group is touched,
because another program manages it. If anything fails here, the command runs without a group, and is watched as usual.
"""

import os

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

    def kill(self) -> None:
        self._tell("cgroup.kill", "1")

    def out_of_memory(self) -> bool:
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
            _remove(self._path)

    def _tell(self, name: str, word: str) -> None:
        if self._path:
            _write(f"{self._path}/{name}", word)


def make_group(limits: "dict[str, int]", above: str = "") -> ControlGroup:
    """For one command; `above` is the group that was handed over, if that is known."""
    above = above or _delegated()
    if not above:
        return ControlGroup()
    path = f"{above}/{_NAME}{os.getpid()}"
    try:
        for name in os.listdir(above):
            if name.startswith(_NAME):  # its maker was killed; a group that is in use cannot be removed
                _remove(f"{above}/{name}")
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


def _delegated() -> str:
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
    try:
        os.write(descriptor, word.encode())
    except OSError:
        pass
    finally:
        os.close(descriptor)


def _remove(folder: str) -> None:
    try:  # noqa: SIM105
        os.rmdir(folder)
    except OSError:
        pass
