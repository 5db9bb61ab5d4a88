"""Which changed files git tracks, though they lie in a folder of caches or .gitignore names them (S-23): they count as
files of the project, so that nothing that is kept in git can be changed out of sight."""

import os
from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache

from msgspec.structs import replace

from treadle.adapters.workspace.git import repository_of
from treadle.adapters.workspace.history.git_index import tracked_paths
from treadle.adapters.workspace.root import Root
from treadle.diff.changes import cache_of, in_git, is_folder
from treadle.errors import ToolError
from treadle.protocol.files import FileChange, decode_path

_LARGEST_INDEX = 256 << 20
_INDEX = "index"
_SHARED = "sharedindex."


def mark_tracked(root: Root, files: Sequence[FileChange]) -> tuple[FileChange, ...]:
    """The changes, with those marked that git tracks by the project's index as it is. The index is read only if there
    are changes in caches or ignored ones."""
    doubtful = {
        file.path
        for file in files
        if (file.ignored or cache_of(file)) and not is_folder(file) and not in_git(file.path)
    }
    if not doubtful:
        return tuple(files)
    tracked = _tracked(root)
    if not tracked:
        return tuple(files)
    marked = {path for path in doubtful if os.fsencode(decode_path(path)) in tracked}
    return tuple(replace(file, ignored=False, tracked=True) if file.path in marked else file for file in files)


def _tracked(root: Root) -> frozenset[bytes]:
    """Relative to the root. A root inside of a repository has the index of that one."""
    if root.ground is not None:  # a world: its index may be its own
        with suppress(ToolError):
            return tracked_paths(root.read_bytes(f".git/{_INDEX}", _LARGEST_INDEX))
        return frozenset()
    top = os.path.realpath(root.path)
    folder = top
    while not os.path.lexists(f"{folder}/.git"):
        if folder == os.path.dirname(folder):
            return frozenset()
        folder = os.path.dirname(folder)
    repository = repository_of(folder)
    if repository is None:
        return frozenset()
    names = _names_in(repository.folder)
    if folder == top:
        return names
    prefix = os.fsencode(os.path.relpath(top, folder)) + b"/"
    return frozenset(name[len(prefix) :] for name in names if name.startswith(prefix))


def _names_in(folder: str) -> frozenset[bytes]:
    names = frozenset[bytes]()
    with suppress(OSError):
        for name in os.listdir(folder):
            if name == _INDEX or name.startswith(_SHARED):
                path = f"{folder}/{name}"
                stat = os.stat(path, follow_symlinks=False)
                names |= _read(path, stat.st_ino, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_size)
    return names


@lru_cache(maxsize=4)
def _read(path: str, _inode: int, _mtime_ns: int, _ctime_ns: int, size: int) -> frozenset[bytes]:
    if size > _LARGEST_INDEX:
        return frozenset()
    try:
        with open(path, "rb") as file:
            return tracked_paths(file.read())
    except OSError:
        return frozenset()
