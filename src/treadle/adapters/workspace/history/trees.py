"""A project's tree as it was at some moment: by folder, each entry with what tells whether it has changed since and
with the hash of its bytes; and what was made, changed and removed from one tree to a later one. The file of the last
one is the cache of the next (W-05). Knows no project: only such files, and the bytes that the caller gives.

Entries that a snapshot leaves out are listed with the reason, never silently (W-05). A folder is left out by its name
alone only where the name says that a tool made everything in it and can make it again. Names that are also given to
folders of sources (build, target …) count only where .gitignore names the folder, too.

An entry that changed shortly before it was looked at might change again without its times telling: it is written down
with no ctime, so that it is read again the next time."""

import hashlib
import os
import stat as st
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

import msgspec

from treadle.base.file_system import reach_faultpoint
from treadle.base.types import make_id
from treadle.diff.changes import CACHES
from treadle.diff.diff import count_lines
from treadle.protocol.files import (
    DiffStat,
    FileChange,
    FileState,
    Uncaptured,
    decode_path,
    encode_path,
    make_file_change,
)

FILE_CAP = 64 << 20
IGNORED_FILE_CAP = 1 << 20
SMALL = 1 << 20
"""Files up to this size are kept in any number; larger ones up to TOTAL_CAP together, so that a folder of data cannot
crowd out the sources."""
TOTAL_CAP = 4 << 30
IGNORED_TOTAL_CAP = 256 << 20
DEPTH_CAP = 250

GENERATED_IF_IGNORED = frozenset((
    "venv", "env", "virtualenv", "build", "dist", "out", "target", "vendor", "Pods", "Carthage", "_build", ".build",
    "cmake-build-debug", "cmake-build-release", ".cache", ".output", ".yarn", ".bundle", "DerivedData", "bazel-out",
    "zig-cache", ".zig-cache",
))  # fmt: skip

CAPTURED = 0
TOO_LARGE, IGNORED_LARGE, TOTAL_FULL, IGNORED_FULL, UNREADABLE, GENERATED_FOLDER, TOO_DEEP, SPECIAL, OWN = range(1, 10)
REASONS = {
    TOO_LARGE: f"larger than {FILE_CAP >> 20} MiB",
    IGNORED_LARGE: f"named by .gitignore and larger than {IGNORED_FILE_CAP >> 20} MiB",
    TOTAL_FULL: f"the large files of this project have more than {TOTAL_CAP >> 30} GiB together",
    IGNORED_FULL: f"the files named by .gitignore have more than {IGNORED_TOTAL_CAP >> 20} MiB together",
    UNREADABLE: "cannot be read by the user who runs Treadle",
    GENERATED_FOLDER: "a folder of generated files",
    TOO_DEEP: f"lies more than {DEPTH_CAP} folders deep",
    SPECIAL: "a socket or a device",
    OWN: "Treadle's own data",
}
_MOST_LISTED = 40


def is_generated(name: str, ignored: bool) -> bool:
    return name in CACHES or (ignored and name in GENERATED_IF_IGNORED)


def list_uncaptured(
    omitted: Iterable[tuple[str, int, int]], outcomes: Mapping[str, str] | None = None
) -> tuple[Uncaptured, ...]:
    """Paths with why they were left out and their size, as they are told: folders of one name in one line, and of very
    many files the largest. `outcomes`: what became of some of them meanwhile."""
    outcomes = outcomes or {}
    folders: dict[str, list[str]] = {}
    entries: list[Uncaptured] = []
    for path, reason, size in omitted:
        if reason == OWN:
            continue
        if reason == GENERATED_FOLDER and path not in outcomes:
            folders.setdefault(path.rpartition("/")[2], []).append(path)
        else:
            became = f"{outcomes[path]}; " if path in outcomes else ""
            entries.append(Uncaptured(path, f"{became}{REASONS[reason]}", size))
    for name, paths in folders.items():
        alone = len(paths) == 1
        description = REASONS[GENERATED_FOLDER] if alone else f"{len(paths):,} folders of generated files"
        entries.append(Uncaptured(paths[0] if alone else f"**/{name}", description))
    entries.sort(key=lambda each: -each.size)
    if surplus := entries[_MOST_LISTED:]:
        total = sum(each.size for each in surplus)
        entries[_MOST_LISTED:] = [Uncaptured("**", f"{len(surplus):,} more that were left out", total)]
    return tuple(sorted(entries, key=lambda each: each.path))


_VERSION = 1
_HASH = 32


class Node(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One name in a folder. A directory has only a mode: its entries are not part of its node."""

    mode: int  # With the bits that tell the kind
    size: int = 0
    mtime_ns: int = 0
    ctime_ns: int = 0
    inode: int = 0
    content: bytes = b""  # The SHA-256 of a file's bytes; where a link points
    left_out_reason: int = 0  # Why it was left out (`left_out`); 0: it was not
    ignored: bool = False
    is_stored: bool = True  # False: its bytes are known but not kept


class Folder(msgspec.Struct, frozen=True, array_like=True):
    nodes: dict[str, Node]  # By name, in the form of `encode_path`
    rules: bytes = b""  # Stands for all the .gitignore files that speak of this folder
    large: int = 0  # How many bytes of its files count for the cap of large ones …
    ignored: int = 0  # … and for the cap of ignored ones
    lacks: bool = False  # True if some entries were left out


class Tree(msgspec.Struct, frozen=True, array_like=True):
    root: str
    folders: dict[str, Folder]  # By path with a slash at its end, in the form of `encode_path`; the root's is empty
    version: int = _VERSION


_decoder = msgspec.msgpack.Decoder(Tree)


def make_state(node: Node) -> FileState:
    mode = st.S_IMODE(node.mode)
    if st.S_ISREG(node.mode):
        return FileState("file", mode, node.content.hex(), node.size)
    if st.S_ISLNK(node.mode):
        return FileState("link", target=encode_path(os.fsdecode(node.content)))
    return FileState("directory" if st.S_ISDIR(node.mode) else "fifo" if st.S_ISFIFO(node.mode) else "other", mode)


_KINDS = {"file": st.S_IFREG, "directory": st.S_IFDIR, "link": st.S_IFLNK, "fifo": st.S_IFIFO}


def make_node(state: FileState, ignored: bool) -> Node:
    """As one that is read again at the next look: nothing is known of its times."""
    content = bytes.fromhex(state.digest) if state.kind == "file" else os.fsencode(decode_path(state.target))
    return Node(_KINDS.get(state.kind, st.S_IFSOCK) | state.mode, state.size, content=content, ignored=ignored)


def update_tree(tree: Tree, files: Iterable[FileChange]) -> Tree:
    folders = dict(tree.folders)
    changed_nodes: dict[str, dict[str, Node]] = {}
    ordered = sorted(files, key=lambda each: decode_path(each.path))
    removals = [each for each in reversed(ordered) if each.after is None]  # from the bottom up, and before what comes
    for each in (*removals, *(each for each in ordered if each.after is not None)):
        above, slash, name = decode_path(each.path).rpartition("/")
        key, below = encode_path(above + slash), encode_path(decode_path(each.path) + "/")
        nodes = changed_nodes.setdefault(key, dict(folders.get(key, _EMPTY).nodes))
        nodes.pop(encode_path(name), None)
        if each.after is not None:
            nodes[encode_path(name)] = make_node(each.after, each.ignored)
        if each.after is not None and each.after.kind == "directory":
            changed_nodes.setdefault(below, dict(folders.get(below, _EMPTY).nodes))
        else:
            changed_nodes.pop(below, None)
            folders.pop(below, None)
    for key, nodes in changed_nodes.items():
        folders[key] = msgspec.structs.replace(folders.get(key, _EMPTY), nodes=nodes)
    return Tree(tree.root, folders)


def join_path(folder: str, name: str) -> str:
    """The path of an entry; all of them in the form of `encode_path`."""
    if folder.isascii() and name.isascii() and not folder.startswith("//") and not name.startswith("//"):
        return folder + name
    return encode_path(decode_path(folder) + decode_path(name))


def get_folder_above(folder: str) -> str:
    """The key of the folder above one that is not the root."""
    above, slash, _ = decode_path(folder)[:-1].rpartition("/")
    return encode_path(above + slash)


def read_tree(file: Path, unless: int = 0) -> tuple[Tree, int] | None:
    """The tree in a file, and the file's inode; None if there is none, or none that can be trusted, or if the file is
    the one with the inode `unless`."""
    with suppress(OSError, msgspec.DecodeError), file.open("rb") as stream:
        inode = os.fstat(stream.fileno()).st_ino
        if inode == unless:
            return None
        name = stream.read(_HASH)
        if (cached_tree := _recent.get(name)) is not None:
            return cached_tree, inode
        body = stream.read()
        if hashlib.sha256(body).digest() == name and (tree := _decoder.decode(body)).version == _VERSION:
            _remember(name, tree)
            return tree, inode
    return None


_recent: dict[bytes, Tree] = {}
"""By the hash of their bytes: trees that were read or written last, one before a command and one after it. Trees never
change, so they can be shared."""
_MOST_RECENT = 2


def _remember(name: bytes, tree: Tree) -> None:
    _recent[name] = tree
    for old in list(_recent)[:-_MOST_RECENT]:
        _recent.pop(old, None)


def write_tree(folder: Path, tree: Tree, *, durable: bool) -> Path:
    """A new file with a name of its own, for the caller to give it its place."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    body = msgspec.msgpack.encode(tree)
    name = hashlib.sha256(body).digest()
    file = folder / f".{make_id('tree')}"
    try:
        fd = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with open(fd, "wb") as stream:
            stream.write(name + body)
            if durable:
                stream.flush()
                os.fsync(fd)
    except BaseException:
        file.unlink(missing_ok=True)
        raise
    reach_faultpoint("snapshot.tree_written")
    _remember(name, tree)
    return file


_TEXT_CAP = 1 << 20
_MOST_COUNTED = 1_000  # The lines of so many changed files are counted
_BINARY = 8_000  # A NUL byte among so many first ones makes a file no text

BytesOf = Callable[[str, FileState, bool], bytes | None]
"""The bytes at a path, before (False) or after (True); None if they cannot be had."""
_EMPTY = Folder({})


def compare_trees(
    old_tree: Tree, new_tree: Tree, bytes_of: BytesOf
) -> tuple[tuple[FileChange, ...], tuple[Uncaptured, ...]]:
    files: list[FileChange] = []
    omitted: list[tuple[str, int, int]] = []
    outcomes: dict[str, str] = {}
    for path, old, new in _pair_nodes(old_tree, new_tree):
        lacking = old if old is not None and old.left_out_reason else new
        if lacking is not None and lacking.left_out_reason:
            outcome = _describe_outcome(old, new)
            if outcome or (_is_unseen(new) and lacking.left_out_reason != OWN):
                omitted.append((path, lacking.left_out_reason, max(lacking.size, new.size if new else 0)))
                if outcome:
                    outcomes[path] = outcome
            continue
        was, now = (None if node is None else make_state(node) for node in (old, new))
        if was != now:
            node = old or new
            files.append(make_file_change(path, was, now, DiffStat(), ignored=node is not None and node.ignored))
    files.sort(key=lambda each: each.path)
    return tuple(_add_line_counts(files, bytes_of)), list_uncaptured(omitted, outcomes)


def find_uncaptured(tree: Tree) -> tuple[Uncaptured, ...]:
    nodes = ((path, *item) for path, folder in tree.folders.items() if folder.lacks for item in folder.nodes.items())
    return list_uncaptured(
        (join_path(path, name), node.left_out_reason, node.size) for path, name, node in nodes if node.left_out_reason
    )


def _pair_nodes(old_tree: Tree, new_tree: Tree) -> Iterator[tuple[str, Node | None, Node | None]]:
    """Every entry that is not exactly the same in both, and what was left out of both."""
    for folder in old_tree.folders.keys() | new_tree.folders.keys():
        old, new = old_tree.folders.get(folder), new_tree.folders.get(folder)
        if (old is None and _is_unvisited(folder, old_tree)) or (new is None and _is_unvisited(folder, new_tree)):
            continue  # seen in one of them only, which tells nothing
        old, new = old or _EMPTY, new or _EMPTY
        if old is new and not new.lacks:
            continue
        for name in old.nodes.keys() | new.nodes.keys():
            one, new_node = old.nodes.get(name), new.nodes.get(name)
            if one is not new_node or (one is not None and one.left_out_reason):
                yield join_path(folder, name), one, new_node


def _is_unvisited(folder: str, tree: Tree) -> bool:
    """True if a folder that is not in a tree lies in one that was not entered."""
    path = decode_path(folder)[:-1]
    while path:
        above, slash, name = path.rpartition("/")
        parent = tree.folders.get(encode_path(above + slash))
        if parent is not None:
            return _is_unseen(parent.nodes.get(encode_path(name)))
        path = above
    return False


def _describe_outcome(old: Node | None, new: Node | None) -> str:
    """The change of an entry that was left out; empty if none is known."""
    if old is None or new is None:
        return "created" if old is None else "deleted"
    one, two = ((each.mode, each.size, each.mtime_ns, each.ctime_ns, each.inode) for each in (old, new))
    folders = st.S_ISDIR(old.mode) and st.S_ISDIR(new.mode)
    return "" if one == two or (folders and old.mode == new.mode) else "changed"


def _is_unseen(node: Node | None) -> bool:
    """True for a folder that was not entered."""
    return node is not None and bool(node.left_out_reason) and st.S_ISDIR(node.mode)


def _add_line_counts(files: list[FileChange], bytes_of: BytesOf) -> Iterator[FileChange]:
    counted = 0
    for file in files:
        states = [state for state in (file.before, file.after) if state is not None]
        is_countable = all(state.kind == "file" and state.size <= _TEXT_CAP for state in states)
        if file.ignored or counted >= _MOST_COUNTED or not is_countable:
            yield file
            continue
        counted += 1
        old = bytes_of(file.path, file.before, False) if file.before else b""
        new = bytes_of(file.path, file.after, True) if file.after else b""
        if old is None or new is None or b"\0" in old[:_BINARY] or b"\0" in new[:_BINARY] or old == new:
            yield file
            continue
        stat = count_lines(*(data.decode(errors="surrogateescape") for data in (old, new)))
        yield make_file_change(file.path, file.before, file.after, stat, ignored=file.ignored)
