"""Data beside the logs: answers to repeated requests (A-04), and live text (D-04, law 7)."""

import asyncio

import pytest

from treadle.base.types import ChatId
from treadle.errors import AlreadyAnswered, ChatBusy, ChatExists, HeadMoved, InvalidInput, LeaseLost, NotFound
from treadle.ports.store import ANSWER_MS, LEASE_S, Commit, Delta, Lease, Remembered, Store
from treadle.testing.clock import ManualClock
from treadle.testing.store_contract.helpers import (
    NOBODY,
    A,
    B,
    OpensStore,
    add,
    begin,
    claimed,
    record,
    records,
    summary,
)

NOW = 1_700_000_000_000


def answer(
    key: str = "k", owner: str = "ann", *, body: bytes = b"\0first", time_ms: int = NOW, request: str = "r1"
) -> Remembered:
    return Remembered(owner, key, request, 204, body, time_ms)


def delta(chat: ChatId, number: int, *, epoch: int = 1, turn: int = 1) -> Delta:
    return Delta(chat, epoch, turn, number, b"\0%d" % number)


async def put(store: Store, chat: ChatId, seq: int, remembered: Remembered, lease: Lease | None = None) -> None:
    new_summary = summary(chat, seq, title=remembered.body.decode("latin-1"))
    await store.append(Commit(chat, [record(seq)], new_summary, lease=lease, durable=True, answer=remembered))


class SideContract(OpensStore):
    """One answer a key, in the commit of what it is about; live text until the message is there."""

    # -- answers ------------------------------------------------------------------------------------------------

    async def test_an_answer_is_kept_with_what_it_is_about(self, store: Store) -> None:
        await begin(store, A)
        assert await store.recall("ann", "k") is None
        await put(store, A, 2, answer())
        assert await store.recall("ann", "k") == answer()
        assert await store.recall("bob", "k") is None
        assert await store.recall("ann", "other") is None

    async def test_a_repeated_append_changes_nothing_and_gets_the_first_answer(self, store: Store) -> None:
        await begin(store, A)
        await put(store, A, 2, answer())
        old_listed = await store.get(A)
        for seq in (2, 3, 99):
            with pytest.raises(AlreadyAnswered) as caught:
                await put(store, A, seq, answer(body=b"second", request="r2"))
            assert (caught.value.status, caught.value.body, caught.value.request) == (204, b"\0first", "r1")
        assert await store.head(A) == 2
        assert await store.get(A) == old_listed
        assert await store.recall("ann", "k") == answer()

    async def test_of_many_with_one_key_one_is_carried_out(self, store: Store) -> None:
        """A-04, fault 5: also if the requests are about different chats."""
        for chat in (A, B):
            await begin(store, chat)
        attempts = [put(store, chat, 2, answer(body=b"%d" % n)) for n, chat in enumerate([A, B] * 10)]
        outcome = await asyncio.gather(*attempts, return_exceptions=True)
        assert outcome.count(None) == 1
        body = b"%d" % outcome.index(None)
        assert all(isinstance(e, AlreadyAnswered) and e.body == body for e in outcome if e is not None)
        assert sorted([await store.head(A), await store.head(B)]) == [1, 2]

    async def test_keys_of_others_are_others(self, store: Store) -> None:
        await begin(store, A)
        await put(store, A, 2, answer(owner="ann"))
        await put(store, A, 3, answer(owner="bob"))
        await put(store, A, 4, answer(key="other"))
        assert await store.head(A) == 4

    async def test_a_refused_append_is_not_answered(self, store: Store) -> None:
        """The refusal is the server's to remember; the key is free."""
        await begin(store, A)
        lease = await claimed(store, "w", A)
        with pytest.raises(HeadMoved):
            await put(store, A, 9, answer())
        with pytest.raises(LeaseLost):
            await put(store, A, 2, answer(), Lease(A, 7, "w"))
        with pytest.raises(NotFound):
            await put(store, NOBODY, 2, answer())
        new_lease = Lease(A, lease.epoch + 1, "w2", 2)
        with pytest.raises(ChatBusy):
            await store.append(Commit(A, [record(2)], summary(A, 2), durable=True, take=new_lease, answer=answer()))
        with pytest.raises(InvalidInput):
            await store.append(Commit(A, [record(2), record(4)], summary(A, 4), durable=True, answer=answer()))
        assert await store.recall("ann", "k") is None
        await put(store, A, 2, answer())

    async def test_a_chat_is_created_once_for_a_key(self, store: Store) -> None:
        await store.create(summary(A), records(1, 1), answer=answer())
        with pytest.raises(AlreadyAnswered):
            await store.create(summary(B), records(1, 1), answer=answer(body=b"second"))
        with pytest.raises(NotFound):
            await store.head(B)
        with pytest.raises(ChatExists):
            await store.create(summary(A), records(1, 1), answer=answer(key="other"))
        assert await store.recall("ann", "other") is None
        assert await store.recall("ann", "k") == answer()

    async def test_an_answer_without_an_append(self, store: Store) -> None:
        await store.remember(answer(body=b""))
        with pytest.raises(AlreadyAnswered):
            await store.remember(answer(body=b"second"))
        assert await store.recall("ann", "k") == answer(body=b"")

    async def test_answers_are_dropped_after_a_day(self, store: Store) -> None:
        await store.remember(answer("old"))
        await store.remember(answer("younger", time_ms=NOW + 1))
        with pytest.raises(AlreadyAnswered):
            await store.remember(answer("old", time_ms=NOW + ANSWER_MS))
        await store.remember(answer("new", time_ms=NOW + ANSWER_MS + 1))
        assert await store.recall("ann", "old") is None
        assert await store.recall("ann", "younger") is not None
        later = answer("younger", body=b"later", time_ms=NOW + 2 * ANSWER_MS)
        await store.remember(later)
        assert await store.recall("ann", "younger") == later

    # -- live text ----------------------------------------------------------------------------------------------

    async def test_live_text_is_read_on_from_where_one_was(self, store: Store) -> None:
        for chat in (A, B):
            await begin(store, chat)
            await claimed(store, "w", chat)
        await store.put_deltas([delta(A, 1), delta(B, 1), delta(A, 2)])
        await store.put_deltas([delta(A, 3), delta(A, 1, turn=2)])
        await store.put_deltas([])
        assert [*await store.read_deltas({A: (0, 0, 0)})] == [
            delta(A, 1), delta(A, 2), delta(A, 3), delta(A, 1, turn=2)
        ]  # fmt: skip
        assert [*await store.read_deltas({A: (1, 1, 2)})] == [delta(A, 3), delta(A, 1, turn=2)]
        assert [*await store.read_deltas({A: (1, 2, 1), B: (0, 0, 0), NOBODY: (0, 0, 0)})] == [delta(B, 1)]
        assert [*await store.read_deltas({})] == []

    async def test_live_text_goes_with_the_message(self, store: Store) -> None:
        for chat in (A, B):
            await begin(store, chat)
        lease = await claimed(store, "w", A)
        await claimed(store, "w", B)
        await store.put_deltas([delta(A, 1), delta(B, 1)])
        await add(store, A, 2)
        assert [*await store.read_deltas({A: (0, 0, 0)})] == [delta(A, 1)], "a command of a user ends no message"
        with pytest.raises(HeadMoved):
            await store.append(Commit(A, [record(9)], summary(A, 9), lease=lease, durable=True, drop_deltas=True))
        assert [*await store.read_deltas({A: (0, 0, 0)})] == [delta(A, 1)]
        await store.append(Commit(A, [record(3)], summary(A, 3), lease=lease, durable=True, drop_deltas=True))
        assert [*await store.read_deltas({A: (0, 0, 0), B: (0, 0, 0)})] == [delta(B, 1)]
        await store.put_deltas([delta(A, 1, turn=2)])
        assert [*await store.read_deltas({A: (1, 1, 9)})] == [delta(A, 1, turn=2)]

    async def test_a_zombie_says_nothing(self, store: Store, clock: ManualClock) -> None:
        """Fault 4: neither what it said is shown any more, nor what it says."""
        await begin(store, A)
        old = await claimed(store, "old", A)
        await store.put_deltas([delta(A, 1, epoch=old.epoch)])
        clock.advance(LEASE_S + 1)
        new = await claimed(store, "new", A)
        assert [*await store.read_deltas({A: (0, 0, 0)})] == []
        await store.put_deltas([delta(A, 2, epoch=old.epoch), delta(A, 1, epoch=new.epoch), delta(NOBODY, 1)])
        assert [*await store.read_deltas({A: (old.epoch, 1, 1)})] == [delta(A, 1, epoch=new.epoch)]
        await store.release(new)
        await store.put_deltas([delta(A, 2, epoch=new.epoch)])
        assert [*await store.read_deltas({A: (new.epoch, 1, 1)})] == []
