"""Finds damage in a database file and its blobs, and repairs it where possible (`treadle fsck`, D-06).

A file whose pages are damaged is not changed: the readable part of such a file goes into a new one (`salvage`). Knows
nothing of leases: the repair of a chat is one transaction, and a worker whose chat it touched goes on from the log as
it is then; sound chats are only read.
"""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from hashlib import file_digest
from pathlib import Path

from treadle.adapters.stores.inspection import ChatInspection, StoredChatRow, make_lost_record
from treadle.adapters.stores.integrity import STRAY, Problem
from treadle.adapters.stores.packing import Packed
from treadle.adapters.stores.sqlite.blobs import BlobFiles
from treadle.adapters.stores.sqlite.failures import BROKEN, primary_code
from treadle.adapters.stores.sqlite.rows import Types, pack, restore
from treadle.adapters.stores.sqlite.schema import connect
from treadle.adapters.stores.sqlite.tables import COLUMNS, PLACES

_SHOWN = 5
_COLUMNS = "place, time_ms, type, version, epoch, packing, crc, body"
_ROW = "SELECT head, status, runnable, wake_ms, archived, owner, updated_ms, summary FROM chats WHERE no = ?"
_ORPHANS = (
    f"SELECT chat_no, count(*) FROM (SELECT place / {PLACES} AS chat_no FROM events) "
    "WHERE chat_no NOT IN (SELECT no FROM chats) GROUP BY chat_no"
)


def check(path: Path, *, repair: bool, busy_s: float = 10.0) -> list[Problem]:
    """Everything that is wrong with an up-to-date database and its blobs; an empty list when all is well."""
    blobs = BlobFiles(path.with_name("blobs"))
    try:
        with closing(connect(path, busy_s=busy_s)) as connection:
            problems = _damaged_pages(connection) or list(_problems(connection, blobs, repair))
    except sqlite3.DatabaseError as error:
        if primary_code(error) not in BROKEN:
            raise
        problems = [Problem("database", str(error))]
    return problems + list(_damaged_files(blobs))


def _damaged_pages(connection: sqlite3.Connection) -> list[Problem]:
    """Return SQLite's own findings about the file: the first ones, and the number of the others."""
    messages = [str(text) for (text,) in connection.execute("PRAGMA integrity_check") if text != "ok"]
    more = [f"and {len(messages) - _SHOWN:,} more of this kind"] if len(messages) > _SHOWN else []
    return [Problem("database", " ".join(text.split())) for text in [*messages[:_SHOWN], *more]]


def _problems(connection: sqlite3.Connection, blobs: BlobFiles, repair: bool) -> Iterator[Problem]:
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
                inspection.add_record(Packed(place - base, time_ms, types.name(kind), *columns))
            inspection.report_missing_blobs({digest for _, digest in inspection.blobs if blobs.path(digest).is_file()})
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
            (base + seq, time_ms, types.number(kind), *columns),
        )
    for seq in inspection.stray:
        connection.execute(quarantine, (STRAY, base + seq))
        connection.execute("DELETE FROM events WHERE place = ?", (base + seq,))
    if inspection.correction is not None:
        connection.execute("UPDATE chats SET head = ?, summary = ? WHERE no = ?", (*inspection.correction, number))


def _damaged_files(blobs: BlobFiles) -> Iterator[Problem]:
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
