"""The end of a lease, and the test if its holder lives. Knows nothing of SQL.

Time is the machine's uptime (CLOCK_BOOTTIME on Linux) and not the wall clock: a correction of the system's time, by
hours and in either direction, neither steals a lease nor keeps one for ever. Uptimes of two boots cannot be compared,
so every lease carries a boot id, and one of another boot is over. (Where the system has no such id, the lock of its
worker tells: see below.)

A worker that was killed should not block its chats for the rest of its lease. Each worker therefore holds a kernel
lock (flock) on a file of its own for as long as its process lives. If another process can take that lock, the worker
is dead; a worker that is merely stopped keeps its lock, and its lease until that expires. A missing file means dead as
well: the file is made before the first claim and removed after the last release."""

import contextlib
import errno
import fcntl
import os
import re
import threading
import time
from hashlib import sha256
from pathlib import Path

from treadle.base.types import Clock, SystemClock
from treadle.errors import StoreError
from treadle.ports.store import LEASE_S

_PLAIN = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}")
_own_locks: dict[Path, tuple[int, int]] = {}
"""The lock files that this process holds: descriptor, and how many stores use it. A second flock from the same process
would be refused like anybody's, so own workers are known from here."""
_own_guard = threading.Lock()


class BootClock(SystemClock):
    """The system's clock, except that `monotonic` also runs while the machine sleeps."""

    def monotonic(self) -> float:
        return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class Leases:
    def __init__(self, folder: Path, clock: Clock | None = None, lease_s: float = LEASE_S) -> None:
        self._folder = folder
        self._clock = clock or BootClock()
        self._lease_ms = int(lease_s * 1000)
        self._held: dict[str, Path] = {}
        self.boot = ""  # Which start of this machine this is; empty where the system does not say.
        with contextlib.suppress(OSError):
            self.boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()[:13]

    def _get_time_ms(self) -> int:
        return int(self._clock.monotonic() * 1000)

    def compute_end_ms(self) -> int:
        return self._get_time_ms() + self._lease_ms

    def is_live(self, worker: str, until_ms: int, boot: str) -> bool:
        """True if the lease still has a holder. The holder recorded its end; a lease of another boot is over."""
        if not worker or boot != self.boot:
            return False
        return until_ms > self._get_time_ms() and is_alive(self._make_lock_path(worker))

    def hold(self, worker: str) -> None:
        """Make it known that this worker lives; before its first claim."""
        if worker in self._held:
            return
        path = self._make_lock_path(worker)
        if not self._held:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            for lock in self._folder.glob("*.lock"):
                is_alive(lock)  # removes the file of a worker that died without leaving a lease behind
        with _own_guard:
            if path in _own_locks:
                descriptor, users = _own_locks[path]
                _own_locks[path] = (descriptor, users + 1)
            else:
                deadline = time.monotonic() + 0.25
                while (descriptor := _try_lock(path, os.O_CREAT)) < 0:
                    # Another process may be testing the lock at this very moment, which takes microseconds.
                    if time.monotonic() > deadline:
                        text = f"another process works under the name {worker!r}; give every worker its own name"
                        raise StoreError(text)
                    time.sleep(0.002)
                _own_locks[path] = (descriptor, 1)
        self._held[worker] = path

    def close(self) -> None:
        while self._held:
            path = self._held.popitem()[1]
            with _own_guard:
                descriptor, users = _own_locks.pop(path)
                if users > 1:
                    _own_locks[path] = (descriptor, users - 1)
                else:
                    path.unlink(missing_ok=True)
                    os.close(descriptor)

    def _make_lock_path(self, worker: str) -> Path:
        name = worker if _PLAIN.fullmatch(worker) else sha256(worker.encode()).hexdigest()
        return self._folder / f"{name}.lock"


def is_alive(path: Path) -> bool:
    """True if a process holds this lock. A dead worker's file is removed."""
    if path in _own_locks:
        return True
    try:
        descriptor = _try_lock(path)
    except FileNotFoundError:
        return False
    if descriptor < 0:
        return True
    with contextlib.suppress(OSError):  # it may lie where nothing can be written
        path.unlink(missing_ok=True)
    os.close(descriptor)
    return False


def _try_lock(path: Path, create: int = 0) -> int:
    """A locked descriptor of the file that has this name now, or -1 when another holds it."""
    while True:
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | create, 0o600)
        except OSError as error:
            if create or error.errno not in (errno.EROFS, errno.EACCES):
                raise
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)  # enough to try a lock
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return -1
        except BaseException:
            os.close(descriptor)
            raise
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.stat(path), os.fstat(descriptor)):
                return descriptor
        os.close(descriptor)  # it was removed between open and flock: no other process can see this lock


def _forget_in_child() -> None:
    """A forked child shares the locks; it closes its copies, so that they end with the parent."""
    for descriptor, _ in _own_locks.values():
        os.close(descriptor)
    _own_locks.clear()


os.register_at_fork(after_in_child=_forget_in_child)
