"""Finds damage in a PostgreSQL database and repairs it where possible (`treadle fsck`, D-06); for pages, indexes and
disks there is `pg_amcheck`. Each chat is checked in a transaction of its own: sound chats are only read, a repair locks
the chat's row, and a worker whose chat it touched goes on from the log as it is then."""

from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256

import asyncpg  # type: ignore[import-untyped]

from treadle.adapters.stores.inspection import ChatInspection, StoredChatRow, make_lost_record
from treadle.adapters.stores.packing import STRAY, Packed, Problem
from treadle.adapters.stores.postgres.connections import PgConnection
from treadle.adapters.stores.postgres.queries import RECORD, pack, restore

_ROW = "SELECT head, status, runnable, wake_ms, archived, owner, updated_ms, summary FROM chats WHERE no = $1"
_RECORDS = f"SELECT {RECORD} FROM events WHERE chat_no = $1 ORDER BY seq"
_BLOBS = "SELECT encode(digest, 'hex') FROM blobs WHERE encode(digest, 'hex') = ANY ($1)"
_QUARANTINE = "INSERT INTO quarantine SELECT e.*, now(), $3 FROM events AS e WHERE e.chat_no = $1 AND e.seq = $2"
_REPLACE = """INSERT INTO events (chat_no, seq, time_ms, type, version, epoch, packing, crc, body)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9) ON CONFLICT (chat_no, seq) DO UPDATE SET type = excluded.type,
version = excluded.version, packing = excluded.packing, crc = excluded.crc, body = excluded.body"""
_ORPHANS = """SELECT chat_no, count(*) AS records FROM events WHERE NOT EXISTS (SELECT 1 FROM chats WHERE no = chat_no)
GROUP BY chat_no ORDER BY chat_no"""
_LEFT = "FROM blob_parts AS p WHERE made < now() - interval '1 day' AND NOT EXISTS " + (
    "(SELECT 1 FROM blobs AS b WHERE b.upload = p.upload)"
)


async def check_database(connection: PgConnection, *, repair: bool) -> list[Problem]:
    problems: list[Problem] = []
    with _report_corruption(problems):
        for number, chat in await connection.fetch("SELECT no, id FROM chats ORDER BY no"):
            chat_problems = await _inspect(connection, number, chat, repair=False)
            if repair and chat_problems and chat_problems[-1].kind != "database":
                chat_problems = await _inspect(connection, number, chat, repair=True)
            problems += chat_problems
    with _report_corruption(problems):
        for number, count in await connection.fetch(_ORPHANS):
            problems.append(Problem("orphan", f"{count} records belong to chat number {number}, which does not exist"))
        if leftover_parts := await connection.fetchval(f"SELECT count(*) {_LEFT}"):
            text = f"{leftover_parts} parts of blobs are left of uploads that never ended"
            problems.append(Problem("orphan", text, "", 0, repair))
            if repair:
                await connection.execute(f"DELETE {_LEFT}")
    with _report_corruption(problems):
        for digest, upload in await connection.fetch("SELECT digest, upload FROM blobs ORDER BY digest"):
            async with connection.transaction(readonly=True):
                hashed = sha256()
                query = "SELECT data FROM blob_parts WHERE upload = $1 ORDER BY part"
                async for (data,) in connection.cursor(query, upload, prefetch=2):
                    hashed.update(data)
            if hashed.digest() != digest:
                problems.append(Problem("blob", f"blob {digest.hex()} is damaged: its bytes have another hash"))
    return problems


@contextmanager
def _report_corruption(problems: list[Problem]) -> Iterator[None]:
    """Report a failure of PostgreSQL itself as the last problem, and go on with what follows."""
    try:
        yield
    except (asyncpg.DataCorruptedError, asyncpg.IndexCorruptedError, asyncpg.InternalServerError) as error:
        problems.append(Problem("database", f"{error}; restore a backup, or what can be read with `treadle export`"))


async def _inspect(connection: PgConnection, number: int, chat: str, *, repair: bool) -> list[Problem]:
    inspection = ChatInspection(chat, restore, repair=repair)
    isolation = None if repair else "repeatable_read"
    with _report_corruption(inspection.problems):
        async with connection.transaction(isolation=isolation, readonly=not repair):
            if (row := await connection.fetchrow(_ROW + (" FOR UPDATE" if repair else ""), number)) is None:
                return []  # it was removed meanwhile
            async for record in connection.cursor(_RECORDS, number, prefetch=200):
                inspection.add_record(Packed(*record))
            digests = [digest for _, digest in inspection.blobs]
            present = {digest for (digest,) in await connection.fetch(_BLOBS, digests)} if digests else set()
            inspection.report_missing_blobs(present)
            inspection.compare_row(StoredChatRow(*row))
            if repair:
                for packed, reason in inspection.lost:
                    await connection.execute(_QUARANTINE, number, packed.seq, reason)
                    await connection.execute(_REPLACE, number, *pack(make_lost_record(packed, reason)))
                for seq in inspection.stray:
                    await connection.execute(_QUARANTINE, number, seq, STRAY)
                    await connection.execute("DELETE FROM events WHERE chat_no = $1 AND seq = $2", number, seq)
                if inspection.correction is not None:
                    correct = "UPDATE chats SET head = $2, summary = $3 WHERE no = $1"
                    await connection.execute(correct, number, *inspection.correction)
    return inspection.problems
