"""The store for many workers on many machines: one PostgreSQL database, and nothing else that they share. Opening costs
nothing until the first call; one event loop at a time.

This is the public class, with all operations that write or wait. A statement that was sent is awaited even if its
caller was cancelled: so an unclaimed lease is given back, and no connection is thrown away.
"""

import asyncio
import contextlib
import zlib
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from treadle.adapters.stores.integrity import Problem
from treadle.adapters.stores.packing import Packed
from treadle.adapters.stores.postgres import rows
from treadle.adapters.stores.postgres.connections import (
    CONNECTIONS,
    MIGRATIONS,
    PATIENCE_S,
    Connections,
    PgConnection,
    T,
    Work,
    prepare_schema,
)
from treadle.adapters.stores.postgres.queries import BlobRows, ReadQueries, TextTable, WriteQueries
from treadle.adapters.stores.text_index import CatchingUp
from treadle.adapters.stores.watch import ANY, DELETED, Heads, Watch
from treadle.base.logs import log_debug
from treadle.base.types import ChatId, Clock
from treadle.errors import InvalidInput, StoreError
from treadle.ports.store import LEASE_S, Commit, Delta, Lease, Remembered, Snapshot
from treadle.protocol.views import ChatSummary
from treadle.protocol.wire import Record

POLL_S = 0.2
HEAVY = 64 * 1024
"""So many bytes are packed in a thread, lest the event loop waits for them."""
PAUSE_S = 0.02
"""So long one message gathers what comes after the one before."""
_LOOK_S = 5.0
_LONGEST = 7_000
"""A payload may have 8,000 bytes."""


class PostgresStore(ReadQueries):
    """A `Store` in the database at `url` (`postgresql://…`). Leases are timed by the database's clock and last
    `lease_s` if they are taken here; `clock` is for tests. `patience_s` is how long a server that is away is waited
    for."""

    shared = True
    """Workers on other machines may use the store, too; they do not see the files of this machine."""

    def __init__(
        self,
        url: str,
        *,
        clock: Clock | None = None,
        lease_s: float = LEASE_S,
        patience_s: float = PATIENCE_S,
        connections: int = CONNECTIONS,
        migrations: Path = MIGRATIONS,
    ) -> None:
        self._connections = Connections(
            url,
            lambda connection: prepare_schema(connection, self.where, migrations),
            most=connections,
            patience_s=patience_s,
        )
        self.where = self._connections.where
        self._writing = WriteQueries(self._connections, clock, lease_s)
        self._blobs = BlobRows(self._connections)
        self._said = TextTable(self._connections)
        self._catching_up = CatchingUp(self._said.list_unindexed, self._said.take_in)
        self._watch = Watch(
            lambda chats: self._begin(self._heads(chats)), POLL_S, listen=lambda: self._notices.listen()
        )
        self._notices = Notices(self._connections, self._handle_heads)
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

    async def append(self, commit: Commit) -> None:
        last = commit.records[-1].seq if commit.records else 0

        async def append() -> Lease | None:
            await self._writing.append(commit, await _packed(commit.records))
            self._notices.tell(commit.chat, last)
            return None if commit.release else commit.take

        await self._granting(append())
        if commit.release and commit.lease is not None:
            self._granted.discard(commit.lease)
        if last:
            self._watch.tell(commit.chat, last)
        self._watch.look()

    async def delete(self, chats: Sequence[ChatId], *, owner: str | None = None) -> None:
        await self._finish(self._writing.delete(chats, owner))
        for chat in chats:
            self._watch.tell(chat, DELETED)
        self._watch.look()

    async def wait(self, chat: ChatId, after_seq: int, timeout_s: float) -> int:
        return await self._watch.wait(chat, after_seq, timeout_s, lambda: self.head(chat))

    async def wait_any(self, after_change: int, timeout_s: float) -> int:
        async def last_change() -> int:
            return (await self._heads([ANY]))[ANY]

        # A transaction that is not visible yet may have changed the last changed chat again: never go back.
        return max(after_change, await self._watch.wait(ANY, after_change, timeout_s, last_change))

    async def search_text(self, words: Sequence[str]) -> Mapping[ChatId, int]:
        await self._catching_up.wait()
        return await self._finish(self._said.chats(words))

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

    async def recall(self, owner: str, key: str) -> Remembered | None:
        return await self._finish(self._writing.recall(owner, key))

    async def remember(self, answer: Remembered) -> None:
        await self._finish(self._writing.remember(answer))

    async def put_deltas(self, deltas: Sequence[Delta]) -> None:
        await self._finish(self._writing.put_deltas(deltas))

    async def check(self, *, repair: bool = False) -> Sequence[Problem]:
        """Look for damage, and with `repair` mend what can be mended: `treadle fsck` (D-06)."""
        from treadle.adapters.stores.postgres.check import check

        return await self._finish(
            self._connections.run(lambda connection, _: check(connection, repair=repair), timeout_s=24 * 3600)
        )

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._watch.close(StoreError("the store was closed during a wait"))
        await self._catching_up.close()
        try:
            while self._under_way:
                await asyncio.gather(*self._under_way, return_exceptions=True)
            if self._granted:
                await self._writing.release([*self._granted])
        finally:
            await self._notices.close()
            await self._connections.close()

    # -- to the database ----------------------------------------------------------------------------------------

    async def _run(self, work: Work[T]) -> T:
        return await self._finish(self._connections.run(work))

    def _now(self) -> int | None:
        return self._writing.now()

    async def _finish(self, work: Coroutine[Any, Any, T]) -> T:
        """Wait for work that goes on to its end even if the waiter is cancelled."""
        return await asyncio.shield(self._begin(work))

    def _begin(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        if self._closed:
            work.close()
            raise StoreError("the store is closed; open a new one")
        task = asyncio.get_running_loop().create_task(work)
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)
        return task

    async def _granting(self, work: Coroutine[Any, Any, Lease | None]) -> Lease | None:
        """Carry out a write that may return a lease; if the caller was cancelled meanwhile, give the lease back."""
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

    def _handle_heads(self, heads: Heads) -> None:
        for chat, head in heads.items():
            self._watch.tell(chat, head)
        self._watch.look()


async def _packed(records: Sequence[Record]) -> Sequence[Packed]:
    if sum(len(record.body) for record in records) > HEAVY:
        return await asyncio.to_thread(lambda: [rows.pack(record) for record in records])
    return [rows.pack(record) for record in records]


class Notices:
    """Hints from process to process that chats have news, by NOTIFY on a connection of its own: after the commits, and
    many of them at once. Inside the transactions of appends they would take turns (three to four times slower,
    measured). A lost hint costs only time: waiting processes also poll."""

    def __init__(self, connections: Connections, on_heads: Callable[[Heads], None]) -> None:
        self._connections = connections
        self._heard = on_heads
        self._pending: Heads = {}
        self._listening = False
        self._stirred = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def tell(self, chat: ChatId, head: int) -> None:
        """Let others know, soon."""
        self._pending[chat] = head
        self._start()

    def listen(self) -> None:
        """Hear what others tell, from now on."""
        if not self._listening:
            self._listening = True
            self._start()

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def _start(self) -> None:
        self._stirred.set()
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run(), name="treadle notices")

    async def _run(self) -> None:
        while True:
            connection: PgConnection | None = None
            try:
                connection = await self._connections.open()
                await self._serve(connection)
            except Exception as error:  # any error: without hints everything works, only later
                log_debug("hints to other processes stopped: %s", error)
            finally:
                if connection is not None:
                    connection.terminate()
            await asyncio.sleep(1)

    async def _serve(self, connection: PgConnection) -> None:
        """Until the connection is lost."""
        await connection.execute("SET synchronous_commit = off")
        channel = "treadle_" + str(await connection.fetchval("SELECT current_schema()"))
        is_listening = False
        while not connection.is_closed():
            if self._listening and not is_listening:
                is_listening = True
                await connection.add_listener(channel, self._received)
            pending, self._pending = self._pending, {}
            for payload in _payloads(pending):
                await connection.execute("SELECT pg_notify($1, $2)", channel, payload)
            if pending:
                await asyncio.sleep(PAUSE_S)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_S):
                    await self._stirred.wait()
            self._stirred.clear()

    def _received(self, _connection: object, _process: int, _channel: str, payload: str) -> None:
        heads: Heads = {}
        for line in payload.splitlines():
            chat, _, head = line.rpartition(" ")
            if head.isdecimal():
                heads[ChatId(chat)] = int(head)
        self._heard(heads)


def _payloads(heads: Heads) -> Iterator[str]:
    lines: list[str] = []
    size = 0
    for chat, head in heads.items():
        line = f"{chat} {head}"
        if size + len(line.encode()) > _LONGEST and lines:
            yield "\n".join(lines)
            lines, size = [], 0
        lines.append(line)
        size += len(line.encode()) + 1
    if lines:
        yield "\n".join(lines)
