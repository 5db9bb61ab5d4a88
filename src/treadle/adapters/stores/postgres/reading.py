"""The read-only operations of the store: records, heads, lists (A-06, A-07), snapshots, live text. Each takes one or
two statements on a borrowed connection."""

import zlib
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from treadle.adapters.stores.integrity import gapless
from treadle.adapters.stores.listing import beginnings, folded
from treadle.adapters.stores.postgres import rows
from treadle.adapters.stores.postgres.connections import PgConnection, T, Work
from treadle.adapters.stores.watch import ANY, DELETED, Heads
from treadle.base.types import ChatId
from treadle.errors import NotFound
from treadle.ports.store import ALL_CHATS, ChatFilter, Cursor, Delta, Listed, Reach, Snapshot
from treadle.protocol.wire import Record

MOST = 2**31 - 1
"""No log is longer. Clients may send any number as the last seq that they have seen."""
# One statement, and so one moment: the chat's head, and its records. At least one row, if there is such a chat.
READ = (
    f"SELECT c.head, e.* FROM chats AS c LEFT JOIN LATERAL (SELECT {rows.RECORD} FROM events WHERE chat_no = c.no "
    "AND seq > $2 ORDER BY seq LIMIT $3) AS e ON true WHERE c.id = $1 ORDER BY e.seq"
)
_OF_TYPES = (
    f"SELECT c.head, e.* FROM chats AS c LEFT JOIN LATERAL (SELECT {rows.RECORD} FROM events WHERE chat_no = c.no "
    "AND seq > $2 AND type = ANY($4::text[]) ORDER BY seq LIMIT $3) AS e ON true WHERE c.id = $1 ORDER BY e.seq"
)
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
        async def work(connection: PgConnection, _: bool) -> list[Record]:
            begin = min(max(0, after_seq), MOST)
            matches = await connection.fetch(READ, chat, begin, limit or None)
            if not matches:
                raise NotFound(f"there is no chat {chat}")
            records = [rows.unpack(row[1:]) for row in matches if row["seq"] is not None]
            return gapless(records, chat, begin, matches[0]["head"], limit)

        return await self._run(work)

    async def read_types(
        self, chat: ChatId, types: Collection[str], after_seq: int = 0, limit: int = 0
    ) -> list[Record]:
        async def work(connection: PgConnection, _: bool) -> list[Record]:
            begin = min(max(0, after_seq), MOST)
            matches = await connection.fetch(_OF_TYPES, chat, begin, limit or None, sorted(types))
            if not matches:
                raise NotFound(f"there is no chat {chat}")
            return [rows.unpack(row[1:]) for row in matches if row["seq"] is not None]

        return await self._run(work)

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

    async def get(self, chat: ChatId) -> Listed:
        row = await self._run(lambda connection, _: connection.fetchrow(_GET, self._now(), chat))
        if row is None:
            raise NotFound(f"there is no chat {chat}")
        return rows.listed(row)

    async def list(
        self, chat_filter: ChatFilter = ALL_CHATS, *, limit: int = 0, cursor: Cursor | None = None
    ) -> list[Listed]:
        query, values = _listing(chat_filter, limit, cursor)
        matches = await self._run(lambda connection, _: connection.fetch(query, self._now(), *values))
        return [rows.listed(row) for row in matches]

    async def changes(self, *, owner: str | None = None, after_change: int = 0, limit: int = 0) -> Sequence[Listed]:
        values = (self._now(), after_change, owner, limit or None)
        matches = await self._run(lambda connection, _: connection.fetch(_CHANGES, *values))
        return [rows.listed(row) for row in matches]

    async def load_snapshot(self, chat: ChatId) -> Snapshot | None:
        async def work(connection: PgConnection, _: bool) -> Snapshot | None:
            row = await connection.fetchrow(_SNAPSHOT, chat)
            if row is None:
                await _head(connection, chat)
                return None
            try:
                return Snapshot(row[0], zlib.decompress(row[1]))
            except zlib.error:
                return None  # a cache: what cannot be read is made again

        return await self._run(work)

    async def read_deltas(self, reached: Mapping[ChatId, Reach]) -> Sequence[Delta]:
        places = [[place[part] for place in reached.values()] for part in range(3)]
        matches = await self._run(lambda connection, _: connection.fetch(_DELTAS, [*reached], *places))
        return [Delta(*row) for row in matches]


async def _head(connection: PgConnection, chat: ChatId) -> int:
    head: int | None = await connection.fetchval("SELECT head FROM chats WHERE id = $1", chat)
    if head is None:
        raise NotFound(f"there is no chat {chat}")
    return head


def _listing(chat_filter: ChatFilter, limit: int, cursor: Cursor | None) -> tuple[str, list[Any]]:
    """The query, and its values after $1. Only what is asked for is a condition."""
    values: list[Any] = []

    def value(parameter: object) -> str:
        values.append(parameter)
        return f"${len(values) + 1}"

    conditions = ["true"]
    if chat_filter.owner is not None:
        conditions.append(f"owner = {value(chat_filter.owner)}")
    if chat_filter.archived is not None:
        conditions.append(f"archived = {value(chat_filter.archived)}")
    if chat_filter.status is not None:
        conditions.append(f"status = {value(chat_filter.status)}")
    if chat_filter.label is not None:
        conditions.append(f"{value(chat_filter.label.replace(chr(0), ''))} = ANY (labels)")
    if chat_filter.query:
        alternatives = [f"position({value(folded(chat_filter.query))} IN title) > 0"]
        alternatives += [f"starts_with(id, {value(_inert(begin))})" for begin in beginnings(chat_filter.query)]
        conditions.append(f"({' OR '.join(alternatives)})")
    if cursor is not None:
        updated_ms, chat = cursor
        conditions.append(f"(updated_ms, id) < ({value(updated_ms)}, {value(chat)})")
    query = f"SELECT {rows.LISTED} FROM chats WHERE {' AND '.join(conditions)} ORDER BY updated_ms DESC, id DESC"
    return f"{query} LIMIT {value(limit or None)}", values


def _inert(begin: str) -> str:
    """The beginning of an id; with a NUL in it, which no id has, one that none begins with."""
    return begin.replace("\0", "\ufffd")
