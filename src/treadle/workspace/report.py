"""Reads what a search program writes, piece by piece, and keeps the first files by path and all the sums. Memory is
bounded by what is kept, not by what is found."""

import os
from collections.abc import Callable

import msgspec

_ROOM = 1_024
"""How many more than wanted are held before the list is cut to the first ones again."""


class Counted(msgspec.Struct):
    """The matching lines of one file: how many, and the first of them as (number, byte column from 1)."""

    count: int = 0
    first: list[tuple[int, int]] = msgspec.field(default_factory=list)


class First:
    """The first paths of any number, in order, and how many there were."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._kept: dict[str, Counted] = {}
        self.total = 0

    def add(self, path: str, counted: Counted) -> None:
        self.total += 1
        self._kept[path] = counted
        if len(self._kept) > self._most + _ROOM:
            self._kept = dict(self.sorted()[: self._most])

    def sorted(self) -> list[tuple[str, Counted]]:
        return sorted(self._kept.items())


class FileReader:
    """Reads `./path NUL` again and again."""

    def __init__(self, wanted: Callable[[str], bool], most: int) -> None:
        self._wanted = wanted
        self._open = b""
        self.files = First(most)

    def feed(self, data: bytes) -> None:
        *paths, self._open = (self._open + data).split(b"\0")
        for path in paths:
            name = path_of(path)
            if self._wanted(name):
                self.files.add(name, Counted())


class MatchReader:
    """Reads blocks of `./path NUL`, a line `number:column:…` per match, and an empty line in between."""

    def __init__(self, wanted: Callable[[str], bool], most: int) -> None:
        self._wanted = wanted
        self._most = most
        self._buffer = bytearray()
        self._path: str | None = None
        self._counted = Counted()
        self.files = First(most)
        self.total = 0
        self._binary = False

    def feed(self, data: bytes) -> None:
        self._buffer += data
        while self._step():
            pass

    def close(self) -> None:
        """There is no more: what is left is the last block."""
        if self._path is not None:
            self._lines(bytes(self._buffer))
            self._end()
        self._buffer.clear()

    def _step(self) -> bool:
        if self._path is None:
            end = self._buffer.find(b"\0")
            if end < 0:
                return False
            self._path = path_of(bytes(self._buffer[:end]))
            del self._buffer[: end + 1]
            return True
        if self._buffer.startswith(b"\n"):
            del self._buffer[:1]
            self._end()
            return True
        end = self._buffer.find(b"\n\n")
        if end < 0:
            end = self._buffer.rfind(b"\n")
            done = False
        else:
            done = True
        if end < 0:
            return False
        self._lines(bytes(self._buffer[: end + 1]))
        del self._buffer[: end + 1]
        return done

    def _lines(self, text: bytes) -> None:
        room = self._most - len(self._counted.first)
        last = text.removesuffix(b"\n").rpartition(b"\n")[2]
        if not text:
            return
        if not last[:1].isdigit():  # a warning: the file turned out to be binary
            self._binary = True
            return
        self._counted.count += text.count(b"\n") + (not text.endswith(b"\n"))
        for line in text.split(b"\n", room)[:room] if room > 0 else ():
            number, colon, rest = line.partition(b":")
            if colon:
                self._counted.first.append((int(number), int(rest.partition(b":")[0] or 1)))

    def _end(self) -> None:
        path, counted = self._path, self._counted
        self._path, self._counted = None, Counted()
        binary, self._binary = self._binary, False
        if path is not None and counted.count and not binary and self._wanted(path):
            self.files.add(path, counted)
            self.total += counted.count


def path_of(data: bytes) -> str:
    return os.fsdecode(data.removeprefix(b"./"))
