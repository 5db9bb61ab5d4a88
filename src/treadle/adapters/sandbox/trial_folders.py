"""Temporary folders in which sandboxes are tried, and the trial of a copy-on-write view of a project. The process that
works in a folder holds a lock on a file in it; the lock ends with the process, also when it is killed, so the next
process can tell an abandoned folder and remove it."""

import fcntl
import os
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from msgspec.structs import replace

from treadle.adapters.sandbox.supervisor.removal import remove_tree
from treadle.errors import SandboxError
from treadle.ports.sandbox import Confinement, Sandbox, View

MARK = ".treadle-trial"
_YOUNG_S = 60.0
"""A folder this young may belong to a process that has not locked its mark yet."""
_LONGEST_S = 15.0
_TRIES = 2
"""A view that does not work is tried twice, because the answer holds for the whole process."""


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


def view_works(sandbox: Sandbox, root: str, folder: str) -> bool:
    """Try a view of this very project with a command that does nothing: the probe tried views only in a folder of its
    own, and the file system of the project may lack the necessary features. `folder` is where the views of commands
    will lie."""
    if not sandbox.views:
        return False
    os.makedirs(folder, mode=0o700, exist_ok=True)
    return any(_try_view(sandbox, os.path.realpath(root), folder) for _ in range(_TRIES))


def _try_view(sandbox: Sandbox, root: str, folder: str) -> bool:
    try:
        with trial_folder(".view-", folder) as trial:
            view = View(os.path.join(trial, "upper"), os.path.join(trial, "work"))
            for each in (view.upper, view.work):
                os.mkdir(each, 0o700)
            confinement = Confinement(root, view)
            # A command that does nothing needs no program that keeps it from sockets.
            confinement = replace(confinement, covered_sockets=sandbox.sockets_to_cover(confinement))
            line = sandbox.wrap(["/bin/sh", "-c", ":"], confinement, root)
            null = subprocess.DEVNULL
            process = subprocess.run(
                line, stdin=null, stdout=null, stderr=null, cwd=root, timeout=_LONGEST_S, check=False
            )
            return not process.returncode
    except (OSError, SandboxError, subprocess.TimeoutExpired):
        return False
