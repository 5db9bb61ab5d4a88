"""What every store must do, as tests: subclass `StoreContract`, say how to open a store, and pytest does the rest.

    class TestMyStore(StoreContract):
        async def open_store(self, clock, folder):
            return MyStore(folder, clock=clock)

Needs pytest and pytest-asyncio. Names no store; `treadle.stores.memory` is the specification in code.
"""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import msgspec
import pytest
import pytest_asyncio

from treadle.errors import ChatBusy, ChatExists, HeadMoved, InvalidInput, LeaseLost, NotFound, StoreError
from treadle.ports.store import LEASE_S, Lease, Snapshot, Store
from treadle.protocol.views import ChatSummary
from treadle.protocol.wire import Record
from treadle.testing.clock import ManualClock
from treadle.types import ChatId

A, B, C, NOBODY = ChatId("c_a"), ChatId("c_b"), ChatId("c_c"), ChatId("c_nobody")
WIDE = 64 * 1024
"""Larger than any store may want to keep in a row."""


def record(seq: int, body: bytes = b'{"turn":1}', *, epoch: int = 0) -> Record:
    return Record(seq, 1_700_000_000_000 + seq, "assistant.turn_start", 1, epoch, body)


def records(first: int, last: int) -> list[Record]:
    return [record(seq, b'{"turn":%d}' % seq) for seq in range(first, last + 1)]


def summary(chat: ChatId, head: int = 1, **changes: object) -> ChatSummary:
    return msgspec.structs.replace(ChatSummary(chat, head=head), **changes)


async def begin(store: Store, chat: ChatId, **changes: object) -> None:
    """A chat with one record."""
    await store.create(summary(chat, 1, **changes), [record(1)])


async def add(store: Store, chat: ChatId, seq: int, lease: Lease | None = None, **changes: object) -> None:
    await store.append(chat, [record(seq)], summary(chat, seq, **changes), lease=lease, durable=False)


async def claimed(store: Store, worker: str, chat: ChatId | None = None, *, now_ms: int = 0) -> Lease:
    lease = await store.claim(worker, chat, now_ms=now_ms)
    assert lease is not None
    return lease


def seqs(found: Sequence[Record]) -> list[int]:
    return [record.seq for record in found]


class StoreContract:
    """D-03, D-04, D-05, D-06 as far as they can be seen through the port."""

    async def open_store(self, clock: ManualClock, folder: Path) -> Store:
        """A new, empty store whose leases are timed by `clock`; it is closed after the test."""
        raise AssertionError("say how to open a store")

    @pytest.fixture
    def clock(self) -> ManualClock:
        return ManualClock()

    @pytest_asyncio.fixture
    async def store(self, clock: ManualClock, tmp_path: Path) -> AsyncIterator[Store]:
        store = await self.open_store(clock, tmp_path)
        yield store
        await store.close()

    # -- create and append --------------------------------------------------------------------------------------

    async def test_what_is_created_can_be_read(self, store: Store) -> None:
        await store.create(summary(A, 3, title="Hello"), records(1, 3))
        assert await store.read(A) == records(1, 3)
        assert await store.head(A) == 3
        assert (await store.get(A)).summary == summary(A, 3, title="Hello")

    async def test_an_id_is_taken_once(self, store: Store) -> None:
        await begin(store, A, title="first")
        with pytest.raises(ChatExists):
            await store.create(summary(A, title="second"), records(1, 2))
        assert (await store.get(A)).summary.title == "first"
        assert await store.head(A) == 1

    async def test_of_many_creates_of_one_id_one_wins(self, store: Store) -> None:
        made = await asyncio.gather(*(begin(store, A) for _ in range(20)), return_exceptions=True)
        assert made.count(None) == 1
        assert all(isinstance(error, ChatExists) for error in made if error is not None)

    async def test_a_chat_may_begin_empty(self, store: Store) -> None:
        await store.create(summary(A, 0), [])
        assert await store.head(A) == 0
        assert await store.read(A) == []
        await add(store, A, 1)
        assert await store.head(A) == 1

    @pytest.mark.parametrize("numbers", [(2,), (1, 3), (1, 1), (1, 2, 2), (0, 1)])
    async def test_a_chat_with_gaps_is_not_created(self, store: Store, numbers: tuple[int, ...]) -> None:
        with pytest.raises(InvalidInput):
            await store.create(summary(A), [record(seq) for seq in numbers])
        with pytest.raises(NotFound):
            await store.head(A)

    async def test_append_replaces_the_summary(self, store: Store) -> None:
        await begin(store, A)
        newer = summary(A, 3, status="running", runnable=True, labels=("x",), title="ü\n")
        await store.append(A, records(2, 3), newer, lease=None, durable=True)
        assert (await store.get(A)).summary == newer
        assert seqs(await store.read(A)) == [1, 2, 3]

    async def test_bodies_come_back_byte_for_byte(self, store: Store) -> None:
        bodies = [b"", b"\0\xff", b'"%s"' % (b"a" * 3000), bytes(range(256)) * 20, b"b" * WIDE, b"c" * (5 * WIDE)]
        kept = [record(seq, body, epoch=seq) for seq, body in enumerate(bodies, 1)]
        await store.create(summary(A, len(kept)), kept)
        assert await store.read(A) == kept

    @pytest.mark.parametrize("seq", [1, 3])
    async def test_a_stale_head_is_refused(self, store: Store, seq: int) -> None:
        await begin(store, A)
        with pytest.raises(HeadMoved):
            await add(store, A, seq, title="changed")
        assert await store.read(A) == [record(1)]
        assert (await store.get(A)).summary.title == ""

    async def test_an_append_is_all_or_nothing(self, store: Store) -> None:
        await begin(store, A)
        with pytest.raises(InvalidInput):
            await store.append(A, [record(2), record(4)], summary(A, 4, title="x"), lease=None, durable=False)
        assert await store.head(A) == 1
        assert seqs(await store.read(A)) == [1]
        assert (await store.get(A)).summary.title == ""

    async def test_of_many_appends_at_one_head_one_wins(self, store: Store) -> None:
        """Fault 4: 50 writers, and not one record twice or lost."""
        await begin(store, A)
        for head in range(1, 4):
            tried = [add(store, A, head + 1, title=f"{head}.{n}") for n in range(50)]
            outcome = await asyncio.gather(*tried, return_exceptions=True)
            assert outcome.count(None) == 1
            assert sum(isinstance(error, HeadMoved) for error in outcome) == 49
            assert (await store.get(A)).summary.title == f"{head}.{outcome.index(None)}"
        assert seqs(await store.read(A)) == [1, 2, 3, 4]

    async def test_a_refused_append_does_not_touch_its_neighbours(self, store: Store) -> None:
        for chat in (A, B, C):
            await begin(store, chat)
        outcome = await asyncio.gather(
            add(store, A, 2), add(store, NOBODY, 2), add(store, B, 7), add(store, C, 2), return_exceptions=True
        )
        assert [type(one) for one in outcome] == [type(None), NotFound, HeadMoved, type(None)]
        assert [await store.head(chat) for chat in (A, B, C)] == [2, 1, 2]

    # -- reading ------------------------------------------------------------------------------------------------

    async def test_reading_by_pages(self, store: Store) -> None:
        await store.create(summary(A, 10), records(1, 10))
        await begin(store, B)
        assert seqs(await store.read(A, after=7)) == [8, 9, 10]
        assert seqs(await store.read(A, limit=3)) == [1, 2, 3]
        assert seqs(await store.read(A, after=9, limit=3)) == [10]
        assert await store.read(A, after=10) == []
        assert await store.read(A, after=99) == []

    async def test_unknown_chats(self, store: Store) -> None:
        lease = Lease(NOBODY, 1, "w")
        for call in (
            store.read(NOBODY),
            store.head(NOBODY),
            store.wait(NOBODY, 0, 0),
            store.get(NOBODY),
            store.claim("w", NOBODY),
            store.save_snapshot(NOBODY, Snapshot(1, b"")),
            store.load_snapshot(NOBODY),
            add(store, NOBODY, 1),
            add(store, NOBODY, 1, lease),
        ):
            with pytest.raises(NotFound):
                await call
        assert list(await store.renew([lease])) == []
        await store.release(lease)

    async def test_listing_shows_the_newest_change_first(self, store: Store) -> None:
        await begin(store, A, updated_ms=10, owner="ann")
        await begin(store, B, updated_ms=20, owner="bob")
        await begin(store, C, updated_ms=15, owner="ann", archived=True)
        assert [one.summary.chat for one in await store.list()] == [B, C, A]
        assert [one.summary.chat for one in await store.list(limit=2)] == [B, C]
        assert [one.summary.chat for one in await store.list(owner="ann")] == [C, A]
        assert [one.summary.chat for one in await store.list(archived=False)] == [B, A]
        assert [one.summary.chat for one in await store.list(owner="ann", archived=True)] == [C]
        await add(store, A, 2, updated_ms=30, owner="ann")
        assert [one.summary.chat for one in await store.list(limit=1)] == [A]

    async def test_whether_a_chat_is_leased_can_be_seen(self, store: Store, clock: ManualClock) -> None:
        await begin(store, A)
        await begin(store, B)
        await claimed(store, "w", A)
        assert (await store.get(A)).leased
        assert {one.summary.chat: one.leased for one in await store.list()} == {A: True, B: False}
        clock.advance(LEASE_S + 0.01)
        assert not (await store.get(A)).leased

    # -- waiting ------------------------------------------------------------------------------------------------

    async def test_waiting_returns_at_once_when_there_is_news(self, store: Store) -> None:
        await store.create(summary(A, 3), records(1, 3))
        assert await store.wait(A, 2, 60) == 3

    async def test_waiting_ends_with_its_time(self, store: Store) -> None:
        await begin(store, A)
        assert await store.wait(A, 1, 0.01) == 1
        assert await store.wait(A, 5, 0) == 1

    async def test_an_append_wakes_those_who_wait_for_it(self, store: Store) -> None:
        await begin(store, A)
        await begin(store, B)
        waiting = [asyncio.create_task(store.wait(A, 1, 60)) for _ in range(5)]
        patient = asyncio.create_task(store.wait(A, 2, 60))
        other = asyncio.create_task(store.wait(B, 1, 60))
        await asyncio.sleep(0)
        await add(store, A, 2)
        assert await asyncio.gather(*waiting) == [2] * 5
        assert not patient.done()
        assert not other.done()
        await add(store, A, 3)
        assert await patient == 3
        other.cancel()
        with pytest.raises(asyncio.CancelledError):
            await other

    # -- leases -------------------------------------------------------------------------------------------------

    async def test_every_claim_has_a_higher_epoch(self, store: Store) -> None:
        await begin(store, A)
        for epoch in (1, 2, 3):
            lease = await claimed(store, f"w{epoch}", A)
            assert lease == Lease(A, epoch, f"w{epoch}")
            await store.release(lease)

    async def test_a_holder_appends(self, store: Store) -> None:
        await begin(store, A)
        lease = await claimed(store, "w", A)
        await add(store, A, 2, lease)
        assert await store.head(A) == 2

    async def test_a_zombie_is_refused(self, store: Store, clock: ManualClock) -> None:
        """Fault 4: the worker that slept past its lease writes nothing more."""
        await begin(store, A)
        zombie = await claimed(store, "old", A)
        clock.advance(LEASE_S + 1)
        heir = await claimed(store, "new", A)
        with pytest.raises(LeaseLost):
            await add(store, A, 2, zombie)
        await add(store, A, 2, heir)
        await store.release(zombie)
        assert list(await store.renew([zombie, heir])) == [heir]
        await add(store, A, 3, heir)

    async def test_a_released_lease_writes_nothing_more(self, store: Store) -> None:
        await begin(store, A)
        lease = await claimed(store, "w", A)
        await store.release(lease)
        with pytest.raises(LeaseLost):
            await add(store, A, 2, lease)
        assert list(await store.renew([lease])) == []
        await store.release(lease)
        assert await store.head(A) == 1

    async def test_an_expired_lease_nobody_took_may_still_write(self, store: Store, clock: ManualClock) -> None:
        """Law 2: appends are fenced by number, never by time."""
        await begin(store, A)
        lease = await claimed(store, "w", A)
        clock.advance(LEASE_S * 10)
        await add(store, A, 2, lease)

    async def test_a_lost_lease_is_said_before_a_moved_head(self, store: Store) -> None:
        await begin(store, A)
        old = await claimed(store, "w", A)
        await store.release(old)
        new = await claimed(store, "w", A)
        with pytest.raises(LeaseLost):
            await add(store, A, 9, old)
        with pytest.raises(HeadMoved):
            await add(store, A, 9, new)

    async def test_a_lease_is_good_for_its_own_chat_only(self, store: Store) -> None:
        await begin(store, A)
        await begin(store, B)
        lease = await claimed(store, "w", A)
        await claimed(store, "w", B)
        with pytest.raises(LeaseLost):
            await add(store, B, 2, lease)

    async def test_commands_need_no_lease(self, store: Store) -> None:
        await begin(store, A)
        await add(store, A, 2)
        lease = await claimed(store, "w", A)
        await add(store, A, 3)
        with pytest.raises(HeadMoved):
            await add(store, A, 3, lease)
        await add(store, A, 4, lease)
        assert seqs(await store.read(A)) == [1, 2, 3, 4]

    async def test_a_named_chat_is_had_once(self, store: Store) -> None:
        await begin(store, A)
        outcome = await asyncio.gather(*(store.claim(f"w{n}", A) for n in range(20)), return_exceptions=True)
        assert sum(isinstance(one, Lease) for one in outcome) == 1
        assert sum(isinstance(one, ChatBusy) for one in outcome) == 19

    async def test_a_named_chat_need_not_be_runnable(self, store: Store) -> None:
        await begin(store, A, runnable=False)
        await begin(store, B, archived=True)
        assert (await claimed(store, "w", A)).chat == A
        assert (await claimed(store, "w", B)).chat == B
        with pytest.raises(ChatBusy):
            await store.claim("w", A)

    async def test_a_worker_needs_a_name(self, store: Store) -> None:
        await begin(store, A)
        with pytest.raises(InvalidInput):
            await store.claim("", A)

    async def test_a_claim_finds_what_is_to_be_done(self, store: Store) -> None:
        await begin(store, A, runnable=False)
        await begin(store, B, runnable=True, archived=True)
        assert await store.claim("w") is None
        await begin(store, C, runnable=True)
        assert (await claimed(store, "w")).chat == C
        assert await store.claim("w") is None

    async def test_the_longest_unchanged_chat_comes_first(self, store: Store) -> None:
        await begin(store, A, runnable=True, updated_ms=30)
        await begin(store, B, runnable=True, updated_ms=10)
        await begin(store, C, runnable=True, updated_ms=20)
        assert [(await claimed(store, f"w{n}")).chat for n in range(3)] == [B, C, A]

    async def test_many_workers_share_without_overlap(self, store: Store) -> None:
        chats = [ChatId(f"c_{n}") for n in range(20)]
        for chat in chats:
            await begin(store, chat, runnable=True)
        leases = await asyncio.gather(*(store.claim(f"w{n}") for n in range(30)))
        assert sorted(lease.chat for lease in leases if lease) == sorted(chats)

    async def test_a_wake_time_makes_a_chat_claimable(self, store: Store) -> None:
        await begin(store, A, wake_ms=5_000)
        assert await store.claim("w", now_ms=4_999) is None
        assert (await claimed(store, "w", now_ms=5_000)).chat == A

    async def test_a_finished_chat_is_not_claimed(self, store: Store) -> None:
        await begin(store, A, runnable=True)
        lease = await claimed(store, "w")
        await add(store, A, 2, lease, runnable=False)
        await store.release(lease)
        assert await store.claim("w") is None

    async def test_an_expired_lease_is_found_by_the_claim_itself(self, store: Store, clock: ManualClock) -> None:
        await begin(store, A, runnable=True)
        await claimed(store, "w1")
        clock.advance(LEASE_S - 0.5)
        assert await store.claim("w2") is None
        with pytest.raises(ChatBusy):
            await store.claim("w2", A)
        clock.advance(1)
        assert await claimed(store, "w2") == Lease(A, 2, "w2")

    async def test_renewing_extends(self, store: Store, clock: ManualClock) -> None:
        await begin(store, A)
        await begin(store, B)
        leases = [await claimed(store, "w", A), await claimed(store, "w", B)]
        clock.advance(LEASE_S - 1)
        assert list(await store.renew(leases[:1])) == leases[:1]
        clock.advance(LEASE_S - 1)
        with pytest.raises(ChatBusy):
            await store.claim("w2", A)
        assert (await claimed(store, "w2", B)).epoch == 2
        assert list(await store.renew(leases)) == leases[:1]
        assert list(await store.renew([])) == []

    async def test_the_wall_clock_does_not_matter(self, store: Store, clock: ManualClock) -> None:
        """Fault 15: hours forwards and backwards."""
        await begin(store, A)
        await claimed(store, "w1", A)
        for hours in (5, -50):
            clock.jump(hours * 3600)
            with pytest.raises(ChatBusy):
                await store.claim("w2", A)
        clock.advance(LEASE_S + 1)
        assert (await claimed(store, "w2", A)).epoch == 2

    async def test_a_cancelled_claim_leaves_the_chat_free(self, store: Store) -> None:
        await begin(store, A, runnable=True)
        for steps in range(4):
            task = asyncio.create_task(store.claim("w1"))
            for _ in range(steps):
                await asyncio.sleep(0)
            task.cancel()
            done = (await asyncio.gather(task, return_exceptions=True))[0]
            if isinstance(done, Lease):
                await store.release(done)
            await self._claim_and_release(store)

    async def _claim_and_release(self, store: Store) -> None:
        """The cancelled claim may still be under way; it must be over soon."""
        async with asyncio.timeout(10):
            while (lease := await store.claim("w2")) is None:
                continue
        await store.release(lease)

    # -- blobs and snapshots ------------------------------------------------------------------------------------

    async def test_blobs_are_kept_by_their_hash(self, store: Store) -> None:
        for data in (b"", b"hello", bytes(range(256)) * 1000):
            digest = await store.put_blob(data)
            assert digest == hashlib.sha256(data).hexdigest()
            assert await store.put_blob(data) == digest
            assert await store.get_blob(digest) == data

    @pytest.mark.parametrize("digest", ["0" * 64, "", "../../etc/passwd", "zz"])
    async def test_a_blob_that_is_not_there(self, store: Store, digest: str) -> None:
        with pytest.raises(NotFound):
            await store.get_blob(digest)

    async def test_snapshots_are_replaced(self, store: Store) -> None:
        await begin(store, A)
        await begin(store, B)
        assert await store.load_snapshot(A) is None
        await store.save_snapshot(A, Snapshot(1, b"one"))
        await store.save_snapshot(A, Snapshot(2, b"two" * 1000))
        assert await store.load_snapshot(A) == Snapshot(2, b"two" * 1000)
        assert await store.load_snapshot(B) is None

    # -- closing ------------------------------------------------------------------------------------------------

    async def test_closing_twice_is_closing(self, store: Store) -> None:
        await begin(store, A)
        await store.close()
        await store.close()
        with pytest.raises(StoreError):
            await store.head(A)

    async def test_closing_a_store_that_was_never_used(self, store: Store) -> None:
        await store.close()

    async def test_closing_finishes_what_is_under_way(self, store: Store) -> None:
        await begin(store, A)
        under_way = asyncio.gather(*(begin(store, ChatId(f"c_{n}")) for n in range(10)))
        await asyncio.sleep(0)
        await store.close()
        await under_way

    async def test_closing_ends_the_waiting(self, store: Store) -> None:
        await begin(store, A)
        waiting = asyncio.create_task(store.wait(A, 1, 60))
        for _ in range(3):
            await asyncio.sleep(0)
        await store.close()
        with pytest.raises(StoreError):
            await waiting
