"""Every fault around the loop ends in `session.error` and idle, once, and nothing is written for ever (L-12): model
lookup, tool schemas, the compaction of an idle chat, and chats that fail at once."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.faults.test_recovery import cut_off_inside
from treadle import Agent, Chat, ScriptedModel, tool
from treadle.adapters.models.scripted import Call, Say
from treadle.adapters.stores.memory import MemoryStore
from treadle.engine import loop
from treadle.engine.pool import WorkerPool
from treadle.ports.model import ModelInfo
from treadle.ports.store import Commit
from treadle.protocol.commands import Compact, Send
from treadle.protocol.events import Envelope, RunEnd, SessionError, SessionIdle, UserMessage
from treadle.testing.checker import check
from treadle.testing.faults import faults

pytestmark = pytest.mark.thorough(one_of=8)

PATIENCE_S = 60.0


class Unknowable(ScriptedModel):
    """A model about which nothing can be found out, for as long as it is broken."""

    broken = True

    @property
    def info(self) -> ModelInfo:
        if self.broken:
            raise RuntimeError("the catalogue is gone")
        return super().info


@tool
async def hold() -> str:
    """Take a while."""
    return "held"


@tool
async def odd(n: int = 0) -> str:
    """A tool whose schema cannot be written down."""
    return "odd"


odd.spec.parameters["default"] = object()


class LimitedStore(MemoryStore):
    """A store that takes only so many commits: a loop that writes for ever is seen, not waited for."""

    MOST = 60

    def __init__(self) -> None:
        super().__init__()
        self.commits = 0

    async def append(self, commit: Commit) -> None:
        self.commits += 1
        if self.commits > self.MOST:
            raise AssertionError("it is written for ever")
        await super().append(commit)


async def news(chat: Chat, following: Any) -> list[Envelope]:
    async with asyncio.timeout(PATIENCE_S):
        return [envelope async for envelope in following]


def errors(envelopes: list[Envelope]) -> list[str]:
    return [one.data.error_class for one in envelopes if isinstance(one.data, SessionError)]


def idles(envelopes: list[Envelope]) -> list[str]:
    return [one.data.reason for one in envelopes if isinstance(one.data, SessionIdle)]


async def sound(chat: Chat, store: Any) -> None:
    assert await check(store, chat.id) == []
    assert await chat.status() == "error"


async def test_a_model_that_cannot_be_looked_up_while_a_call_is_open(tmp_path: Path) -> None:
    path = tmp_path / "chats.db"
    id_ = await cut_off_inside(path)
    model = Unknowable([[Call("hold")], "Still here."])
    async with Agent(path, model=model, tools=[hold]) as agent:
        chat = agent.chat(id_)
        with faults("raise@recovery.settled"):  # the call stays open, and nothing can be said of the model
            envelopes = await news(chat, chat.resume().resume_after(0))
        assert errors(envelopes) == ["internal"]
        assert idles(envelopes) == ["error"]
        await sound(chat, agent.deps.store)
        model.broken = False
        assert (await chat.ask("Are you there?")).text == "Still here."


@pytest.mark.parametrize("broken", ["model", "tool"])
async def test_a_fault_before_the_first_turn_leaves_the_message_in_the_log(broken: str) -> None:
    store = LimitedStore()
    model = Unknowable(["Here."]) if broken == "model" else ScriptedModel(["Here."])
    async with Agent(store, model=model, tools=[odd] if broken == "tool" else []) as agent:
        chat = await agent.chat()
        envelopes = await news(chat, chat.send("Remember me."))
        assert [one.data.content for one in envelopes if isinstance(one.data, UserMessage)] == ["Remember me."]
        assert errors(envelopes) == ["internal"]
        assert idles(envelopes) == ["error"]
        await sound(chat, store)


async def test_a_model_that_is_lost_in_the_middle_of_a_run() -> None:
    store = LimitedStore()
    model = Unknowable([Call("lose"), "Never said."])
    model.broken = False

    @tool
    async def lose() -> str:
        """Lose the model."""
        model.broken = True
        return "lost"

    async with Agent(store, model=model, tools=[lose]) as agent:
        chat = await agent.chat()
        envelopes = await news(chat, chat.send("Go."))
        assert errors(envelopes) == ["internal"]
        assert idles(envelopes) == ["error"]
        await sound(chat, store)


async def test_a_queue_before_a_broken_model_is_not_worked_off_for_ever() -> None:
    store = LimitedStore()
    model = Unknowable(["One.", "Two."])
    async with Agent(store, model=model) as agent:
        chat = await agent.chat()
        await agent.deps.log.execute(chat.id, [Send("One.", queue_id="q1"), Send("Two.", queue_id="q2")])
        envelopes = await news(chat, chat.resume().resume_after(0))
        assert idles(envelopes) == ["error"]
        assert [item.content for item in (await chat.state()).queue] == ["Two."]
        await sound(chat, store)


async def test_a_compaction_of_an_idle_chat_that_fails_each_time() -> None:
    store = LimitedStore()
    async with Agent(store, model=ScriptedModel(["One.", "Two.", "A summary.", "Here."])) as agent:
        chat = await agent.chat()
        await chat.ask("First?")
        await chat.ask("Second?")
        with faults("raise@append.before:session.model_call#*") as struck:
            await chat.command(Compact())
            envelopes = await news(chat, chat.resume())
        assert struck.struck
        assert idles(envelopes) == ["done"]
        log = await chat.events()
        assert errors(log) == ["internal"]
        assert not (await chat.state()).compacting
        assert await check(store, chat.id) == []


async def test_a_pool_does_not_take_up_a_chat_that_fails_at_once_over_and_over() -> None:
    """Even the error cannot be written: the chat is held and left alone for longer and longer."""
    store = LimitedStore()
    async with Agent(store, model=Unknowable(["Here."])) as agent:
        chat = await agent.chat()
        with faults("raise@append.before:session.error#*") as struck:
            await agent.deps.log.execute(chat.id, Send("Go."))
            pool = WorkerPool(agent.worker, poll_s=0.05)
            pool.start()
            async with asyncio.timeout(PATIENCE_S):
                while len(struck.struck) < 3:
                    await store.wait(chat.id, 1_000, 0.02)
            await pool.close()
        assert len(struck.struck) <= 4


async def test_a_pool_goes_on_claiming_after_a_fault_of_any_kind() -> None:
    class Odd(MemoryStore):
        claims = 0

        async def claim(self, *arguments: Any, **more: Any) -> Any:
            self.claims += 1
            if self.claims == 1:
                raise KeyError("no StoreError at all")
            return await super().claim(*arguments, **more)

    store = Odd()
    async with Agent(store, model=ScriptedModel(["Here."])) as agent:
        chat = await agent.chat()
        await agent.deps.log.execute(chat.id, Send("Go."))
        pool = WorkerPool(agent.worker, poll_s=0.05)
        pool.start()
        async with asyncio.timeout(PATIENCE_S):
            while await chat.status() != "idle":
                await store.wait(chat.id, (await chat.state()).head, 0.2)
        await pool.close()


async def test_a_step_of_which_nothing_comes_is_a_fault() -> None:
    """A tool that asks for its call to be looked at again and again, by way of a hook that swallows it."""
    store = LimitedStore()
    async with Agent(store, model=ScriptedModel([[Call("hold")], Say("Never.")]), tools=[hold]) as agent:
        chat = await agent.chat()
        calls = 0

        async def nothing(*_arguments: Any) -> None:
            nonlocal calls
            calls += 1
            assert calls < 50, "it spins"
            await asyncio.sleep(0)

        real = loop.run_calls
        loop.run_calls = nothing  # type: ignore[assignment]
        try:
            envelopes = await news(chat, chat.send("Go."))
        finally:
            loop.run_calls = real
        assert errors(envelopes) == ["internal"]
        assert calls == loop.AGAIN
        assert [one.data.reason for one in envelopes if isinstance(one.data, RunEnd)] == ["error"]
        await sound(chat, store)
