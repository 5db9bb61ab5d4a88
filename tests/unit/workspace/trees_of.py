"""Trees for tests: random ones, and what lies in one, read in the plainest way there is."""

import hashlib
import os
import stat
from pathlib import Path

from treadle.protocol.files import FileState, encode_path

States = dict[str, FileState]


def states_below(top: Path) -> States:
    """Everything below a folder, by the path that is recorded."""
    found: States = {}
    for folder, folders, files in os.walk(os.fsencode(top)):
        for name in folders + files:
            path = os.path.join(folder, name)
            relative = encode_path(os.fsdecode(os.path.relpath(path, os.fsencode(top))))
            found[relative] = _state(path)
    return found


def _state(path: bytes) -> FileState:
    entry = os.lstat(path)
    mode = stat.S_IMODE(entry.st_mode)
    if stat.S_ISLNK(entry.st_mode):
        return FileState("link", target=encode_path(os.fsdecode(os.readlink(path))))
    if stat.S_ISDIR(entry.st_mode):
        return FileState("directory", mode)
    if stat.S_ISFIFO(entry.st_mode):
        return FileState("fifo", mode)
    if not stat.S_ISREG(entry.st_mode):
        return FileState("other", mode)
    data = Path(os.fsdecode(path)).read_bytes()
    return FileState("file", mode, hashlib.sha256(data).hexdigest(), len(data))


def changed(before: States, after: States) -> dict[str, tuple[FileState | None, FileState | None]]:
    paths = before.keys() | after.keys()
    return {path: (before.get(path), after.get(path)) for path in paths if before.get(path) != after.get(path)}
