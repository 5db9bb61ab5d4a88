"""Temporary folders in which sandboxes are tried. The process that works in one holds a lock on a file in it; the lock
ends with the process, also when it is killed, so the next process can tell an abandoned folder and remove it."""

import fcntl
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from treadle.adapters.sandbox.supervisor.removal import remove_tree

MARK = ".treadle-trial"
_YOUNG_S = 60.0
"""A folder this young may belong to a process that has not locked its mark yet."""


@contextmanager
def trial_folder(prefix: str, parent: str) -> Iterator[str]:
    """A new folder in `parent`, removed at the end. Abandoned ones of the same prefix are removed first."""
    sweep_trial_folders(prefix, parent)
    folder = os.path.realpath(tempfile.mkdtemp(prefix=prefix, dir=parent))
    mark = -1
    try:
        mark = os.open(f"{folder}/{MARK}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(mark, fcntl.LOCK_EX)
        yield folder
    finally:
        if mark >= 0:
            os.close(mark)
        remove_tree(folder)


def sweep_trial_folders(prefix: str, parent: str) -> int:
    """Remove the folders of processes that were killed; how many there were. Never fails."""
    count = 0
    with suppress(OSError):
        for name in os.listdir(parent):
            folder = os.path.join(parent, name)
            if name.startswith(prefix) and _is_abandoned(folder):
                remove_tree(folder)
                count += 1
    return count


def _is_abandoned(folder: str) -> bool:
    try:
        mark = os.open(f"{folder}/{MARK}", os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        status = os.fstat(mark)
        if status.st_uid != os.geteuid() or status.st_mtime > time.time() - _YOUNG_S:
            return False
        fcntl.flock(mark, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:  # another process holds the lock
        return False
    finally:
        os.close(mark)
    return True
