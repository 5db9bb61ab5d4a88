"""Deleting chats: everything of the chat goes in one commit, and a tombstone tells followers and repeated requests."""

import asyncio
from pathlib import Path

import pytest

from treadle.base.types import ChatId
from treadle.errors import ChatBusy, LeaseLost, NotFound
from treadle.ports.store import ChatFilter, Commit, Delta, Snapshot, Store
from treadle.protocol.wire import Record
from treadle.testing.clock import ManualClock
from treadle.testing.store_contract.helpers import (
    NOBODY,
    A,
    B,
    C,
    OpensStore,
    add,
    begin,
    claimed,
    record,
    seqs,
    summary,
)


def _message(seq: int, text: str) -> Record:
    return Record(seq, 1_700_000_000_000, "user.message", 1, 0, b'{"content":"%s"}' % text.encode())


class DeletionContract(OpensStore):
    async def test_a_deleted_chat_is_gone_for_every_method(self, store: Store) -> None:
        """A-06"""
        await begin(store, A)
        await begin(store, B)
        await store.save_snapshot(A, Snapshot(1, b"state"))
        await store.delete([A])
        calls = (
            store.read(A), store.read_types(A, ["user.message"]), store.head(A), store.get(A), store.wait(A, 0, 0),
            store.claim("w", A), store.load_snapshot(A), store.save_snapshot(A, Snapshot(1, b"")), add(store, A, 2),
        )  # fmt: skip
        for call in calls:
            with pytest.raises(NotFound):
                await call
        assert [each.summary.chat for each in await store.list()] == [B]
        assert await store.list(ChatFilter(query="c_a")) == []
        assert seqs(await store.read(B)) == [1]

    async def test_several_chats_are_deleted_together_or_not_at_all(self, store: Store) -> None:
        for chat in (A, B, C):
            await begin(store, chat)
        await claimed(store, "w", B)
        with pytest.raises(ChatBusy):
            await store.delete([A, B])
        with pytest.raises(NotFound):
            await store.delete([A, NOBODY])
        assert seqs(await store.read(A)) == [1]
        await store.delete([A, C])
        assert [each.summary.chat for each in await store.list()] == [B]

    async def test_a_chat_that_a_live_worker_holds_is_not_deleted(self, store: Store, clock: ManualClock) -> None:
        """D-04"""
        await begin(store, A)
        lease = await claimed(store, "w", A)
        with pytest.raises(ChatBusy):
            await store.delete([A])
        await store.release(lease)
        await store.delete([A])

    async def test_a_worker_whose_lease_ran_out_cannot_bring_a_deleted_chat_back(
        self, store: Store, clock: ManualClock
    ) -> None:
        """D-04: nor does it write to a chat that is created under the same id later."""
        await begin(store, A)
        lease = await claimed(store, "w", A)
        clock.advance(31)
        await store.delete([A])
        assert list(await store.renew([lease])) == []
        await store.release(lease)
        await store.put_deltas([Delta(A, lease.epoch, 1, 1, b"x")])
        with pytest.raises(NotFound):
            await store.append(Commit(A, [record(2)], summary(A, 2), lease=lease))
        await begin(store, A)
        newer = await claimed(store, "w", A)
        assert newer.epoch > lease.epoch
        with pytest.raises(LeaseLost):
            await store.append(Commit(A, [record(2)], summary(A, 2), lease=lease))
        assert await store.read_deltas({A: (0, 0, 0)}) == []
        assert await store.load_snapshot(A) is None

    async def test_deleting_again_changes_nothing(self, store: Store) -> None:
        """A-04"""
        await begin(store, A, owner="u")
        await store.delete([A], owner="u")
        (tombstone,) = await store.changes()
        await store.delete([A], owner="u")
        await store.delete([A])
        assert await store.changes() == [tombstone]
        with pytest.raises(NotFound):
            await store.delete([NOBODY])

    async def test_the_chat_of_another_owner_is_not_there(self, store: Store) -> None:
        """S-13: neither before nor after its owner deleted it."""
        await begin(store, A, owner="u")
        with pytest.raises(NotFound):
            await store.delete([A], owner="v")
        assert seqs(await store.read(A)) == [1]
        await store.delete([A], owner="u")
        with pytest.raises(NotFound):
            await store.delete([A], owner="v")

    async def test_followers_learn_that_a_chat_was_deleted(self, store: Store) -> None:
        """A-07"""
        for chat, owner in ((A, "u"), (B, "v"), (C, "u")):
            await begin(store, chat, owner=owner)
        before = (await store.changes())[-1].change_number
        waiting = asyncio.create_task(store.wait_any(before, 20))
        await asyncio.sleep(0)
        await store.delete([C], owner="u")
        number = await waiting
        assert number > before
        (news,) = await store.changes(owner="u", after_change=before)
        assert (news.summary.chat, news.summary.owner, news.summary.deleted, news.leased) == (C, "u", True, False)
        assert news.change_number == number
        assert await store.changes(owner="v", after_change=before) == []
        # The newest change was the tombstone's: numbers go on behind it.
        await add(store, A, 2, owner="u")
        assert [each.summary.chat for each in await store.changes(after_change=number)] == [A]
        assert [each.summary.chat for each in await store.changes(after_change=before, limit=1)] == [C]
        assert [each.summary.chat for each in await store.changes()] == [B, C, A]

    async def test_who_waits_for_a_deleted_chat_is_told(self, store: Store) -> None:
        """A-07"""
        await begin(store, A)
        waiting = asyncio.create_task(store.wait(A, 1, 60))
        for _ in range(3):
            await asyncio.sleep(0)
        await store.delete([A])
        async with asyncio.timeout(10):
            with pytest.raises(NotFound):
                await waiting

    async def test_who_waits_beside_is_told_too(self, store: Store, clock: ManualClock, tmp_path: Path) -> None:
        await begin(store, A)
        other_store = await self.open_beside(clock, tmp_path, 30)
        try:
            waiting = asyncio.create_task(other_store.wait(A, 1, 60))
            assert await other_store.head(A) == 1  # the waiter looked before this was answered
            await store.delete([A])
            async with asyncio.timeout(10):
                with pytest.raises(NotFound):
                    await waiting
        finally:
            await other_store.close()

    async def test_the_words_of_a_deleted_chat_are_found_no_more(self, store: Store) -> None:
        """U-04"""
        await store.create(summary(A), [_message(1, "the cormorant dives")])
        await store.create(summary(B), [_message(1, "the cormorant rests")])
        assert set(await store.search_text(["cormorant"])) == {A, B}
        await store.delete([A])
        assert set(await store.search_text(["cormorant"])) == {B}
        await store.create(summary(C), [_message(1, "a heron waits")])
        assert set(await store.search_text(["heron"])) == {C}
        assert set(await store.search_text(["cormorant"])) == {B}

    async def test_a_chat_may_be_created_again_under_its_id(self, store: Store) -> None:
        """D-07: an export can be imported after the chat was deleted."""
        await begin(store, A)
        await add(store, A, 2)
        await store.delete([A])
        await begin(store, A)
        assert seqs(await store.read(A)) == [1]
        (only,) = await store.changes()
        assert not only.summary.deleted
        await store.delete([A])
        (only,) = await store.changes()
        assert only.summary.deleted

    async def test_numbers_are_not_given_twice(self, store: Store) -> None:
        """A chat that is created after a deletion has nothing of the deleted one."""
        await begin(store, A)
        await store.save_snapshot(A, Snapshot(1, b"state"))
        await store.delete([A])
        await begin(store, B)
        assert await store.load_snapshot(B) is None
        assert seqs(await store.read(B)) == [1]

    async def test_deleting_races_with_appends_and_claims(self, store: Store) -> None:
        """Whichever call comes first, a chat is whole or deleted."""
        many = [ChatId(f"c_{number}") for number in range(6)]
        for chat in many:
            await begin(store, chat)

        async def disturb(chat: ChatId) -> None:
            try:
                lease = await claimed(store, "w", chat)
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
                with pytest.raises(NotFound):
                    await store.read(chat)
            else:
                assert seqs(await store.read(chat)) == [1, 2]
