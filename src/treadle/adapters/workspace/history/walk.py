"""One walk over a project: finds all entries by a look at each, and reads bytes only where the last walk does not know
them. Goes from descriptor to descriptor and never through a link (S-01); opens nothing but folders and regular files.
The caller decides what is done with the bytes.

If little changes, the look at every file is most of the cost of a snapshot, so the loop over files only compares
numbers; and of a large tree only those folders are entered that `glance` does not know to be unchanged."""

import errno
import hashlib
import os
import stat as st
import subprocess
import time
from collections.abc import Callable, Iterator, Set
from contextlib import ExitStack, contextmanager, suppress
from functools import cache

import msgspec

from treadle.adapters.workspace.history import trees
from treadle.adapters.workspace.history.content_store import make_unnamed_file
from treadle.adapters.workspace.history.states import hold_file
from treadle.adapters.workspace.history.trees import Folder, Node, Tree, get_folder_above
from treadle.adapters.workspace.paths.entries import HOLD, LIST, chmod_held, hold_fd, open_up, read_bytes_at
from treadle.adapters.workspace.paths.ignore import MAX_BYTES, NAME, Rules, decode_rule_lines
from treadle.adapters.workspace.root import Root
from treadle.base.subprocesses import find_program_outside, make_descriptor_path, start_blocking
from treadle.errors import ToolError
from treadle.ports.workspace import escape_name
from treadle.protocol.files import decode_path, encode_path

GIT = ".git"
GONE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENXIO)
"""Error numbers of the system for an entry that is gone, or has become another kind."""
_CLOSED = (errno.EACCES, errno.EPERM)

Listing = list[tuple[str, os.stat_result]]


class Level:
    """`path` ends with a slash, except the root's, which is empty. Entries of a `.git` are never ignored."""

    def __init__(self, fd: int, listing: Listing, path: str = "", above: "Level | None" = None) -> None:
        self.fd, self.listing, self.path, self.above = fd, listing, path, above
        self.depth: int = 0 if above is None else above.depth + 1
        self.git: bool = above is not None and (above.git or path.endswith(f"/{GIT}/") or path == f"{GIT}/")
        self.ignored = False
        self.key: bytes = b"" if above is None or self.git else above.key  # Stands for all the rules that hold here
        self._has_rules = False
        self._rules: Rules | None = None
        for name, status in () if self.git else listing:
            if name == NAME and st.S_ISREG(status.st_mode):
                self._has_rules = True
                sign = f"{status.st_ino} {status.st_mtime_ns} {status.st_ctime_ns} {status.st_size}"
                self.key = hashlib.sha256(self.key + sign.encode()).digest()[:12]

    def is_ignored(self, name: str, *, directory: bool) -> bool:
        """By the nearest list that says anything."""
        if self.ignored or self.git:
            return self.ignored and not self.git
        level: Level | None = self
        while level is not None:
            if level._has_rules:
                if level._rules is None:
                    level._rules = Rules(decode_rule_lines(read_bytes_at(level.fd, NAME, MAX_BYTES) or b""))
                verdict = level._rules.find_verdict((self.path + name)[len(level.path) :], directory=directory)
                if verdict is not None:
                    return verdict
            level = level.above
        return False


def list_entries(fd: int) -> Listing:
    """The entries of a folder, links not followed. PermissionError if the folder may not be listed."""
    with os.scandir(fd) as entries:
        dir_entries = list(entries)
    try:
        return [(entry.name, entry.stat(follow_symlinks=False)) for entry in dir_entries]
    except FileNotFoundError:  # some are gone already
        listing = []
        for entry in dir_entries:
            with suppress(FileNotFoundError):
                listing.append((entry.name, entry.stat(follow_symlinks=False)))
        return listing


class NotEntered(Exception):
    """A folder that is gone by now, or closed to us (its argument)."""


@contextmanager
def enter_folder(above: int, name: str) -> Iterator[tuple[int, Listing]]:
    """A folder held open, and what lies in it. One that its owner has closed to himself is open while it is held."""
    with ExitStack() as stack:
        try:
            try:
                fd = stack.enter_context(hold_fd(os.open(name, LIST, dir_fd=above)))
                listing = list_entries(fd)
            except PermissionError:
                held = stack.enter_context(hold_fd(os.open(name, HOLD, dir_fd=above)))
                if (mode := open_up(held)) is None:
                    raise
                stack.callback(chmod_held, held, mode)
                fd = stack.enter_context(hold_fd(os.open(".", LIST, dir_fd=held)))
                listing = list_entries(fd)
        except OSError as error:
            if error.errno not in (*GONE, *_CLOSED):
                raise
            raise NotEntered(error.errno in _CLOSED) from error
        yield fd, listing


RACY_NS = 2_000_000_000  # A file so young may change again, unseen, within one tick of the clock (FAT: two seconds)
_EVER = 1 << 62
_NONE: dict[str, Node] = {}

Take = Callable[[int], str]  # The function that takes an open file and returns its SHA-256 (hex)


class Walk:
    """`take` gets every file whose bytes are not known; with `keep` also those that are known but not kept. Files that
    were captured in `captured` are looked at again for any size. `own_folder` is a folder that belongs to Treadle."""

    def __init__(
        self, known_tree: Tree | None, take: Take, *, keep: bool, captured: Tree | None = None, own_folder: str = ""
    ) -> None:
        self._known = known_tree.folders if known_tree else {}
        self._captured = captured.folders if captured else {}
        self._take, self._keep, self._own = take, keep, own_folder
        self._folders: dict[str, Folder] = {}
        self._clean: dict[str, list[str]] = {}  # Folders that are as they were, with all below: by path, those in them
        self._large = self._ignored = 0
        self.changed = False  # True if the tree differs from the known one

    def visit_root(self, root: Root) -> Tree:
        try:
            with root.hold(".") as (root_fd, _):
                top = os.dup(root_fd)
        except OSError as error:
            raise ToolError(f"The project root {escape_name(root.path)} cannot be read: {error.strerror}.") from error
        try:
            if self._is_unchanged(root, top):
                return Tree(root.path, self._known)
            self._visit(Level(top, list_entries(top)))
        finally:
            os.close(top)
        self.changed = self.changed or len(self._folders) != len(self._known)
        return Tree(root.path, self._folders)

    def _is_unchanged(self, root: Root, top: int) -> bool:
        """True if everything is unchanged."""
        odd = find_odd_folders(top, Tree(root.path, self._known), keep=self._keep)
        if not odd:
            return odd is not None
        dirty = set(odd)
        for folder in odd:
            while folder and (folder := get_folder_above(folder)) not in dirty:
                dirty.add(folder)
        self._clean = {path: [] for path in self._known if path not in dirty}
        for path in self._clean:
            if path and (above := get_folder_above(path)) in self._clean:
                self._clean[above].append(path)
        return False

    def _visit(self, level: Level) -> None:
        path = _encode_key(level.path)
        old = self._known.get(path)
        nodes, fresh = self._split_unchanged(level.listing, old.nodes if old is not None else _NONE)
        if old is not None and old.rules != level.key:
            fresh += _judge_anew(level, nodes)
            old = None
        if old is not None and not fresh and len(nodes) == len(old.nodes):
            folder, self._large, self._ignored = old, self._large + old.large, self._ignored + old.ignored
        else:
            folder = self._build_changed_folder(level, path, nodes, fresh)
        self._folders[path] = folder
        for name, status in level.listing:
            node = folder.nodes.get(_encode_key(name)) if st.S_ISDIR(status.st_mode) else None
            if node is not None and not node.left_out_reason:
                self._descend(level, name, path)

    def _split_unchanged(self, listing: Listing, known_nodes: dict[str, Node]) -> tuple[dict[str, Node], Listing]:
        keep = self._keep
        nodes: dict[str, Node] = {}
        fresh: Listing = []
        for name, status in listing:
            key, mode = name if name.isascii() else encode_path(name), status.st_mode
            node = known_nodes.get(key)
            if node is None or node.mode != mode:
                fresh.append((name, status))
            elif st.S_ISDIR(mode) or (
                node.ctime_ns == status.st_ctime_ns and node.mtime_ns == status.st_mtime_ns
                and node.size == status.st_size and node.inode == status.st_ino and (node.is_stored or not keep)
            ):  # fmt: skip
                nodes[key] = node
            else:
                fresh.append((name, status))
        return nodes, fresh

    def _build_changed_folder(self, level: Level, path: str, nodes: dict[str, Node], fresh: Listing) -> Folder:
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
                nodes[_encode_key(name)] = node
        self._read_all(level, path, files, nodes)
        lacks = any(node.left_out_reason for node in nodes.values())
        return Folder(nodes, level.key, self._large - large, self._ignored - ignored, lacks)

    def _descend(self, level: Level, name: str, above: str) -> None:
        path = _encode_key(f"{level.path}{name}/")
        if path in self._clean and level.key == self._known[above].rules:
            self._take_over(path)
            return
        try:
            with enter_folder(level.fd, name) as (fd, listing):
                below = Level(fd, listing, f"{level.path}{name}/", level)
                below.ignored = self._folders[above].nodes[_encode_key(name)].ignored and not below.git
                self._visit(below)
        except NotEntered as error:
            self._record_not_entered(above, _encode_key(name), is_closed=error.args[0])

    def _take_over(self, path: str) -> None:
        folder = self._folders[path] = self._known[path]
        self._large += folder.large
        self._ignored += folder.ignored
        for below in self._clean[path]:
            self._take_over(below)

    def _record_not_entered(self, above: str, key: str, *, is_closed: bool) -> None:
        self.changed = True
        folder = self._folders[above]
        nodes = dict(folder.nodes)  # the known nodes must stay unchanged
        node = nodes.pop(key)
        if is_closed:
            nodes[key] = Node(node.mode, left_out_reason=trees.UNREADABLE, ignored=node.ignored)
        self._folders[above] = Folder(nodes, folder.rules, folder.large, folder.ignored, folder.lacks or is_closed)

    def _build_other_node(self, level: Level, name: str, status: os.stat_result) -> Node | None:
        """An entry that is no regular file; None if it is gone."""
        mode, ignored = status.st_mode, level.is_ignored(name, directory=st.S_ISDIR(status.st_mode))
        if st.S_ISDIR(mode):
            return Node(mode, left_out_reason=self._judge_folder(level, name, ignored), ignored=ignored)
        if not st.S_ISLNK(mode):
            left_out_reason = trees.CAPTURED if st.S_ISFIFO(mode) else trees.SPECIAL
            return _make_node(status, b"", _EVER, left_out_reason=left_out_reason, ignored=ignored)
        try:
            target = os.readlink(name, dir_fd=level.fd)
        except OSError:  # gone, or no longer a link
            return None
        return _make_node(status, os.fsencode(target), time.time_ns(), ignored=ignored)

    def _judge_folder(self, level: Level, name: str, ignored: bool) -> int:
        if not level.git and name != GIT:
            if self._own and level.path + name == self._own:
                return trees.OWN
            if trees.is_generated(name, ignored):
                return trees.GENERATED_FOLDER
        return trees.CAPTURED if level.depth < trees.DEPTH_CAP else trees.TOO_DEEP

    def _read_all(self, level: Level, path: str, files: Listing, nodes: dict[str, Node]) -> None:
        captured = self._captured.get(path)
        for name, status in files:
            key = _encode_key(name)
            ignored = level.is_ignored(name, directory=False)
            node = captured.nodes.get(key) if captured else None
            was_captured = node is not None and not node.left_out_reason and st.S_ISREG(node.mode)
            left_out_reason = self._judge_file(status.st_size, ignored)
            if left_out_reason and not was_captured:
                nodes[key] = _make_node(status, b"", _EVER, left_out_reason=left_out_reason, ignored=ignored)
            elif (node := self._read(level.fd, name, ignored)) is not None:
                nodes[key] = node
                self._count(node)

    def _read(self, directory: int, name: str, ignored: bool) -> Node | None:
        """A regular file with its bytes taken; None if it is gone, or something else by now."""
        try:
            with hold_file(directory, name) as fd:
                status = os.fstat(fd)
                began = time.time_ns()
                digest = self._take(fd)
                final_status = os.fstat(fd)
        except PermissionError:
            status = os.stat(name, dir_fd=directory, follow_symlinks=False)
            return _make_node(status, b"", _EVER, left_out_reason=trees.UNREADABLE, ignored=ignored)
        except ToolError:
            return None
        except OSError as error:
            if error.errno in GONE:
                return None
            raise
        if len({(each.st_mtime_ns, each.st_ctime_ns, each.st_size) for each in (status, final_status)}) > 1:
            began = 0  # it is being written: what was read is what counts, and the next time it is read again
        return _make_node(status, bytes.fromhex(digest), began, ignored=ignored, is_stored=self._keep)

    def _judge_file(self, size: int, ignored: bool) -> int:
        if ignored and size > trees.IGNORED_FILE_CAP:
            return trees.IGNORED_LARGE
        if size > trees.FILE_CAP:
            return trees.TOO_LARGE
        if self._keep and ignored and self._ignored + size > trees.IGNORED_TOTAL_CAP:
            return trees.IGNORED_FULL
        if self._keep and size > trees.SMALL and self._large + size > trees.TOTAL_CAP:
            return trees.TOTAL_FULL
        return trees.CAPTURED

    def _count(self, node: Node) -> None:
        if not node.left_out_reason and st.S_ISREG(node.mode):
            self._ignored += node.size if node.ignored else 0
            self._large += node.size if not node.ignored and node.size > trees.SMALL else 0


def _encode_key(name: str) -> str:
    return name if name.isascii() else encode_path(name)


def _judge_anew(level: Level, nodes: dict[str, Node]) -> Listing:
    """After a change of the ignore rules, remove the nodes that are judged differently and return their entries."""
    fresh: Listing = []
    for name, status in level.listing:
        node = nodes.get(_encode_key(name))
        if node is not None and node.ignored != level.is_ignored(name, directory=st.S_ISDIR(status.st_mode)):
            del nodes[_encode_key(name)]
            fresh.append((name, status))
    return fresh


def _make_node(
    status: os.stat_result, content: bytes, began: int, *, left_out_reason: int = 0, ignored: bool = False,
    is_stored: bool = True,
) -> Node:  # fmt: skip
    """`began` is when its bytes were read."""
    is_settled = max(status.st_ctime_ns, status.st_mtime_ns) < began - RACY_NS
    ctime = status.st_ctime_ns if is_settled else 0
    numbers = (status.st_mode, status.st_size, status.st_mtime_ns, ctime, status.st_ino)
    return Node(*numbers, content, left_out_reason, ignored, is_stored)


FEWEST = 2_000  # Fewer entries are looked at before a program has started …
_MOST = 200_000  # … and of more too much would be remembered
_MOST_AT_ONCE = 8
_ARGUMENTS = 1 << 19  # So many bytes of arguments one program gets; systems take two to four times as many
_OPENING = 3  # To open a folder takes as long as to look at so many entries
_SECOND = 1_000_000_000
_SAY = ("-mindepth", "1", "-maxdepth", "1", "-type", "d", "-printf", r"%m %p\0", "-o", "-printf", r"%C@ %i %s %p\0")


class _FindListing(msgspec.Struct, frozen=True):
    """The expected output of `find` for a tree, and its output at the last look."""

    folders: dict[str, Folder]
    records: set[bytes]
    unkept: frozenset[str]  # Folders with files whose bytes are not kept
    last_output: tuple[bytes, ...] = ()
    odd: frozenset[str] = frozenset()  # The folders that were not as they should


_last: dict[str, _FindListing] = {}  # By root: the last listing, which the next look most often finds unchanged
_MOST_LAST = 2


def find_odd_folders(top: int, known_tree: Tree, *, keep: bool) -> Set[str] | None:
    """The folders of the tree that may have changed; with `keep` also those with files that are not stored. None if
    `find` cannot be used. `top` is the root, held open."""
    entries = sum(len(folder.nodes) for folder in known_tree.folders.values())
    program = _find_program(known_tree.root) if known_tree.folders and FEWEST <= entries <= _MOST else None
    if program is None or program in _unusable:
        return None
    listing = _build_listing(known_tree)
    try:
        output, is_complete = _ask(program, make_descriptor_path(top, known_tree.root), known_tree)
    except OSError:
        return None
    if output != listing.last_output or not is_complete:
        records = [record for part in output for record in part.split(b"\0")]
        if listing.records.isdisjoint(records):
            _unusable.add(program)  # it speaks another language
        odd = set()
        for record in filter(None, listing.records.symmetric_difference(records)):
            above, slash, _ = record.partition(b" ./")[2].rpartition(b"/")
            odd.add(encode_path(os.fsdecode(above + slash)))
        if not is_complete:  # of an empty folder nothing is said in any case
            odd.update(path for path, folder in listing.folders.items() if not folder.nodes)
        known_odd = frozenset(odd & listing.folders.keys())
        listing = msgspec.structs.replace(listing, last_output=output if is_complete else (), odd=known_odd)
    _last.pop(known_tree.root, None)
    _last[known_tree.root] = listing
    for old in list(_last)[:-_MOST_LAST]:
        _last.pop(old, None)
    return listing.odd | listing.unkept if keep else listing.odd


_unusable: set[str] = set()


@cache
def _find_program(root: str) -> str | None:
    return find_program_outside("find", root)


def _build_listing(known_tree: Tree) -> _FindListing:
    last = _last.get(known_tree.root) or _FindListing({}, set(), frozenset())
    folders = known_tree.folders
    new = [path for path, folder in folders.items() if last.folders.get(path) is not folder]
    removed_paths = [path for path, folder in last.folders.items() if folders.get(path) is not folder]
    if not new and not removed_paths:
        return last
    records = set(last.records) if len(new) < len(folders) else set()
    for path in removed_paths if records else ():
        records.difference_update(_format_records(path, last.folders[path]))
    for path in new:
        records.update(_format_records(path, folders[path]))
    unkept = {path for path in new if not all(node.is_stored for node in folders[path].nodes.values())}
    return _FindListing(folders, records, frozenset(unkept | last.unkept.difference(new, removed_paths)))


def _format_records(path: str, folder: Folder) -> Iterator[bytes]:
    above = _encode_folder(path) + b"/"
    for name, node in folder.nodes.items():
        if st.S_ISDIR(node.mode):
            attributes = b"%o" % st.S_IMODE(node.mode)
        else:
            attributes = b"%d.%09d0 %d %d" % (*divmod(node.ctime_ns, _SECOND), node.inode, node.size)
        yield b"%b %b%b" % (attributes, above, os.fsencode(decode_path(name)))


def _encode_folder(path: str) -> bytes:
    """A folder as it is told to the program: never an option, never outside."""
    return b"./" + os.fsencode(decode_path(path))[:-1] if path else b"."


def _ask(program: str, cwd: str, known_tree: Tree) -> tuple[tuple[bytes, ...], bool]:
    """Return the output of `find` for all folders, and True if it met no error."""
    with ExitStack() as stack:
        processes, files = list["subprocess.Popen[bytes]"](), list[int]()
        for share in _split_into_shares(known_tree):
            files.append(stack.enter_context(hold_fd(make_unnamed_file(b""))))  # of a pipe, each piece would wake us up
            line: list[str | bytes] = [program, *share, *_SAY]
            find = start_blocking(line, {"LC_ALL": "C"}, cwd, stdout=files[-1], stderr=subprocess.DEVNULL)
            processes.append(stack.enter_context(find))
        is_complete = not any([process.wait() for process in processes])
        return tuple(os.pread(fd, os.fstat(fd).st_size, 0) for fd in files), is_complete


def _split_into_shares(known_tree: Tree) -> Iterator[list[bytes]]:
    """The folders, so that each core has about as much to do."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    work = sum(len(folder.nodes) + _OPENING for folder in known_tree.folders.values())
    fair = work / min(cores, _MOST_AT_ONCE)
    share: list[bytes] = []
    share_work = size = 0
    for path, folder in known_tree.folders.items():
        share.append(_encode_folder(path))
        share_work += len(folder.nodes) + _OPENING
        size += len(share[-1]) + 9
        if share_work >= fair or size >= _ARGUMENTS:
            yield share
            share, share_work, size = [], 0, 0
    if share:
        yield share
