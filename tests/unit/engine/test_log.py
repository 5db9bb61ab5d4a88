"""A process keeps a bounded weight of the chats that it has seen (fault 18)."""

import tracemalloc
from pathlib import Path

import pytest

from treadle import Agent, ScriptedModel
from treadle.adapters.models.scripted import Call, Say
from treadle.adapters.stores.memory import MemoryStore
from treadle.adapters.stores.sqlite import SqliteStore
from treadle.adapters.tools.function import tool
from treadle.base.types import ChatId, SystemClock
from treadle.engine import log as module
from treadle.engine.hub import Hub
from treadle.engine.log import Log
from treadle.protocol import events as e
from treadle.protocol.commands import Send
from treadle.protocol.options import ChatOptions


async def test_nothing_is_kept_of_chats_that_were_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_WEIGHT", 3 * module.EMPTY_WEIGHT)
    monkeypatch.setattr(module, "SNAPSHOT_EVERY", 1)
    log = Log(MemoryStore(), Hub(), SystemClock())
    for number in range(10):
        state = await log.create(ChatId(f"c_{number}"), e.SessionCreated(ChatOptions()))
        log.states.get_memo(state.chat, "m")
        await log.keep_snapshot(state)
    tables = {name: value for name, value in vars(log).items() if isinstance(value, dict)}
    assert len(tables) >= 2
    assert {name: len(value) for name, value in tables.items()} == dict.fromkeys(tables, 3)
    assert len([*log.states]) == 3


async def test_long_chats_are_let_go_by_their_weight(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Forty idle chats of 1 MB in a process that may keep 8 MB of chats; each can be used again."""
    monkeypatch.setattr(module, "MAX_WEIGHT", 8_000_000)
    log = Log(SqliteStore(tmp_path / "t.db"), Hub(), SystemClock())
    chats = [ChatId(f"c_{number}") for number in range(40)]
    tracemalloc.start()
    try:
        for chat in chats:
            await log.create(chat, e.SessionCreated(ChatOptions()), first=[Send(f"{chat} " + "x" * 1_000_000)])
        assert tracemalloc.get_traced_memory()[0] < 16_000_000
    finally:
        tracemalloc.stop()
    assert log.states.weight <= 8_000_000
    assert log.peek(chats[0]) is None
    assert (await log.load(chats[0])).title.startswith("c_0")
    weight = sum(1_000_000 + len(chat) for chat in (state.chat for state in log.states))
    assert 0 < log.states.weight - weight <= 2 * module.EMPTY_WEIGHT * len([*log.states])
    await log.store.close()


async def test_a_chat_that_is_driven_is_not_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each turn of it would have to read and encode everything again. When it rests it is let go like any other, and a
    message that comes then is driven all the same."""
    monkeypatch.setattr(module, "MAX_WEIGHT", 10_000)
    cache_hits: list[bool] = []

    @tool
    async def look() -> str:
        """See whether the chat is still known while others come."""
        for _ in range(5):
            await (await agent.chat()).state()
        cache_hits.append(agent.deps.log.peek(chat.id) is not None)
        return "y" * 20_000

    model = ScriptedModel([Call("look"), Say("Done."), Say("Again.")])
    async with Agent(MemoryStore(), model=model, tools=[look], builtin=False) as agent:
        chat = await agent.chat()
        assert (await chat.ask("go")).text == "Done."
        assert cache_hits == [True]
        for _ in range(3):
            await (await agent.chat()).state()
        assert agent.deps.log.peek(chat.id) is None
        assert (await chat.ask("again")).text == "Again."


async def test_a_conversation_that_was_cut_is_weighed_anew() -> None:
    log = Log(MemoryStore(), Hub(), SystemClock())
    chat = ChatId("c_1")
    state = await log.create(chat, e.SessionCreated(ChatOptions()), first=[Send("x" * 50_000)])
    heavy = log.states.weight
    state = await log.append(state, [e.SessionRewound(2)], lease=None, durable=False)
    assert len(state.history) == 0
    assert log.states.weight < heavy - 49_000
