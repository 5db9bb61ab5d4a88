"""The operations of the store as queries, each on a borrowed connection. One that writes is one call of one function
(`migrations/0002_functions.sql`), whose outcome words become errors; it can be repeated after a lost connection without
happening twice. Lists: A-06, A-07. Knows nothing of waiting.
"""

import asyncio
import zlib
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Any
from uuid import uuid4

import asyncpg  # type: ignore[import-untyped]

from treadle.adapters.stores.integrity import check_gapless, contradiction, gapless
from treadle.adapters.stores.listing import beginnings, folded
from treadle.adapters.stores.packing import Packed
from treadle.adapters.stores.postgres import rows
from treadle.adapters.stores.postgres.connections import ALREADY_ANSWERED, Connections, PgConnection, T, Work, state
from treadle.adapters.stores.text_index import SPOKEN, Part, UnindexedRange, fold_words, parts
from treadle.adapters.stores.watch import ANY, DELETED, Heads
from treadle.base.file_system import faultpoint
from treadle.base.types import ChatId, Clock
from treadle.errors import ChatBusy, ChatExists, Damaged, HeadMoved, LeaseLost, NotFound
from treadle.ports import store as port
from treadle.protocol.views import ChatSummary
from treadle.protocol.wire import Record

MOST = 2**31 - 1
"""No log is longer. Clients may send any number as the last seq that they have seen."""
# One statement, and so one moment: the chat's head, and its records. At least one row, if there is such a chat.
_RECORDS = (
    f"SELECT c.head, e.* FROM chats AS c LEFT JOIN LATERAL (SELECT {rows.RECORD} FROM events WHERE chat_no = c.no "
    "AND seq > $2{} ORDER BY seq LIMIT $3) AS e ON true WHERE c.id = $1 ORDER BY e.seq"
)
READ = _RECORDS.format("")
_OF_TYPES = _RECORDS.format(" AND type = ANY($4::text[])")
_SNAPSHOT = "SELECT seq, body FROM snapshots WHERE chat_no = (SELECT no FROM chats WHERE id = $1)"
_DELTAS = (
    "SELECT c.id, d.epoch, d.turn, d.number, d.payload "
    "FROM unnest($1::text[], $2::int[], $3::int[], $4::int[]) WITH ORDINALITY AS r (chat, epoch, turn, number, place) "
    "JOIN chats AS c ON c.id = r.chat JOIN deltas AS d ON d.chat_no = c.no AND d.epoch = c.epoch "
    "WHERE (d.epoch, d.turn, d.number) > (r.epoch, r.turn, r.number) ORDER BY r.place, d.turn, d.number"
)


# $1 is always the time that leases are judged by.
_GET = f"SELECT {rows.LISTED} FROM chats WHERE id = $2"
_CHANGED = "WHERE changed > $2 AND changed < (SELECT treadle_settled()) AND ($3::text IS NULL OR owner = $3)"
_CHANGES = (
    f"SELECT {rows.LISTED} FROM chats {_CHANGED} UNION ALL "
    f"SELECT id, summary, false, changed FROM deleted_chats {_CHANGED} ORDER BY changed LIMIT $4"
)
_LAST_CHANGE = (
    "SELECT greatest((SELECT coalesce(max(changed), 0) FROM chats WHERE changed < s.settled), "
    "(SELECT coalesce(max(changed), 0) FROM deleted_chats WHERE changed < s.settled)) "
    "FROM (SELECT treadle_settled() AS settled) AS s"
)
_HEADS = "SELECT id, head FROM chats WHERE id = ANY ($1::text[])"


class ReadQueries(ABC):
    @abstractmethod
    async def _run(self, work: Work[T]) -> T:
        """Do a piece of work on a connection."""

    @abstractmethod
    def _now(self) -> int | None:
        """The time that leases are judged by; None is the database's own."""

    async def read(self, chat: ChatId, after_seq: int = 0, limit: int = 0) -> list[Record]:
        begin = min(max(0, after_seq), MOST)
        head, records = await self._records(READ, chat, begin, limit or None)
        return gapless(records, chat, begin, head, limit)

    async def read_types(
        self, chat: ChatId, types: Collection[str], after_seq: int = 0, limit: int = 0
    ) -> list[Record]:
        begin = min(max(0, after_seq), MOST)
        return (await self._records(_OF_TYPES, chat, begin, limit or None, sorted(types)))[1]

    async def _records(self, query: str, chat: ChatId, *values: object) -> tuple[int, list[Record]]:
        matches = await self._run(lambda connection, _: connection.fetch(query, chat, *values))
        if not matches:
            raise NotFound(f"there is no chat {chat}")
        return matches[0]["head"], [rows.unpack(row[1:]) for row in matches if row["seq"] is not None]

    async def head(self, chat: ChatId) -> int:
        return await self._run(lambda connection, _: _head(connection, chat))

    async def _heads(self, chats: Sequence[ChatId]) -> Heads:
        """The heads of these chats, and the number of the last change if ANY is among them."""

        async def work(connection: PgConnection, _: bool) -> Heads:
            heads: Heads = {}
            chat_ids = [chat for chat in chats if chat != ANY]
            if chat_ids:
                heads |= dict.fromkeys(chat_ids, DELETED)
                heads |= {ChatId(chat): head for chat, head in await connection.fetch(_HEADS, chat_ids)}
            if ANY in chats:
                heads[ANY] = await connection.fetchval(_LAST_CHANGE)
            return heads

        return await self._run(work)

    async def get(self, chat: ChatId) -> port.Listed:
        row = await self._run(lambda connection, _: connection.fetchrow(_GET, self._now(), chat))
        if row is None:
            raise NotFound(f"there is no chat {chat}")
        return rows.listed(row)

    async def list(
        self, chat_filter: port.ChatFilter = port.ALL_CHATS, *, limit: int = 0, cursor: port.Cursor | None = None
    ) -> list[port.Listed]:
        query, values = _listing(chat_filter, limit, cursor)
        matches = await self._run(lambda connection, _: connection.fetch(query, self._now(), *values))
        return [rows.listed(row) for row in matches]

    async def changes(
        self, *, owner: str | None = None, after_change: int = 0, limit: int = 0
    ) -> Sequence[port.Listed]:
        values = (self._now(), after_change, owner, limit or None)
        matches = await self._run(lambda connection, _: connection.fetch(_CHANGES, *values))
        return [rows.listed(row) for row in matches]

    async def load_snapshot(self, chat: ChatId) -> port.Snapshot | None:
        async def work(connection: PgConnection, _: bool) -> port.Snapshot | None:
            row = await connection.fetchrow(_SNAPSHOT, chat)
            if row is None:
                await _head(connection, chat)
                return None
            try:
                return port.Snapshot(row[0], zlib.decompress(row[1]))
            except zlib.error:
                return None  # a cache: what cannot be read is made again

        return await self._run(work)

    async def read_deltas(self, reached: Mapping[ChatId, port.Reach]) -> Sequence[port.Delta]:
        places = [[place[part] for place in reached.values()] for part in range(3)]
        matches = await self._run(lambda connection, _: connection.fetch(_DELTAS, [*reached], *places))
        return [port.Delta(*row) for row in matches]


async def _head(connection: PgConnection, chat: ChatId) -> int:
    head: int | None = await connection.fetchval("SELECT head FROM chats WHERE id = $1", chat)
    if head is None:
        raise NotFound(f"there is no chat {chat}")
    return head


def _listing(chat_filter: port.ChatFilter, limit: int, cursor: port.Cursor | None) -> tuple[str, list[Any]]:
    """The query, and its values after $1. Only what is asked for is a condition."""
    values: list[Any] = []

    def value(parameter: object) -> str:
        values.append(parameter)
        return f"${len(values) + 1}"

    conditions = ["true"]
    for column in ("owner", "archived", "status"):
        if (wanted := getattr(chat_filter, column)) is not None:
            conditions.append(f"{column} = {value(wanted)}")
    if chat_filter.label is not None:
        conditions.append(f"{value(chat_filter.label.replace(chr(0), ''))} = ANY (labels)")
    if chat_filter.query:
        alternatives = [f"position({value(folded(chat_filter.query))} IN title) > 0"]
        # No id has a NUL.
        begins = [begin.replace("\0", "\ufffd") for begin in beginnings(chat_filter.query)]
        alternatives += [f"starts_with(id, {value(begin)})" for begin in begins]
        conditions.append(f"({' OR '.join(alternatives)})")
    if cursor is not None:
        updated_ms, chat = cursor
        conditions.append(f"(updated_ms, id) < ({value(updated_ms)}, {value(chat)})")
    query = f"SELECT {rows.LISTED} FROM chats WHERE {' AND '.join(conditions)} ORDER BY updated_ms DESC, id DESC"
    return f"{query} LIMIT {value(limit or None)}", values


# -- writing ----------------------------------------------------------------------------------------------------------

_CREATE = "SELECT treadle_create($1, $2::treadle_packed[], $3, $4, $5, $6, $7, $8)"
_APPEND = (
    "SELECT outcome, head, epoch FROM treadle_append($1, $2, $3::treadle_packed[], $4, $5, $6, $7, $8, $9, $10, $11, "
    "$12, $13, $14, $15, $16, $17)"
)
_DELETE = "SELECT outcome, chat, worker FROM treadle_delete($1, $2, $3)"
_ENDS = "SELECT head, (SELECT coalesce(max(seq), 0) FROM events WHERE chat_no = no) AS last FROM chats WHERE id = $1"
_RENEW = "SELECT chat, epoch FROM treadle_renew($1, $2, $3, $4, $5)"
_CLAIM = "SELECT outcome, chat, epoch, head FROM treadle_claim($1, $2, $3, $4, $5)"
_CLAIM_CHAT = "SELECT outcome, chat, epoch, head FROM treadle_claim_chat($1, $2, $3, $4, $5)"
_CLAIMED = "SELECT outcome, chat, epoch, head FROM treadle_claimed($1, $2)"


class WriteQueries:
    """`clock` times leases in tests; without one the database's own does."""

    def __init__(self, connections: Connections, clock: Clock | None, lease_s: float) -> None:
        self._connections = connections
        self._clock = clock
        self._lease_ms = int(lease_s * 1000)

    def now(self) -> int | None:
        return None if self._clock is None else int(self._clock.monotonic() * 1000)

    async def create(self, summary: ChatSummary, packed: Sequence[Packed], answer: port.Remembered | None) -> None:
        check_gapless(packed, 1)
        epoch = max((record.epoch for record in packed), default=0)

        async def work(connection: PgConnection, again: bool) -> str:
            faultpoint("store.before_commit")
            outcome: str = await connection.fetchval(
                _CREATE, summary.chat, packed, rows.line(summary), epoch, *_answering(answer), again
            )
            faultpoint("store.after_commit")
            return outcome

        outcome = await self._unless_answered(work, answer)
        if outcome == "exists":
            raise ChatExists(f"chat {summary.chat} exists already; choose another id")

    async def append(self, commit: port.Commit, packed: Sequence[Packed]) -> None:
        chat, lease, take = commit.chat, commit.lease, commit.take
        first = packed[0].seq if packed else 0
        check_gapless(packed, first)
        lease_key = (lease.epoch, lease.worker) if lease is not None else (None, None)
        take_key = (take.epoch, take.worker) if take is not None else (None, None)
        if lease is not None and lease.chat != chat:
            raise LeaseLost(f"a lease of chat {lease.chat} does not belong to chat {chat}; write nothing more")

        async def work(connection: PgConnection, again: bool) -> Any:
            faultpoint("store.before_commit")
            row = await connection.fetchrow(
                _APPEND, chat, first, packed, rows.line(commit.summary), commit.durable, *lease_key, *take_key,
                commit.release, *_answering(commit.answer), commit.drop_deltas, self._lease_ms, self.now(), again,
            )  # fmt: skip
            faultpoint("store.after_commit")
            return row["outcome"], row["head"], row["epoch"]

        outcome, head, epoch = await self._unless_answered(work, commit.answer)
        match outcome:
            case "not_found":
                raise NotFound(f"there is no chat {chat}")
            case "busy":
                raise ChatBusy(f"chat {chat} is held, or was meanwhile; it cannot be taken as epoch {take_key[0]}")
            case "lease_lost":
                raise LeaseLost(f"epoch {lease_key[0]} of chat {chat} is over (now {epoch}); write nothing more")
            case "head_moved":
                ends = await self._connections.run(lambda connection, _: connection.fetchrow(_ENDS, chat))
                if ends is not None and ends["last"] > ends["head"]:  # damage: no append could ever succeed
                    raise contradiction(chat, ends["head"], ends["last"])
                raise HeadMoved(f"chat {chat} is at {head}, not at {first - 1}; read on and try again")

    async def delete(self, chats: Sequence[ChatId], owner: str | None) -> None:
        async def work(connection: PgConnection, _: bool) -> Any:
            faultpoint("store.before_commit")
            row = await connection.fetchrow(_DELETE, list(chats), owner, self.now())
            faultpoint("store.after_commit")
            return row

        outcome, chat, worker = await self._connections.run(work)
        if outcome == "not_found":
            raise NotFound(f"there is no chat {chat}")
        if outcome == "busy":
            raise ChatBusy(f"chat {chat} is held by the live worker {worker}; stop it before you delete it")

    async def claim(self, worker: str, chat: ChatId | None, now_ms: int) -> port.Lease | None:
        token = uuid4()

        async def work(connection: PgConnection, again: bool) -> Any:
            row = await connection.fetchrow(_CLAIMED, worker, token) if again else None
            if row is None or row["outcome"] is None:
                times = (self._lease_ms, self.now())
                if chat is None:
                    row = await connection.fetchrow(_CLAIM, worker, token, now_ms, *times)
                else:
                    row = await connection.fetchrow(_CLAIM_CHAT, chat, worker, token, *times)
            return row

        row = await self._connections.run(work)
        if chat is not None and row["outcome"] is None:
            raise NotFound(f"there is no chat {chat}")
        if row["outcome"] == "busy":
            raise ChatBusy(f"chat {chat} is held by the live worker {row['chat']}; wait until it is released")
        return port.Lease(ChatId(row["chat"]), row["epoch"], worker, row["head"]) if row["outcome"] else None

    async def renew(self, leases: Sequence[port.Lease]) -> list[port.Lease]:
        if not leases:
            return []
        rows = await self._connections.run(
            lambda connection, _: connection.fetch(_RENEW, *_columns(leases), self._lease_ms, self.now())
        )
        renewed = {(row["chat"], row["epoch"]) for row in rows}
        return [lease for lease in leases if (lease.chat, lease.epoch) in renewed]

    async def release(self, leases: Sequence[port.Lease]) -> None:
        await self._connections.execute("SELECT treadle_release($1, $2, $3)", *_columns(leases))

    async def remember(self, answer: port.Remembered) -> None:
        async def work(connection: PgConnection, again: bool) -> str:
            if again and await _recall(connection, answer.owner, answer.key) == answer:
                return "done"
            row, oldest, sweep = _answering(answer)
            if await connection.fetchval("SELECT treadle_answered($1, $2)", row, oldest):
                return "answered"
            await connection.execute("SELECT treadle_remember($1, $2, $3)", row, oldest, sweep)
            return "done"

        await self._unless_answered(work, answer)

    async def recall(self, owner: str, key: str) -> port.Remembered | None:
        return await self._connections.run(lambda connection, _: _recall(connection, owner, key))

    async def save_snapshot(self, chat: ChatId, snapshot: port.Snapshot, body: bytes) -> None:
        query = "SELECT treadle_save_snapshot($1, $2, $3)"
        if not await self._connections.fetchval(query, chat, snapshot.seq, body):
            raise NotFound(f"there is no chat {chat}")

    async def put_deltas(self, deltas: Sequence[port.Delta]) -> None:
        if deltas:
            columns = zip(*((d.chat, d.epoch, d.turn, d.number, d.payload) for d in deltas), strict=True)
            await self._connections.execute("SELECT treadle_put_deltas($1, $2, $3, $4, $5)", *map(list, columns))

    async def _unless_answered(self, work: Any, answer: port.Remembered | None) -> Any:
        """Do it, or raise AlreadyAnswered with what its key was answered first."""
        while True:
            try:
                outcome = await self._connections.run(work)
            except asyncpg.PostgresError as error:
                if state(error) != ALREADY_ANSWERED:
                    raise
                outcome = "answered"
            if answer is None or (outcome if isinstance(outcome, str) else outcome[0]) != "answered":
                return outcome
            if (first := await self.recall(answer.owner, answer.key)) is not None:
                raise first.refuse()


async def _recall(connection: PgConnection, owner: str, key: str) -> port.Remembered | None:
    row = await connection.fetchrow(
        "SELECT owner, key, request, status, body, time_ms FROM treadle_recall($1, $2)", owner, key
    )
    return port.Remembered(*row) if row is not None else None


def _answering(answer: port.Remembered | None) -> tuple[object, int, int]:
    """An answer as the type `treadle_answer`, and which old ones go."""
    if (a := answer) is None:
        return None, 0, port.ANSWERS_SWEPT
    return (a.owner, a.key, a.request, a.status, a.body, a.time_ms), a.expired_ms(), port.ANSWERS_SWEPT


def _columns(leases: Sequence[port.Lease]) -> tuple[list[str], list[int], list[str]]:
    return [lease.chat for lease in leases], [lease.epoch for lease in leases], [lease.worker for lease in leases]


# -- blobs: by their SHA-256, in parts of a megabyte, so that neither side ever holds more than one -------------------
# A blob exists when all its parts do; parts of an unfinished upload are invisible.

BLOB_PART = 1 << 20

_FIRST_PART = (
    "SELECT b.upload, b.size, p.data FROM blobs AS b LEFT JOIN blob_parts AS p ON p.upload = b.upload AND p.part = 0 "
    "WHERE b.digest = $1"
)


class BlobRows:
    def __init__(self, connections: Connections) -> None:
        self._connections = connections

    async def put(self, data: bytes) -> str:
        if len(data) > BLOB_PART:
            view = memoryview(data)
            return await self.put_parts(bytes(view[at : at + BLOB_PART]) for at in range(0, len(data), BLOB_PART))
        digest = sha256(data).digest()
        query = "SELECT EXISTS (SELECT 1 FROM blobs WHERE digest = $1)"
        if not await self._connections.fetchval(query, digest):
            faultpoint("store.before_commit")
            await self._connections.execute("SELECT treadle_put_small($1, $2)", digest, data)
            faultpoint("store.blob_written")
        return digest.hex()

    async def put_parts(self, parts: Iterable[bytes]) -> str:
        upload = await self._connections.fetchval("SELECT nextval('blob_uploads')")
        hashed, size = sha256(), 0
        coming = _in_parts(parts)
        number = 0
        while (part := await asyncio.to_thread(next, coming, None)) is not None:
            await asyncio.to_thread(hashed.update, part)
            await self._connections.execute("SELECT treadle_put_part($1, $2, $3)", upload, number, part)
            size += len(part)
            number += 1
        faultpoint("store.before_commit")
        await self._connections.execute("SELECT treadle_put_blob($1, $2, $3)", hashed.digest(), upload, size)
        faultpoint("store.blob_written")
        return hashed.hexdigest()

    async def get(self, digest: str) -> bytes:
        try:
            key = bytes.fromhex(digest)
        except ValueError:
            key = b""
        row = await self._connections.run(lambda c, _: c.fetchrow(_FIRST_PART, key)) if len(key) == 32 else None
        if row is None:
            raise NotFound(f"there is no blob {digest!r}")
        upload, size, data = row
        parts = [data or b""]
        missing = size - len(parts[0])
        query = "SELECT data FROM blob_parts WHERE upload = $1 AND part = $2"
        while missing > 0:
            part = await self._connections.fetchval(query, upload, len(parts))
            if not part:
                break
            parts.append(part)
            missing -= len(part)
        blob = b"".join(parts)
        if (await asyncio.to_thread(sha256, blob)).digest() != key:
            raise Damaged(f"blob {digest} is damaged: its bytes have another hash")
        return blob


def _in_parts(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """The same bytes, in parts of one size, the last one smaller."""
    buffer = bytearray()
    for piece in pieces:
        buffer += piece
        while len(buffer) >= BLOB_PART:
            yield bytes(buffer[:BLOB_PART])
            del buffer[:BLOB_PART]
    if buffer:
        yield bytes(buffer)


# -- the table of messages (U-04), which the server searches itself ---------------------------------------------------
# A cache: no transaction waits for it, and what a crash of the server takes from it is put in again.

_UNINDEXED = (
    "SELECT no, coalesce(done, 0) AS done, head, id FROM chats "
    "LEFT JOIN (SELECT chat_no, max(last) AS done FROM said GROUP BY chat_no) AS taken ON chat_no = no "
    "WHERE head > coalesce(done, 0) ORDER BY updated_ms DESC"
)
_SPOKEN = (
    f"SELECT {rows.RECORD} FROM events WHERE chat_no = $1 AND seq > $2 AND seq <= $3 AND type = ANY ($4::text[]) "
    "ORDER BY seq"
)
# If two processes index the same records at once, the one that has seen more replaces the other's row: nothing is lost.
_KEEP_TEXT = (
    "INSERT INTO said (chat_no, first, last, text) "
    "SELECT p.* FROM unnest($1::bigint[], $2::int[], $3::int[], $4::text[]) AS p (chat_no, first, last, text) "
    "JOIN chats AS c ON c.no = p.chat_no FOR KEY SHARE OF c "
    "ON CONFLICT (chat_no, first) DO UPDATE SET last = excluded.last, text = excluded.text "
    "WHERE said.last < excluded.last"
)


class TextTable:
    def __init__(self, connections: Connections) -> None:
        self._run = connections.run

    async def list_unindexed(self) -> list[UnindexedRange]:
        """Chats of which something is missing here, the newest first."""
        matches = await self._run(lambda connection, _: connection.fetch(_UNINDEXED))
        return [UnindexedRange(*row[:3]) for row in matches]

    async def take_in(self, chats: Sequence[UnindexedRange]) -> None:
        async def work(connection: PgConnection, _: bool) -> None:
            index_parts: list[Part] = []
            for chat in chats:
                message_rows = await connection.fetch(_SPOKEN, *chat, [*SPOKEN])
                index_parts += await asyncio.to_thread(_parts, chat, message_rows)
            await connection.execute(_KEEP_TEXT, *map(list, zip(*index_parts, strict=True)))

        await self._run(work)

    async def chats(self, words: Sequence[str]) -> dict[ChatId, int]:
        """`Store.search_text`."""
        looked_for = fold_words(words)
        conditions = [f"position(${number} IN text) > 0" for number in range(1, len(looked_for) + 1)]
        query = (
            "SELECT id, min(first) FROM said JOIN chats ON no = chat_no "
            f"WHERE {' AND '.join(conditions) or 'true'} GROUP BY id"
        )

        async def work(connection: PgConnection, _: bool) -> dict[ChatId, int]:
            first_seqs = {ChatId(chat): first for chat, first in await connection.fetch(query, *looked_for)}
            for _no, after_seq, _head, chat in await connection.fetch(_UNINDEXED):
                first_seqs.setdefault(ChatId(chat), after_seq + 1)
            return first_seqs

        return await self._run(work)


def _parts(chat: UnindexedRange, message_rows: Sequence[Any]) -> list[Part]:
    return [*parts(chat, map(rows.unpack, message_rows))]
