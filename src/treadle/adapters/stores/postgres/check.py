"""Finds damage in a PostgreSQL database and repairs it where possible (`treadle fsck`, D-06): the same report and the
same repairs as for an SQLite file. Pages, indexes and disks are PostgreSQL's own business (`pg_amcheck`).

Each chat is checked in a transaction of its own, so that workers wait only briefly: a repair locks the chat's row, and
a worker whose chat it touched goes on from the log as it is then.
"""

from collections.abc import AsyncIterator
from hashlib import sha256

import asyncpg  # type: ignore[import-untyped]
import msgspec

from treadle.adapters.stores.integrity import MISSING, Problem, end_after_repair
from treadle.adapters.stores.packing import Packed
from treadle.adapters.stores.postgres.connections import PgConnection
from treadle.adapters.stores.postgres.rows import RECORD, pack, restore
from treadle.base.types import ChatId
from treadle.errors import Damaged
from treadle.protocol import wire
from treadle.protocol.events import Envelope, RecordLost
from treadle.protocol.references import lost_without
from treadle.protocol.views import STATUSES, ChatSummary, Status

_CHAT = (
    "SELECT id, head, status, runnable, wake_ms, archived, owner, updated_ms, summary, "
    "(SELECT coalesce(max(seq), 0) FROM events WHERE chat_no = no) AS last FROM chats WHERE no = $1"
)
_RECORDS = f"SELECT {RECORD} FROM events WHERE chat_no = $1 ORDER BY seq"
_QUARANTINE = "INSERT INTO quarantine SELECT e.*, now(), $3 FROM events AS e WHERE e.chat_no = $1 AND e.seq = $2"
_REPLACE = (
    "INSERT INTO events (chat_no, seq, time_ms, type, version, epoch, packing, crc, body) "
    "VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9) ON CONFLICT (chat_no, seq) DO UPDATE SET type = excluded.type, "
    "version = excluded.version, packing = excluded.packing, crc = excluded.crc, body = excluded.body"
)
_ORPHANS = (
    "SELECT chat_no, count(*) AS records FROM events WHERE NOT EXISTS (SELECT 1 FROM chats WHERE no = chat_no) "
    "GROUP BY chat_no ORDER BY chat_no"
)
_LEFT = "FROM blob_parts AS p WHERE made < now() - interval '1 day' AND NOT EXISTS " + (
    "(SELECT 1 FROM blobs AS b WHERE b.upload = p.upload)"
)


async def check(connection: PgConnection, *, repair: bool) -> list[Problem]:
    """Everything that is wrong with an up-to-date database; an empty list when all is well."""
    inspection = _Inspection(connection, repair)
    problems = [problem async for problem in _readable(inspection.chats())]
    problems += [problem async for problem in _readable(inspection.orphans())]
    return problems + [problem async for problem in _readable(inspection.blobs())]


async def _readable(problems: AsyncIterator[Problem]) -> AsyncIterator[Problem]:
    """Yield the problems that are found until PostgreSQL itself fails, and then that failure."""
    try:
        async for problem in problems:
            yield problem
    except (asyncpg.DataCorruptedError, asyncpg.IndexCorruptedError, asyncpg.InternalServerError) as error:
        yield Problem("database", f"{error}; restore a backup, or what can be read with `treadle export`")


class _Inspection:
    def __init__(self, connection: PgConnection, repair: bool) -> None:
        self._connection = connection
        self._repair = repair

    async def chats(self) -> AsyncIterator[Problem]:
        for (number,) in await self._connection.fetch("SELECT no FROM chats ORDER BY no"):
            isolation = None if self._repair else "repeatable_read"
            async with self._connection.transaction(isolation=isolation, readonly=not self._repair):
                async for problem in _readable(self._chat(number)):
                    yield problem

    async def _chat(self, number: int) -> AsyncIterator[Problem]:
        row = await self._connection.fetchrow(_CHAT + (" FOR UPDATE" if self._repair else ""), number)
        if row is None:
            return
        async for problem in self._records(number, row["id"]):
            yield problem
        try:
            summary = msgspec.json.decode(row["summary"], type=ChatSummary)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            yield Problem("summary", f"the summary cannot be read ({error})", row["id"], 0, self._repair)
            columns = {name: row[name] for name in ("runnable", "wake_ms", "archived", "owner", "updated_ms")}
            status: Status = next((status for status in STATUSES if status == row["status"]), "idle")
            summary = ChatSummary(ChatId(row["id"]), status, **columns)
            await self._correct(number, row["last"], summary)
        if row["head"] != row["last"]:
            text = f"the chat says its last record is {row['head']}, the log ends with {row['last']}"
            yield Problem("head", text, row["id"], row["last"], self._repair)
            end = end_after_repair(row["head"], row["last"])
            if self._repair:
                for seq in range(row["last"] + 1, end + 1):
                    await self._put_lost(number, Packed(seq, 0, "", 0, 0, 0, 0, b""), MISSING)
            await self._correct(number, end, summary)

    async def _records(self, number: int, chat: str) -> AsyncIterator[Problem]:
        expected = 1
        damaged: list[tuple[Packed, str]] = []
        blob_references: list[tuple[int, str]] = []
        async for row in self._connection.cursor(_RECORDS, number, prefetch=200):
            packed = Packed(*row)
            for seq in range(expected, packed.seq):
                damaged.append((Packed(seq, 0, "", 0, 0, 0, 0, b""), MISSING))
                yield Problem("gap", "there is no record with this number", chat, seq, self._repair)
            expected = packed.seq + 1
            try:
                event = wire.decode_event(packed.type, packed.version, restore(packed))
            except Damaged as error:
                damaged.append((packed, str(error)))
                yield Problem("record", str(error), chat, packed.seq, self._repair)
            else:
                blob_references += [(packed.seq, digest) for digest in lost_without(event)]
        if self._repair:  # only now: the rows above were being read
            for packed, reason in damaged:
                await self._put_lost(number, packed, reason)
        for seq, digest in await self._find_missing_blobs(blob_references):
            yield Problem("blob", f"blob {digest} is missing", chat, seq)

    async def _find_missing_blobs(self, blob_references: list[tuple[int, str]]) -> list[tuple[int, str]]:
        """Blobs that events name and that are not there. The events themselves are sound and stay."""
        if not blob_references:
            return []
        rows = await self._connection.fetch(
            "SELECT encode(digest, 'hex') FROM blobs WHERE encode(digest, 'hex') = ANY ($1)",
            [n[1] for n in blob_references],
        )
        there = {row[0] for row in rows}
        return [(seq, digest) for seq, digest in blob_references if digest not in there]

    async def _put_lost(self, number: int, packed: Packed, reason: str) -> None:
        await self._connection.execute(_QUARANTINE, number, packed.seq, reason)
        envelope = Envelope(packed.seq, ChatId(""), packed.time_ms, RecordLost(packed.type, reason), packed.epoch)
        await self._connection.execute(_REPLACE, number, *pack(wire.encode(envelope)))

    async def _correct(self, number: int, last: int, summary: ChatSummary) -> None:
        if self._repair:
            body = msgspec.json.encode(msgspec.structs.replace(summary, head=last))
            await self._connection.execute("UPDATE chats SET head = $2, summary = $3 WHERE no = $1", number, last, body)

    async def orphans(self) -> AsyncIterator[Problem]:
        for number, count in await self._connection.fetch(_ORPHANS):
            yield Problem("orphan", f"{count} records belong to chat number {number}, which does not exist")
        leftover_parts = await self._connection.fetchval(f"SELECT count(*) {_LEFT}")
        if leftover_parts:
            yield Problem(
                "orphan", f"{leftover_parts} parts of blobs are left of uploads that never ended", "", 0, self._repair
            )
            if self._repair:
                await self._connection.execute(f"DELETE {_LEFT}")

    async def blobs(self) -> AsyncIterator[Problem]:
        for digest, upload in await self._connection.fetch("SELECT digest, upload FROM blobs ORDER BY digest"):
            async with self._connection.transaction(readonly=True):
                hashed = sha256()
                query = "SELECT data FROM blob_parts WHERE upload = $1 ORDER BY part"
                async for (data,) in self._connection.cursor(query, upload, prefetch=2):
                    hashed.update(data)
            if hashed.digest() != digest:
                yield Problem("blob", f"blob {digest.hex()} is damaged: its bytes have another hash")
