"""Reads what a search program writes, piece by piece, and keeps the first files by path and all the sums. Memory is
bounded by what is kept, not by what is found."""

import os
from collections.abc import Callable

import msgspec

_ROOM = 1_024
"""How many more than wanted are held before the list is cut to the first ones again."""
_LINE = 64
"""Bytes that a line of the programs takes at most."""


class LineCount(msgspec.Struct):
    """The matching lines of one file: how many, and what was written of the first ones."""

    count: int = 0
    head: bytes = b""

    def first(self, most: int) -> list[tuple[int, int]]:
        """Numbers and byte columns, both from 1. Read only of the files that are shown."""
        positions = []
        for line in self.head.split(b"\n", most)[:most]:
            number, colon, remainder = line.partition(b":")
            if colon:
                column = remainder.partition(b":")[0]
                # ripgrep tells no column of a line whose match it does not find a second time (`\r` at its end).
                positions.append((int(number), int(column) if column.isdigit() else 1))
        return positions


class First:
    """The first paths of any number, in order, and how many there were."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._kept: dict[str, LineCount] = {}
        self.total = 0

    def add(self, path: str, counted: LineCount) -> None:
        self.total += 1
        self._kept[path] = counted
        if len(self._kept) > self._most + _ROOM:
            self._kept = dict(self.sorted()[: self._most])

    def sorted(self) -> list[tuple[str, LineCount]]:
        return sorted(self._kept.items())


class FileReader:
    """Reads `./path NUL` again and again."""

    def __init__(self, is_wanted: Callable[[str], bool], most: int) -> None:
        self._wanted = is_wanted
        self._open = b""
        self.files = First(most)

    def feed(self, data: bytes) -> None:
        *paths, self._open = (self._open + data).split(b"\0")
        for path in paths:
            name = path_of(path)
            if self._wanted(name):
                self.files.add(name, LineCount())


class MatchReader:
    """Reads blocks of `./path NUL`, a line `number:column:…` per match, and an empty line in between."""

    def __init__(self, is_wanted: Callable[[str], bool], most: int) -> None:
        self.wanted = is_wanted
        self._head = most * _LINE
        self._open = b""
        self._path: str | None = None
        self._counted = LineCount()
        self._binary = False
        self.files = First(most)
        self.total = 0

    def feed(self, data: bytes) -> None:
        data = self._open + data
        at = 0
        while True:
            end, at = at, self._step(data, at)
            if at == end:
                break
        self._open = data[at:]

    def close(self) -> None:
        """End of the output: the rest is the last block."""
        if self._path is not None:
            self._lines(self._open)
            self._end()
        self._open = b""

    def _step(self, data: bytes, at: int) -> int:
        """How far was read: a path, the lines that are there, or the end of a block; nothing if that takes more."""
        if self._path is None:
            end = data.find(b"\0", at)
            if end < 0:
                return at
            self._path = path_of(data[at:end])
            return end + 1
        if data.startswith(b"\n", at):
            self._end()
            return at + 1
        end = data.find(b"\n\n", at)
        if end < 0:
            end = data.rfind(b"\n", at)
        if end < 0:
            return at
        self._lines(data[at : end + 1])
        return end + 1

    def _lines(self, text: bytes) -> None:
        if not text:
            return
        last = text.rfind(b"\n", 0, len(text) - 1) + 1
        if not text[last : last + 1].isdigit():  # a warning: the file turned out to be binary
            self._binary = True
            return
        counted = self._counted
        counted.count += text.count(b"\n") + (not text.endswith(b"\n"))
        if len(counted.head) < self._head:
            counted.head += text[: self._head]

    def _end(self) -> None:
        path, counted, binary = self._path, self._counted, self._binary
        self._path, self._counted, self._binary = None, LineCount(), False
        if path is not None and counted.count and not binary and self.wanted(path):
            self.files.add(path, counted)
            self.total += counted.count


def path_of(data: bytes) -> str:
    return os.fsdecode(data.removeprefix(b"./"))
