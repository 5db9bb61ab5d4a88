"""A view that is a copy of the project, where overlayfs is not available (W-11): its changes are found by comparing the
copy with its state when it was made. Has the same interface as `effects` for a view with layers."""

import os
import shutil
import stat as st
from collections.abc import Sequence
from contextlib import suppress
from fcntl import ioctl
from pathlib import Path

import msgspec

from treadle.adapters.workspace.history.apply import ContentSource
from treadle.adapters.workspace.history.capture import Captures
from treadle.adapters.workspace.history.content_store import ContentStore, StoreBatch
from treadle.adapters.workspace.history.states import reading, state_of
from treadle.adapters.workspace.paths.entries import Missing
from treadle.adapters.workspace.root import Root
from treadle.errors import ToolError
from treadle.ports.snapshots import Effect
from treadle.ports.workspace import inert
from treadle.protocol.files import FileChange, FileConflict, FileState, decode_path

TREE = "tree"
_NAME = "beginning"
_CLONE = 0x40049409
_COPIED = (st.S_IFREG, st.S_IFDIR, st.S_IFLNK)
_CHANGED = "it was changed or created in the project since the world began"


def is_copied(view: str) -> bool:
    return os.path.isdir(f"{view}/{TREE}")


def make(source: str, view: str, images: ContentStore, own_folder: str) -> None:
    """Copy a tree, by reference where the file system can, and record its state. Entries that are neither a file, a
    link nor a folder are not copied, nor is `own_folder`, where Treadle keeps its data. ToolError if the tree cannot be
    copied."""

    def list_skipped(folder: str, names: list[str]) -> set[str]:
        copied_names = set()
        for name in names:
            with suppress(FileNotFoundError):
                if st.S_IFMT(os.lstat(f"{folder}/{name}").st_mode) in _COPIED and f"{folder}/{name}" != own_folder:
                    copied_names.add(name)
        return set(names) - copied_names

    try:
        shutil.copytree(source, f"{view}/{TREE}", symlinks=True, copy_function=_copy, ignore=list_skipped)
    except shutil.Error as error:
        for path, _, reason in error.args[0]:
            if os.path.lexists(path):  # else it was removed meanwhile
                raise ToolError(f"{inert(source)} cannot be copied: {inert(reason)}.") from error
    _captures(view, images).capture(_NAME)


def read(root: Root, view: str, images: ContentStore) -> Effect:
    effect = _captures(view, images).compare(_NAME)
    files, conflicts = [], []
    for change in effect.files:
        now = state_of(root, decode_path(change.path))
        if now == change.after:
            continue
        if now != change.before:
            conflicts.append(FileConflict(change.path, _CHANGED))
        files.append(msgspec.structs.replace(change, before=now))
    return Effect(tuple(files), tuple(conflicts), effect.uncaptured)


class Beginning:
    """The base state of a copy: when it was made, last committed, or last rebased onto `root`. `beneath`: the captures
    of `root`."""

    def __init__(self, view: str, images: ContentStore, root: Root, beneath: Captures) -> None:
        self._captures = _captures(view, images)
        self._images, self._root, self._beneath = images, root, beneath

    def ours(self) -> tuple[FileChange, ...]:
        return self._captures.compare(_NAME).files

    def theirs(self) -> tuple[FileChange, ...]:
        """The changes in `root` since the base state, with the new bytes kept."""
        return self._beneath.since(self._captures.tree(_NAME))

    def move(self, files: Sequence[FileChange]) -> None:
        """From here on, what these were left as is what they were."""
        if files:
            self._captures.move(_NAME, files)

    def committed(self) -> None:
        """After a commit, move the base state on for paths that are the same in copy and root; not for paths that were
        changed since in either of them."""
        with self._images.batch() as batch:
            self.move([change for change in self.ours() if self._is_beneath(change, batch)])

    def _is_beneath(self, change: FileChange, batch: StoreBatch) -> bool:
        """True if a path in the copy is as it is in `root`; its bytes are kept then."""
        path, new_state = decode_path(change.path), change.after
        if state_of(self._root, path) != new_state:
            return False
        if new_state is None or new_state.kind != "file":
            return True
        with suppress(Missing, OSError), self._root.locate_name(path) as place, reading(place.fd, place.name) as fd:
            return batch.put_file(fd) == new_state.digest
        return False


class CopiedTree(ContentSource):
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
