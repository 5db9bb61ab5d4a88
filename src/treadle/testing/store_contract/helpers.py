"""How the tests of the contract get their store, and short functions for chats with one record, appends and claims."""

from collections.abc import AsyncIterator, Awaitable, Sequence
from pathlib import Path

import msgspec
import pytest
import pytest_asyncio

from treadle.base.types import ChatId
from treadle.ports.store import Commit, Lease, Store
from treadle.protocol.views import ChatSummary
from treadle.protocol.wire import Record
from treadle.testing.clock import ManualClock

A, B, C, NOBODY = ChatId("c_a"), ChatId("c_b"), ChatId("c_c"), ChatId("c_nobody")
WIDE = 64 * 1024  # larger than any store may want to keep in a row


class OpensStore:
    """A new store for every test, closed after it."""

    async def open_store(self, clock: ManualClock, folder: Path) -> Store:
        """A new, empty store whose leases are timed by `clock`; it is closed after the test."""
        raise AssertionError("say how to open a store")

    async def open_beside(self, clock: ManualClock, folder: Path, lease_s: float) -> Store:
        """Open the same store a second time, as another process would that has another lease length. The test closes
        it. A store that lives in one process cannot do this."""
        pytest.skip("nobody else can open this store")

    @pytest.fixture
    def clock(self) -> ManualClock:
        return ManualClock()

    @pytest_asyncio.fixture
    async def store(self, clock: ManualClock, tmp_path: Path) -> AsyncIterator[Store]:
        store = await self.open_store(clock, tmp_path)
        yield store
        await store.close()


def record(seq: int, body: bytes = b'{"turn":1}', *, epoch: int = 0) -> Record:
    return Record(seq, 1_700_000_000_000 + seq, "assistant.turn_start", 1, epoch, body)


def make_records(first: int, last: int) -> list[Record]:
    return [record(seq, b'{"turn":%d}' % seq) for seq in range(first, last + 1)]


def make_summary(chat: ChatId, head: int = 1, **changes: object) -> ChatSummary:
    return msgspec.structs.replace(ChatSummary(chat, head=head), **changes)


async def begin(store: Store, *chats: ChatId, **changes: object) -> None:
    for chat in chats:
        await store.create(make_summary(chat, 1, **changes), [record(1)])


async def assert_raises(error: type[Exception], call: Awaitable[object]) -> None:
    with pytest.raises(error):
        await call


async def add(store: Store, chat: ChatId, seq: int, lease: Lease | None = None, **changes: object) -> None:
    await store.append(Commit(chat, [record(seq)], make_summary(chat, seq, **changes), lease=lease, durable=False))


async def claim_lease(store: Store, worker: str, chat: ChatId | None = None, *, now_ms: int = 0) -> Lease:
    lease = await store.claim(worker, chat, now_ms=now_ms)
    assert lease is not None
    return lease


async def begin_claimed(store: Store, worker: str, chat: ChatId, **changes: object) -> Lease:
    await begin(store, chat, **changes)
    return await claim_lease(store, worker, chat)


def list_seqs(stored_records: Sequence[Record]) -> list[int]:
    return [record.seq for record in stored_records]
