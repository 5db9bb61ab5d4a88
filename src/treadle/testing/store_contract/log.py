"""Stored data: records, summaries, blobs and snapshots (D-04, D-06)."""

import asyncio
import hashlib

import pytest
from msgspec.structs import replace

from treadle.base.types import ChatId
from treadle.errors import ChatExists, HeadMoved, InvalidInput, NotFound, StoreError
from treadle.ports.store import LEASE_S, ChatFilter, Commit, Lease, Snapshot, Store
from treadle.testing.clock import ManualClock
from treadle.testing.store_contract.helpers import (
    NOBODY,
    WIDE,
    A,
    B,
    C,
    OpensStore,
    add,
    begin,
    claimed,
    record,
    records,
    seqs,
    summary,
)


class LogContract(OpensStore):
    """Appends are gapless and all or nothing; a read returns the data that was written."""

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
        outcomes = await asyncio.gather(*(begin(store, A) for _ in range(20)), return_exceptions=True)
        assert outcomes.count(None) == 1
        assert all(isinstance(error, ChatExists) for error in outcomes if error is not None)

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
        await store.append(Commit(A, records(2, 3), newer, durable=True))
        assert (await store.get(A)).summary == newer
        assert seqs(await store.read(A)) == [1, 2, 3]

    async def test_bodies_come_back_byte_for_byte(self, store: Store) -> None:
        bodies = [b"", b"\0\xff", b'"%s"' % (b"a" * 3000), bytes(range(256)) * 20, b"b" * WIDE, b"c" * (5 * WIDE)]
        stored_records = [record(seq, body, epoch=seq) for seq, body in enumerate(bodies, 1)]
        await store.create(summary(A, len(stored_records)), stored_records)
        assert await store.read(A) == stored_records

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
            await store.append(Commit(A, [record(2), record(4)], summary(A, 4, title="x"), durable=False))
        assert await store.head(A) == 1
        assert seqs(await store.read(A)) == [1]
        assert (await store.get(A)).summary.title == ""

    async def test_of_many_appends_at_one_head_one_wins(self, store: Store) -> None:
        """Fault 4: 50 writers, and not one record twice or lost."""
        await begin(store, A)
        for head in range(1, 4):
            attempts = [add(store, A, head + 1, title=f"{head}.{n}") for n in range(50)]
            outcome = await asyncio.gather(*attempts, return_exceptions=True)
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
        assert seqs(await store.read(A, after_seq=7)) == [8, 9, 10]
        assert seqs(await store.read(A, limit=3)) == [1, 2, 3]
        assert seqs(await store.read(A, after_seq=9, limit=3)) == [10]
        assert await store.read(A, after_seq=10) == []
        for after_seq in (99, 2**31, 2**32, 2**70):  # positions that clients may claim to have seen
            assert await store.read(A, after_seq=after_seq) == []
        assert seqs(await store.read(A, after_seq=-1, limit=1)) == [1]

    async def test_reading_some_types(self, store: Store) -> None:
        files_record = replace(record(2), type="workspace.files_changed")
        await store.create(summary(A, 4), [record(1), files_record, record(3), replace(files_record, seq=4)])
        await store.create(summary(B, 1), [replace(files_record, seq=1)])
        assert await store.read_types(A, {files_record.type}) == [files_record, replace(files_record, seq=4)]
        assert seqs(await store.read_types(A, {files_record.type}, after_seq=2)) == [4]
        assert seqs(await store.read_types(A, {files_record.type, record(1).type}, after_seq=1, limit=2)) == [2, 3]
        assert await store.read_types(A, {"no.such.type"}) == []
        assert await store.read_types(A, ()) == []
        assert seqs(await store.read_types(A, {files_record.type}, after_seq=-1, limit=1)) == [2]
        assert await store.read_types(A, {files_record.type}, after_seq=2**70) == []
        with pytest.raises(NotFound):
            await store.read_types(NOBODY, {files_record.type})

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
        assert [one.summary.chat for one in await store.list(ChatFilter(owner="ann"))] == [C, A]
        assert [one.summary.chat for one in await store.list(ChatFilter(archived=False))] == [B, A]
        assert [one.summary.chat for one in await store.list(ChatFilter(owner="ann", archived=True))] == [C]
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
        other_wait = asyncio.create_task(store.wait(B, 1, 60))
        await asyncio.sleep(0)
        await add(store, A, 2)
        assert await asyncio.gather(*waiting) == [2] * 5
        assert not patient.done()
        assert not other_wait.done()
        await add(store, A, 3)
        assert await patient == 3
        other_wait.cancel()
        with pytest.raises(asyncio.CancelledError):
            await other_wait

    # -- blobs and snapshots ------------------------------------------------------------------------------------

    async def test_a_blob_in_parts_is_the_blob_of_their_sum(self, store: Store) -> None:
        content = bytes(range(256)) * 1_000
        digest = await store.put_blob_parts(content[at : at + 1_000] for at in range(0, len(content), 1_000))
        assert digest == hashlib.sha256(content).hexdigest()
        assert await store.get_blob(digest) == content
        assert await store.put_blob(content) == digest
        assert await store.put_blob_parts([]) == hashlib.sha256(b"").hexdigest()

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
