"""Limits on a command's use of processes, memory and disk, watched from outside; and on the idle time of a background
command. A command that exceeds a limit is ended with everything it started; the kernel itself limits a single process
(`restrain`). Most looks read only the kernel's counters for the whole machine, which costs little. Only when those have
changed by half of a limit are the command's own processes and files counted."""

import os
import time
from _collections_abc import Callable

from treadle.adapters.sandbox.supervisor import tree
from treadle.adapters.sandbox.supervisor.folder import TOUCHED, VIEW

Limits = dict[str, int]
_QUICK_S, _SLOW_S = 0.1, 0.5  # How often is looked: often as long as something changes
_COUNT_S = 5.0  # And counted at the latest
_LAST_DISK = 1 << 30
_LAST_MEMORY = 20
"""The part of disk (bytes) and memory (a fraction) that must stay free; or half of what was free at first."""
_NICE = 5
_WATCHED = _TASKS, _MEMORY, _DISK = "processes", "memory", "disk"
_WORDS = {
    _TASKS: "it had started more than {} processes (limit_processes)",
    _MEMORY: "it took more than {} of memory (limit_memory_gb)",
    _DISK: "it wrote more than {} to the disk (limit_disk_gb)",
}


def get_limits(job: "dict[str, object]") -> Limits:
    limits = job.get("limits")
    return limits if isinstance(limits, dict) else dict.fromkeys((*_WATCHED, "file", "cpu_s", "open_files"), 0)


def restrain(limits: Limits) -> None:
    """In the process that becomes the command: set the kernel's limits, and a lower priority."""
    import resource

    kinds = {"file": resource.RLIMIT_FSIZE, "cpu_s": resource.RLIMIT_CPU, "open_files": resource.RLIMIT_NOFILE}
    for kind, most in ((kind, limits[name]) for name, kind in kinds.items() if limits[name]):
        old_limits = resource.getrlimit(kind)
        soft, hard = (most if each == resource.RLIM_INFINITY else min(each, most) for each in old_limits)
        resource.setrlimit(kind, (soft, hard))
    if any(limits.values()):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        os.nice(_NICE)


class Watch:
    """Of one command. `folder` is on the disk that it fills."""

    def __init__(self, limits: Limits, folder: str) -> None:
        self._limits, self._folder, self._pause = limits, folder, _QUICK_S
        off = not any(limits[name] for name in _WATCHED)
        self.next = None if off else time.monotonic() + _QUICK_S  # When to look; None: never
        self._counted = time.monotonic()
        self._first = self._last = _machine(folder)
        # When the whole machine uses that much, what the command uses of it is counted.
        self._due = {name: self._first[name] + limits[name] // 2 for name in _WATCHED}

    def choose_earlier(self, until: "float | None") -> "float | None":
        """The time to wait until: for the next look, or for something before it."""
        return until if self.next is None else self.next if until is None else min(until, self.next)

    def look(self) -> str:
        """Return the limit that the command exceeded, in words; empty if none."""
        now = time.monotonic()
        if self.next is None or now < self.next:
            return ""
        usage = _machine(self._folder)
        message = self._find_scarce_resource(usage) or self._find_exceeded_limit(usage, now)
        quiet = all(abs(usage[name] - self._last[name]) < max(1, self._limits[name] // 50) for name in usage)
        self._pause = min(self._pause * 1.2, _SLOW_S) if quiet else _QUICK_S
        self._last = usage
        self.next = time.monotonic() + self._pause
        return message

    def _find_scarce_resource(self, usage: "dict[str, int]") -> str:
        """Return the resource that the machine itself is short of and was not at first, in words; empty if none."""
        if self._limits[_DISK] and -usage[_DISK] < min(_LAST_DISK, -self._first[_DISK] // 2):
            return "the disk is nearly full"
        if self._limits[_MEMORY] and -usage[_MEMORY] < min(_total_memory() // _LAST_MEMORY, -self._first[_MEMORY] // 2):
            return "the memory of the machine is nearly used up"
        return ""

    def _find_exceeded_limit(self, usage: "dict[str, int]", now: float) -> str:
        """Count what the command may have too much of. The closer it was to its limit, the sooner it is counted again;
        processes and memory also now and then, files only if the disk is fuller than it was."""
        late = now - self._counted > _COUNT_S
        for name in _WATCHED:
            most, machine_usage = self._limits[name], usage[name]
            self._due[name] = min(self._due[name], machine_usage + most // 2)  # others may have let go of some
            if most and (machine_usage > self._due[name] or (late and name != _DISK)):
                command_usage = _OWN[name](most)
                if command_usage > most:
                    return _WORDS[name].format(f"{most:,}" if name == _TASKS else _format_size(most))
                self._due[name] = machine_usage + max((most - command_usage) // 2, most // 20)
        self._counted = now if late else self._counted
        return ""


class Idle:
    """The idle time of a command: it writes no output, and no one asks about it. `limit_s` is the longest idle time; 0:
    no limit. Questions are looked for only when the limit would be reached."""

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._since = time.monotonic()

    def note_output(self) -> None:
        self._since = time.monotonic()

    def choose_earlier(self, deadline: "float | None") -> "float | None":
        """The deadline, or when it may have been idle for too long, whichever is first."""
        if not self._limit_s:
            return deadline
        due = self._since + self._limit_s
        return due if deadline is None else min(due, deadline)

    def is_too_long(self, looked: float) -> bool:
        """`looked` is the time up to which all output was taken: this process may have been delayed since."""
        if not self._limit_s or looked < self._since + self._limit_s:
            return False
        try:
            asked_s = max(0.0, time.time() - os.stat(TOUCHED).st_mtime)
        except OSError:
            return True
        self._since = max(self._since, time.monotonic() - asked_s)
        return asked_s >= self._limit_s


def describe_memory_excess(limits: Limits) -> str:
    return _WORDS[_MEMORY].format(_format_size(limits[_MEMORY]))


def _total_memory() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _machine(folder: str) -> "dict[str, int]":
    """The use of the machine as numbers that grow with it: tasks, and the negative free bytes of memory and disk."""
    try:
        with open("/proc/loadavg", "rb") as file:
            tasks = int(file.read().split()[3].partition(b"/")[2])
        with open("/proc/meminfo", "rb") as file:
            free = next(int(line.split()[1]) for line in file if line.startswith(b"MemAvailable:")) << 10
    except (OSError, ValueError, IndexError, StopIteration):
        tasks, free = 0, 1 << 62
    try:
        status = os.statvfs(folder)
        room = status.f_bavail * status.f_frsize
    except OSError:
        room = 1 << 62
    return {_TASKS: tasks, _MEMORY: -free, _DISK: -room}


def _count_disk_bytes(folder: str) -> int:
    """Bytes on the disk below a folder; links are not followed."""
    total_bytes = 0
    todo = [folder]
    while todo:
        try:
            with os.scandir(todo.pop()) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        todo.append(entry.path)
                    else:
                        total_bytes += entry.stat(follow_symlinks=False).st_blocks * 512
        except OSError:  # gone, or closed
            continue
    return total_bytes


def _format_size(number: int) -> str:
    return f"{number / (1 << 30):.3g} GB" if number >= 1 << 30 else f"{number / (1 << 20):.3g} MB"


_OWN: "dict[str, Callable[[int], int]]" = {
    _TASKS: lambda _most: tree.count_tasks(),
    _MEMORY: tree.measure_memory,
    _DISK: lambda _most: _count_disk_bytes(f"{VIEW}/upper"),
}
"""The use by the command itself."""
