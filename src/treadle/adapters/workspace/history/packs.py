"""Small objects that are kept together, in one file that has the name of each of them. To make a file costs far more
than to give it another name, so a hundred small files are kept as quickly as one."""

import hashlib
import os
import tempfile
from collections.abc import Mapping

import msgspec

from treadle.adapters.workspace.paths.durable import write_at

SMALL = 1 << 15
"""Objects up to so many bytes are packed, …"""
FULL = 1 << 20
"""… until the pack has so many. It stays as long as one of its names."""
OVERHEAD = 256
"""The bytes that each object counts beside its own: a file can have only so many names."""
FEWEST = 4
_SIGN = b"TREADLE PACK 1\n"
_HEAD = len(_SIGN) + 8
_LARGEST_INDEX = 1 << 24

_MOST_KNOWN = 4

Places = dict[str, tuple[int, int]]
"""By hash, where an object begins behind the index, and how long it is."""
_index = msgspec.msgpack.Decoder(Places)
_index_cache: dict[tuple[int, ...], Places] = {}
"""The indexes that were read last: a caller that needs one object often needs its neighbours."""


def write_pack(fd: int, objects: Mapping[str, bytes]) -> None:
    """The objects, by their hashes, into an empty file."""
    places: Places = {}
    offset = 0
    for digest, data in objects.items():
        places[digest] = (offset, len(data))
        offset += len(data)
    index = msgspec.msgpack.encode(places)
    write_at(fd, b"".join((_SIGN, len(index).to_bytes(8, "big"), index, *objects.values())), 0)


def packed(fd: int, digest: str) -> bytes | None:
    """The object with this hash, verified; None if the file is no pack with it."""
    head = os.pread(fd, _HEAD, 0)
    size = int.from_bytes(head[len(_SIGN) :], "big")
    if not head.startswith(_SIGN) or size > _LARGEST_INDEX:
        return None
    try:
        place = _places(fd, size).get(digest)
    except msgspec.DecodeError:
        return None
    if place is None:
        return None
    data = os.pread(fd, place[1], _HEAD + size + place[0])
    return data if hashlib.sha256(data).hexdigest() == digest else None


def _places(fd: int, size: int) -> Places:
    status = os.fstat(fd)
    key = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, size)
    places = _index_cache.get(key)
    if places is None:
        places = _index.decode(os.pread(fd, size, _HEAD))
        if len(_index_cache) >= _MOST_KNOWN:
            _index_cache.clear()
        _index_cache[key] = places
    return places


def passing_file(data: bytes) -> int:
    """Return a descriptor of an unnamed file with these bytes, open for reading at its beginning."""
    if hasattr(os, "memfd_create"):
        fd = os.memfd_create("treadle", os.MFD_CLOEXEC)
    else:
        with tempfile.TemporaryFile() as file:
            fd = os.dup(file.fileno())
    write_at(fd, data, 0)
    return fd
