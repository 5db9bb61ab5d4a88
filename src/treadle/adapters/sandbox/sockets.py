"""Listening sockets with a name in the file system, also very new ones: the ways to daemons. Determines which folder to
cover so that none of them can be reached; mounts nothing.

Why a folder. A socket that vanishes before it is covered would keep the command from starting, so the covered path must
not come and go. Seen through an overlay, a socket is another file than the one that its daemon listens at: a connection
is refused, and so is one to a socket that is made there later."""

import os
import stat
from pathlib import Path

from treadle.base.file_system import folders_between

_SETTLED = 2
"""Folders this deep (/var/lib, /opt/name) do not come and go."""


def listening() -> set[str]:
    try:
        lines = Path("/proc/net/unix").read_bytes().splitlines()[1:]
    except OSError:
        return set()
    names = {os.fsdecode(line.split(None, 7)[7]) for line in lines if b" /" in line}
    return {name for name in names if _is_socket(name)}


def mount_points() -> tuple[str, ...]:
    try:
        lines = Path("/proc/self/mountinfo").read_bytes().splitlines()
    except OSError:
        return ()
    return tuple(os.fsdecode(line.split(None, 5)[4]) for line in lines)


def settled_folder(path: str, device: int, mounts: tuple[str, ...]) -> str:
    """The outermost lasting folder on the way to a path, on this device and without other mounts; empty if none."""
    for folder in folders_between("/", path):
        try:
            fits = folder.count("/") >= _SETTLED and os.stat(folder).st_dev == device
        except OSError:
            return ""
        if fits and not any(mount.startswith(f"{folder}/") for mount in mounts):
            return folder
    return ""


def _is_socket(path: str) -> bool:
    try:
        return stat.S_ISSOCK(os.lstat(path).st_mode)
    except OSError:
        return False
