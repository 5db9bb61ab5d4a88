"""The list of escape attempts against a sandbox, and the report of their results (`probe` makes the attempts);
temporary folders in which sandboxes are tried, and the trial of a copy-on-write view of a project. The process that
works in a folder holds a lock on a file in it; the lock ends with the process, also when it is killed, so the next
process can tell an abandoned folder and remove it."""

import fcntl
import os
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Literal

import msgspec
from msgspec.structs import replace

from treadle.adapters.sandbox.supervisor.removal import remove_tree
from treadle.errors import SandboxError
from treadle.ports.sandbox import Confinement, Level, Sandbox, View

Verdict = Literal["refused", "undone", "allowed"]  # undone: it could be done, and was taken back when the command ended


class Escape(msgspec.Struct, frozen=True):
    name: str
    text: str
    required: bool = True  # True if a level that allows it does not count as a sandbox at all


ESCAPES = (
    Escape("write_outside", "change a file outside the project"),
    Escape("create_outside", "make a file outside"),
    Escape("delete_outside", "delete a file outside"),
    Escape("truncate_outside", "cut a file outside to nothing"),
    Escape("chmod_outside", "change the mode of a file outside"),
    Escape("touch_outside", "change the times of a file outside", required=False),
    Escape("attribute_outside", "give an attribute to a file outside", required=False),
    Escape("through_link", "write outside through a symbolic link"),
    Escape("through_hard_link", "write outside through a hard link"),
    Escape("through_proc", "write outside through /proc/PID/root"),
    Escape("write_kernel", "open any file of /proc or /sys for writing"),
    Escape("read_hidden", "read a hidden file"),
    Escape("read_home", "read a file in the home"),
    Escape("match_key", "find a key in the home by a pattern"),
    Escape("read_environment", "read the environment of a process outside"),
    Escape("create_protected", "make a protected path that does not exist"),
    Escape("change_protected", "change a protected file"),
    Escape("move_protected", "put another folder in the place of a protected one"),
    Escape("connect_tcp", "connect to the network (TCP)"),
    Escape("send_udp", "send to the network (UDP)"),
    Escape("connect_unix", "connect to a socket such as Docker's"),
    Escape("connect_young", "connect to a socket made just now, anywhere"),
    Escape("connect_abstract", "connect to an abstract socket outside"),
    Escape("remount", "mount, or make read-only mounts writable"),
    Escape("new_namespace", "make a user namespace", required=False),
    Escape("make_device", "make a device file"),
    Escape("set_user_id", "make a program that runs as its owner (setuid)"),
    Escape("trace_process", "trace a process outside"),
    Escape("kill_process", "kill a process outside", required=False),
    Escape("type_into_terminal", "type into the terminal (TIOCSTI)"),
    Escape("use_io_uring", "do things unseen by io_uring", required=False),
    Escape("read_keyring", "read the kernel's keyring", required=False),
    Escape("survive", "live on after the command has ended (setsid)"),
)


class EscapeResult(msgspec.Struct, frozen=True):
    """One attempt and what came of it; `why` is the system's own word for a refusal."""

    name: str
    verdict: Verdict
    why: str = ""


class LevelReport(msgspec.Struct, frozen=True):
    """The findings about one level. `failure`: the reason why it cannot be used at all."""

    level: Level
    tried: tuple[EscapeResult, ...] = ()
    views: bool = False
    lays: bool = False
    """True if a view can be mounted before bubblewrap starts, without syncing every file that it copies."""
    nested: bool = False
    """True if only the filter keeps commands from making namespaces of their own: bubblewrap could not forbid it."""
    failure: str = ""
    stuck: bool = False  # True if it failed by not ending: another variant of it is not worth the wait

    @property
    def complete(self) -> bool:
        """True if the report covers all attempts of this version."""
        return bool(self.failure) or {each.name for each in self.tried} == {each.name for each in ESCAPES}

    @property
    def holds(self) -> bool:
        """True if the level refuses all that it must refuse."""
        return not self.failure and not self.open

    @property
    def open(self) -> tuple[str, ...]:
        """The attempts that it must refuse and does not, in words."""
        allowed = {each.name for each in self.tried if each.verdict == "allowed"}
        return tuple(each.text for each in ESCAPES if each.required and each.name in allowed)


MARK = ".treadle-trial"
_YOUNG_S = 60.0  # A folder this young may belong to a process that has not locked its mark yet
_LONGEST_S = 15.0
_TRIES = 2  # A view that does not work is tried twice, because the answer holds for the whole process


@contextmanager
def open_trial_folder(prefix: str, parent: str) -> Iterator[str]:
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
    with open(mark, "rb", buffering=0), suppress(OSError):  # else another process holds the lock
        status = os.fstat(mark)
        if status.st_uid == os.geteuid() and status.st_mtime <= time.time() - _YOUNG_S:
            fcntl.flock(mark, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
    return False


def can_make_view(sandbox: Sandbox, root: str, folder: str) -> bool:
    """Try a view of this very project with a command that does nothing: the probe tried views only in a folder of its
    own, and the file system of the project may lack the necessary features. `folder` is where the views of commands
    will lie."""
    if not sandbox.views:
        return False
    os.makedirs(folder, mode=0o700, exist_ok=True)
    return any(_try_view(sandbox, os.path.realpath(root), folder) for _ in range(_TRIES))


def _try_view(sandbox: Sandbox, root: str, folder: str) -> bool:
    try:
        with open_trial_folder(".view-", folder) as trial:
            view = View(os.path.join(trial, "upper"), os.path.join(trial, "work"))
            for each in (view.upper, view.work):
                os.mkdir(each, 0o700)
            confinement = Confinement(root, view)
            # A command that does nothing needs no program that keeps it from sockets.
            confinement = replace(confinement, covered_sockets=sandbox.list_sockets_to_cover(confinement))
            line = sandbox.wrap(["/bin/sh", "-c", ":"], confinement, root)
            null = subprocess.DEVNULL
            ran = subprocess.run(line, stdin=null, stdout=null, stderr=null, cwd=root, timeout=_LONGEST_S, check=False)
            return not ran.returncode
    except (OSError, SandboxError, subprocess.TimeoutExpired):
        return False
