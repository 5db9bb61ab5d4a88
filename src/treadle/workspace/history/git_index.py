"""The gitlinks in an index of git: entries that stand for a repository inside the project, into which git would go.
Reads bytes, and knows no file."""

import struct
from collections.abc import Iterator

_HEADER = struct.Struct(">4sII")
_FIXED = 62
"""The bytes of an entry before its name: the mode stands at 24, the flags at 60."""
_EXTENDED = 0x4000
_KIND, _GITLINK = 0o170000, 0o160000
GITLINK = "it links repositories inside the project, into which git would go"


def gitlinks(data: bytes) -> frozenset[bytes]:
    """Their paths; nothing of what is no index."""
    try:
        return frozenset(name for name, mode in _entries(data) if mode & _KIND == _GITLINK)
    except (struct.error, ValueError, IndexError):
        return frozenset()


def _entries(data: bytes) -> Iterator[tuple[bytes, int]]:
    mark, version, number = _HEADER.unpack_from(data)
    if mark != b"DIRC":
        return
    at, name = _HEADER.size, b""
    for _ in range(number):
        (mode,) = struct.unpack_from(">I", data, at + 24)
        (flags,) = struct.unpack_from(">H", data, at + _FIXED - 2)
        start = at + _FIXED + (2 if version >= 3 and flags & _EXTENDED else 0)
        if version >= 4:  # each name goes on from the one before it
            gone, start = _number(data, start)
            end = data.index(b"\0", start)
            name, at = name[: len(name) - gone] + data[start:end], end + 1
        else:
            end = data.index(b"\0", start)
            name, at = data[start:end], at + (end - at) // 8 * 8 + 8
        yield name, mode


def _number(data: bytes, at: int) -> tuple[int, int]:
    """A number of variable length, as in packs with an offset; and where it ends."""
    value = data[at] & 0x7F
    while data[at] & 0x80:
        at += 1
        value = ((value + 1) << 7) | (data[at] & 0x7F)
    return value, at + 1
