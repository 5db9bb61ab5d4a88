"""What is counted by changes is what is counted by looking at every chat."""

import random

import pytest

from treadle import Agent, ScriptedModel
from treadle.adapters.models.scripted import Say
from treadle.adapters.stores.memory import MemoryStore
from treadle.base.types import ChatId
from treadle.frontends.presentation.conversation import Conversation
from treadle.frontends.server import usage as counting
from treadle.frontends.server.usage import ChatCounts, Total, UsageHistory
from treadle.ports.store import Commit, Store
from treadle.protocol.content import Usage
from treadle.protocol.events import Envelope, ModelCall, SessionCreated, TitleChanged
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


async def test_each_model_call_is_counted_once_also_that_of_a_compaction() -> None:  # L-02, L-19
    store = MemoryStore()
    model = ScriptedModel([Say("One. " * 100), Say("Two. " * 100)], side_answers={"compaction": "Numbers."})
    async with Agent(store, model=model) as agent:
        chat = agent.chat()
        await chat.ask("one")
        await chat.ask("two")
        async for _ in chat.compact():
            pass
        log, spent = await chat.events(), (await chat.state()).totals.usage
        days = await UsageHistory(store).list_days("", 0)
    assert [call.data.purpose for call in log if isinstance(call.data, ModelCall)] == ["compaction"]
    conversation = Conversation()
    for envelope in log:
        conversation.apply(envelope)
    assert conversation.view.usage == spent
    assert [(day.usage.tokens, day.calls) for _, _, day in days] == [(spent.tokens, 2)]
