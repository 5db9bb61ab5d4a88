"""The store for many workers on many machines: one PostgreSQL database, and nothing else that they share. Opening costs
nothing until the first call; one event loop at a time. A statement that was sent is awaited even if its caller was
cancelled: so an unclaimed lease is given back, and no connection is thrown away."""

import asyncio
import zlib
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any
from uuid import uuid4

import asyncpg  # type: ignore[import-untyped]

from treadle.adapters.stores import redact_address
from treadle.adapters.stores.packing import Packed, Problem, check_gapless, fill_gaps, make_contradiction
from treadle.adapters.stores.postgres import connections as pg
from treadle.adapters.stores.postgres import queries as sql
from treadle.adapters.stores.postgres.connections import Notices, PgConnection, T, Work
from treadle.adapters.stores.text_index import SPOKEN, CatchingUp, Part, UnindexedRange, build_parts, fold_words
from treadle.adapters.stores.watch import ANY, DELETED, Heads, Watch
from treadle.base.file_system import reach_faultpoint
from treadle.base.types import ChatId, Clock
from treadle.errors import ChatBusy, ChatExists, Damaged, HeadMoved, InvalidInput, LeaseLost, NotFound, StoreError
from treadle.ports import store as port
from treadle.ports.store import LEASE_S, Commit, Lease, Listed, Remembered, Snapshot
from treadle.protocol.views import ChatSummary
from treadle.protocol.wire import Record

POLL_S = 0.2
HEAVY = 64 * 1024  # So many bytes are packed in a thread, lest the event loop waits for them.


class PostgresStore:
    """A `Store` at `url` (`postgresql://…`). The database's clock times leases, unless a test has a `clock`; `lease_s`:
    how long those last that are taken here; `patience_s`: how long a server that is away is waited for."""

    shared = True  # Workers on other machines may use the store, too; they do not see the files of this machine.

    def __init__(
        self,
        url: str,
        *,
        clock: Clock | None = None,
        lease_s: float = LEASE_S,
        patience_s: float = pg.PATIENCE_S,
        connections: int = pg.CONNECTIONS,
        migrations: Path = pg.MIGRATIONS,
    ) -> None:
        self.where = redact_address(url)
        prepare = lambda connection: pg.prepare_schema(connection, self.where, migrations)  # noqa: E731
        self._connections = pg.Connections(url, prepare, most=connections, patience_s=patience_s)
        self._clock = clock
        self._lease_ms = int(lease_s * 1000)
        self._catching_up = CatchingUp(self._list_unindexed, self._index_chats)
        self._notices = Notices(self._connections, self._handle_heads)
        self._watch = Watch(lambda chats: self._begin(self._read_heads(chats)), POLL_S, listen=self._notices.listen)
        self._granted: set[Lease] = set()
        self._under_way: set[asyncio.Task[Any]] = set()
        self._closed = False

    # -- the log ------------------------------------------------------------------------------------------------

    async def create(
        self, summary: ChatSummary, records: Sequence[Record], *, answer: Remembered | None = None
    ) -> None:
        await self._finish(self._create(summary, records, answer))
        self._watch.poll_soon()

    async def _create(self, summary: ChatSummary, records: Sequence[Record], answer: Remembered | None) -> None:
        packed = await _pack_records(records)
        check_gapless(packed, 1)
        epoch = max((record.epoch for record in packed), default=0)
        values = (summary.chat, packed, sql.make_summary_columns(summary), epoch, *sql.make_answer_columns(answer))

        async def insert_chat(connection: PgConnection, again: bool) -> str:
            reach_faultpoint("store.before_commit")
            outcome: str = await connection.fetchval(sql.CREATE, *values, again)
            reach_faultpoint("store.after_commit")
            return outcome

        if await self._run_unless_answered(insert_chat, answer) == "exists":
            raise ChatExists(f"chat {summary.chat} exists already; choose another id")
        self._notices.tell(summary.chat, len(records))

    async def append(self, commit: Commit) -> None:
        await self._write_for_lease(self._append(commit))
        if commit.release and commit.lease is not None:
            self._granted.discard(commit.lease)
        if commit.records:
            self._watch.tell(commit.chat, commit.records[-1].seq)
        self._watch.poll_soon()

    async def _append(self, commit: Commit) -> Lease | None:
        chat, lease, take, packed = commit.chat, commit.lease, commit.take, await _pack_records(commit.records)
        check_gapless(packed, commit.first)
        lease_key = (lease.epoch, lease.worker) if lease is not None else (None, None)
        take_key = (take.epoch, take.worker) if take is not None else (None, None)
        if lease is not None and lease.chat != chat:
            raise LeaseLost(f"a lease of chat {lease.chat} does not belong to chat {chat}; write nothing more")

        async def append_records(connection: PgConnection, again: bool) -> Any:
            reach_faultpoint("store.before_commit")
            row = await connection.fetchrow(
                sql.APPEND, chat, commit.first, packed, sql.make_summary_columns(commit.summary), commit.durable,
                *lease_key, *take_key, commit.release, *sql.make_answer_columns(commit.answer), commit.drop_deltas,
                self._lease_ms, self._get_time_ms(), again,
            )  # fmt: skip
            reach_faultpoint("store.after_commit")
            return row["outcome"], row["head"], row["epoch"]

        outcome, head, epoch = await self._run_unless_answered(append_records, commit.answer)
        match outcome:
            case "not_found":
                raise NotFound(f"there is no chat {chat}")
            case "busy":
                raise ChatBusy(f"chat {chat} is held, or was meanwhile; it cannot be taken as epoch {take_key[0]}")
            case "lease_lost":
                raise LeaseLost(f"epoch {lease_key[0]} of chat {chat} is over (now {epoch}); write nothing more")
            case "head_moved":
                ends = await self._connections.run(lambda connection, _: connection.fetchrow(sql.ENDS, chat))
                if ends is not None and ends["last"] > ends["head"]:  # damage: no append could ever succeed
                    raise make_contradiction(chat, ends["head"], ends["last"])
                raise HeadMoved(f"chat {chat} is at {head}, not at {commit.first - 1}; read on and try again")
        self._notices.tell(chat, packed[-1].seq if packed else 0)
        return None if commit.release else take

    async def delete(self, chats: Sequence[ChatId], *, owner: str | None = None) -> None:
        async def delete_chats(connection: PgConnection, _: bool) -> Any:
            reach_faultpoint("store.before_commit")
            row = await connection.fetchrow(sql.DELETE, list(chats), owner, self._get_time_ms())
            reach_faultpoint("store.after_commit")
            return row

        outcome, refused_chat, worker = await self._run(delete_chats)
        if outcome == "not_found":
            raise NotFound(f"there is no chat {refused_chat}")
        if outcome == "busy":
            raise ChatBusy(f"chat {refused_chat} is held by the live worker {worker}; stop it before you delete it")
        for chat in chats:
            self._watch.tell(chat, DELETED)
        self._watch.poll_soon()

    async def read(self, chat: ChatId, after_seq: int = 0, limit: int = 0) -> list[Record]:
        begin = min(max(0, after_seq), sql.MOST)
        head, records = await self._read_records(sql.READ, chat, begin, limit or None)
        return fill_gaps(records, chat, begin, head, limit)

    async def read_types(self, chat: ChatId, types: Iterable[str], after_seq: int = 0, limit: int = 0) -> list[Record]:
        begin = min(max(0, after_seq), sql.MOST)
        return (await self._read_records(sql.OF_TYPES, chat, begin, limit or None, sorted(types)))[1]

    async def _read_records(self, query: str, chat: ChatId, *values: object) -> tuple[int, list[Record]]:
        if not (matches := await self._fetch(query, chat, *values)):
            raise NotFound(f"there is no chat {chat}")
        return matches[0]["head"], [sql.unpack(row[1:]) for row in matches if row["seq"] is not None]

    async def read_head(self, chat: ChatId) -> int:
        return await self._run(lambda connection, _: _read_head(connection, chat))

    async def _read_heads(self, chats: Sequence[ChatId]) -> Heads:

        async def fetch_heads(connection: PgConnection, _: bool) -> Heads:
            heads: Heads = {}
            if chat_ids := [chat for chat in chats if chat != ANY]:
                heads |= dict.fromkeys(chat_ids, DELETED)
                heads |= {ChatId(chat): head for chat, head in await connection.fetch(sql.HEADS, chat_ids)}
            if ANY in chats:
                heads[ANY] = await connection.fetchval(sql.LAST_CHANGE)
            return heads

        return await self._run(fetch_heads)

    async def wait(self, chat: ChatId, after_seq: int, timeout_s: float) -> int:
        return await self._watch.wait(chat, after_seq, timeout_s, lambda: self.read_head(chat))

    async def wait_any(self, after_change: int, timeout_s: float) -> int:
        async def read_last_change() -> int:
            return (await self._read_heads([ANY]))[ANY]

        # A transaction that is not visible yet may have changed the last changed chat again: never go back.
        return max(after_change, await self._watch.wait(ANY, after_change, timeout_s, read_last_change))

    # -- lists of chats -----------------------------------------------------------------------------------------

    async def get(self, chat: ChatId) -> Listed:
        if not (matches := await self._fetch(sql.GET, self._get_time_ms(), chat)):
            raise NotFound(f"there is no chat {chat}")
        return sql.decode_listed(matches[0])

    async def list(
        self, chat_filter: port.ChatFilter = port.ALL_CHATS, *, limit: int = 0, cursor: port.Cursor | None = None
    ) -> list[Listed]:
        query, values = sql.build_listing_query(chat_filter, limit, cursor)
        return [sql.decode_listed(row) for row in await self._fetch(query, self._get_time_ms(), *values)]

    async def list_changes(
        self, *, owner: str | None = None, after_change: int = 0, limit: int = 0
    ) -> Sequence[Listed]:
        rows = await self._fetch(sql.CHANGES, self._get_time_ms(), after_change, owner, limit or None)
        return [sql.decode_listed(row) for row in rows]

    async def search_text(self, words: Sequence[str]) -> Mapping[ChatId, int]:
        await self._catching_up.wait()
        conditions = [f"position(${number} IN text) > 0" for number in range(1, len(words) + 1)]
        query = sql.WITH_WORDS.format(" AND ".join(conditions) or "true")

        async def search_parts(connection: PgConnection, _: bool) -> dict[ChatId, int]:
            first_seqs = {ChatId(chat): first for chat, first in await connection.fetch(query, *fold_words(words))}
            for _no, after_seq, _head, chat in await connection.fetch(sql.UNINDEXED):
                first_seqs.setdefault(ChatId(chat), after_seq + 1)
            return first_seqs

        return await self._run(search_parts)

    async def _list_unindexed(self) -> Sequence[UnindexedRange]:
        rows = await self._connections.run(lambda connection, _: connection.fetch(sql.UNINDEXED))
        return [UnindexedRange(*row[:3]) for row in rows]

    async def _index_chats(self, chats: Sequence[UnindexedRange]) -> None:
        async def write_index_parts(connection: PgConnection, _: bool) -> None:
            index_parts: list[Part] = []
            for chat in chats:
                records = map(sql.unpack, await connection.fetch(sql.SPOKEN_RECORDS, *chat, [*SPOKEN]))
                index_parts += await asyncio.to_thread(
                    lambda chat, records: [*build_parts(chat, records)], chat, records
                )
            await connection.execute(sql.KEEP_TEXT, *map(list, zip(*index_parts, strict=True)))

        await self._connections.run(write_index_parts)

    # -- leases -------------------------------------------------------------------------------------------------

    async def claim(self, worker: str, chat: ChatId | None = None, *, now_ms: int = 0) -> Lease | None:
        if not worker:
            raise InvalidInput("a worker needs a name to claim a chat")
        return await self._write_for_lease(self._claim(worker, chat, now_ms))

    async def _claim(self, worker: str, chat: ChatId | None, now_ms: int) -> Lease | None:
        token = uuid4()

        async def claim_chat(connection: PgConnection, again: bool) -> Any:
            row = await connection.fetchrow(sql.CLAIMED, worker, token) if again else None
            if row is None or row["outcome"] is None:
                times = (self._lease_ms, self._get_time_ms())
                if chat is None:
                    row = await connection.fetchrow(sql.CLAIM, worker, token, now_ms, *times)
                else:
                    row = await connection.fetchrow(sql.CLAIM_CHAT, chat, worker, token, *times)
            return row

        row = await self._connections.run(claim_chat)
        if chat is not None and row["outcome"] is None:
            raise NotFound(f"there is no chat {chat}")
        if row["outcome"] == "busy":
            raise ChatBusy(f"chat {chat} is held by the live worker {row['chat']}; wait until it is released")
        return Lease(ChatId(row["chat"]), row["epoch"], worker, row["head"]) if row["outcome"] else None

    async def renew(self, leases: Sequence[Lease]) -> Sequence[Lease]:
        if not leases:
            return []
        rows = await self._fetch(sql.RENEW, *sql.make_lease_columns(leases), self._lease_ms, self._get_time_ms())
        renewed = {(row["chat"], row["epoch"]) for row in rows}
        return [lease for lease in leases if (lease.chat, lease.epoch) in renewed]

    async def release(self, lease: Lease) -> None:
        self._granted.discard(lease)
        await self._finish(self._release([lease]))

    async def _release(self, leases: Sequence[Lease]) -> None:
        await self._connections.execute("SELECT treadle_release($1, $2, $3)", *sql.make_lease_columns(leases))

    async def _write_for_lease(self, work: Coroutine[Any, Any, Lease | None]) -> Lease | None:
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
                self._begin(self._release([lease]))

    # -- blobs --------------------------------------------------------------------------------------------------

    async def put_blob(self, data: bytes) -> str:
        if len(data) > sql.BLOB_PART:
            view = memoryview(data)
            pieces = (bytes(view[at : at + sql.BLOB_PART]) for at in range(0, len(data), sql.BLOB_PART))
            return await self.put_blob_parts(pieces)
        return await self._finish(self._put_small(data))

    async def _put_small(self, data: bytes) -> str:
        digest = sha256(data).digest()
        if not await self._connections.fetchval("SELECT EXISTS (SELECT 1 FROM blobs WHERE digest = $1)", digest):
            reach_faultpoint("store.before_commit")
            await self._connections.execute("SELECT treadle_put_small($1, $2)", digest, data)
            reach_faultpoint("store.blob_written")
        return digest.hex()

    async def put_blob_parts(self, parts: Iterable[bytes]) -> str:
        return await self._finish(self._put_parts(parts))

    async def _put_parts(self, parts: Iterable[bytes]) -> str:
        upload = await self._connections.fetchval("SELECT nextval('blob_uploads')")
        hashed, size, number, coming = sha256(), 0, 0, sql.split_parts(parts)
        while (part := await asyncio.to_thread(next, coming, None)) is not None:
            await asyncio.to_thread(hashed.update, part)
            await self._connections.execute("SELECT treadle_put_part($1, $2, $3)", upload, number, part)
            size, number = size + len(part), number + 1
        reach_faultpoint("store.before_commit")
        await self._connections.execute("SELECT treadle_put_blob($1, $2, $3)", hashed.digest(), upload, size)
        reach_faultpoint("store.blob_written")
        return hashed.hexdigest()

    async def get_blob(self, digest: str) -> bytes:
        return await self._finish(self._get_blob(digest))

    async def _get_blob(self, digest: str) -> bytes:
        try:
            key = bytes.fromhex(digest)
        except ValueError:
            key = b""
        row = await self._connections.run(lambda c, _: c.fetchrow(sql.FIRST_PART, key)) if len(key) == 32 else None
        if row is None:
            raise NotFound(f"there is no blob {digest!r}")
        upload, size, data = row
        blob_parts = [data or b""]
        missing = size - len(blob_parts[0])
        query = "SELECT data FROM blob_parts WHERE upload = $1 AND part = $2"
        while missing > 0 and (part := await self._connections.fetchval(query, upload, len(blob_parts))):
            blob_parts.append(part)
            missing -= len(part)
        blob = b"".join(blob_parts)
        if (await asyncio.to_thread(sha256, blob)).digest() != key:
            raise Damaged(f"blob {digest} is damaged: its bytes have another hash")
        return blob

    # -- snapshots, answers, live text --------------------------------------------------------------------------

    async def save_snapshot(self, chat: ChatId, snapshot: Snapshot) -> None:
        body = await asyncio.to_thread(zlib.compress, snapshot.body, 1)
        if not (await self._fetch("SELECT treadle_save_snapshot($1, $2, $3)", chat, snapshot.seq, body))[0][0]:
            raise NotFound(f"there is no chat {chat}")

    async def load_snapshot(self, chat: ChatId) -> Snapshot | None:
        async def read_snapshot(connection: PgConnection, _: bool) -> Snapshot | None:
            if (row := await connection.fetchrow(sql.SNAPSHOT, chat)) is None:
                await _read_head(connection, chat)
                return None
            try:
                return Snapshot(row[0], zlib.decompress(row[1]))
            except zlib.error:
                return None  # a cache: what cannot be read is made again

        return await self._run(read_snapshot)

    async def recall(self, owner: str, key: str) -> Remembered | None:
        return await self._finish(self._recall(owner, key))

    async def _recall(self, owner: str, key: str) -> Remembered | None:
        return await self._connections.run(lambda connection, _: _recall(connection, owner, key))

    async def remember(self, answer: Remembered) -> None:
        async def keep_answer(connection: PgConnection, again: bool) -> str:
            if again and await _recall(connection, answer.owner, answer.key) == answer:
                return "done"
            row, oldest, sweep = sql.make_answer_columns(answer)
            if await connection.fetchval("SELECT treadle_answered($1, $2)", row, oldest):
                return "answered"
            await connection.execute("SELECT treadle_remember($1, $2, $3)", row, oldest, sweep)
            return "done"

        await self._finish(self._run_unless_answered(keep_answer, answer))

    async def _run_unless_answered(self, work: Any, answer: Remembered | None) -> Any:
        while True:
            try:
                outcome = await self._connections.run(work)
            except asyncpg.PostgresError as error:
                if pg.get_sqlstate(error) != pg.ALREADY_ANSWERED:
                    raise
                outcome = "answered"
            if answer is None or (outcome if isinstance(outcome, str) else outcome[0]) != "answered":
                return outcome
            if (first := await self._recall(answer.owner, answer.key)) is not None:
                raise first.refuse()

    async def put_deltas(self, deltas: Sequence[port.Delta]) -> None:
        if deltas:
            columns = zip(*((d.chat, d.epoch, d.turn, d.number, d.payload) for d in deltas), strict=True)
            await self._fetch("SELECT treadle_put_deltas($1, $2, $3, $4, $5)", *map(list, columns))

    async def read_deltas(self, reached: Mapping[ChatId, port.Reach]) -> Sequence[port.Delta]:
        places = [[place[part] for place in reached.values()] for part in range(3)]
        return [port.Delta(*row) for row in await self._fetch(sql.DELTAS, [*reached], *places)]

    # -- the database -------------------------------------------------------------------------------------------

    async def check(self, *, repair: bool = False) -> Sequence[Problem]:
        """Look for damage, and with `repair` mend what can be mended: `treadle fsck` (D-06)."""
        from treadle.adapters.stores.postgres.check import check_database

        work = self._connections.run(
            lambda connection, _: check_database(connection, repair=repair), timeout_s=24 * 3600
        )
        return await self._finish(work)

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
                await self._release([*self._granted])
        finally:
            await self._notices.close()
            await self._connections.close()

    def _get_time_ms(self) -> int | None:
        """The time that leases are judged by; None is the database's own."""
        return None if self._clock is None else int(self._clock.monotonic() * 1000)

    async def _fetch(self, query: str, *values: object) -> Sequence[Any]:
        return await self._run(lambda connection, _: connection.fetch(query, *values))

    async def _run(self, work: Work[T]) -> T:
        return await self._finish(self._connections.run(work))

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

    def _handle_heads(self, heads: Heads) -> None:
        for chat, head in heads.items():
            self._watch.tell(chat, head)
        self._watch.poll_soon()


async def _pack_records(records: Sequence[Record]) -> Sequence[Packed]:
    if sum(len(record.body) for record in records) > HEAVY:
        return await asyncio.to_thread(lambda: [sql.pack(record) for record in records])
    return [sql.pack(record) for record in records]


async def _read_head(connection: PgConnection, chat: ChatId) -> int:
    head: int | None = await connection.fetchval("SELECT head FROM chats WHERE id = $1", chat)
    if head is None:
        raise NotFound(f"there is no chat {chat}")
    return head


async def _recall(connection: PgConnection, owner: str, key: str) -> Remembered | None:
    row = await connection.fetchrow(sql.RECALL, owner, key)
    return Remembered(*row) if row is not None else None
