"""`treadle fsck` (D-06): `check` finds damage in a database file and its blobs and repairs it, each chat in a
transaction of its own, so that a worker goes on from the log as it is then. A file whose pages are damaged is not
changed: `salvage` makes a new database beside it from the rows that it recognizes by their shape; `check` then reports
the missing records."""

import mmap
import sqlite3
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from hashlib import file_digest
from pathlib import Path
from typing import NamedTuple

import msgspec

from treadle.adapters.stores.inspection import ChatInspection, StoredChatRow, make_lost_record
from treadle.adapters.stores.packing import STRAY, Packed, Problem
from treadle.adapters.stores.sqlite import schema
from treadle.adapters.stores.sqlite.rows import BlobFiles, Types, pack, restore
from treadle.adapters.stores.sqlite.schema import BROKEN, connect, get_primary_code
from treadle.adapters.stores.sqlite.tables import COLUMNS, PLACES
from treadle.base.types import ChatId
from treadle.protocol.events import RECORDED
from treadle.protocol.views import ChatSummary

Value = None | int | float | str | bytes

_CHATS = (
    *("id", "head", "status", "runnable", "wake_ms", "archived", "owner", "updated_ms"),
    *("epoch", "worker", "lease_until", "boot", "summary"),
    *("title", "labels", "changed"),  # since the second migration
)
_EVENTS = ("time_ms", "type", "version", "epoch", "packing", "crc", "body")
_QUARANTINE = ("place", *_EVENTS, "reason")
_DELETED = ("id", "owner", "epoch", "changed", "summary")
_ANSWERS = ("owner", "key", "request", "status", "body", "time_ms")
_OF_FTS = "version"  # Stands, with a number, in a table that FTS5 keeps.
_FREE: Mapping[str, Value] = {"worker": "", "lease_until": 0, "boot": ""}

Columns = Mapping[str, Value]


class Row(NamedTuple):
    """A row of a table, or an entry of an index, which has no `rowid`."""

    rowid: int | None
    values: tuple[Value, ...]


class Salvaged(msgspec.Struct, frozen=True):
    path: Path
    chats: int
    records: int
    nameless: tuple[str, ...] = ()
    """Chats of which only records were found: their names are known only if an index has them."""


def make_salvaged_path(path: Path) -> Path:
    return path.with_name(f"{path.name}.salvaged")


def salvage(path: Path) -> Salvaged:
    """Make a database of all that can be read of the one at `path`. OSError or sqlite3.Error."""
    target = make_salvaged_path(path)
    new = target.with_name(target.name + ".new")
    _remove(new)
    try:
        schema.prepare(new, busy_s=1.0)
        with closing(schema.connect(new, busy_s=1.0)) as connection:
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute("BEGIN IMMEDIATE")
            gathered = _Gathering(connection)
            for row in Pages(path).iterate_rows():
                gathered.take(row)
            nameless = gathered.finish()
            connection.execute("COMMIT")
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            query = "SELECT (SELECT count(*) FROM chats), (SELECT count(*) FROM events)"
            chats, records = connection.execute(query).fetchone()
        _remove(target)
        new.replace(target)
    except BaseException:
        _remove(new)
        raise
    return Salvaged(target, chats, records, nameless)


def _remove(path: Path) -> None:
    for suffix in ("-wal", "-shm", ""):
        path.with_name(path.name + suffix).unlink(missing_ok=True)


class _Gathering:
    """Rows on their way into a new database. Of several copies of a chat's row, that with the longest log counts."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._chats: dict[int, Columns] = {}
        self._ids: dict[int, str] = {}
        self._deleted: set[int] = set()

    def take(self, row: Row) -> None:
        number, values = row
        if number is None:
            self._take_name(values)
            return
        if number <= 0 or len(values) < 2 or values[0] is not None:  # the first column is the number itself
            return
        values = values[1:]
        match len(values), values[0]:
            case ((16 | 13), str()):
                chat: Columns = dict(zip(_CHATS, values, strict=False))
                head, known_head = chat["head"], self._chats.get(number, {"head": -1})["head"]
                if isinstance(head, int) and isinstance(known_head, int) and head > known_head:
                    self._chats[number] = chat
            case 7, int() if all(isinstance(value, int) for value in values[:6]):
                self._insert("events", ("place", *_EVENTS), (number, *values))
            case 1, str():
                self._insert("types", ("no", "name"), (number, *values))
            case 5, str():
                self._deleted.add(number)
                self._insert("deleted_chats", ("no", *_DELETED), (number, *values))
            case 9, int():
                self._insert("quarantine", _QUARANTINE, values)
            case 6, str():
                self._insert("answers", ("no", *_ANSWERS), (number, *values))
            case _:
                pass  # caches, and rows of which too much is lost

    def _take_name(self, values: tuple[Value, ...]) -> None:
        """The names of types and of chats are in indexes, too."""
        match values:
            case str(name), int(number) if name in RECORDED:
                self._insert("types", ("no", "name"), (number, name))
            case str(name), int(number) if name != _OF_FTS:
                self._ids.setdefault(number, name)

    def finish(self) -> tuple[str, ...]:
        """Put the chats in, and one for all records whose chat is lost; these are returned."""
        for number in self._deleted:  # what an old page still has of them
            self._chats.pop(number, None)
            self._connection.execute("DELETE FROM events WHERE place / ? = ?", (PLACES, number))
        for number, chat in sorted(self._chats.items()):
            self._put_chat(number, {**chat, **_FREE})
        query = f"SELECT place / {PLACES} AS chat, max(place % {PLACES}) FROM events GROUP BY chat"
        nameless: list[str] = []
        for number, last in self._connection.execute(query).fetchall():
            if number not in self._chats:
                name = self._ids.get(number, f"c_salvaged{number}")
                nameless.append(name)
                # There may have been more records: the head says so, and a lost record stands for the missing ones.
                lost = ChatSummary(ChatId(name), head=last + 1)
                columns: Columns = {"id": name, "head": lost.head, "status": lost.status, "owner": "", "updated_ms": 0}
                body = msgspec.json.encode(lost)
                self._put_chat(number, {**columns, "runnable": 0, "wake_ms": 0, "archived": 0, "summary": body})
        return tuple(nameless)

    def _put_chat(self, number: int, chat: Columns) -> None:
        self._insert("chats", ("no", *chat), (number, *chat.values()))

    def _insert(self, table: str, columns: Sequence[str], values: Iterable[Value]) -> None:
        marks = ", ".join("?" * len(columns))
        query = f"INSERT OR IGNORE INTO {table} ({', '.join(columns)}) VALUES ({marks})"
        self._connection.execute(query, tuple(values))


# -- rows of a damaged file, page by page, without SQLite -------------------------------------------------------------
# Every readable leaf is read, even if the pages that lead to it are damaged (the format: sqlite.org/fileformat2.html).
# Pages that a write-ahead log has committed count; data that violates the format is left out.

_PAGE_SIZE = 4096
_HEADER = 100
_TABLE_LEAF, _INDEX_LEAF = 0x0D, 0x0A
_WAL_HEADER, _FRAME_HEADER = 32, 24
_INTEGERS = {1: 1, 2: 2, 3: 3, 4: 4, 5: 6, 6: 8}


class _Odd(Exception):
    """Something that is not as the format says."""


class Pages:
    """A database file with its write-ahead log, as it is at this moment. Nothing is written."""

    def __init__(self, path: Path) -> None:
        with path.open("rb") as file:
            self._data = b"" if file.seek(0, 2) == 0 else mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        header = self._data[:_HEADER]
        size = int.from_bytes(header[16:18], "big")
        size = 65536 if size == 1 else size
        sound = header.startswith(b"SQLite format 3\0") and size >= 512 and size & (size - 1) == 0
        self._size = size if sound else _PAGE_SIZE
        self._newer = _read_committed_pages(path.with_name(path.name + "-wal"), self._size)

    def iterate_rows(self) -> Iterator[Row]:
        for number in range(1, max([len(self._data) // self._size, *self._newer]) + 1):
            yield from self._iterate_leaf_rows(number)

    def _get_page(self, number: int) -> bytes:
        start = (number - 1) * self._size
        return self._newer.get(number) or self._data[start : start + self._size]

    def _iterate_leaf_rows(self, number: int) -> Iterator[Row]:
        page, start = self._get_page(number), _HEADER if number == 1 else 0
        if len(page) < self._size or page[start] not in (_TABLE_LEAF, _INDEX_LEAF):
            return
        count = int.from_bytes(page[start + 3 : start + 5], "big")
        if start + 8 + 2 * count > self._size:
            return
        for place in struct.unpack_from(f">{count}H", page, start + 8):
            try:
                yield self._decode_cell(page, place, page[start] == _TABLE_LEAF)
            except (_Odd, IndexError, ValueError):
                continue

    def _decode_cell(self, page: bytes, place: int, table: bool) -> Row:
        length, place = _decode_varint(page, place)
        rowid = None
        if table:
            rowid, place = _decode_varint(page, place)
            rowid = rowid - (1 << 64) if rowid >= 1 << 63 else rowid
        return Row(rowid, _decode_record(self._read_payload(page, place, length, table)))

    def _read_payload(self, page: bytes, place: int, length: int, table: bool) -> bytes:
        """The bytes of a row; those for which the page has no room lie in a chain of others."""
        usable = self._size  # Treadle reserves nothing at the end of a page
        most = usable - 35 if table else (usable - 12) * 64 // 255 - 23
        if length <= most:
            return _get_part(page, place, length)
        least = (usable - 12) * 32 // 255 - 23
        local = least + (length - least) % (usable - 4)
        local = local if local <= most else least
        payload = bytearray(_get_part(page, place, local))
        following = int.from_bytes(_get_part(page, place + local, 4), "big")
        if length > len(self._data) + len(self._newer) * self._size:
            raise _Odd
        while len(payload) < length:
            more = self._get_page(following) if following else b""
            if len(more) < self._size:
                raise _Odd
            payload += more[4 : min(usable, 4 + length - len(payload))]
            following = int.from_bytes(more[:4], "big")
        return bytes(payload)


def _read_committed_pages(wal: Path, size: int) -> dict[int, bytes]:
    """The pages that the write-ahead log has in place of those in the file, up to its last commit."""
    try:
        data = wal.read_bytes()
    except OSError:
        return {}
    if len(data) < _WAL_HEADER or int.from_bytes(data[8:12], "big") != size:
        return {}
    order = ">" if int.from_bytes(data[:4], "big") & 1 else "<"
    sums = _compute_checksum(data[:24], (0, 0), order)
    committed_pages: dict[int, bytes] = {}
    open_: dict[int, bytes] = {}
    for at in range(_WAL_HEADER, len(data) - _FRAME_HEADER - size + 1, _FRAME_HEADER + size):
        head, page = data[at : at + _FRAME_HEADER], data[at + _FRAME_HEADER : at + _FRAME_HEADER + size]
        sums = _compute_checksum(page, _compute_checksum(head[:8], sums, order), order)
        if head[8:16] != data[16:24] or struct.unpack(">II", head[16:24]) != sums:
            break
        open_[int.from_bytes(head[:4], "big")] = page
        if head[4:8] != b"\0\0\0\0":
            committed_pages |= open_
            open_ = {}
    return committed_pages


def _compute_checksum(data: bytes, sums: tuple[int, int], order: str) -> tuple[int, int]:
    first, second = sums
    numbers = struct.unpack(f"{order}{len(data) // 4}I", data)
    for one, next_number in zip(numbers[::2], numbers[1::2], strict=True):
        first = (first + one + second) & 0xFFFFFFFF
        second = (second + next_number + first) & 0xFFFFFFFF
    return first, second


def _get_part(data: bytes, place: int, length: int) -> bytes:
    if place < 0 or length < 0 or place + length > len(data):
        raise _Odd
    return data[place : place + length]


def _decode_varint(data: bytes, place: int) -> tuple[int, int]:
    number = 0
    for _ in range(8):
        byte = data[place]
        place += 1
        number = number << 7 | byte & 0x7F
        if byte < 0x80:
            return number, place
    return number << 8 | data[place], place + 1


def _decode_record(payload: bytes) -> tuple[Value, ...]:
    header, place = _decode_varint(payload, 0)
    if header > len(payload):
        raise _Odd
    at, values = header, list[Value]()
    while place < header:
        kind, place = _decode_varint(payload, place)
        value, at = _decode_value(payload, kind, at)
        values.append(value)
    return tuple(values)


def _decode_value(payload: bytes, kind: int, at: int) -> tuple[Value, int]:
    if kind == 0:
        return None, at
    if kind in _INTEGERS:
        length = _INTEGERS[kind]
        return int.from_bytes(_get_part(payload, at, length), "big", signed=True), at + length
    if kind == 7:
        return struct.unpack(">d", _get_part(payload, at, 8))[0], at + 8
    if kind in (8, 9):
        return kind - 8, at
    if kind < 12:
        raise _Odd
    length = (kind - 12) // 2
    data = _get_part(payload, at, length)
    return (data.decode() if kind % 2 else data), at + length


_SHOWN = 5
_COLUMNS = "place, time_ms, type, version, epoch, packing, crc, body"
_ROW = "SELECT head, status, runnable, wake_ms, archived, owner, updated_ms, summary FROM chats WHERE no = ?"
_ORPHANS = f"""SELECT chat_no, count(*) FROM (SELECT place / {PLACES} AS chat_no FROM events)
WHERE chat_no NOT IN (SELECT no FROM chats) GROUP BY chat_no"""


def check_database(path: Path, *, repair: bool, busy_s: float = 10.0) -> list[Problem]:
    blobs = BlobFiles(path.with_name("blobs"))
    try:
        with closing(connect(path, busy_s=busy_s)) as connection:
            problems = _find_damaged_pages(connection) or list(_iterate_problems(connection, blobs, repair))
    except sqlite3.DatabaseError as error:
        if get_primary_code(error) not in BROKEN:
            raise
        problems = [Problem("database", str(error))]
    return problems + list(_iterate_damaged_files(blobs))


def _find_damaged_pages(connection: sqlite3.Connection) -> list[Problem]:
    messages = [str(text) for (text,) in connection.execute("PRAGMA integrity_check") if text != "ok"]
    more = [f"and {len(messages) - _SHOWN:,} more of this kind"] if len(messages) > _SHOWN else []
    return [Problem("database", " ".join(text.split())) for text in [*messages[:_SHOWN], *more]]


def _iterate_problems(connection: sqlite3.Connection, blobs: BlobFiles, repair: bool) -> Iterator[Problem]:
    types = Types(connection)
    for number, chat in connection.execute("SELECT no, id FROM chats ORDER BY no").fetchall():
        problems = _inspect(connection, blobs, types, number, str(chat), repair=False)
        yield from (
            _inspect(connection, blobs, types, number, str(chat), repair=True) if problems and repair else problems
        )
    for number, count in connection.execute(_ORPHANS):
        yield Problem("orphan", f"{count} records belong to chat number {number}, which does not exist")


def _inspect(
    connection: sqlite3.Connection, blobs: BlobFiles, types: Types, number: int, chat: str, *, repair: bool
) -> list[Problem]:
    """One chat, in a transaction of its own: workers write to the others meanwhile."""
    base = number * PLACES
    inspection = ChatInspection(chat, lambda packed: restore(packed, blobs), repair=repair)
    connection.execute("BEGIN IMMEDIATE" if repair else "BEGIN")
    try:
        row = connection.execute(_ROW, (number,)).fetchone()
        if row is not None:  # else it was removed meanwhile
            query = f"SELECT {COLUMNS} FROM events WHERE place >= ? AND place < ? ORDER BY place"
            for place, time_ms, kind, *columns in connection.execute(query, (base, base + PLACES)):
                inspection.add_record(Packed(place - base, time_ms, types.get_name(kind), *columns))
            inspection.report_missing_blobs(
                {digest for _, digest in inspection.blobs if blobs.get_path(digest).is_file()}
            )
            inspection.compare_row(StoredChatRow(*row))
            if repair:
                _write_repair(connection, blobs, types, number, inspection)
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")
    return inspection.problems


def _write_repair(
    connection: sqlite3.Connection, blobs: BlobFiles, types: Types, number: int, inspection: ChatInspection
) -> None:
    base = number * PLACES
    quarantine = f"INSERT INTO quarantine ({_COLUMNS}, reason) SELECT {_COLUMNS}, ? FROM events WHERE place = ?"
    for packed, reason in inspection.lost:
        connection.execute(quarantine, (reason, base + packed.seq))
        seq, time_ms, kind, *columns = pack(make_lost_record(packed, reason), blobs)
        connection.execute(
            f"INSERT OR REPLACE INTO events ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (base + seq, time_ms, types.ensure_number(kind), *columns),
        )
    for seq in inspection.stray:
        connection.execute(quarantine, (STRAY, base + seq))
        connection.execute("DELETE FROM events WHERE place = ?", (base + seq,))
    if inspection.correction is not None:
        connection.execute("UPDATE chats SET head = ?, summary = ? WHERE no = ?", (*inspection.correction, number))


def _iterate_damaged_files(blobs: BlobFiles) -> Iterator[Problem]:
    for file in sorted(blobs.folder.glob("??/*")):
        if len(file.name) == 64:
            try:
                with open(file, "rb") as stream:
                    digest = file_digest(stream, "sha256").hexdigest()
            except OSError as error:
                yield Problem("blob", f"blob {file.name} cannot be read: {error.strerror}")
                continue
            if digest != file.name:
                yield Problem("blob", f"blob {file.name} is damaged: its bytes have another hash")
