"""A view that is a copy of the project, where no overlay is to be had (W-11): what was changed in it is found by
comparing the copy with what it was when it was made. Offers what `effects` offers for a view with layers."""

import os
import shutil
import stat as st
from collections.abc import Sequence
from contextlib import suppress
from fcntl import ioctl
from pathlib import Path

import msgspec

from treadle.errors import ToolError
from treadle.ports.snapshots import Effect
from treadle.ports.workspace import inert
from treadle.protocol.files import FileChange, FileConflict, FileState, decode_path
from treadle.workspace.history.apply import ContentSource
from treadle.workspace.history.capture import Captures
from treadle.workspace.history.content_store import ContentStore
from treadle.workspace.history.states import reading, state_of
from treadle.workspace.history.store_batch import StoreBatch
from treadle.workspace.paths.entries import Missing
from treadle.workspace.root import Root

TREE = "tree"
_NAME = "beginning"
_CLONE = 0x40049409
_COPIED = (st.S_IFREG, st.S_IFDIR, st.S_IFLNK)
_CHANGED = "it was changed or created in the project since the world began"


def is_copied(view: str) -> bool:
    return os.path.isdir(f"{view}/{TREE}")


def make(source: str, view: str, images: ContentStore, own: str) -> None:
    """Copy a tree, by reference where the file system can, and remember what it is. What is neither a file, a link nor
    a folder stays behind, and so does `own`, where Treadle keeps its data. ToolError if it cannot be copied."""

    def left(folder: str, names: list[str]) -> set[str]:
        return {name for name in names if f"{folder}/{name}" == own or not _is_copied(f"{folder}/{name}")}

    try:
        shutil.copytree(source, f"{view}/{TREE}", symlinks=True, copy_function=_copy, ignore=left)
    except shutil.Error as error:
        for path, _, why in error.args[0]:
            if os.path.lexists(path):  # else somebody removed it meanwhile
                raise ToolError(f"{inert(source)} cannot be copied: {inert(why)}.") from error
    _captures(view, images).capture(_NAME)


def _is_copied(path: str) -> bool:
    try:
        return st.S_IFMT(os.lstat(path).st_mode) in _COPIED
    except FileNotFoundError:
        return False


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


class Beginning:
    """What a copy was when it was made, or when it was last committed or put onto what lies beneath: `root`, of which
    `beneath` are the captures."""

    def __init__(self, view: str, images: ContentStore, root: Root, beneath: Captures) -> None:
        self._captures = _captures(view, images)
        self._images = images
        self._root = root
        self._beneath = beneath

    def ours(self) -> tuple[FileChange, ...]:
        """What was changed in the copy since."""
        return self._captures.compare(_NAME).files

    def theirs(self) -> tuple[FileChange, ...]:
        """What was changed beneath since, with the new bytes kept."""
        return self._beneath.since(self._captures.tree(_NAME))

    def move(self, files: Sequence[FileChange]) -> None:
        """From here on, what these were left as is what they were."""
        if files:
            self._captures.move(_NAME, files)

    def committed(self) -> None:
        """What is the same beneath by now begins there; what was changed since, in either of them, does not."""
        with self._images.batch() as batch:
            self.move([change for change in self.ours() if self._is_beneath(change, batch)])

    def _is_beneath(self, change: FileChange, batch: StoreBatch) -> bool:
        """Whether a path was left as it is beneath; the bytes are kept then."""
        path, left = decode_path(change.path), change.after
        if state_of(self._root, path) != left:
            return False
        if left is None or left.kind != "file":
            return True
        with suppress(Missing, OSError), self._root.named(path) as place, reading(place.fd, place.name) as fd:
            return batch.put_file(fd) == left.digest
        return False


class CopiedTree(ContentSource):
    """The files of the copy, for a commit."""

    def __init__(self, view: str) -> None:
        self._tree = f"{view}/{TREE}"

    def open(self, path: str, state: FileState) -> int:
        with Root(self._tree).open(decode_path(path)) as fd:
            return os.dup(fd)

    def mtime_ns(self, path: str) -> int:
        try:
            return os.lstat(f"{self._tree}/{decode_path(path)}").st_mtime_ns
        except OSError:
            return 0

    def time_of(self, fd: int) -> int:
        return os.fstat(fd).st_mtime_ns


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
