"""From one tree to a later one: what was made, changed and removed, and what could not be told (W-05). Pure but for the
bytes of changed texts, which the caller gives."""

import stat as st
from collections.abc import Callable, Iterator

from treadle.lines.diff import diff
from treadle.protocol.files import DiffStat, FileChange, FileState, Uncaptured, change_of, decode_path, encode_path
from treadle.workspace.history.left_out import OWN, listed
from treadle.workspace.history.trees import Folder, Node, Tree, path_in, state_of

_TEXT_CAP = 1 << 20
_MOST_COUNTED = 1_000
"""The lines of so many changed files are counted."""
_BINARY = 8_000
"""A NUL byte among so many first ones makes a file no text."""

BytesOf = Callable[[str, FileState, bool], bytes | None]
"""The bytes at a path, before (False) or after (True); None if they cannot be had."""
_EMPTY = Folder({})


def changes(before: Tree, after: Tree, bytes_of: BytesOf) -> tuple[tuple[FileChange, ...], tuple[Uncaptured, ...]]:
    files: list[FileChange] = []
    left: list[tuple[str, int, int]] = []
    said: dict[str, str] = {}
    for path, old, new in _pairs(before, after):
        lacking = old if old is not None and old.left else new
        if lacking is not None and lacking.left:
            what = _became(old, new)
            if what or (_unseen(new) and lacking.left != OWN):
                left.append((path, lacking.left, max(lacking.size, new.size if new else 0)))
                if what:
                    said[path] = what
            continue
        was, now = (None if node is None else state_of(node) for node in (old, new))
        if was != now:
            node = old or new
            files.append(change_of(path, was, now, DiffStat(), ignored=node is not None and node.ignored))
    files.sort(key=lambda each: each.path)
    return tuple(_counted(files, bytes_of)), listed(left, said)


def left_in(tree: Tree) -> tuple[Uncaptured, ...]:
    """What a tree lacks."""
    return listed(
        (path_in(folder, name), node.left, node.size)
        for folder, found in tree.folders.items()
        if found.lacks
        for name, node in found.nodes.items()
        if node.left
    )


def _pairs(before: Tree, after: Tree) -> Iterator[tuple[str, Node | None, Node | None]]:
    """Every entry that is not exactly the same in both, and what was left out of both."""
    for folder in before.folders.keys() | after.folders.keys():
        old, new = before.folders.get(folder), after.folders.get(folder)
        if (old is None and _hidden(folder, before)) or (new is None and _hidden(folder, after)):
            continue  # seen in one of them only, which tells nothing
        old, new = old or _EMPTY, new or _EMPTY
        if old is new and not new.lacks:
            continue
        for name in old.nodes.keys() | new.nodes.keys():
            one, other = old.nodes.get(name), new.nodes.get(name)
            if one is not other or (one is not None and one.left):
                yield path_in(folder, name), one, other


def _hidden(folder: str, tree: Tree) -> bool:
    """Whether a folder that is not in a tree lies where nobody looked."""
    path = decode_path(folder)[:-1]
    while path:
        above, slash, name = path.rpartition("/")
        found = tree.folders.get(encode_path(above + slash))
        if found is not None:
            return _unseen(found.nodes.get(encode_path(name)))
        path = above
    return False


def _became(old: Node | None, new: Node | None) -> str:
    """What happened to something that was left out; empty if nothing is known to have happened."""
    if old is None:
        return "created"
    if new is None:
        return "deleted"
    if st.S_ISDIR(old.mode) and st.S_ISDIR(new.mode):
        return "" if old.mode == new.mode else "changed"
    same = (old.mode, old.size, old.mtime_ns, old.ctime_ns, old.inode) == (
        new.mode,
        new.size,
        new.mtime_ns,
        new.ctime_ns,
        new.inode,
    )
    return "" if same else "changed"


def _unseen(node: Node | None) -> bool:
    """A folder that nobody looked into."""
    return node is not None and bool(node.left) and st.S_ISDIR(node.mode)


def _counted(files: list[FileChange], bytes_of: BytesOf) -> Iterator[FileChange]:
    counted = 0
    for file in files:
        if file.ignored or counted >= _MOST_COUNTED or not _countable(file):
            yield file
            continue
        counted += 1
        old = bytes_of(file.path, file.before, False) if file.before else b""
        new = bytes_of(file.path, file.after, True) if file.after else b""
        yield file if old is None or new is None else _with_lines(file, old, new)


def _countable(file: FileChange) -> bool:
    states = [state for state in (file.before, file.after) if state is not None]
    return all(state.kind == "file" and state.size <= _TEXT_CAP for state in states)


def _with_lines(file: FileChange, old: bytes, new: bytes) -> FileChange:
    if b"\0" in old[:_BINARY] or b"\0" in new[:_BINARY] or old == new:
        return file
    texts = [data.decode(errors="surrogateescape") for data in (old, new)]
    stat = diff(file.path, texts[0] if file.before else None, texts[1] if file.after else None).stat
    return change_of(file.path, file.before, file.after, stat, ignored=file.ignored)
