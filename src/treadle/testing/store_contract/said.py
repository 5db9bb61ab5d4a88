"""Finding chats by what was said in them (U-04)."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from treadle.base.types import ChatId
from treadle.ports.store import LEASE_S, Commit, Store
from treadle.protocol import wire
from treadle.protocol.events import AssistantMessage, Envelope, Event, RecordLost, UserMessage
from treadle.testing.clock import ManualClock
from treadle.testing.store_contract.helpers import A, B, C, OpensStore, begin, record, summary


async def say(store: Store, chat: ChatId, seq: int, *events: Event) -> None:
    """Append to a chat whose last record is `seq`."""
    encoded = [wire.encode(Envelope(seq + 1 + at, chat, 0, event)) for at, event in enumerate(events)]
    await store.append(Commit(chat, encoded, summary(chat, seq + len(encoded)), durable=False))


async def finds(store: Store, words: Sequence[str], chat: ChatId, seq: int) -> bool:
    """True if a reader that starts where the store says finds the record `seq`."""
    first = (await store.search_text(words)).get(chat)
    return first is not None and first <= seq


class SaidContract(OpensStore):
    """No chat that has the words is left out."""

    async def test_words_of_a_message(self, store: Store) -> None:
        await begin(store, A)
        text = 'The Lease and its\nepoch: say("hi") \\d+\'%_* Straße 数据库 a\0b ' + "x" * 600
        await say(store, A, 1, UserMessage(text))
        for words in (
            *(["lease"], ["LEASE"], ["eas"], ["le"], ["e"], ["lease", "epoch"], ["epoch", "le"], []),
            *(['say("hi")'], ["\\d+'%_*"], ["straße"], ["STRASSE"], ["数据库"], ["数"], ["x" * 500], ["a\0b"]),
        ):
            assert await finds(store, words, A, 2), words

    async def test_what_was_said_since_the_last_search(self, store: Store) -> None:
        await begin(store, A)
        await begin(store, B)
        await say(store, A, 1, UserMessage("the first thing"), AssistantMessage(1, "an answer"))
        assert await finds(store, ["first"], A, 2)
        assert await finds(store, ["answer"], A, 3)
        await say(store, A, 3, RecordLost("", ""), UserMessage("the second thing"))
        await say(store, B, 1, AssistantMessage(1, "a second chat"))
        assert await finds(store, ["second"], A, 5)
        assert await finds(store, ["second"], B, 2)
        assert await finds(store, ["first"], A, 2)

    async def test_chats_without_the_words_are_left_out(self, store: Store) -> None:
        """Sooner or later: a store may be behind for a moment, and has at most to be asked again."""
        await begin(store, A)
        await begin(store, B)
        await say(store, A, 1, UserMessage("something about leases"))
        await say(store, B, 1, UserMessage("something else"))
        async with asyncio.timeout(60):
            while B in (matches := await store.search_text(["leases"])):
                pass
        assert [*matches] == [A]
        assert A not in await store.search_text(["leases", "else"])
        assert not await store.search_text(["nowhere"])

    async def test_a_long_chat(self, store: Store) -> None:
        await begin(store, A)
        await say(store, A, 1, *(UserMessage(f"number{seq} " + "and so on " * 1_000) for seq in range(2, 32)))
        for seq in (2, 17, 31):
            assert await finds(store, [f"number{seq}"], A, seq)

    async def test_damaged_records_hide_no_others(self, store: Store) -> None:
        await begin(store, A)
        broken = record(2, b"\xff{")
        await store.append(Commit(A, [wire.Record(2, 0, UserMessage.TYPE, 1, 0, broken.body)], summary(A, 2)))
        await say(store, A, 2, UserMessage("still here"))
        assert await finds(store, ["still"], A, 3)

    async def test_many_search_at_once(self, store: Store, clock: ManualClock, tmp_path: Path) -> None:
        for chat in (A, B, C):
            await begin(store, chat)
            await say(store, chat, 1, UserMessage(f"words of {chat}"))
        try:
            other_store = await self.open_beside(clock, tmp_path, LEASE_S)
        except pytest.skip.Exception:
            other_store = store
        try:
            results = await asyncio.gather(*(each.search_text(["words"]) for each in (store, other_store) * 4))
            assert all({*each} == {A, B, C} for each in results)
            await say(store, A, 2, UserMessage("later words"))
            assert await finds(other_store, ["later"], A, 3)
        finally:
            if other_store is not store:
                await other_store.close()
