"""The store for many workers on many machines: one PostgreSQL database, and nothing else that they share. Opening costs
nothing until the first call; one event loop at a time.

This is the face of it. A statement that was sent is waited for even if whoever asked has gone: a lease that nobody
would take is given back, and no connection is thrown away.
"""

import asyncio
import zlib
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from treadle.errors import InvalidInput, NotFound, StoreError
from treadle.ports.store import LEASE_S, Cursor, Delta, Lease, Listed, Reach, Remembered, Snapshot
from treadle.protocol.views import ChatSummary, Status
from treadle.protocol.wire import Record
from treadle.stores.listing import Wanted
from treadle.stores.packing import Packed
from treadle.stores.postgres import lists, rows, schema
from treadle.stores.postgres.blobs import Blobs
from treadle.stores.postgres.connections import CONNECTIONS, PATIENCE_S, Connection, Connections, closed
from treadle.stores.postgres.notices import Notices
from treadle.stores.postgres.writing import Writing
from treadle.stores.problem import Problem
from treadle.stores.watch import ANY, Heads, Watch
from treadle.types import ChatId, Clock

POLL_S = 0.2
HEAVY = 64 * 1024
"""So many bytes are packed in a thread, lest the event loop waits for them."""
MOST = 2**31 - 1
_READ = (
    f"SELECT {rows.RECORD} FROM events WHERE chat_no = (SELECT no FROM chats WHERE id = $1) AND seq > $2 "
    "ORDER BY seq LIMIT $3"
)
_READ_DELTAS = (
    "SELECT c.id, d.epoch, d.turn, d.number, d.payload "
    "FROM unnest($1::text[], $2::int[], $3::int[], $4::int[]) WITH ORDINALITY AS r (chat, epoch, turn, number, place) "
    "JOIN chats AS c ON c.id = r.chat JOIN deltas AS d ON d.chat_no = c.no AND d.epoch = c.epoch "
    "WHERE (d.epoch, d.turn, d.number) > (r.epoch, r.turn, r.number) ORDER BY r.place, d.turn, d.number"
)
T = TypeVar("T")


class PostgresStore:
    """A `Store` in the database at `url` (`postgresql://…`). Leases are timed by the database's clock and last
    `lease_s` for all who use it; `clock` is for tests. `patience_s` is how long a server that is away is waited for."""

    def __init__(
        self,
        url: str,
        *,
        clock: Clock | None = None,
        lease_s: float = LEASE_S,
        patience_s: float = PATIENCE_S,
        connections: int = CONNECTIONS,
        migrations: Path = schema.MIGRATIONS,
    ) -> None:
        self._connections = Connections(
            url,
            lambda connection: schema.prepare(connection, self.where, migrations),
            most=connections,
            patience_s=patience_s,
        )
        self.where = self._connections.where
        self._writing = Writing(self._connections, clock, lease_s)
        self._blobs = Blobs(self._connections)
        self._watch = Watch(self._news, POLL_S)
        self._notices = Notices(self._connections, self._heard)
        self._granted: set[Lease] = set()
        self._under_way: set[asyncio.Task[Any]] = set()
        self._closed = False

    # -- the log ------------------------------------------------------------------------------------------------

    async def create(
        self, summary: ChatSummary, records: Sequence[Record], *, answer: Remembered | None = None
    ) -> None:
        async def create() -> None:
            await self._writing.create(summary, await _packed(records), answer)
            self._notices.tell(summary.chat, len(records))

        await self._finish(create())
        self._watch.look()

    async def append(
        self,
        chat: ChatId,
        records: Sequence[Record],
        summary: ChatSummary,
        *,
        lease: Lease | None,
        durable: bool,
        release: bool = False,
        take: Lease | None = None,
        answer: Remembered | None = None,
        drop_deltas: bool = False,
    ) -> None:
        async def append() -> Lease | None:
            await self._writing.append(
                chat, await _packed(records), summary, lease=lease, durable=durable, release=release, take=take,
                answer=answer, drop_deltas=drop_deltas,
            )  # fmt: skip
            self._notices.tell(chat, records[-1].seq if records else 0)
            return None if release else take

        await self._granting(append())
        if release and lease is not None:
            self._granted.discard(lease)
        if records:
            self._watch.tell(chat, records[-1].seq)
        self._watch.look()

    async def read(self, chat: ChatId, after: int = 0, limit: int = 0) -> list[Record]:
        async def work(connection: Connection, _: bool) -> list[Record]:
            found = await connection.fetch(_READ, chat, min(max(0, after), MOST), limit or None)
            if not found:
                await _head(connection, chat)
            return [rows.unpack(row) for row in found]

        return await self._run(work)

    async def head(self, chat: ChatId) -> int:
        return await self._run(lambda connection, _: _head(connection, chat))

    async def wait(self, chat: ChatId, after: int, timeout_s: float) -> int:
        return await self._await_news(chat, after, timeout_s, lambda: self.head(chat))

    async def wait_any(self, after: int, timeout_s: float) -> int:
        # What was the last change may have been changed again by a transaction that is not to be seen yet.
        return max(after, await self._await_news(ANY, after, timeout_s, self._last_change))

    async def _await_news(
        self, chat: ChatId, after: int, timeout_s: float, now: Callable[[], Coroutine[Any, Any, int]]
    ) -> int:
        waiter: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._watch.add(chat, after, waiter)  # before looking, so that nothing is missed in between
        try:
            head = await now()
            if head > after:
                return head
            self._notices.listen()
            try:
                async with asyncio.timeout(timeout_s):
                    return await waiter
            except TimeoutError:
                return await now()
        finally:
            self._watch.remove(chat, waiter)

    # -- lists --------------------------------------------------------------------------------------------------

    async def get(self, chat: ChatId) -> Listed:
        row = await self._run(lambda connection, _: connection.fetchrow(lists.GET, self._writing.now(), chat))
        if row is None:
            raise NotFound(f"there is no chat {chat}")
        return rows.listed(row)

    async def list(
        self,
        *,
        owner: str | None = None,
        archived: bool | None = None,
        status: Status | None = None,
        label: str | None = None,
        query: str = "",
        limit: int = 0,
        before: Cursor | None = None,
    ) -> list[Listed]:
        sql, values = lists.listing(Wanted(owner, archived, status, label, query, before), limit)
        found = await self._run(lambda connection, _: connection.fetch(sql, self._writing.now(), *values))
        return [rows.listed(row) for row in found]

    async def changes(self, *, owner: str | None = None, after: int = 0, limit: int = 0) -> Sequence[Listed]:
        values = (self._writing.now(), after, owner, limit or None)
        found = await self._run(lambda connection, _: connection.fetch(lists.CHANGES, *values))
        return [rows.listed(row) for row in found]

    async def _last_change(self) -> int:
        return int(await self._run(lambda connection, _: connection.fetchval(lists.LAST_CHANGE)))

    # -- leases -------------------------------------------------------------------------------------------------

    async def claim(self, worker: str, chat: ChatId | None = None, *, now_ms: int = 0) -> Lease | None:
        if not worker:
            raise InvalidInput("a worker needs a name to claim a chat")
        return await self._granting(self._writing.claim(worker, chat, now_ms))

    async def renew(self, leases: Sequence[Lease]) -> Sequence[Lease]:
        return await self._finish(self._writing.renew(leases))

    async def release(self, lease: Lease) -> None:
        self._granted.discard(lease)
        await self._finish(self._writing.release([lease]))

    # -- blobs, snapshots, answers, live text -------------------------------------------------------------------

    async def put_blob(self, data: bytes) -> str:
        return await self._finish(self._blobs.put(data))

    async def put_blob_parts(self, parts: Iterable[bytes]) -> str:
        return await self._finish(self._blobs.put_parts(parts))

    async def get_blob(self, digest: str) -> bytes:
        return await self._finish(self._blobs.get(digest))

    async def save_snapshot(self, chat: ChatId, snapshot: Snapshot) -> None:
        body = await asyncio.to_thread(zlib.compress, snapshot.body, 1)
        await self._finish(self._writing.save_snapshot(chat, snapshot, body))

    async def load_snapshot(self, chat: ChatId) -> Snapshot | None:
        async def work(connection: Connection, _: bool) -> Snapshot | None:
            query = "SELECT seq, body FROM snapshots WHERE chat_no = (SELECT no FROM chats WHERE id = $1)"
            row = await connection.fetchrow(query, chat)
            if row is None:
                await _head(connection, chat)
                return None
            return Snapshot(row[0], zlib.decompress(row[1]))

        try:
            return await self._run(work)
        except zlib.error:
            return None  # a cache: what cannot be read is made again

    async def recall(self, owner: str, key: str) -> Remembered | None:
        return await self._finish(self._writing.recall(owner, key))

    async def remember(self, answer: Remembered) -> None:
        await self._finish(self._writing.remember(answer))

    async def put_deltas(self, deltas: Sequence[Delta]) -> None:
        await self._finish(self._writing.put_deltas(deltas))

    async def read_deltas(self, reached: Mapping[ChatId, Reach]) -> Sequence[Delta]:
        places = [[place[part] for place in reached.values()] for part in range(3)]
        found = await self._run(lambda connection, _: connection.fetch(_READ_DELTAS, [*reached], *places))
        return [Delta(*row) for row in found]

    async def check(self, *, repair: bool = False) -> Sequence[Problem]:
        """Look for damage, and with `repair` mend what can be mended: `treadle fsck` (D-06)."""
        from treadle.stores.postgres.check import check

        return await self._finish(
            self._connections.run(lambda connection, _: check(connection, repair=repair), timeout_s=24 * 3600)
        )

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._watch.close(StoreError("the store was closed while somebody waited for it"))
        try:
            while self._under_way:
                await asyncio.gather(*self._under_way, return_exceptions=True)
            if self._granted:
                await self._writing.release([*self._granted])
        finally:
            await self._notices.close()
            await self._connections.close()

    # -- to the database ----------------------------------------------------------------------------------------

    async def _run(self, work: Callable[[Connection, bool], Coroutine[Any, Any, T]]) -> T:
        return await self._finish(self._connections.run(work))

    async def _finish(self, work: Coroutine[Any, Any, T]) -> T:
        """Wait for something that goes on to its end, whatever happens to the waiter."""
        return await asyncio.shield(self._begin(work))

    def _begin(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        if self._closed:
            work.close()
            raise closed()
        task = asyncio.get_running_loop().create_task(work)
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)
        return task

    async def _granting(self, work: Coroutine[Any, Any, Lease | None]) -> Lease | None:
        """A write that may bring a lease, which is given back if nobody is there any more to take it."""
        task = self._begin(work)
        try:
            lease = await asyncio.shield(task)
        except asyncio.CancelledError:
            task.add_done_callback(self._give_back)
            raise
        if lease is not None:
            self._granted.add(lease)
        return lease

    def _give_back(self, task: asyncio.Task[Lease | None]) -> None:
        if not task.cancelled() and task.exception() is None and (lease := task.result()) is not None:
            if self._closed:
                self._granted.add(lease)  # closing waits for what is under way, and then releases
            else:
                self._begin(self._writing.release([lease]))

    def _news(self, chats: Sequence[ChatId]) -> asyncio.Future[Heads]:
        async def look(connection: Connection, _: bool) -> Heads:
            found: Heads = {}
            named = [chat for chat in chats if chat != ANY]
            if named:
                found |= {ChatId(chat): head for chat, head in await connection.fetch(lists.HEADS, named)}
            if ANY in chats:
                found[ANY] = await connection.fetchval(lists.LAST_CHANGE)
            return found

        return self._begin(self._connections.run(look))

    def _heard(self, heads: Heads) -> None:
        for chat, head in heads.items():
            self._watch.tell(chat, head)
        self._watch.look()


async def _head(connection: Connection, chat: ChatId) -> int:
    head: int | None = await connection.fetchval("SELECT head FROM chats WHERE id = $1", chat)
    if head is None:
        raise NotFound(f"there is no chat {chat}")
    return head


async def _packed(records: Sequence[Record]) -> Sequence[Packed]:
    if sum(len(record.body) for record in records) > HEAVY:
        return await asyncio.to_thread(lambda: [rows.pack(record) for record in records])
    return [rows.pack(record) for record in records]
