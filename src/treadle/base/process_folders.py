"""Temporary folders that belong to one process. A process that is killed cannot remove its folders; their names say
which process made them, so that a later one can tell that they are abandoned.

Must stay cheap to import: the programs in `sandbox/launch` load it before every command."""

import os
import stat

_PREFIX = "treadle"


def make_folder_prefix() -> str:
    """The beginning of the name of a temporary folder of this process; something random follows it."""
    return f"{_PREFIX}-{os.getpid()}-{_read_pid_namespace()}-"


def list_abandoned_folders(parent: str) -> list[str]:
    """The temporary folders in `parent` whose process has ended: only folders of this user and, since the same number
    means another process elsewhere, only those of this PID namespace. Links are left alone."""
    try:
        names = os.listdir(parent)
    except OSError:
        return []
    return [path for name in names if _is_abandoned(name) and _is_own_folder(path := os.path.join(parent, name))]


def has_process_ended(number: str) -> bool:
    """True if no process of this PID namespace has the number. False for text that is no number of a process."""
    try:
        if number.isascii() and number.isdecimal() and int(number):  # 0 is this process's own group
            os.kill(int(number), 0)
    except ProcessLookupError:
        return True
    except (PermissionError, OverflowError, ValueError):  # of another user; or more digits than a process number has
        return False
    return False


def _is_abandoned(name: str) -> bool:
    parts = name.split("-", 3)
    if len(parts) < 4 or parts[0] != _PREFIX or parts[2] != _read_pid_namespace():
        return False
    return has_process_ended(parts[1])


def _is_own_folder(path: str) -> bool:
    try:
        status = os.lstat(path)
    except OSError:
        return False
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid()


def _read_pid_namespace() -> str:
    """The number of the PID namespace of this process; 0 where the system has none."""
    try:
        return os.readlink("/proc/self/ns/pid").strip("pid:[]")
    except OSError:
        return "0"
