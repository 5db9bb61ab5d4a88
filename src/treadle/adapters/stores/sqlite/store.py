"""The default store: one SQLite file, with blobs and worker locks in folders beside it, for any number of processes and
one event loop at a time. This is the public class: the operations of the port, passed to the threads."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from treadle.adapters.stores.packing import Packed
from treadle.adapters.stores.sqlite import schema
from treadle.adapters.stores.sqlite.leases import Leases
from treadle.adapters.stores.sqlite.rows import BlobFiles, pack
from treadle.adapters.stores.sqlite.tables import ReadTables, WriteTables
from treadle.adapters.stores.sqlite.threads import FileThread, ReaderThread, StoreJob, WorkerThread, WriterThread
from treadle.adapters.stores.watch import ANY, DELETED, Watch
from treadle.base.types import ChatId, Clock
from treadle.errors import Damaged, InvalidInput, StoreError
from treadle.ports import store as port
from treadle.protocol.views import ChatSummary
from treadle.protocol.wire import Record

if TYPE_CHECKING:
    import asyncio

    from treadle.adapters.stores.packing import Problem
    from treadle.adapters.stores.text_index import CatchingUp, UnindexedRange

BUSY_S = 10.0
S = TypeVar("S")
T = TypeVar("T")


class SqliteStore:
    """A `Store` in the file `path`. `clock` times leases (by `monotonic`), which last `lease_s` if they are taken
    here; `busy_s` is how long another process may hold the file before a call fails."""

    def __init__(
        self,
        path: Path,
        *,
        clock: Clock | None = None,
        lease_s: float = port.LEASE_S,
        busy_s: float = BUSY_S,
        migrations: Path = schema.MIGRATIONS,
    ) -> None:
        self.path = path
        self._blobs = BlobFiles(path.with_name("blobs"))
        self._leases = Leases(path.with_name("workers"), clock, lease_s)
        database = schema.Database(path, busy_s=busy_s, migrations=migrations)
        self._writer = WriterThread(database, lambda connection: WriteTables(connection, self._leases, self._blobs))
        self._reader = ReaderThread(database, lambda connection: ReadTables(connection, self._leases, self._blobs))
        self._files = FileThread(path, self._blobs)
        self._watch = Watch(lambda chats: self._read(lambda tables: tables.read_news(chats)))
        self._catching_up: CatchingUp | None = None
        self._granted: set[port.Lease] = set()
        self._closed = False

    async def create(
        self, summary: ChatSummary, records: Sequence[Record], *, answer: port.Remembered | None = None
    ) -> None:
        packed: list[Packed] = []
        prepare = lambda: packed.extend([pack(record, self._blobs) for record in records])  # noqa: E731
        await self._write(lambda tables: tables.create(summary, packed, answer), prepare=prepare, durable=True)
        self._watch.poll_soon()

    async def append(self, commit: port.Commit) -> None:
        packed: list[Packed] = []

        def prepare() -> None:
            if commit.take is not None:
                self._leases.hold(commit.take.worker)
            packed.extend([pack(record, self._blobs) for record in commit.records])

        await self._write_for_lease(lambda tables: tables.append(commit, packed), prepare, durable=commit.durable)
        if commit.release and commit.lease is not None:
            self._granted.discard(commit.lease)
        if commit.records:
            self._watch.tell(commit.chat, commit.records[-1].seq)
        self._watch.poll_soon()

    async def delete(self, chats: Sequence[ChatId], *, owner: str | None = None) -> None:
        await self._write(lambda tables: tables.delete(chats, owner), durable=True)
        for chat in chats:
            self._watch.tell(chat, DELETED)
        self._watch.poll_soon()

    async def read(self, chat: ChatId, after_seq: int = 0, limit: int = 0) -> list[Record]:
        return await self._read(lambda tables: tables.read(chat, after_seq, limit))

    async def read_types(self, chat: ChatId, types: Iterable[str], after_seq: int = 0, limit: int = 0) -> list[Record]:
        return await self._read(lambda tables: tables.read_types(chat, types, after_seq, limit))

    async def read_head(self, chat: ChatId) -> int:
        return await self._read(lambda tables: tables.read_head(chat))

    async def wait(self, chat: ChatId, after_seq: int, timeout_s: float) -> int:
        return await self._watch.wait(chat, after_seq, timeout_s, lambda: self.read_head(chat))

    async def wait_any(self, after_change: int, timeout_s: float) -> int:
        return await self._watch.wait(ANY, after_change, timeout_s, lambda: self._read(ReadTables.read_last_change))

    async def get(self, chat: ChatId) -> port.Listed:
        return await self._read(lambda tables: tables.get_chat(chat))

    async def list(
        self, chat_filter: port.ChatFilter = port.ALL_CHATS, *, limit: int = 0, cursor: port.Cursor | None = None
    ) -> list[port.Listed]:
        return await self._read(lambda tables: tables.list_chats(chat_filter, limit, cursor))

    async def list_changes(
        self, *, owner: str | None = None, after_change: int = 0, limit: int = 0
    ) -> Sequence[port.Listed]:
        return await self._read(lambda tables: tables.list_changes(owner, after_change, limit))

    async def search_text(self, words: Sequence[str]) -> Mapping[ChatId, int]:
        from treadle.adapters.stores.text_index import CatchingUp

        if self._catching_up is None:
            self._catching_up = CatchingUp(
                lambda: self._read(lambda tables: tables.open_text_index().list_unindexed()), self._take_in
            )
        await self._catching_up.wait()
        return await self._read(lambda tables: tables.open_text_index().find_chats(words))

    async def _take_in(self, chats: Sequence[UnindexedRange]) -> None:
        parts = await self._read(lambda tables: tables.open_text_index().read_parts(chats))
        await self._write(lambda tables: tables.open_text_index().keep(parts))

    async def claim(self, worker: str, chat: ChatId | None = None, *, now_ms: int = 0) -> port.Lease | None:
        if not worker:
            raise InvalidInput("a worker needs a name to claim a chat")
        return await self._write_for_lease(
            lambda tables: tables.claim(worker, chat, now_ms), lambda: self._leases.hold(worker), durable=False
        )

    async def renew(self, leases: Sequence[port.Lease]) -> Sequence[port.Lease]:
        return await self._write(lambda tables: tables.renew(leases))

    async def release(self, lease: port.Lease) -> None:
        self._granted.discard(lease)
        await self._write(lambda tables: tables.release([lease]))

    async def put_blob(self, data: bytes) -> str:
        return await self._submit(self._files, lambda blobs: blobs.put(data))

    async def put_blob_parts(self, parts: Iterable[bytes]) -> str:
        return await self._submit(self._files, lambda blobs: blobs.put_parts(parts))

    async def get_blob(self, digest: str) -> bytes:
        return await self._submit(self._files, lambda blobs: blobs.get(digest))

    async def save_snapshot(self, chat: ChatId, snapshot: port.Snapshot) -> None:
        body = b""

        def compress() -> None:
            nonlocal body
            body = zlib.compress(snapshot.body, 1)

        await self._write(lambda tables: tables.save_snapshot(chat, snapshot.seq, body), prepare=compress)

    async def load_snapshot(self, chat: ChatId) -> port.Snapshot | None:
        return await self._read(lambda tables: tables.load_snapshot(chat))

    async def recall(self, owner: str, key: str) -> port.Remembered | None:
        return await self._read(lambda tables: tables.recall(owner, key))

    async def remember(self, answer: port.Remembered) -> None:
        await self._write(lambda tables: tables.remember(answer), durable=True)

    async def put_deltas(self, deltas: Sequence[port.Delta]) -> None:
        await self._write(lambda tables: tables.put_deltas(deltas))

    async def read_deltas(self, reached: Mapping[ChatId, port.Reach]) -> Sequence[port.Delta]:
        return await self._read(lambda tables: tables.read_deltas(reached))

    async def check(self, *, repair: bool = False) -> Sequence[Problem]:
        """Look for damage, and with `repair` mend what can be mended: `treadle fsck` (D-06)."""
        from treadle.adapters.stores.packing import Problem
        from treadle.adapters.stores.sqlite.salvage import check_database

        try:
            await self._read(ReadTables.read_data_version)  # the file exists and is up to date from here on
        except Damaged as error:
            return [Problem("database", str(error.__cause__ or error))]
        return await self._submit(self._files, lambda _: check_database(self.path, repair=repair))

    async def close(self) -> None:
        if self._closed:
            return
        self._watch.close(StoreError("the store was closed during a wait"))
        if self._catching_up is not None:
            await self._catching_up.close()
        granted = list(self._granted)
        try:
            if granted:
                await self._write(lambda tables: tables.release(granted))
        finally:
            self._closed = True
            for thread in (self._writer, self._reader, self._files):
                thread.stop()
            self._leases.close()

    def _read(self, work: Callable[[ReadTables], T]) -> asyncio.Future[T]:
        return self._submit(self._reader, work)

    def _write(
        self, work: Callable[[WriteTables], T], *, prepare: Callable[[], None] | None = None, durable: bool = False
    ) -> asyncio.Future[T]:
        return self._submit(self._writer, work, prepare, durable)

    async def _write_for_lease(
        self, work: Callable[[WriteTables], port.Lease | None], prepare: Callable[[], None], *, durable: bool
    ) -> port.Lease | None:
        """Carry out a write that may return a lease; if the caller was cancelled meanwhile, give the lease back."""
        future = self._submit(self._writer, work, prepare, durable, self._give_back)
        try:
            lease = await future
        except BaseException:
            # Cancelled in the moment between the answer and its arrival.
            if future.done() and not future.cancelled() and future.exception() is None:
                self._give_back(future.result())
            raise
        if lease is not None:
            self._granted.add(lease)
        return lease

    def _submit(
        self,
        thread: WorkerThread[S],
        work: Callable[[S], T],
        prepare: Callable[[], None] | None = None,
        durable: bool = False,
        abandoned: Callable[[T], None] | None = None,
    ) -> asyncio.Future[T]:
        import asyncio

        if self._closed:
            raise StoreError("the store is closed; open a new one")
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        thread.submit(StoreJob(work, future, prepare, durable, abandoned))
        return future

    def _give_back(self, lease: port.Lease | None) -> None:
        """Release the lease of a claim whose caller was cancelled; no one else would release it."""
        if lease is not None and not self._closed:
            self._write(lambda tables: tables.release([lease]))
