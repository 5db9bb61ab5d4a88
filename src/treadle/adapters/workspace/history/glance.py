"""Finds the unchanged folders of a known tree with `find`: a program in C on each core looks at files three times as
fast as Python can, and most of the cost of a snapshot is the look at every file (W-05).

Its output is only compared with the expected output for the tree, to the byte. A folder for which it prints anything
else, or nothing, is looked at anew by the walk, from descriptor to descriptor. So it does no harm that `find` opens
folders by their paths, which another program may replace by a link meanwhile (S-01).

A file is the same if its change time, its inode and its size are: no mode, no other time and no byte changes without
the first. Of a folder only the mode counts, as in the walk.
"""

import os
import stat as st
import subprocess
from collections.abc import Iterator, Sequence, Set
from contextlib import ExitStack, contextmanager
from functools import cache

import msgspec

from treadle.adapters.workspace.history.content_store import passing_file
from treadle.adapters.workspace.history.trees import Folder, Tree
from treadle.adapters.workspace.paths.entries import closing_fd
from treadle.base.subprocesses import held_folder, program_outside, start_blocking
from treadle.protocol.files import decode_path, encode_path

FEWEST = 2_000
"""Fewer entries are looked at before a program has started …"""
_MOST = 200_000
"""… and of more too much would be remembered."""
_MOST_AT_ONCE = 8
_ARGUMENTS = 1 << 19
"""So many bytes of arguments one program gets; systems take two to four times as many."""
_OPENING = 3
"""To open a folder takes as long as to look at so many entries."""
_SECOND = 1_000_000_000
_SAY = ("-mindepth", "1", "-maxdepth", "1", "-type", "d", "-printf", r"%m %p\0", "-o", "-printf", r"%C@ %i %s %p\0")


class _FindListing(msgspec.Struct, frozen=True):
    """The expected output of `find` for a tree, and its output at the last look."""

    folders: dict[str, Folder]
    records: set[bytes]
    unkept: frozenset[str]
    """Folders with files whose bytes are not kept."""
    last_output: tuple[bytes, ...] = ()
    odd: frozenset[str] = frozenset()
    """The folders that were not as they should."""


_last: dict[str, _FindListing] = {}
"""By root: the last listing, which the next look most often finds unchanged."""
_MOST_LAST = 2


def odd_folders(top: int, known_tree: Tree, *, keep: bool) -> Set[str] | None:
    """The folders of the tree that may have changed; with `keep` also those with files that are not stored. None if
    `find` cannot be used. `top` is the root, held open."""
    entries = sum(len(folder.nodes) for folder in known_tree.folders.values())
    program = _program(known_tree.root) if known_tree.folders and FEWEST <= entries <= _MOST else None
    if program is None or program in _unusable:
        return None
    listing = _build_listing(known_tree)
    try:
        output, is_complete = _ask(program, held_folder(top, known_tree.root), known_tree)
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
def _program(root: str) -> str | None:
    return program_outside("find", root)


def _build_listing(known_tree: Tree) -> _FindListing:
    last = _last.get(known_tree.root) or _FindListing({}, set(), frozenset())
    folders = known_tree.folders
    new = [path for path, folder in folders.items() if last.folders.get(path) is not folder]
    removed_paths = [path for path, folder in last.folders.items() if folders.get(path) is not folder]
    if not new and not removed_paths:
        return last
    records = set(last.records) if len(new) < len(folders) else set()
    for path in removed_paths if records else ():
        records.difference_update(_records(path, last.folders[path]))
    for path in new:
        records.update(_records(path, folders[path]))
    unkept = {path for path in new if not all(node.is_stored for node in folders[path].nodes.values())}
    return _FindListing(folders, records, frozenset(unkept | last.unkept.difference(new, removed_paths)))


def _records(path: str, folder: Folder) -> Iterator[bytes]:
    above = _start(path) + b"/"
    for name, node in folder.nodes.items():
        if st.S_ISDIR(node.mode):
            attributes = b"%o" % st.S_IMODE(node.mode)
        else:
            attributes = b"%d.%09d0 %d %d" % (*divmod(node.ctime_ns, _SECOND), node.inode, node.size)
        yield b"%b %b%b" % (attributes, above, os.fsencode(decode_path(name)))


def _start(path: str) -> bytes:
    """A folder as it is told to the program: never an option, never outside."""
    return b"./" + os.fsencode(decode_path(path))[:-1] if path else b"."


def _ask(program: str, cwd: str, known_tree: Tree) -> tuple[tuple[bytes, ...], bool]:
    """Return the output of `find` for all folders, and True if it met no error."""
    with ExitStack() as stack:
        processes = [stack.enter_context(_start_find(program, cwd, share)) for share in _shares(known_tree)]
        is_complete = not any([process.wait() for process, _ in processes])
        return tuple(os.pread(fd, os.fstat(fd).st_size, 0) for _, fd in processes), is_complete


@contextmanager
def _start_find(program: str, cwd: str, folders: Sequence[bytes]) -> Iterator[tuple["subprocess.Popen[bytes]", int]]:
    """One that is running, and the file that it writes to: through a pipe, each piece would wake us up."""
    with (
        closing_fd(passing_file(b"")) as fd,
        start_blocking(
            [program, *folders, *_SAY], {"LC_ALL": "C"}, cwd, stdout=fd, stderr=subprocess.DEVNULL
        ) as process,
    ):
        yield process, fd


def _shares(known_tree: Tree) -> Iterator[list[bytes]]:
    """The folders, so that each core has about as much to do."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    work = sum(len(folder.nodes) + _OPENING for folder in known_tree.folders.values())
    fair = work / min(cores, _MOST_AT_ONCE)
    share: list[bytes] = []
    share_work = size = 0
    for path, folder in known_tree.folders.items():
        share.append(_start(path))
        share_work += len(folder.nodes) + _OPENING
        size += len(share[-1]) + 9
        if share_work >= fair or size >= _ARGUMENTS:
            yield share
            share, share_work, size = [], 0, 0
    if share:
        yield share
