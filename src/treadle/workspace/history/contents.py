"""What lies at a name in a folder that is held open: its state, and of a text how many lines it has. Each file is read
once. Whether a descriptor may be opened, and where, is decided before."""

import hashlib
import os
import stat as st
from collections.abc import Callable

import msgspec

from treadle.lines.diff import diff
from treadle.protocol.files import DiffStat, FileState, encode_path

_CHUNK = 1 << 20
_SNIFFED = 8_000
"""A NUL byte within so many bytes makes a file binary, as git has it."""
SMALL = 256_000
"""Texts up to so many bytes are compared line by line."""
_COMPARED = 400
"""So many pairs of texts are compared in one effect: beyond that, counting lines takes longer than it is worth."""


class Content(msgspec.Struct, frozen=True):
    state: FileState
    lines: int = 0
    """Of a text; 0 for what is none."""
    text: str | None = None
    """The whole of a small text."""


def content_of(parent: int, name: str, found: os.stat_result, mode: int, opened: Callable[[], int]) -> Content:
    """`opened` opens the file, if it is one; it is closed here."""
    if st.S_ISDIR(found.st_mode):
        return Content(FileState("directory", mode))
    if st.S_ISLNK(found.st_mode):
        return Content(FileState("link", target=encode_path(os.readlink(name, dir_fd=parent))))
    if st.S_ISFIFO(found.st_mode):
        return Content(FileState("fifo", mode))
    if not st.S_ISREG(found.st_mode):
        return Content(FileState("other", mode))
    fd = opened()
    try:
        return _file(fd, mode)
    finally:
        os.close(fd)


def _file(fd: int, mode: int) -> Content:
    total, size, lines, first, last = hashlib.sha256(), 0, 0, b"", b""
    while chunk := os.read(fd, _CHUNK):
        total.update(chunk)
        lines += chunk.count(b"\n")
        first = first or chunk
        last = chunk
        size += len(chunk)
    state = FileState("file", mode, total.hexdigest(), size)
    if b"\0" in first[:_SNIFFED]:
        return Content(state)
    lines += bool(size) and not last.endswith(b"\n")
    return Content(state, lines, text_of(first) if size <= SMALL else None)


def text_of(data: bytes) -> str:
    """Any bytes as text, each to its own."""
    return data.decode(errors="surrogateescape")


class Counting:
    """How many lines come and go, for as many files as is worth it."""

    def __init__(self) -> None:
        self._left = _COMPARED

    def stat(self, before: Content | None, after: Content | None) -> DiffStat:
        if before is None or after is None:
            return DiffStat(after.lines if after else 0, before.lines if before else 0)
        if before.state.digest == after.state.digest:
            return DiffStat()
        if before.text is not None and after.text is not None:
            self._left -= 1
            return diff("", before.text, after.text).stat if self._left >= 0 else DiffStat()
        large = any(each.text is None and each.lines for each in (before, after))
        return DiffStat() if large else DiffStat(after.lines, before.lines)
