"""A reader sees the log once and in order, however events reach it: from this process, from another one that does
not announce them, in bursts, while it is slow (A-07, D-04)."""

import asyncio
import random

import pytest

from treadle.adapters.models.scripted import ScriptedModel
from treadle.adapters.policy.standard import StandardPolicy
from treadle.adapters.stores.memory import MemoryStore
from treadle.base.types import ChatId, SystemClock
from treadle.engine.hub import Hub
from treadle.engine.log import Log
from treadle.library.agent import Agent
from treadle.library.feeds import Feed, Feeds, Reader
from treadle.protocol import wire
from treadle.protocol.commands import Rename
from treadle.protocol.events import Envelope, MessageDelta, SessionCreated, TitleChanged
from treadle.protocol.options import ChatOptions

CHAT = ChatId("c_1")


class World:
    """A store that two processes write to, and the readers of one of them."""

    def __init__(self, backlog: int) -> None:
        self.store = MemoryStore()
        self.deps = Agent(self.store, model=ScriptedModel([]), builtin=False, policy=StandardPolicy()).deps
        self.here = self.deps.log
        self.there = Log(self.store, Hub(), SystemClock())
        self.feeds = Feeds(self.deps, backlog, lambda _chat: True)
        self.written = 0

    async def write(self, log: Log) -> None:
        self.written += 1
        await log.execute(CHAT, Rename(f"title {self.written}"))

    async def read(self, after_seq: int, until: int, chance: random.Random) -> list[Envelope]:
        """Everything up to this seq, at a pace of its own."""
        envelopes: list[Envelope] = []
        async with self.feeds.open_reader(CHAT, after_seq, 0) as reader:
            async for batch in self.feeds.stream_batches(reader, 30.0):
                envelopes += [envelope for envelope in batch if envelope.seq]
                for _ in range(chance.choice((0, 0, 1, 7))):
                    await asyncio.sleep(0)
                if envelopes and envelopes[-1].seq >= until:
                    break
        return envelopes


@pytest.mark.parametrize("seed", range(12))
async def test_once_and_in_order(seed: int) -> None:
    chance = random.Random(seed)
    world = World(backlog=chance.choice((1, 3, 50)))
    await world.here.create(CHAT, SessionCreated(ChatOptions()))
    total = 120
    places = [chance.randrange(0, 2) for _ in range(5)]
    readers = [
        asyncio.create_task(world.read(start_seq, total + 1, random.Random(seed + n)))
        for n, start_seq in enumerate(places)
    ]
    for _ in range(total):
        await world.write(chance.choice((world.here, world.here, world.there)))
        if chance.random() < 0.3:
            world.deps.log.hub.publish(Envelope(0, CHAT, 0, MessageDelta(1, "live")))
        for _ in range(chance.choice((0, 0, 0, 2, 20))):
            await asyncio.sleep(0)
    async with asyncio.timeout(60):
        envelope_lists = await asyncio.gather(*readers)
    for start_seq, each in zip(places, envelope_lists, strict=True):
        assert [envelope.seq for envelope in each] == list(range(start_seq + 1, total + 2))
        titles = [envelope.data.title for envelope in each if isinstance(envelope.data, TitleChanged)]
        assert titles == [f"title {number}" for number in range(1, total + 1)]
    await world.store.close()


async def test_a_reader_that_is_ahead_does_not_keep_the_others_waiting() -> None:
    """It has read what another process wrote before anybody was told."""
    world = World(backlog=10)
    await world.here.create(CHAT, SessionCreated(ChatOptions()))
    feed = Feed(CHAT)
    feed.readers = [Reader(world.deps.log.hub, CHAT, 1, 10), Reader(world.deps.log.hub, CHAT, 1, 10)]
    await world.write(world.there)
    for record in await world.store.read(CHAT, after_seq=1):
        feed.readers[0].take_in(wire.decode(CHAT, record))
    assert await world.store.wait(CHAT, feed.head, 30.0) == 2
    assert feed.head == 1
    await world.store.close()


async def test_a_reader_holds_no_more_than_it_may() -> None:
    world = World(backlog=10)
    await world.here.create(CHAT, SessionCreated(ChatOptions()))
    async with world.feeds.open_reader(CHAT, 0, 0) as reader:
        batches = world.feeds.stream_batches(reader, 30.0)
        first = await anext(batches)
        assert [envelope.seq for envelope in first] == [1]
        waiting = asyncio.ensure_future(anext(batches))
        await asyncio.sleep(0)
        for _ in range(200):
            await world.write(world.here)
        assert len(reader._held) <= 10
        seqs = [envelope.seq for envelope in await waiting]
        while seqs[-1] < 201:
            seqs += [envelope.seq for envelope in await anext(batches)]
        assert seqs == list(range(2, 202))
        assert world.feeds.dropped == 1
        await batches.aclose()  # type: ignore[attr-defined]
    await world.store.close()
