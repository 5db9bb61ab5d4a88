"""Waiting for news of chats: one poll at a time for any number of waits (law 8)."""

import asyncio
from collections.abc import Sequence

import pytest

from treadle.adapters.stores.watch import Heads, Watch
from treadle.base.types import ChatId
from treadle.errors import StoreError

CHAT = ChatId("c_1")


class SlowStore:
    """Answers a poll after a moment; counts polls, and how many are under way at once."""

    def __init__(self, takes_s: float) -> None:
        self.polls = self.inside = self.most = 0
        self._takes_s = takes_s

    def ask(self, chats: Sequence[ChatId]) -> "asyncio.Future[Heads]":
        return asyncio.ensure_future(self._answer())

    async def _answer(self) -> Heads:
        self.polls += 1
        self.inside += 1
        self.most = max(self.most, self.inside)
        await asyncio.sleep(self._takes_s)
        self.inside -= 1
        return {}


async def head() -> int:
    return 0


async def test_polls_do_not_multiply() -> None:
    """Waits that end while a poll is under way, and new ones that begin before its answer."""
    store = SlowStore(0.02)
    watch = Watch(store.ask, 0.01)
    for _ in range(60):
        await watch.wait(CHAT, 0, 0.025, head)
    assert store.most == 1
    poll_count = store.polls
    await watch.wait(CHAT, 0, 0.6, head)
    assert store.polls - poll_count <= 22, "one poll takes 0.03 s with its pause"


async def test_nobody_polls_when_nobody_waits() -> None:
    store = SlowStore(0.01)
    watch = Watch(store.ask, 0.01)
    await watch.wait(CHAT, 0, 0.05, head)
    await asyncio.sleep(0.05)
    poll_count = store.polls
    await asyncio.sleep(0.1)
    assert store.polls == poll_count


async def test_a_closed_watch_polls_no_more() -> None:
    store = SlowStore(0.05)
    watch = Watch(store.ask, 0.01)
    waiting = asyncio.ensure_future(watch.wait(CHAT, 0, 10, head))
    await asyncio.sleep(0.03)
    watch.close(StoreError("closed"))
    with pytest.raises(StoreError):
        await waiting
    poll_count = store.polls
    await asyncio.sleep(0.1)
    assert store.polls == poll_count


def test_another_loop_begins_anew() -> None:
    """The first loop ends while a poll is under way, whose answer never comes."""
    store = SlowStore(0.05)
    watch = Watch(store.ask, 0.01)
    asyncio.run(watch.wait(CHAT, 0, 0.03, head))
    poll_count = store.polls
    asyncio.run(watch.wait(CHAT, 0, 0.2, head))
    assert store.polls > poll_count
