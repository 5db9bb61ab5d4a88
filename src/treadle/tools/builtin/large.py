"""A part of a text file of any size, in bounded memory (T-01): one pass that counts lines, hashes, and keeps only those
that are wanted."""

import hashlib

from treadle.errors import ToolError
from treadle.lines.aside import count
from treadle.ports.toolset import Outcome
from treadle.ports.workspace import Workspace, inert
from treadle.protocol.content import Seen
from treadle.tools.builtin.base import MAX_BYTES, MAX_LINES
from treadle.tools.builtin.text import refusal, visible


class _Window:
    """The wanted lines, as many as fit; the one that is under way is kept only as far as it can be shown."""

    def __init__(self, start: int, end: int) -> None:
        self._start, self._end = start, end or start + MAX_LINES
        self.lines: list[bytes] = []
        self.number = 1
        self.full = False
        self._size = 0
        self._open = bytearray()
        self._length = 0

    def feed(self, chunk: bytes) -> None:
        at = 0
        while not self.full and at < len(chunk):
            if self.number < self._start:
                at = self._skip(chunk, at)
                continue
            feed = chunk.find(b"\n", at)
            stop = len(chunk) if feed == -1 else feed
            self._length += stop - at
            self._open += chunk[at : min(stop, at + max(0, MAX_BYTES - len(self._open)))]
            at = stop + 1
            if feed != -1:
                self._close()

    def end(self) -> None:
        if self._length and not self.full and self.number >= self._start:
            self._close()

    def _skip(self, chunk: bytes, at: int) -> int:
        """Where the first wanted line begins, or the end."""
        feeds = chunk.count(b"\n", at)
        if self.number + feeds < self._start:
            self.number += feeds
            return len(chunk)
        while self.number < self._start:
            feed = chunk.find(b"\n", at)
            if feed == -1:
                return len(chunk)
            self.number += 1
            at = feed + 1
        return at

    def _close(self) -> None:
        self._size += len(self._open) + 10
        if (self._size > MAX_BYTES and self.lines) or len(self.lines) >= MAX_LINES or self.number > self._end:
            self.full = True
        else:
            cut = b"" if self._length <= len(self._open) else b" [line cut: %d bytes]" % self._length
            self.lines.append(bytes(self._open).removesuffix(b"\r") + cut)
        self._open.clear()
        self._length = 0
        self.number += 1


def read_large(workspace: Workspace, path: str, start: int, end: int) -> Outcome:
    """As read_file answers for smaller files; UTF-8 only."""
    shown = inert(path)
    window = _Window(start, end)
    total = hashlib.sha256()
    size, feeds, last = 0, 0, b""
    for chunk in workspace.chunks(path):
        if not size and (b"\0" in chunk or chunk.startswith((b"\xff\xfe", b"\xfe\xff"))):
            found = workspace.stat(path)
            raise ToolError(refusal(chunk, 0 if found is None else found.size, shown, "it contains NUL bytes"))
        window.feed(chunk)
        total.update(chunk)
        size += len(chunk)
        feeds += chunk.count(b"\n")
        last = chunk[-1:]
    window.end()
    total_lines = feeds + (last not in (b"", b"\n"))
    if not window.lines:
        raise ToolError(f"{shown} has only {count(total_lines, 'line')}; start_line {start} is past its end.")
    until = start + len(window.lines) - 1
    body = [f"{start + i}\t{visible(line.decode(errors='surrogateescape'))}" for i, line in enumerate(window.lines)]
    header = f"{shown} ({count(total_lines, 'line')}, {size:,} bytes), lines {start} to {until}"
    wanted = min(end or total_lines, total_lines)
    more = [f"[lines {until + 1} to {wanted} are not shown; call read_file with start_line={until + 1}]"]
    text = "\n".join([header, *body, *(more if until < wanted else [])])
    return Outcome(text, summary=f"{len(body)} of {count(total_lines, 'line')}", seen=(Seen(path, total.hexdigest()),))
