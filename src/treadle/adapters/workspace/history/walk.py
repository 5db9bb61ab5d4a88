"""One walk over a project: finds all entries by a look at each, and reads bytes only where the last walk does not know
them. Goes from descriptor to descriptor and never through a link (S-01); opens nothing but folders and regular files.
The caller decides what is done with the bytes.

If little changes, the look at every file is most of the cost of a snapshot, so the loop over files only compares
numbers; and of a large tree only those folders are entered that `glance` does not know to be unchanged.
"""

import os
import stat as st
import time
from collections.abc import Callable

from treadle.adapters.workspace.history import left_out
from treadle.adapters.workspace.history.glance import odd_folders
from treadle.adapters.workspace.history.states import reading
from treadle.adapters.workspace.history.trees import Folder, Node, Tree, folder_above
from treadle.adapters.workspace.paths.levels import GIT, GONE, Level, Listing, NotEntered, entered, listing_of
from treadle.adapters.workspace.root import Root
from treadle.errors import ToolError
from treadle.ports.workspace import inert
from treadle.protocol.files import encode_path

RACY_NS = 2_000_000_000
"""A file that changed so shortly before it was looked at may change again, unseen, within one tick of the file system's
clock (FAT: two seconds)."""
_EVER = 1 << 62
_NONE: dict[str, Node] = {}

Take = Callable[[int], str]
"""The function that takes an open file and returns its SHA-256 (hex)."""


class Walk:
    """`take` gets every file whose bytes are not known; with `keep` also those that are known but not kept. Files that
    were captured in `captured` are looked at again for any size. `own_folder` is a folder that belongs to Treadle."""

    def __init__(
        self, known_tree: Tree | None, take: Take, *, keep: bool, captured: Tree | None = None, own_folder: str = ""
    ) -> None:
        self._known = known_tree.folders if known_tree else {}
        self._captured = captured.folders if captured else {}
        self._take = take
        self._keep = keep
        self._own = own_folder
        self._folders: dict[str, Folder] = {}
        self._clean: dict[str, list[str]] = {}
        """Folders that are as they were, with all that lies below: by path, those in them."""
        self._large = self._ignored = 0
        self.changed = False
        """True if the tree differs from the known one."""

    def over(self, root: Root) -> Tree:
        try:
            with root.hold(".") as (root_fd, _):
                top = os.dup(root_fd)
        except OSError as error:
            raise ToolError(f"The project root {inert(root.path)} cannot be read: {error.strerror}.") from error
        try:
            if self._glance(root, top):
                return Tree(root.path, self._known)
            self._visit(Level(top, listing_of(top)))
        finally:
            os.close(top)
        self.changed = self.changed or len(self._folders) != len(self._known)
        return Tree(root.path, self._folders)

    def _glance(self, root: Root, top: int) -> bool:
        """True if everything is unchanged."""
        odd = odd_folders(top, Tree(root.path, self._known), keep=self._keep)
        if not odd:
            return odd is not None
        dirty = set(odd)
        for folder in odd:
            while folder and (folder := folder_above(folder)) not in dirty:
                dirty.add(folder)
        self._clean = {path: [] for path in self._known if path not in dirty}
        for path in self._clean:
            if path and (above := folder_above(path)) in self._clean:
                self._clean[above].append(path)
        return False

    # -- one folder -----------------------------------------------------------------------------------------------

    def _visit(self, level: Level) -> None:
        path = _key(level.path)
        old = self._known.get(path)
        nodes, fresh = self._split_unchanged(level.listing, old.nodes if old is not None else _NONE)
        if old is not None and old.rules != level.key:
            fresh += _judged_anew(level, nodes)
            old = None
        if old is not None and not fresh and len(nodes) == len(old.nodes):
            folder = old
            self._large += old.large
            self._ignored += old.ignored
        else:
            folder = self._changed_folder(level, path, nodes, fresh)
        self._folders[path] = folder
        for name, status in level.listing:
            if (
                st.S_ISDIR(status.st_mode)
                and (node := folder.nodes.get(_key(name))) is not None
                and not node.left_out_reason
            ):
                self._descend(level, name, path)

    def _split_unchanged(self, listing: Listing, known_nodes: dict[str, Node]) -> tuple[dict[str, Node], Listing]:
        """Return the unchanged nodes, and the other entries."""
        keep = self._keep
        nodes: dict[str, Node] = {}
        fresh: Listing = []
        for name, status in listing:
            key = name if name.isascii() else encode_path(name)
            node = known_nodes.get(key)
            mode = status.st_mode
            if node is None or node.mode != mode:
                fresh.append((name, status))
            elif st.S_ISDIR(mode) or (
                node.ctime_ns == status.st_ctime_ns
                and node.mtime_ns == status.st_mtime_ns
                and node.size == status.st_size
                and node.inode == status.st_ino
                and (node.is_stored or not keep)
            ):
                nodes[key] = node
            else:
                fresh.append((name, status))
        return nodes, fresh

    def _changed_folder(self, level: Level, path: str, nodes: dict[str, Node], fresh: Listing) -> Folder:
        self.changed = True
        large, ignored = self._large, self._ignored
        for unchanged_node in nodes.values():
            self._count(unchanged_node)
        files: Listing = []
        for name, status in fresh:
            if name.startswith(".treadle-") and name.endswith(".tmp"):  # another chat is writing
                continue
            if st.S_ISREG(status.st_mode):
                files.append((name, status))
            elif (node := self._build_other_node(level, name, status)) is not None:
                nodes[_key(name)] = node
        self._read_all(level, path, files, nodes)
        lacks = any(node.left_out_reason for node in nodes.values())
        return Folder(nodes, level.key, self._large - large, self._ignored - ignored, lacks)

    def _descend(self, level: Level, name: str, above: str) -> None:
        path = _key(f"{level.path}{name}/")
        if path in self._clean and level.key == self._known[above].rules:
            self._take_over(path)
            return
        try:
            with entered(level.fd, name) as (fd, listing):
                below = Level(fd, listing, f"{level.path}{name}/", level)
                below.ignored = self._folders[above].nodes[_key(name)].ignored and not below.git
                self._visit(below)
        except NotEntered as error:
            self._not_entered(above, _key(name), is_closed=error.closed)

    def _take_over(self, path: str) -> None:
        folder = self._folders[path] = self._known[path]
        self._large += folder.large
        self._ignored += folder.ignored
        for below in self._clean[path]:
            self._take_over(below)

    def _not_entered(self, above: str, key: str, *, is_closed: bool) -> None:
        """A folder that is gone by now, or closed to us."""
        self.changed = True
        folder = self._folders[above]
        nodes = dict(folder.nodes)  # the known nodes must stay unchanged
        node = nodes.pop(key)
        if is_closed:
            nodes[key] = Node(node.mode, left_out_reason=left_out.UNREADABLE, ignored=node.ignored)
        self._folders[above] = Folder(nodes, folder.rules, folder.large, folder.ignored, folder.lacks or is_closed)

    # -- single entries -------------------------------------------------------------------------------------------

    def _build_other_node(self, level: Level, name: str, status: os.stat_result) -> Node | None:
        """An entry that is no regular file; None if it is gone."""
        mode = status.st_mode
        ignored = level.ignores(name, directory=st.S_ISDIR(mode))
        if st.S_ISDIR(mode):
            return Node(mode, left_out_reason=self._left_folder(level, name, ignored), ignored=ignored)
        if not st.S_ISLNK(mode):
            left_out_reason = left_out.CAPTURED if st.S_ISFIFO(mode) else left_out.SPECIAL
            return _node(status, b"", _EVER, left_out_reason=left_out_reason, ignored=ignored)
        try:
            target = os.readlink(name, dir_fd=level.fd)
        except OSError:  # gone, or no longer a link
            return None
        return _node(status, os.fsencode(target), time.time_ns(), ignored=ignored)

    def _left_folder(self, level: Level, name: str, ignored: bool) -> int:
        if not level.git and name != GIT:
            if self._own and level.path + name == self._own:
                return left_out.OWN
            if left_out.generated(name, ignored):
                return left_out.GENERATED_FOLDER
        return left_out.CAPTURED if level.depth < left_out.DEPTH_CAP else left_out.TOO_DEEP

    def _read_all(self, level: Level, path: str, files: Listing, nodes: dict[str, Node]) -> None:
        captured = self._captured.get(path)
        for name, status in files:
            key = _key(name)
            ignored = level.ignores(name, directory=False)
            captured_node = captured.nodes.get(key) if captured else None
            left_out_reason = self._left_file(status.st_size, ignored)
            if left_out_reason and (
                captured_node is None or captured_node.left_out_reason or not st.S_ISREG(captured_node.mode)
            ):
                nodes[key] = _node(status, b"", _EVER, left_out_reason=left_out_reason, ignored=ignored)
            elif (node := self._read(level.fd, name, ignored)) is not None:
                nodes[key] = node
                self._count(node)

    def _read(self, directory: int, name: str, ignored: bool) -> Node | None:
        """A regular file with its bytes taken; None if it is gone, or something else by now: the next look will
        tell."""
        try:
            with reading(directory, name) as fd:
                status = os.fstat(fd)
                began = time.time_ns()
                digest = self._take(fd)
                final_status = os.fstat(fd)
        except PermissionError:
            status = os.stat(name, dir_fd=directory, follow_symlinks=False)
            return _node(status, b"", _EVER, left_out_reason=left_out.UNREADABLE, ignored=ignored)
        except ToolError:
            return None
        except OSError as error:
            if error.errno in GONE:
                return None
            raise
        if _times(final_status) != _times(status):
            began = 0  # it is being written: what was read is what counts, and the next time it is read again
        return _node(status, bytes.fromhex(digest), began, ignored=ignored, is_stored=self._keep)

    def _left_file(self, size: int, ignored: bool) -> int:
        if ignored and size > left_out.IGNORED_FILE_CAP:
            return left_out.IGNORED_LARGE
        if size > left_out.FILE_CAP:
            return left_out.TOO_LARGE
        if self._keep and ignored and self._ignored + size > left_out.IGNORED_TOTAL_CAP:
            return left_out.IGNORED_FULL
        if self._keep and size > left_out.SMALL and self._large + size > left_out.TOTAL_CAP:
            return left_out.TOTAL_FULL
        return left_out.CAPTURED

    def _count(self, node: Node) -> None:
        if node.left_out_reason or not st.S_ISREG(node.mode):
            return
        if node.ignored:
            self._ignored += node.size
        elif node.size > left_out.SMALL:
            self._large += node.size


def _key(name: str) -> str:
    return name if name.isascii() else encode_path(name)


def _judged_anew(level: Level, nodes: dict[str, Node]) -> Listing:
    """After a change of the ignore rules, remove the nodes that are judged differently and return their entries."""
    fresh: Listing = []
    for name, status in level.listing:
        node = nodes.get(_key(name))
        if node is not None and node.ignored != level.ignores(name, directory=st.S_ISDIR(status.st_mode)):
            del nodes[_key(name)]
            fresh.append((name, status))
    return fresh


def _times(status: os.stat_result) -> tuple[int, int, int]:
    return status.st_mtime_ns, status.st_ctime_ns, status.st_size


def _node(
    status: os.stat_result,
    content: bytes,
    began: int,
    *,
    left_out_reason: int = 0,
    ignored: bool = False,
    is_stored: bool = True,
) -> Node:
    """`began` is when its bytes were read."""
    is_settled = max(status.st_ctime_ns, status.st_mtime_ns) < began - RACY_NS
    ctime = status.st_ctime_ns if is_settled else 0
    return Node(
        status.st_mode,
        status.st_size,
        status.st_mtime_ns,
        ctime,
        status.st_ino,
        content,
        left_out_reason,
        ignored,
        is_stored,
    )
