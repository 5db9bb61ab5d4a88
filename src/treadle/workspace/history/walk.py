"""One walk over a project: what lies where, told by a look at every entry, with bytes read only where the last walk
does not know them. Goes from descriptor to descriptor and never through a link (S-01); opens nothing but folders and
regular files. What becomes of the bytes is up to the caller.

The look at every file is most of what a snapshot costs as long as little changes, so the loop over them does nothing
but compare numbers; and of a large tree only those folders are entered that `glance` does not know to be as they were.
"""

import os
import stat as st
import time
from collections.abc import Callable

from treadle.errors import ToolError
from treadle.ports.workspace import inert
from treadle.protocol.files import encode_path
from treadle.workspace.history import left_out
from treadle.workspace.history.glance import odd_folders
from treadle.workspace.history.states import reading
from treadle.workspace.history.trees import Folder, Node, Tree, folder_above
from treadle.workspace.paths.levels import GIT, GONE, Level, Listing, NotEntered, entered, listing_of
from treadle.workspace.root import Root

RACY_NS = 2_000_000_000
"""What changed so shortly before it was looked at may change again within one tick of the file system's clock (FAT: two
seconds), unseen."""
_EVER = 1 << 62
_NONE: dict[str, Node] = {}

Take = Callable[[int], str]
"""What is done with an open file: its SHA-256 (hex) comes back."""


class Walk:
    """`take` gets every file whose bytes are not known; with `keep` also those that are known but not kept. What was
    captured in `captured` is looked at again whatever its size. `own` is a folder that belongs to Treadle."""

    def __init__(
        self, known: Tree | None, take: Take, *, keep: bool, captured: Tree | None = None, own: str = ""
    ) -> None:
        self._known = known.folders if known else {}
        self._captured = captured.folders if captured else {}
        self._take = take
        self._keep = keep
        self._own = own
        self._folders: dict[str, Folder] = {}
        self._clean: dict[str, list[str]] = {}
        """Folders that are as they were, with all that lies below: by path, those in them."""
        self._large = self._ignored = 0
        self.changed = False
        """Whether what was found differs from what was known."""

    def over(self, root: Root) -> Tree:
        try:
            with root.hold(".") as (held, _):
                top = os.dup(held)
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
        """Whether everything is as it was."""
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
        nodes, fresh = self._same(level.listing, old.nodes if old is not None else _NONE)
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
        for name, found in level.listing:
            if st.S_ISDIR(found.st_mode) and (node := folder.nodes.get(_key(name))) is not None and not node.left:
                self._descend(level, name, path)

    def _same(self, listing: Listing, known: dict[str, Node]) -> tuple[dict[str, Node], Listing]:
        """What is as it was, and the rest."""
        keep = self._keep
        nodes: dict[str, Node] = {}
        fresh: Listing = []
        for name, found in listing:
            key = name if name.isascii() else encode_path(name)
            node = known.get(key)
            mode = found.st_mode
            if node is None or node.mode != mode:
                fresh.append((name, found))
            elif st.S_ISDIR(mode) or (
                node.ctime_ns == found.st_ctime_ns
                and node.mtime_ns == found.st_mtime_ns
                and node.size == found.st_size
                and node.inode == found.st_ino
                and (node.kept or not keep)
            ):
                nodes[key] = node
            else:
                fresh.append((name, found))
        return nodes, fresh

    def _changed_folder(self, level: Level, path: str, nodes: dict[str, Node], fresh: Listing) -> Folder:
        self.changed = True
        large, ignored = self._large, self._ignored
        for same in nodes.values():
            self._count(same)
        files: Listing = []
        for name, found in fresh:
            if name.startswith(".treadle-") and name.endswith(".tmp"):  # another chat is writing
                continue
            if st.S_ISREG(found.st_mode):
                files.append((name, found))
            elif (node := self._other(level, name, found)) is not None:
                nodes[_key(name)] = node
        self._read_all(level, path, files, nodes)
        lacks = any(node.left for node in nodes.values())
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
            self._not_entered(above, _key(name), closed=error.closed)

    def _take_over(self, path: str) -> None:
        folder = self._folders[path] = self._known[path]
        self._large += folder.large
        self._ignored += folder.ignored
        for below in self._clean[path]:
            self._take_over(below)

    def _not_entered(self, above: str, key: str, *, closed: bool) -> None:
        """A folder that is gone by now, or closed to us."""
        self.changed = True
        folder = self._folders[above]
        nodes = dict(folder.nodes)  # what is known must stay as it is
        node = nodes.pop(key)
        if closed:
            nodes[key] = Node(node.mode, left=left_out.UNREADABLE, ignored=node.ignored)
        self._folders[above] = Folder(nodes, folder.rules, folder.large, folder.ignored, folder.lacks or closed)

    # -- single entries -------------------------------------------------------------------------------------------

    def _other(self, level: Level, name: str, found: os.stat_result) -> Node | None:
        """An entry that is no regular file; None if it is gone."""
        mode = found.st_mode
        ignored = level.ignores(name, directory=st.S_ISDIR(mode))
        if st.S_ISDIR(mode):
            return Node(mode, left=self._left_folder(level, name, ignored), ignored=ignored)
        if not st.S_ISLNK(mode):
            left = left_out.CAPTURED if st.S_ISFIFO(mode) else left_out.SPECIAL
            return _node(found, b"", _EVER, left=left, ignored=ignored)
        try:
            target = os.readlink(name, dir_fd=level.fd)
        except OSError:  # gone, or no longer a link
            return None
        return _node(found, os.fsencode(target), time.time_ns(), ignored=ignored)

    def _left_folder(self, level: Level, name: str, ignored: bool) -> int:
        if not level.git and name != GIT:
            if self._own and level.path + name == self._own:
                return left_out.OWN
            if left_out.generated(name, ignored):
                return left_out.GENERATED_FOLDER
        return left_out.CAPTURED if level.depth < left_out.DEPTH_CAP else left_out.TOO_DEEP

    def _read_all(self, level: Level, path: str, files: Listing, nodes: dict[str, Node]) -> None:
        captured = self._captured.get(path)
        for name, found in files:
            key = _key(name)
            ignored = level.ignores(name, directory=False)
            before = captured.nodes.get(key) if captured else None
            left = self._left_file(found.st_size, ignored)
            if left and (before is None or before.left or not st.S_ISREG(before.mode)):
                nodes[key] = _node(found, b"", _EVER, left=left, ignored=ignored)
            elif (node := self._read(level.fd, name, ignored)) is not None:
                nodes[key] = node
                self._count(node)

    def _read(self, directory: int, name: str, ignored: bool) -> Node | None:
        """A regular file with its bytes taken; None if it is gone, or something else by now: the next look will
        tell."""
        try:
            with reading(directory, name) as fd:
                found = os.fstat(fd)
                began = time.time_ns()
                digest = self._take(fd)
                after = os.fstat(fd)
        except PermissionError:
            found = os.stat(name, dir_fd=directory, follow_symlinks=False)
            return _node(found, b"", _EVER, left=left_out.UNREADABLE, ignored=ignored)
        except ToolError:
            return None
        except OSError as error:
            if error.errno in GONE:
                return None
            raise
        if _times(after) != _times(found):
            began = 0  # it is being written: what was read is what counts, and the next time it is read again
        return _node(found, bytes.fromhex(digest), began, ignored=ignored, kept=self._keep)

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
        if node.left or not st.S_ISREG(node.mode):
            return
        if node.ignored:
            self._ignored += node.size
        elif node.size > left_out.SMALL:
            self._large += node.size


def _key(name: str) -> str:
    return name if name.isascii() else encode_path(name)


def _judged_anew(level: Level, nodes: dict[str, Node]) -> Listing:
    """The rules are others by now: what they judge differently is looked at anew."""
    fresh: Listing = []
    for name, found in level.listing:
        node = nodes.get(_key(name))
        if node is not None and node.ignored != level.ignores(name, directory=st.S_ISDIR(found.st_mode)):
            del nodes[_key(name)]
            fresh.append((name, found))
    return fresh


def _times(found: os.stat_result) -> tuple[int, int, int]:
    return found.st_mtime_ns, found.st_ctime_ns, found.st_size


def _node(
    found: os.stat_result, content: bytes, began: int, *, left: int = 0, ignored: bool = False, kept: bool = True
) -> Node:
    """`began` is when its bytes were read."""
    settled = max(found.st_ctime_ns, found.st_mtime_ns) < began - RACY_NS
    ctime = found.st_ctime_ns if settled else 0
    return Node(found.st_mode, found.st_size, found.st_mtime_ns, ctime, found.st_ino, content, left, ignored, kept)
