"""Locks that processes hold on files, by `flock`: a lock ends with its process, also with one that is killed."""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager

_STEP_S = 0.01


@contextmanager
def lock_file(path: str, patience_s: float) -> Iterator[None]:
    """Makes the file if it is absent. Not re-entrant. TimeoutError if another process or thread keeps the lock."""
    end = time.monotonic() + patience_s
    while True:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            if _lock(fd, path):
                yield
                return
        finally:
            os.close(fd)
        if time.monotonic() > end:
            raise TimeoutError(f"{path} is locked")
        time.sleep(_STEP_S)


def _lock(fd: int, path: str) -> bool:
    """False if it is locked, or was removed or replaced since `open`: then no other process would see this lock."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return os.path.samestat(os.stat(path), os.fstat(fd))
    except (BlockingIOError, FileNotFoundError):
        return False
