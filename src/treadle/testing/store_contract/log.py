"""Stored data: records, summaries, blobs and snapshots (D-04, D-06)."""

import asyncio
import hashlib
from pathlib import Path

import pytest
from msgspec.structs import replace

from treadle.base.types import ChatId
from treadle.errors import ChatBusy, ChatExists, HeadMoved, InvalidInput, LeaseLost, NotFound, StoreError
from treadle.ports.store import LEASE_S, ChatFilter, Commit, Delta, Lease, Snapshot, Store
from treadle.protocol.wire import Record
from treadle.testing.clock import ManualClock
from treadle.testing.store_contract.helpers import (
    NOBODY,
    WIDE,
    A,
    B,
    C,
    OpensStore,
    add,
    assert_raises,
    begin,
    begin_claimed,
    claim_lease,
    list_seqs,
    make_records,
    make_summary,
    record,
)


class LogContract(OpensStore):
    """Appends are gapless and all or nothing; a read returns the data that was written."""

    async def test_what_is_created_can_be_read(self, store: Store) -> None:
        await store.create(make_summary(A, 3, title="Hello"), make_records(1, 3))
        assert await store.read(A) == make_records(1, 3)
        assert await store.read_head(A) == 3
        assert (await store.get(A)).summary == make_summary(A, 3, title="Hello")

    async def test_an_id_is_taken_once(self, store: Store) -> None:
        await begin(store, A, title="first")
        await assert_raises(ChatExists, store.create(make_summary(A, title="second"), make_records(1, 2)))
        assert (await store.get(A)).summary.title == "first"
        assert await store.read_head(A) == 1

    async def test_of_many_creates_of_one_id_one_wins(self, store: Store) -> None:
        outcomes = await asyncio.gather(*(begin(store, A) for _ in range(20)), return_exceptions=True)
        assert outcomes.count(None) == 1
        assert all(isinstance(error, ChatExists) for error in outcomes if error is not None)

    async def test_a_chat_may_begin_empty(self, store: Store) -> None:
        await store.create(make_summary(A, 0), [])
        assert await store.read_head(A) == 0
        assert await store.read(A) == []
        await add(store, A, 1)
        assert await store.read_head(A) == 1

    @pytest.mark.parametrize("numbers", [(2,), (1, 3), (1, 1), (1, 2, 2), (0, 1)])
    async def test_a_chat_with_gaps_is_not_created(self, store: Store, numbers: tuple[int, ...]) -> None:
        await assert_raises(InvalidInput, store.create(make_summary(A), [record(seq) for seq in numbers]))
        await assert_raises(NotFound, store.read_head(A))

    async def test_append_replaces_the_summary(self, store: Store) -> None:
        await begin(store, A)
        newer = make_summary(A, 3, status="running", runnable=True, labels=("x",), title="ü\n")
        await store.append(Commit(A, make_records(2, 3), newer))
        assert (await store.get(A)).summary == newer
        assert list_seqs(await store.read(A)) == [1, 2, 3]

    async def test_bodies_come_back_byte_for_byte(self, store: Store) -> None:
        bodies = [b"", b"\0\xff", b'"%s"' % (b"a" * 3000), bytes(range(256)) * 20, b"b" * WIDE, b"c" * (5 * WIDE)]
        stored_records = [record(seq, body, epoch=seq) for seq, body in enumerate(bodies, 1)]
        await store.create(make_summary(A, len(stored_records)), stored_records)
        assert await store.read(A) == stored_records

    @pytest.mark.parametrize("seq", [1, 3])
    async def test_a_stale_head_is_refused(self, store: Store, seq: int) -> None:
        await begin(store, A)
        await assert_raises(HeadMoved, add(store, A, seq, title="changed"))
        assert await store.read(A) == [record(1)]
        assert (await store.get(A)).summary.title == ""

    async def test_an_append_is_all_or_nothing(self, store: Store) -> None:
        await begin(store, A)
        with pytest.raises(InvalidInput):
            await store.append(Commit(A, [record(2), record(4)], make_summary(A, 4, title="x"), durable=False))
        assert await store.read_head(A) == 1
        assert list_seqs(await store.read(A)) == [1]
        assert (await store.get(A)).summary.title == ""

    async def test_a_summary_that_is_written_alone_is_fenced_too(self, store: Store) -> None:
        """D-03: a correction from an older state must not hide what a command has added since."""
        lease = await begin_claimed(store, "w", A)
        old_line = make_summary(A, 1, title="old")
        await add(store, A, 2, runnable=True)
        await assert_raises(HeadMoved, store.append(Commit(A, (), old_line, lease=lease, release=True)))
        listed = await store.get(A)
        assert (listed.summary.runnable, listed.leased) == (True, True)
        await store.append(Commit(A, (), make_summary(A, 2, title="new"), lease=lease, release=True))
        listed = await store.get(A)
        assert (listed.summary.title, listed.leased) == ("new", False)

    async def test_of_many_appends_at_one_head_one_wins(self, store: Store) -> None:
        """Fault 4: 50 writers, and not one record twice or lost."""
        await begin(store, A)
        for head in range(1, 4):
            attempts = [add(store, A, head + 1, title=f"{head}.{n}") for n in range(50)]
            outcome = await asyncio.gather(*attempts, return_exceptions=True)
            assert outcome.count(None) == 1
            assert sum(isinstance(error, HeadMoved) for error in outcome) == 49
            assert (await store.get(A)).summary.title == f"{head}.{outcome.index(None)}"
        assert list_seqs(await store.read(A)) == [1, 2, 3, 4]

    async def test_a_refused_append_does_not_touch_its_neighbours(self, store: Store) -> None:
        await begin(store, A, B, C)
        outcome = await asyncio.gather(
            add(store, A, 2), add(store, NOBODY, 2), add(store, B, 7), add(store, C, 2), return_exceptions=True
        )
        assert [type(one) for one in outcome] == [type(None), NotFound, HeadMoved, type(None)]
        assert [await store.read_head(chat) for chat in (A, B, C)] == [2, 1, 2]

    async def test_reading_by_pages(self, store: Store) -> None:
        await store.create(make_summary(A, 10), make_records(1, 10))
        await begin(store, B)
        assert list_seqs(await store.read(A, after_seq=7)) == [8, 9, 10]
        assert list_seqs(await store.read(A, limit=3)) == [1, 2, 3]
        assert list_seqs(await store.read(A, after_seq=9, limit=3)) == [10]
        assert await store.read(A, after_seq=10) == []
        for after_seq in (99, 2**31, 2**32, 2**70):  # positions that clients may claim to have seen
            assert await store.read(A, after_seq=after_seq) == []
        assert list_seqs(await store.read(A, after_seq=-1, limit=1)) == [1]

    async def test_reading_some_types(self, store: Store) -> None:
        files_record = replace(record(2), type="workspace.files_changed")
        await store.create(make_summary(A, 4), [record(1), files_record, record(3), replace(files_record, seq=4)])
        await store.create(make_summary(B, 1), [replace(files_record, seq=1)])
        assert await store.read_types(A, {files_record.type}) == [files_record, replace(files_record, seq=4)]
        assert list_seqs(await store.read_types(A, {files_record.type}, after_seq=2)) == [4]
        assert list_seqs(await store.read_types(A, {files_record.type, record(1).type}, after_seq=1, limit=2)) == [2, 3]
        assert await store.read_types(A, {"no.such.type"}) == []
        assert await store.read_types(A, ()) == []
        assert list_seqs(await store.read_types(A, {files_record.type}, after_seq=-1, limit=1)) == [2]
        assert await store.read_types(A, {files_record.type}, after_seq=2**70) == []
        await assert_raises(NotFound, store.read_types(NOBODY, {files_record.type}))

    async def test_unknown_chats(self, store: Store) -> None:
        lease = Lease(NOBODY, 1, "w")
        for call in (
            store.read(NOBODY), store.read_head(NOBODY), store.wait(NOBODY, 0, 0), store.get(NOBODY),
            store.claim("w", NOBODY), store.save_snapshot(NOBODY, Snapshot(1, b"")), store.load_snapshot(NOBODY),
            add(store, NOBODY, 1), add(store, NOBODY, 1, lease),
        ):  # fmt: skip
            await assert_raises(NotFound, call)
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
        await begin(store, A, B)
        await claim_lease(store, "w", A)
        assert (await store.get(A)).leased
        assert {one.summary.chat: one.leased for one in await store.list()} == {A: True, B: False}
        clock.advance(LEASE_S + 0.01)
        assert not (await store.get(A)).leased

    async def test_waiting_returns_at_once_when_there_is_news(self, store: Store) -> None:
        await store.create(make_summary(A, 3), make_records(1, 3))
        assert await store.wait(A, 2, 60) == 3

    async def test_waiting_ends_with_its_time(self, store: Store) -> None:
        await begin(store, A)
        assert await store.wait(A, 1, 0.01) == 1
        assert await store.wait(A, 5, 0) == 1

    async def test_an_append_wakes_those_who_wait_for_it(self, store: Store) -> None:
        await begin(store, A, B)
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
        await assert_raises(NotFound, store.get_blob(digest))

    async def test_snapshots_are_replaced(self, store: Store) -> None:
        await begin(store, A, B)
        assert await store.load_snapshot(A) is None
        await store.save_snapshot(A, Snapshot(1, b"one"))
        await store.save_snapshot(A, Snapshot(2, b"two" * 1000))
        assert await store.load_snapshot(A) == Snapshot(2, b"two" * 1000)
        assert await store.load_snapshot(B) is None

    async def test_closing_twice_is_closing(self, store: Store) -> None:
        await begin(store, A)
        await store.close()
        await store.close()
        await assert_raises(StoreError, store.read_head(A))

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
        await assert_raises(StoreError, waiting)


def _make_message(seq: int, text: str) -> Record:
    return Record(seq, 1_700_000_000_000, "user.message", 1, 0, b'{"content":"%s"}' % text.encode())


class DeletionContract(OpensStore):
    async def test_a_deleted_chat_is_gone_for_every_method(self, store: Store) -> None:
        """A-06"""
        await begin(store, A, B)
        await store.save_snapshot(A, Snapshot(1, b"state"))
        await store.delete([A])
        calls = (
            store.read(A), store.read_types(A, ["user.message"]), store.read_head(A), store.get(A), store.wait(A, 0, 0),
            store.claim("w", A), store.load_snapshot(A), store.save_snapshot(A, Snapshot(1, b"")), add(store, A, 2),
        )  # fmt: skip
        for call in calls:
            await assert_raises(NotFound, call)
        assert [each.summary.chat for each in await store.list()] == [B]
        assert await store.list(ChatFilter(query="c_a")) == []
        assert list_seqs(await store.read(B)) == [1]

    async def test_several_chats_are_deleted_together_or_not_at_all(self, store: Store) -> None:
        await begin(store, A, B, C)
        await claim_lease(store, "w", B)
        await assert_raises(ChatBusy, store.delete([A, B]))
        await assert_raises(NotFound, store.delete([A, NOBODY]))
        assert list_seqs(await store.read(A)) == [1]
        await store.delete([A, C])
        assert [each.summary.chat for each in await store.list()] == [B]

    async def test_a_chat_that_a_live_worker_holds_is_not_deleted(self, store: Store, clock: ManualClock) -> None:
        """D-04"""
        lease = await begin_claimed(store, "w", A)
        await assert_raises(ChatBusy, store.delete([A]))
        await store.release(lease)
        await store.delete([A])

    async def test_a_worker_whose_lease_ran_out_cannot_bring_a_deleted_chat_back(
        self, store: Store, clock: ManualClock
    ) -> None:
        """D-04: nor does it write to a chat that is created under the same id later."""
        lease = await begin_claimed(store, "w", A)
        clock.advance(31)
        await store.delete([A])
        assert list(await store.renew([lease])) == []
        await store.release(lease)
        await store.put_deltas([Delta(A, lease.epoch, 1, 1, b"x")])
        await assert_raises(NotFound, store.append(Commit(A, [record(2)], make_summary(A, 2), lease=lease)))
        newer = await begin_claimed(store, "w", A)
        assert newer.epoch > lease.epoch
        await assert_raises(LeaseLost, store.append(Commit(A, [record(2)], make_summary(A, 2), lease=lease)))
        assert await store.read_deltas({A: (0, 0, 0)}) == []
        assert await store.load_snapshot(A) is None

    async def test_deleting_again_changes_nothing(self, store: Store) -> None:
        """A-04"""
        await begin(store, A, owner="u")
        await store.delete([A], owner="u")
        (tombstone,) = await store.list_changes()
        await store.delete([A], owner="u")
        await store.delete([A])
        assert await store.list_changes() == [tombstone]
        await assert_raises(NotFound, store.delete([NOBODY]))

    async def test_the_chat_of_another_owner_is_not_there(self, store: Store) -> None:
        """S-13: neither before nor after its owner deleted it."""
        await begin(store, A, owner="u")
        await assert_raises(NotFound, store.delete([A], owner="v"))
        assert list_seqs(await store.read(A)) == [1]
        await store.delete([A], owner="u")
        await assert_raises(NotFound, store.delete([A], owner="v"))

    async def test_followers_learn_that_a_chat_was_deleted(self, store: Store) -> None:
        """A-07"""
        for chat, owner in ((A, "u"), (B, "v"), (C, "u")):
            await begin(store, chat, owner=owner)
        before = (await store.list_changes())[-1].change_number
        waiting = asyncio.create_task(store.wait_any(before, 20))
        await asyncio.sleep(0)
        await store.delete([C], owner="u")
        number = await waiting
        assert number > before
        (news,) = await store.list_changes(owner="u", after_change=before)
        assert (news.summary.chat, news.summary.owner, news.summary.deleted, news.leased) == (C, "u", True, False)
        assert news.change_number == number
        assert await store.list_changes(owner="v", after_change=before) == []
        # The newest change was the tombstone's: numbers go on behind it.
        await add(store, A, 2, owner="u")
        assert [each.summary.chat for each in await store.list_changes(after_change=number)] == [A]
        assert [each.summary.chat for each in await store.list_changes(after_change=before, limit=1)] == [C]
        assert [each.summary.chat for each in await store.list_changes()] == [B, C, A]

    async def test_who_waits_for_a_deleted_chat_is_told(self, store: Store) -> None:
        """A-07"""
        await begin(store, A)
        waiting = asyncio.create_task(store.wait(A, 1, 60))
        for _ in range(3):
            await asyncio.sleep(0)
        await store.delete([A])
        async with asyncio.timeout(10):
            await assert_raises(NotFound, waiting)

    async def test_who_waits_beside_is_told_too(self, store: Store, clock: ManualClock, tmp_path: Path) -> None:
        await begin(store, A)
        other_store = await self.open_beside(clock, tmp_path, 30)
        try:
            waiting = asyncio.create_task(other_store.wait(A, 1, 60))
            assert await other_store.read_head(A) == 1  # the waiter looked before this was answered
            await store.delete([A])
            async with asyncio.timeout(10):
                await assert_raises(NotFound, waiting)
        finally:
            await other_store.close()

    async def test_the_words_of_a_deleted_chat_are_found_no_more(self, store: Store) -> None:
        """U-04"""
        await store.create(make_summary(A), [_make_message(1, "the cormorant dives")])
        await store.create(make_summary(B), [_make_message(1, "the cormorant rests")])
        assert set(await store.search_text(["cormorant"])) == {A, B}
        await store.delete([A])
        assert set(await store.search_text(["cormorant"])) == {B}
        await store.create(make_summary(C), [_make_message(1, "a heron waits")])
        assert set(await store.search_text(["heron"])) == {C}
        assert set(await store.search_text(["cormorant"])) == {B}

    async def test_a_chat_may_be_created_again_under_its_id(self, store: Store) -> None:
        """D-07: an export can be imported after the chat was deleted."""
        await begin(store, A)
        await add(store, A, 2)
        await store.delete([A])
        await begin(store, A)
        assert list_seqs(await store.read(A)) == [1]
        (only,) = await store.list_changes()
        assert not only.summary.deleted
        await store.delete([A])
        (only,) = await store.list_changes()
        assert only.summary.deleted

    async def test_numbers_are_not_given_twice(self, store: Store) -> None:
        """A chat that is created after a deletion has nothing of the deleted one."""
        await begin(store, A)
        await store.save_snapshot(A, Snapshot(1, b"state"))
        await store.delete([A])
        await begin(store, B)
        assert await store.load_snapshot(B) is None
        assert list_seqs(await store.read(B)) == [1]

    async def test_deleting_races_with_appends_and_claims(self, store: Store) -> None:
        """Whichever call comes first, a chat is whole or deleted."""
        many = [ChatId(f"c_{number}") for number in range(6)]
        await begin(store, *many)

        async def disturb(chat: ChatId) -> None:
            try:
                lease = await claim_lease(store, "w", chat)
                await add(store, chat, 2, lease)
                await store.release(lease)
            except NotFound:
                pass

        async def remove(chat: ChatId) -> bool:
            try:
                await store.delete([chat])
            except ChatBusy:
                return False
            return True

        results = await asyncio.gather(*(work(chat) for chat in many for work in (disturb, remove)))
        for chat, is_deleted in zip(many, results[1::2], strict=True):
            if is_deleted:
                await assert_raises(NotFound, store.read(chat))
            else:
                assert list_seqs(await store.read(chat)) == [1, 2]
