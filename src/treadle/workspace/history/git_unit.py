"""What lies under `.git` is one: a part of it alone, brought back, would be a damaged repository. So it is undone as a
unit, and only as long as nobody else has touched it, which a fingerprint tells.

The index is read for what it says, not for its bytes: git writes into it when it last looked at each file, and any
`git status` does that anew. Objects are left out: they are named by their content, and nothing points to a new one
before something else changes.
"""

import hashlib
import os
import stat as st
import struct
from collections.abc import Iterator

import msgspec

from treadle.errors import ToolError
from treadle.workspace.paths.entries import LIST, READ
from treadle.workspace.root import Root

UNIT = ".git"
INDEX = ".git/index"
NONE = "none"
_LEFT_OUT = frozenset({"objects", "index.lock"})
_MAX_INDEX = 256 << 20


def git_fingerprint(root: Root) -> str:
    """A hash of all that lies under the root's `.git`, but for objects; `none` if there is no such folder."""
    total = hashlib.sha256()
    try:
        with root.named(UNIT) as place:
            fd = os.open(place.name, LIST, dir_fd=place.fd)
    except (ToolError, OSError):
        return NONE
    try:
        for line in _lines(fd, "", _LEFT_OUT):
            total.update(line)
    finally:
        os.close(fd)
    return total.hexdigest()


def _lines(folder: int, above: str, left_out: frozenset[str] = frozenset()) -> Iterator[bytes]:
    for name in sorted(os.listdir(folder)):
        if name in left_out:
            continue
        path = f"{above}{name}"
        try:
            found = os.stat(name, dir_fd=folder, follow_symlinks=False)
            what = _what(folder, name, found)
        except FileNotFoundError:  # gone at this moment
            continue
        except OSError as error:  # whoever cannot read it cannot change it
            what = f"unreadable {error.errno}"
        yield b"%s\0%o\0%s\n" % (os.fsencode(path), found.st_mode, what.encode("utf-8", "surrogateescape"))
        if st.S_ISDIR(found.st_mode):
            yield from _inside(folder, name, path)


def _inside(folder: int, name: str, path: str) -> Iterator[bytes]:
    try:
        inner = os.open(name, LIST, dir_fd=folder)
    except OSError:
        return
    try:
        yield from _lines(inner, f"{path}/")
    finally:
        os.close(inner)


def _what(folder: int, name: str, found: os.stat_result) -> str:
    if st.S_ISLNK(found.st_mode):
        return os.readlink(name, dir_fd=folder)
    if not st.S_ISREG(found.st_mode):
        return ""
    fd = os.open(name, READ, dir_fd=folder)
    with open(fd, "rb") as file:
        if name == "index" and found.st_size <= _MAX_INDEX:
            return index_digest(file.read())
        return hashlib.file_digest(file, "sha256").hexdigest()


# -- the index --------------------------------------------------------------------------------------------------------


class _Reader(msgspec.Struct):
    data: bytes
    at: int = 12

    def take(self, size: int) -> bytes:
        if self.at + size > len(self.data):
            raise ValueError("cut off")
        self.at += size
        return self.data[self.at - size : self.at]

    def until_nul(self) -> bytes:
        end = self.data.index(b"\0", self.at)
        found = self.data[self.at : end]
        self.at = end + 1
        return found


def index_digest(data: bytes) -> str:
    """A hash of what an index says: which paths, with which modes, objects and flags. Of its bytes, where it is none
    that is understood."""
    try:
        total = hashlib.sha256(b"index\0")
        for entry in _index_entries(data):
            total.update(entry)
        return total.hexdigest()
    except (ValueError, struct.error):
        return hashlib.sha256(data).hexdigest()


def _index_entries(data: bytes) -> Iterator[bytes]:
    magic, version, count = struct.unpack_from(">4sII", data)
    if magic != b"DIRC" or version not in (2, 3, 4):
        raise ValueError("no index")
    reader = _Reader(data)
    name = b""
    for _ in range(count):
        start = reader.at
        fixed = reader.take(62)
        flags = struct.unpack_from(">H", fixed, 60)[0]
        more = reader.take(2) if flags & 0x4000 and version > 2 else b""
        if version == 4:
            cut = _number(reader)
            if cut > len(name):
                raise ValueError("a name that is shorter than nothing")
            name = name[: len(name) - cut] + reader.until_nul()
        else:
            name = reader.until_nul()
            reader.at = start + (reader.at - 1 - start) // 8 * 8 + 8
        yield b"%s %s %04x%s %s\0" % (fixed[24:28], fixed[40:60], flags & 0xF000, more, name)
    _refuse_shared(data, reader.at)


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


def _number(reader: _Reader) -> int:
    """Git's own way to write a number in as few bytes as it needs."""
    byte = reader.take(1)[0]
    value = byte & 127
    while byte & 128:
        byte = reader.take(1)[0]
        value = ((value + 1) << 7) | (byte & 127)
    return value
