"""Which folders of a known tree are as they were, found out by `find`: a program in C on each core looks at files three
times as fast as Python can, and most of what a snapshot costs is the look at every file (W-05).

What it says is only compared with what the tree would say, to the byte. A folder of which it says anything else, or
nothing, is looked at anew by the walk, from descriptor to descriptor; so it does no harm that `find` opens folders by
their paths, which somebody may swap for a link meanwhile (S-01).

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

from treadle.protocol.files import decode_path, encode_path
from treadle.subprocesses import held_folder, program_outside, start_blocking
from treadle.workspace.history.packs import passing_file
from treadle.workspace.history.trees import Folder, Tree
from treadle.workspace.paths.entries import held

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


class _Told(msgspec.Struct, frozen=True):
    """What `find` should say of a tree, and what it said at the last look."""

    folders: dict[str, Folder]
    records: set[bytes]
    unkept: frozenset[str]
    """Folders with files whose bytes are not kept."""
    said: tuple[bytes, ...] = ()
    odd: frozenset[str] = frozenset()
    """The folders that were not as they should."""


_last: dict[str, _Told] = {}
"""By root: what the next look most often finds again."""
_MOST_LAST = 2


def odd_folders(top: int, known: Tree, *, keep: bool) -> Set[str] | None:
    """The folders of the tree that are not certain to be as they were, with `keep` also those of which not all is kept.
    None if nobody could look. `top` is the root, held open."""
    entries = sum(len(folder.nodes) for folder in known.folders.values())
    program = _find(known.root) if known.folders and FEWEST <= entries <= _MOST else None
    if program is None:
        return None
    told = _told(known)
    try:
        said, whole = _ask(program, held_folder(top, known.root), known)
    except OSError:
        return None
    if said != told.said or not whole:
        records = [record for part in said for record in part.split(b"\0")]
        if told.records.isdisjoint(records):
            _unusable.add(program)  # it speaks another language
        told = msgspec.structs.replace(told, said=said if whole else (), odd=_odd(told, records, whole))
    _remember(known.root, told)
    return told.odd | told.unkept if keep else told.odd


_unusable: set[str] = set()


@cache
def _program(root: str) -> str | None:
    return program_outside("find", root)


def _find(root: str) -> str | None:
    program = _program(root)
    return None if program in _unusable else program


def _remember(root: str, told: _Told) -> None:
    _last.pop(root, None)
    _last[root] = told
    for old in list(_last)[:-_MOST_LAST]:
        _last.pop(old, None)


def _odd(told: _Told, records: list[bytes], whole: bool) -> frozenset[str]:
    odd = {_folder_of(record) for record in told.records.symmetric_difference(records) if record}
    if not whole:  # of an empty folder nothing is said in any case
        odd.update(path for path, folder in told.folders.items() if not folder.nodes)
    return frozenset(odd & told.folders.keys())


def _folder_of(record: bytes) -> str:
    folder, slash, _ = record.partition(b" ./")[2].rpartition(b"/")
    return encode_path(os.fsdecode(folder + slash))


# -- what it should say ------------------------------------------------------------------------------------------------


def _told(known: Tree) -> _Told:
    last = _last.get(known.root)
    folders = known.folders
    if last is None:
        last = _Told({}, set(), frozenset())
    new = [path for path, folder in folders.items() if last.folders.get(path) is not folder]
    gone = [path for path, folder in last.folders.items() if folders.get(path) is not folder]
    if not new and not gone:
        return last
    records = set(last.records) if len(new) < len(folders) else set()
    for path in gone if records else ():
        records.difference_update(_records(path, last.folders[path]))
    for path in new:
        records.update(_records(path, folders[path]))
    unkept = {path for path in new if not all(node.kept for node in folders[path].nodes.values())}
    return _Told(folders, records, frozenset(unkept | last.unkept.difference(new, gone)))


def _records(path: str, folder: Folder) -> Iterator[bytes]:
    above = _start(path) + b"/"
    for name, node in folder.nodes.items():
        if st.S_ISDIR(node.mode):
            what = b"%o" % st.S_IMODE(node.mode)
        else:
            what = b"%d.%09d0 %d %d" % (*divmod(node.ctime_ns, _SECOND), node.inode, node.size)
        yield b"%b %b%b" % (what, above, os.fsencode(decode_path(name)))


def _start(path: str) -> bytes:
    """A folder as it is told to the program: never an option, never outside."""
    return b"./" + os.fsencode(decode_path(path))[:-1] if path else b"."


# -- asking ------------------------------------------------------------------------------------------------------------


def _ask(program: str, cwd: str, known: Tree) -> tuple[tuple[bytes, ...], bool]:
    """What it says of all the folders, and whether nothing was in its way."""
    with ExitStack() as stack:
        asked = [stack.enter_context(_asked(program, cwd, share)) for share in _shares(known)]
        whole = not any([process.wait() for process, _ in asked])
        return tuple(os.pread(fd, os.fstat(fd).st_size, 0) for _, fd in asked), whole


@contextmanager
def _asked(program: str, cwd: str, folders: Sequence[bytes]) -> Iterator[tuple["subprocess.Popen[bytes]", int]]:
    """One that is running, and the file that it writes to: through a pipe, each piece would wake us up."""
    with (
        held(passing_file(b"")) as fd,
        start_blocking(
            [program, *folders, *_SAY], {"LC_ALL": "C"}, cwd, stdout=fd, stderr=subprocess.DEVNULL
        ) as process,
    ):
        yield process, fd


def _shares(known: Tree) -> Iterator[list[bytes]]:
    """The folders, so that each core has about as much to do."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    work = sum(len(folder.nodes) + _OPENING for folder in known.folders.values())
    fair = work / min(cores, _MOST_AT_ONCE)
    share: list[bytes] = []
    done = size = 0
    for path, folder in known.folders.items():
        share.append(_start(path))
        done += len(folder.nodes) + _OPENING
        size += len(share[-1]) + 9
        if done >= fair or size >= _ARGUMENTS:
            yield share
            share, done, size = [], 0, 0
    if share:
        yield share
