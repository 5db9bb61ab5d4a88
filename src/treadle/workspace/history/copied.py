"""A view that is a copy of the project, where no overlay is to be had (W-11): what was changed in it is found by
comparing the copy with what it was when it was made. Offers what `effects` offers for a view with layers."""

import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from fcntl import ioctl
from pathlib import Path

import msgspec

from treadle.ports.snapshots import Effect
from treadle.protocol.files import FileConflict, FileState, decode_path
from treadle.workspace.history.capture import Captures
from treadle.workspace.history.content_store import ContentStore
from treadle.workspace.history.states import state_of
from treadle.workspace.root import Root

TREE = "tree"
_NAME = "beginning"
_CLONE = 0x40049409
_CHANGED = "somebody changed or made it since the copy was made"


def is_copied(view: str) -> bool:
    return os.path.isdir(f"{view}/{TREE}")


def make(source: str, view: str, images: ContentStore) -> None:
    """Copy a tree, by reference where the file system can, and remember what it is."""
    shutil.copytree(source, f"{view}/{TREE}", symlinks=True, copy_function=_copy)
    _captures(view, images).capture(_NAME)


def read(root: Root, view: str, images: ContentStore) -> Effect:
    """What a commit would change in the project as it is now."""
    found = _captures(view, images).compare(_NAME)
    files, conflicts = [], []
    for change in found.files:
        now = state_of(root, decode_path(change.path))
        if now == change.after:
            continue
        if now != change.before:
            conflicts.append(FileConflict(change.path, _CHANGED))
        files.append(msgspec.structs.replace(change, before=now))
    return Effect(tuple(files), tuple(conflicts), found.uncaptured)


def begin_anew(view: str, images: ContentStore) -> None:
    """From here on, what it is now is what it was."""
    captures = _captures(view, images)
    captures.release(_NAME)
    captures.capture(_NAME)


class CopiedTree:
    """The files of the copy, for a commit (`ContentSource`)."""

    def __init__(self, view: str) -> None:
        self._tree = f"{view}/{TREE}"

    def open(self, path: str, state: FileState) -> int:
        with Root(self._tree).open(decode_path(path)) as fd:
            return os.dup(fd)

    def lend(self) -> AbstractContextManager[None]:
        return nullcontext()

    def let_go(self, paths: Iterable[str]) -> None:
        """Nothing was lent."""

    def mtime_ns(self, path: str) -> int:
        try:
            return os.lstat(f"{self._tree}/{decode_path(path)}").st_mtime_ns
        except OSError:
            return 0

    def time_of(self, fd: int) -> int:
        return os.fstat(fd).st_mtime_ns

    def touched(self) -> Iterator[tuple[str, int]]:
        return iter(())


def _captures(view: str, images: ContentStore) -> Captures:
    return Captures(Root(f"{view}/{TREE}"), images, Path(view))


def _copy(source: str, goal: str) -> str:
    with open(source, "rb") as old, open(goal, "xb") as new:
        try:
            ioctl(new.fileno(), _CLONE, old.fileno())
        except OSError:
            shutil.copyfileobj(old, new, 1 << 20)
    shutil.copystat(source, goal)
    return goal
