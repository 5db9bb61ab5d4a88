"""What is counted by changes is what is counted by looking at every chat."""

import random

import pytest

from treadle.adapters.stores.memory import MemoryStore
from treadle.base.types import ChatId
from treadle.frontends.server import usage as counting
from treadle.frontends.server.usage import ChatCounts, Total
from treadle.ports.store import Commit, Store
from treadle.protocol.content import Usage
from treadle.protocol.events import Envelope, SessionCreated, TitleChanged
from treadle.protocol.options import ChatOptions
from treadle.protocol.views import STATUSES, ChatSummary
from treadle.protocol.wire import Record, encode

OWNERS = ("", "ann", "bob")


def record(seq: int) -> Record:
    event = SessionCreated(ChatOptions()) if seq == 1 else TitleChanged(str(seq))
    return encode(Envelope(seq, ChatId("c"), 1, event))


async def change(store: Store, rng: random.Random, chat: ChatId, owner: str, head: int) -> None:
    usage = Usage(rng.randrange(99), rng.randrange(99), rng.randrange(9), 0, rng.random(), rng.random() < 0.1)
    summary = ChatSummary(chat, rng.choice(STATUSES), head, owner=owner, turns=rng.randrange(9), usage=usage)
    if head == 1:
        await store.create(summary, [record(1)])
    else:
        await store.append(Commit(chat, [record(head)], summary, durable=False))


async def test_the_tally_is_what_a_look_at_all_chats_comes_to(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counting, "PAGE", 7)
    rng = random.Random(6)
    store = MemoryStore()
    chat_counts = ChatCounts(store)
    assert (await chat_counts.count_statuses(), await chat_counts.compute_total("ann")) == ({}, Total())
    heads: dict[ChatId, int] = {}
    for _ in range(10):
        for _ in range(20):
            chat = ChatId(f"c_{rng.randrange(40)}")
            heads[chat] = heads.get(chat, 0) + 1
            await change(store, rng, chat, OWNERS[int(chat[2:]) % 3], heads[chat])
        listed = [each.summary for each in await store.list()]
        statuses = await chat_counts.count_statuses()
        assert statuses == {
            status: count for status in STATUSES if (count := sum(line.status == status for line in listed))
        }
        for owner in OWNERS:
            own = [line for line in listed if line.owner == owner]
            total = await chat_counts.compute_total(owner)
            assert (total.chats, total.turns) == (len(own), sum(line.turns for line in own))
            wanted = sum((line.usage for line in own), Usage())
            assert abs(total.usage.usd - wanted.usd) < 1e-6
            assert (total.usage.input, total.usage.estimated) == (wanted.input, wanted.estimated)
