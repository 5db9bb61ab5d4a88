"""Reads an index of git, entry by entry: the paths that git tracks, the gitlinks among them (each stands for a
repository inside the project into which git would go), the paths that git is told not to look at; and a hash of all
entries. Reads bytes, and knows no file."""

import hashlib
import struct
from collections.abc import Iterator

import msgspec

_HEADER = struct.Struct(">4sII")
_FIXED = 62
"""The bytes of an entry before its name: the mode stands at 24, the object at 40, the flags at 60."""
_EXTENDED = 0x4000
_ASSUME_UNCHANGED = 0x8000
_SKIP_WORKTREE = 0x4000
"""Among the flags of later versions."""
_KIND, _GITLINK = 0o170000, 0o160000
GITLINK = "it links repositories inside the project, into which git would go"


class IndexMarks(msgspec.Struct, frozen=True):
    """The paths of an index with a mark of some kind; none of what is no index."""

    gitlinks: frozenset[bytes] = frozenset()
    hidden_paths: frozenset[bytes] = frozenset()
    """Marked `assume-unchanged` or `skip-worktree`: git shows no change of them."""


def index_marks(data: bytes) -> IndexMarks:
    links, hidden_names = [], []
    try:
        for fixed, more, name in _entries(data):
            if int.from_bytes(fixed[24:28], "big") & _KIND == _GITLINK:
                links.append(name)
            if fixed[60] & _ASSUME_UNCHANGED >> 8 or (more and more[0] & _SKIP_WORKTREE >> 8):
                hidden_names.append(name)
    except (struct.error, ValueError, IndexError):
        return IndexMarks()
    return IndexMarks(frozenset(links), frozenset(hidden_names))


def tracked_paths(data: bytes) -> frozenset[bytes]:
    """All paths of an index; none of what is no index."""
    try:
        return frozenset(name for _, _, name in _entries(data))
    except (struct.error, ValueError, IndexError):
        return frozenset()


def index_digest(data: bytes) -> str:
    """A hash of what an index says: which paths, with which modes, objects and flags. Of its bytes, where it is none
    that is understood."""
    try:
        total = hashlib.sha256(b"index\0")
        for fixed, more, name in _entries(data, require_whole=True):
            flags = int.from_bytes(fixed[60:], "big") & 0xF000
            total.update(b"%s %s %04x%s %s\0" % (fixed[24:28], fixed[40:60], flags, more, name))
        return total.hexdigest()
    except (struct.error, ValueError, IndexError):
        return hashlib.sha256(data).hexdigest()


def _entries(data: bytes, *, require_whole: bool = False) -> Iterator[tuple[bytes, bytes, bytes]]:
    """Of each entry what comes before its name, the flags of later versions, and its name. ValueError, or an error of
    bytes that are not there, for what is no index; with `whole` also for one that is only a part."""
    mark, version, number = _HEADER.unpack_from(data)
    if mark != b"DIRC" or version not in (2, 3, 4):
        raise ValueError("no index")
    at, name = _HEADER.size, b""
    for _ in range(number):
        (fixed,) = struct.unpack_from(f"{_FIXED}s", data, at)
        start = at + _FIXED
        extended = version > 2 and int.from_bytes(fixed[60:], "big") & _EXTENDED
        more = data[start : start + 2] if extended else b""
        start += len(more)
        if version == 4:  # each name goes on from the one before it
            dropped_length, start = _number(data, start)
            if dropped_length > len(name):
                raise ValueError("a name that is shorter than nothing")
            end = data.index(b"\0", start)
            name, at = name[: len(name) - dropped_length] + data[start:end], end + 1
        else:
            end = data.index(b"\0", start)
            name, at = data[start:end], at + (end - at) // 8 * 8 + 8
        yield fixed, more, name
    if require_whole:
        _refuse_shared(data, at)


def _refuse_shared(data: bytes, at: int) -> None:
    """An index that is only a part of one, or that is kept for another kind of hash, is not understood."""
    end = len(data) - 20
    while at + 8 <= end:
        kind, size = struct.unpack_from(">4sI", data, at)
        if kind == b"link":
            raise ValueError("a shared index")
        at += 8 + size
    if at != end:
        raise ValueError("something else behind the entries")


def _number(data: bytes, at: int) -> tuple[int, int]:
    """A number of variable length, as in packs with an offset; and where it ends."""
    value = data[at] & 0x7F
    while data[at] & 0x80:
        at += 1
        value = ((value + 1) << 7) | (data[at] & 0x7F)
    return value, at + 1
