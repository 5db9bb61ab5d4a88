"""Trees for tests: random ones, and what lies in one, read in the plainest way there is."""

import hashlib
import os
import stat
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from treadle.protocol.files import FileState, encode_path

States = dict[str, FileState]


def states_below(top: Path) -> States:
    """Everything below a folder, by the path that is recorded."""
    states: States = {}
    _look(os.fsencode(top), b"", states)
    return states


@contextmanager
def folders_open(top: Path) -> Iterator[None]:
    """Every folder below is open to its owner meanwhile."""
    with ExitStack() as stack:
        for folder, folders, _ in os.walk(top):
            for name in folders:
                path = os.fsencode(os.path.join(folder, name))
                if not os.path.islink(path):
                    stack.enter_context(_open_to_its_owner(path, stat.S_IRWXU))
        yield


def _look(folder: bytes, relative: bytes, states: States) -> None:
    with _open_to_its_owner(folder, stat.S_IRWXU):
        for name in os.listdir(folder):
            path, below = os.path.join(folder, name), os.path.join(relative, name)
            state = states[encode_path(os.fsdecode(below))] = _state(path)
            if state.kind == "directory":
                _look(path, below, states)


@contextmanager
def _open_to_its_owner(path: bytes, bits: int) -> Iterator[None]:
    """A file or folder that its owner has closed to themselves is open meanwhile."""
    mode = stat.S_IMODE(os.lstat(path).st_mode)
    if mode & bits == bits:
        yield
        return
    os.chmod(path, mode | bits)
    try:
        yield
    finally:
        os.chmod(path, mode)


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
    with _open_to_its_owner(path, stat.S_IRUSR):
        data = Path(os.fsdecode(path)).read_bytes()
    return FileState("file", mode, hashlib.sha256(data).hexdigest(), len(data))


def compare_states(old_states: States, new_states: States) -> dict[str, tuple[FileState | None, FileState | None]]:
    paths = old_states.keys() | new_states.keys()
    return {
        path: (old_states.get(path), new_states.get(path))
        for path in paths
        if old_states.get(path) != new_states.get(path)
    }
