"""Snapshots of the whole tree, for commands that write to it directly (W-10): before a command starts, everything is
kept that it might overwrite; after it, the tree is compared. If the last tree of a root is known, only entries that
changed since are read (W-05). And views that are a copy of the project, where overlayfs is not available (W-11): their
changes are found by comparing the copy with its state when it was made.

`trees/<root>` is the last tree of a root, replaced as a whole, shared by all processes. `captures/<name>` says that a
capture exists; its tree is a file beside it, most often a second name of the last tree. The content of a tree is stored
before the tree is written, and a sweep of the images takes the trees into account (`Upkeep`)."""

import hashlib
import os
import shutil
import stat as st
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from fcntl import ioctl
from pathlib import Path

import msgspec

from treadle.adapters.workspace.history.apply import ContentSource
from treadle.adapters.workspace.history.content_store import ContentStore, StoreBatch
from treadle.adapters.workspace.history.git_index import compute_git_fingerprint
from treadle.adapters.workspace.history.states import hold_file, read_path_state
from treadle.adapters.workspace.history.trees import (
    Tree,
    compare_trees,
    find_uncaptured,
    read_tree,
    update_tree,
    write_tree,
)
from treadle.adapters.workspace.history.walk import GIT, Walk
from treadle.adapters.workspace.paths.durable import compute_digest
from treadle.adapters.workspace.paths.entries import Missing, hold_fd
from treadle.adapters.workspace.root import Root
from treadle.base.file_system import create_file, find_path_below, reach_faultpoint, replace_file, sync_folder
from treadle.base.types import make_id
from treadle.errors import NotFound, ToolError
from treadle.ports.snapshots import Effect
from treadle.ports.workspace import escape_name
from treadle.protocol.files import FileChange, FileConflict, FileState, Uncaptured, decode_path

TREES = "trees"
CAPTURES = "captures"


class Capture(msgspec.Struct, frozen=True):
    name: str
    root: str
    tree: str
    made_ms: int
    uncaptured: tuple[Uncaptured, ...] = ()


_decoder = msgspec.json.Decoder(Capture)


class Captures:
    """`folder` is where snapshots are kept. Holds nothing open between calls."""

    def __init__(self, root: Root, images: ContentStore, folder: Path) -> None:
        self._root, self._images = root, images
        self._last = folder / TREES / _hash_name(root.key)
        self._folder = folder / CAPTURES
        below = (find_path_below(os.path.realpath(own_folder), root.path) for own_folder in (folder.parent, folder))
        # The path of Treadle's home below the root, if it lies there.
        self._own = next((path for path in below if path not in (None, ".")), None) or ""

    def capture(self, name: str) -> tuple[Uncaptured, ...]:
        """Keep the current state of the project. An existing capture stays as it is: the command may have begun."""
        if (existing := self._read(name)) is not None:
            return existing.uncaptured
        tree, last_inode = self._keep_tree(None)
        with self._explain_errors(" So the command was not run."):
            file = self._store_tree(tree, last_inode)
            capture = Capture(name, self._root.path, file.name, time.time_ns() // 1_000_000, find_uncaptured(tree))
            return self._announce(capture, file)

    def find_changes_since(self, beginning: Tree) -> tuple[FileChange, ...]:
        """Return the changes since another tree, and keep the current bytes of all files. Lines are not counted."""
        now, _ = self._keep_tree(beginning)
        return compare_trees(beginning, now, lambda *_: None)[0]

    def _keep_tree(self, captured: Tree | None) -> tuple[Tree, int]:
        """The current tree, with its bytes kept; and the inode of the last tree if it is unchanged, else 0."""
        with self._images.open_batch() as batch:
            with suppress(OSError):  # a sweep leaves alone what was used lately
                os.utime(self._last)
            last_tree, inode = read_tree(self._last) or (None, 0)
            walk = Walk(last_tree, batch.put_file, keep=True, captured=captured, own_folder=self._own)
            tree = walk.visit_root(self._root)
        return tree, 0 if walk.changed else inode

    def compare(self, name: str) -> Effect:
        """Return the changes since the capture. Keeps nothing, so that it works on a full disk, too."""
        captured = self._read_stored_tree(name)
        last_tree = (read_tree(self._last, unless=captured[1]) or captured)[0]
        walk = Walk(last_tree, compute_digest, keep=False, captured=captured[0], own_folder=self._own)
        try:
            current_tree = walk.visit_root(self._root)
            files, uncaptured = compare_trees(captured[0], current_tree, self._read_bytes)
            git = any(file.path.startswith(f"{GIT}/") for file in files)
            fingerprint = compute_git_fingerprint(self._root) if git else ""
        except OSError as error:
            raise ToolError(f"The project could not be looked through: {error.strerror or error}.") from error
        if walk.changed:
            with suppress(OSError):  # a cache
                write_tree(self._last.parent, current_tree, durable=False).replace(self._last)
        return Effect(files, (), uncaptured, fingerprint)

    def load_tree(self, name: str) -> Tree:
        return self._read_stored_tree(name)[0]

    def move(self, name: str, files: Iterable[FileChange]) -> None:
        """From here on these paths are captured as they were left; their bytes are kept. In one step."""
        old_capture = self._read(name)
        tree = update_tree(self.load_tree(name), files)
        assert old_capture is not None
        with self._explain_errors():
            file = write_tree(self._folder, tree, durable=True)
            goal = file.rename(file.with_name(f"{make_id('t')}.tree"))
            capture = msgspec.structs.replace(old_capture, tree=goal.name)
            replace_file(
                str(self._make_head_path(name)), msgspec.json.encode(capture), sync=True, fault="snapshot.moving"
            )
            sync_folder(str(self._folder))
            (self._folder / old_capture.tree).unlink(missing_ok=True)

    def release(self, name: str) -> None:
        if (capture := self._read(name)) is not None:
            self._make_head_path(name).unlink(missing_ok=True)
            (self._folder / capture.tree).unlink(missing_ok=True)

    def _read_stored_tree(self, name: str) -> tuple[Tree, int]:
        capture = self._read(name)
        stored_tree = read_tree(self._folder / capture.tree) if capture is not None else None
        if stored_tree is None:
            raise ToolError("The snapshot from before the command is gone, so what the command changed is not known.")
        return stored_tree

    @contextmanager
    def _explain_errors(self, so: str = "") -> Iterator[None]:
        try:
            yield
        except OSError as error:
            reason = f"{error.strerror or error} (in {self._folder}).{so}"
            raise ToolError(f"The project's content cannot be stored: {reason}") from error

    def _store_tree(self, tree: Tree, last_inode: int) -> Path:
        """A file with this tree among the captures, durable; `last_inode` is that of the last tree."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        file = self._folder / f"{make_id('t')}.tree"
        if last_inode:
            with suppress(OSError):  # no hard links here, or it is gone
                os.link(self._last, file)
                with hold_fd(os.open(file, os.O_RDONLY | os.O_CLOEXEC)) as fd:
                    os.fsync(fd)
                    inode = os.fstat(fd).st_ino
                if inode == last_inode:
                    return file
                file.unlink()
        tree_file = write_tree(self._last.parent, tree, durable=True)
        try:
            os.link(tree_file, file)
        except OSError:
            os.rename(write_tree(self._folder, tree, durable=True), file)
        tree_file.replace(self._last)
        return file

    def _announce(self, capture: Capture, file: Path) -> tuple[Uncaptured, ...]:
        """Write the capture as the last step, once for a name. A second writer discards its own capture."""
        reach_faultpoint("snapshot.before_capture")
        announced = False
        try:
            announced = create_file(str(self._make_head_path(capture.name)), msgspec.json.encode(capture), sync=True)
        finally:
            if not announced:
                file.unlink(missing_ok=True)
        if not announced:
            return (self._read(capture.name) or capture).uncaptured
        sync_folder(str(self._folder))
        reach_faultpoint("snapshot.captured")
        return capture.uncaptured

    def _read(self, name: str) -> Capture | None:
        if not self._make_head_path(name).exists():
            return None
        if (capture := read_capture(self._make_head_path(name))) is None:
            raise ToolError("The snapshot from before the command is damaged. See `treadle fsck`.")
        return capture

    def _make_head_path(self, name: str) -> Path:
        return self._folder / f"{_hash_name(name)}.json"

    def _read_bytes(self, path: str, state: FileState, is_after: bool) -> bytes | None:
        with suppress(ToolError, NotFound):  # it is only for counting lines
            return self._root.read_bytes(decode_path(path), state.size) if is_after else self._images.read(state.digest)
        return None


def read_capture(file: Path) -> Capture | None:
    with suppress(OSError, msgspec.DecodeError):
        return _decoder.decode(file.read_bytes())
    return None


def _hash_name(name: str) -> str:
    return hashlib.sha256(os.fsencode(name)).hexdigest()[:32]


STAGE = "stage"
_ABANDONED_S = 86_400.0


class KnownTree(msgspec.Struct, frozen=True):
    """The last tree of a root; when it was last used is in seconds since 1970."""

    file: Path
    last_used_s: float


class Upkeep:
    def __init__(self, folder: Path) -> None:
        self._folder, self._images = folder, ContentStore(folder)

    def list_trees(self) -> list[KnownTree]:
        trees = []
        for file in _list_files(self._folder / TREES):
            with suppress(FileNotFoundError):
                trees.append(KnownTree(file, file.stat().st_mtime))
        return trees

    def iterate_captures(self) -> Iterator[tuple[Path, Capture | None]]:
        """Every capture with its file; None for one that cannot be read."""
        for file in _list_files(self._folder / CAPTURES):
            if file.suffix == ".json":
                yield file, read_capture(file)

    def get_tree_path(self, capture: Capture) -> Path:
        return self._folder / CAPTURES / capture.tree

    def read_kept_hashes(self, tree: Path) -> set[str] | None:
        """The hashes of what a tree says is kept; None if it cannot be read."""
        if (stored_tree := read_tree(tree)) is None:
            return None
        nodes = (node for folder in stored_tree[0].folders.values() for node in folder.nodes.values())
        stored_nodes = (node for node in nodes if node.is_stored and not node.left_out_reason)
        return {node.content.hex() for node in stored_nodes if len(node.content) == 32}

    def drop_trees(self, used_until: float, *, wait: bool = True) -> int:
        """Remove the trees that were not used since. No process begins to rely on one meanwhile; afterwards content
        that only they need may be removed. BlockingIOError as with `ContentStore.lock_exclusively`."""
        if not self.list_trees():
            return 0
        with self._images.lock_exclusively(wait=wait):
            unused_trees = [tree for tree in self.list_trees() if tree.last_used_s <= used_until]
            for tree in unused_trees:
                tree.file.unlink(missing_ok=True)
                reach_faultpoint("snapshot.tree_dropped")
        return len(unused_trees)

    def drop_capture(self, file: Path, capture: Capture | None) -> None:
        file.unlink(missing_ok=True)
        if capture is not None:
            self.get_tree_path(capture).unlink(missing_ok=True)

    def tidy(self, *, stage: bool) -> None:
        """Remove what dead processes left half-done long ago; with `stage` also their staged files."""
        tree_names = {capture.tree for _, capture in self.iterate_captures() if capture is not None}
        cutoff = time.time() - _ABANDONED_S
        for folder in (TREES, CAPTURES):
            for file in _list_files(self._folder / folder, include_hidden=True):
                belongs = file.suffix == ".json" or file.name in tree_names or (folder == TREES and file.name[0] != ".")
                with suppress(FileNotFoundError):
                    if not belongs and file.stat().st_ctime < cutoff:
                        file.unlink()
        for ready in _list_files(self._folder / STAGE, include_hidden=True) if stage else ():
            if ready.lstat().st_mtime < cutoff:
                shutil.rmtree(ready, ignore_errors=True)


def _list_files(folder: Path, *, include_hidden: bool = False) -> list[Path]:
    with suppress(FileNotFoundError):
        return [folder / name for name in sorted(os.listdir(folder)) if include_hidden or not name.startswith(".")]
    return []


TREE = "tree"
_BEGINNING = "beginning"
_CLONE = 0x40049409
_COPIED = (st.S_IFREG, st.S_IFDIR, st.S_IFLNK)
_CHANGED = "it was changed or created in the project since the world began"


def is_copied(view: str) -> bool:
    return os.path.isdir(f"{view}/{TREE}")


def make_copy(source: str, view: str, images: ContentStore, own_folder: str) -> None:
    """Copy a tree, by reference where the file system can, and record its state. Entries that are neither a file, a
    link nor a folder are not copied, nor is `own_folder`, where Treadle keeps its data. ToolError if the tree cannot be
    copied."""

    def list_skipped(folder: str, names: list[str]) -> set[str]:
        skipped_names = set(names)
        for name in names:
            with suppress(FileNotFoundError):
                if st.S_IFMT(os.lstat(f"{folder}/{name}").st_mode) in _COPIED and f"{folder}/{name}" != own_folder:
                    skipped_names.remove(name)
        return skipped_names

    try:
        shutil.copytree(source, f"{view}/{TREE}", symlinks=True, copy_function=_copy_file, ignore=list_skipped)
    except shutil.Error as error:
        for path, _, reason in error.args[0]:
            if os.path.lexists(path):  # else it was removed meanwhile
                raise ToolError(f"{escape_name(source)} cannot be copied: {escape_name(reason)}.") from error
    _make_captures(view, images).capture(_BEGINNING)


def read_copy(root: Root, view: str, images: ContentStore) -> Effect:
    effect = _make_captures(view, images).compare(_BEGINNING)
    files, conflicts = [], []
    for change in effect.files:
        now = read_path_state(root, decode_path(change.path))
        if now == change.after:
            continue
        if now != change.before:
            conflicts.append(FileConflict(change.path, _CHANGED))
        files.append(msgspec.structs.replace(change, before=now))
    return Effect(tuple(files), tuple(conflicts), effect.uncaptured)


class Beginning:
    """The base state of a copy: when it was made, last committed, or last rebased onto `root`."""

    def __init__(self, view: str, images: ContentStore, root: Root, beneath: Captures) -> None:
        self._captures, self._images = _make_captures(view, images), images
        self._root, self._beneath = root, beneath

    def find_our_changes(self) -> tuple[FileChange, ...]:
        return self._captures.compare(_BEGINNING).files

    def find_their_changes(self) -> tuple[FileChange, ...]:
        """The changes in `root` since the base state, with the new bytes kept."""
        return self._beneath.find_changes_since(self._captures.load_tree(_BEGINNING))

    def move(self, files: Sequence[FileChange]) -> None:
        """From here on, what these were left as is what they were."""
        if files:
            self._captures.move(_BEGINNING, files)

    def move_after_commit(self) -> None:
        """After a commit, move the base state on for the paths that are still the same in copy and root."""
        with self._images.open_batch() as batch:
            self.move([change for change in self.find_our_changes() if self._is_beneath(change, batch)])

    def _is_beneath(self, change: FileChange, batch: StoreBatch) -> bool:
        """True if a path in the copy is as it is in `root`; its bytes are kept then."""
        path, new_state = decode_path(change.path), change.after
        if read_path_state(self._root, path) != new_state:
            return False
        if new_state is None or new_state.kind != "file":
            return True
        with suppress(Missing, OSError), self._root.locate_name(path) as place, hold_file(place.fd, place.name) as fd:
            return batch.put_file(fd) == new_state.digest
        return False


class CopiedTree(ContentSource):
    def __init__(self, view: str) -> None:
        self._tree = f"{view}/{TREE}"

    def open(self, path: str, state: FileState) -> int:
        with Root(self._tree).open(decode_path(path)) as fd:
            return os.dup(fd)

    def read_mtime_ns(self, path: str) -> int:
        with suppress(OSError):
            return os.lstat(f"{self._tree}/{decode_path(path)}").st_mtime_ns
        return 0


def _make_captures(view: str, images: ContentStore) -> Captures:
    return Captures(Root(f"{view}/{TREE}"), images, Path(view))


def _copy_file(source: str, goal: str) -> str:
    with open(source, "rb") as old, open(goal, "xb") as new:
        try:
            ioctl(new.fileno(), _CLONE, old.fileno())
        except OSError:
            shutil.copyfileobj(old, new, 1 << 20)
    shutil.copystat(source, goal)
    return goal
