"""Reads rows from a damaged database file, page by page, without SQLite: every readable leaf is read, even if the pages
that lead to it are damaged. Knows the file format (sqlite.org/fileformat2.html), nothing of chats.

Pages that a write-ahead log has committed count; data that violates the format is left out.
"""

import mmap
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

Value = None | int | float | str | bytes

_PAGE_SIZE = 4096
_HEADER = 100
_TABLE_LEAF, _INDEX_LEAF = 0x0D, 0x0A
_WAL_HEADER, _FRAME_HEADER = 32, 24
_INTEGERS = {1: 1, 2: 2, 3: 3, 4: 4, 5: 6, 6: 8}


class Row(NamedTuple):
    """A row of a table, or an entry of an index, which has no `rowid`."""

    rowid: int | None
    values: tuple[Value, ...]


class _Odd(Exception):
    """Something that is not as the format says."""


class Pages:
    """A database file with its write-ahead log, as it is at this moment. Nothing is written."""

    def __init__(self, path: Path) -> None:
        self._data = _mapped(path)
        self._size = _page_size(self._data[:_HEADER])
        self._newer = _committed(path.with_name(path.name + "-wal"), self._size)

    def rows(self) -> Iterator[Row]:
        for number in range(1, max([len(self._data) // self._size, *self._newer]) + 1):
            yield from self._leaf(number)

    def _page(self, number: int) -> bytes:
        start = (number - 1) * self._size
        return self._newer.get(number) or self._data[start : start + self._size]

    def _leaf(self, number: int) -> Iterator[Row]:
        page, start = self._page(number), _HEADER if number == 1 else 0
        if len(page) < self._size or page[start] not in (_TABLE_LEAF, _INDEX_LEAF):
            return
        count = int.from_bytes(page[start + 3 : start + 5], "big")
        if start + 8 + 2 * count > self._size:
            return
        for place in struct.unpack_from(f">{count}H", page, start + 8):
            try:
                yield self._cell(page, place, page[start] == _TABLE_LEAF)
            except (_Odd, IndexError, ValueError):
                continue

    def _cell(self, page: bytes, place: int, table: bool) -> Row:
        length, place = _varint(page, place)
        rowid = None
        if table:
            rowid, place = _varint(page, place)
            rowid = rowid - (1 << 64) if rowid >= 1 << 63 else rowid
        return Row(rowid, _record(self._payload(page, place, length, table)))

    def _payload(self, page: bytes, place: int, length: int, table: bool) -> bytes:
        """The bytes of a row; those for which the page has no room lie in a chain of others."""
        usable = self._size  # Treadle reserves nothing at the end of a page
        most = usable - 35 if table else (usable - 12) * 64 // 255 - 23
        if length <= most:
            return _part(page, place, length)
        least = (usable - 12) * 32 // 255 - 23
        local = least + (length - least) % (usable - 4)
        local = local if local <= most else least
        payload = bytearray(_part(page, place, local))
        following = int.from_bytes(_part(page, place + local, 4), "big")
        if length > len(self._data) + len(self._newer) * self._size:
            raise _Odd
        while len(payload) < length:
            more = self._page(following) if following else b""
            if len(more) < self._size:
                raise _Odd
            payload += more[4 : min(usable, 4 + length - len(payload))]
            following = int.from_bytes(more[:4], "big")
        return bytes(payload)


def _mapped(path: Path) -> "mmap.mmap | bytes":
    with path.open("rb") as file:
        empty = file.seek(0, 2) == 0
        return b"" if empty else mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


def _page_size(data: bytes) -> int:
    size = int.from_bytes(data[16:18], "big")
    size = 65536 if size == 1 else size
    sound = data.startswith(b"SQLite format 3\0") and size >= 512 and size & (size - 1) == 0
    return size if sound else _PAGE_SIZE


def _committed(wal: Path, size: int) -> dict[int, bytes]:
    """The pages that the write-ahead log has in place of those in the file, up to its last commit."""
    try:
        data = wal.read_bytes()
    except OSError:
        return {}
    if len(data) < _WAL_HEADER or int.from_bytes(data[8:12], "big") != size:
        return {}
    order = ">" if int.from_bytes(data[:4], "big") & 1 else "<"
    sums = _checksum(data[:24], (0, 0), order)
    committed_pages: dict[int, bytes] = {}
    open_: dict[int, bytes] = {}
    for at in range(_WAL_HEADER, len(data) - _FRAME_HEADER - size + 1, _FRAME_HEADER + size):
        head, page = data[at : at + _FRAME_HEADER], data[at + _FRAME_HEADER : at + _FRAME_HEADER + size]
        sums = _checksum(page, _checksum(head[:8], sums, order), order)
        if head[8:16] != data[16:24] or struct.unpack(">II", head[16:24]) != sums:
            break
        open_[int.from_bytes(head[:4], "big")] = page
        if head[4:8] != b"\0\0\0\0":
            committed_pages |= open_
            open_ = {}
    return committed_pages


def _checksum(data: bytes, sums: tuple[int, int], order: str) -> tuple[int, int]:
    first, second = sums
    numbers = struct.unpack(f"{order}{len(data) // 4}I", data)
    for one, next_number in zip(numbers[::2], numbers[1::2], strict=True):
        first = (first + one + second) & 0xFFFFFFFF
        second = (second + next_number + first) & 0xFFFFFFFF
    return first, second


def _part(data: bytes, place: int, length: int) -> bytes:
    if place < 0 or length < 0 or place + length > len(data):
        raise _Odd
    return data[place : place + length]


def _varint(data: bytes, place: int) -> tuple[int, int]:
    number = 0
    for _ in range(8):
        byte = data[place]
        place += 1
        number = number << 7 | byte & 0x7F
        if byte < 0x80:
            return number, place
    return number << 8 | data[place], place + 1


def _record(payload: bytes) -> tuple[Value, ...]:
    header, place = _varint(payload, 0)
    if header > len(payload):
        raise _Odd
    at, values = header, list[Value]()
    while place < header:
        kind, place = _varint(payload, place)
        value, at = _value(payload, kind, at)
        values.append(value)
    return tuple(values)


def _value(payload: bytes, kind: int, at: int) -> tuple[Value, int]:
    if kind == 0:
        return None, at
    if kind in _INTEGERS:
        length = _INTEGERS[kind]
        return int.from_bytes(_part(payload, at, length), "big", signed=True), at + length
    if kind == 7:
        return struct.unpack(">d", _part(payload, at, 8))[0], at + 8
    if kind in (8, 9):
        return kind - 8, at
    if kind < 12:
        raise _Odd
    length = (kind - 12) // 2
    data = _part(payload, at, length)
    return (data.decode() if kind % 2 else data), at + length
