"""The compaction of an idle chat that a person stops: the chat is at rest when the worker has recorded its end and its
cost, and not before (L-07, L-19)."""

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest

from tests.scenario.kit import Stage, of, play
from treadle.adapters.models.scripted import Say, ScriptedModel
from treadle.errors import Refused
from treadle.ports.model import ModelRequest
from treadle.protocol import commands as c
from treadle.protocol import events as e
from treadle.protocol.deltas import Delta
from treadle.testing.checker import check


class HeldModel:
    """Answers turns at once, and a compaction when it is allowed to. A slow one takes its time to be cancelled."""

    def __init__(self, *, is_slow: bool = False) -> None:
        self._is_slow = is_slow
        self._model = ScriptedModel([Say("One. " * 100), Say("Two. " * 100), Say("Three.")], follow="turns")
        self.info = self._model.info
        self.entered, self.may_answer = asyncio.Event(), asyncio.Event()

    async def stream(self, request: ModelRequest) -> AsyncIterator[Sequence[Delta]]:
        if request.purpose == "compaction":
            self.entered.set()
            try:
                await self.may_answer.wait()
            finally:
                if self._is_slow:
                    await self.may_answer.wait()
        async for deltas in self._model.stream(request):
            yield deltas

    async def close(self) -> None:
        """Nothing is open."""


@pytest.mark.parametrize("delay", range(4))
async def test_no_event_follows_once_the_chat_is_idle(stage: Stage, delay: int) -> None:
    """The summary comes a few turns of the event loop before or after the interrupt."""
    model = HeldModel()
    chat = stage.agent(model).chat()
    await chat.ask("one")
    await chat.ask("two")
    compacting = asyncio.ensure_future(play(chat.compact()))
    async with asyncio.timeout(20):
        await model.entered.wait()
        interrupt = asyncio.ensure_future(chat.interrupt())
        for _ in range(delay):
            await asyncio.sleep(0)
        model.may_answer.set()
        await asyncio.wait([interrupt])
        while await chat.status() not in ("idle", "error"):
            await chat.wait((await chat.state()).head, 1.0)
        head = len(await chat.events())
        await compacting
        await stage.kill()
    log = await chat.events()
    assert len(log) == head, "an event was recorded when the chat was at rest"
    assert len(of(log, e.CompactionComplete)) == len(of(log, e.CompactionStart)) == 1
    assert await check(stage.store, chat.id) == []


async def test_a_stopped_compaction_that_no_worker_has_is_closed_without_a_call(stage: Stage) -> None:
    model = HeldModel()
    agent = stage.agent(model)
    chat = agent.chat()
    await chat.ask("one")
    await chat.ask("two")
    compacting = asyncio.ensure_future(play(chat.compact()))
    await model.entered.wait()
    await stage.kill()  # the worker dies in the model call
    compacting.cancel()
    calls = 0

    class Counted(HeldModel):
        async def stream(self, request: ModelRequest) -> AsyncIterator[Sequence[Delta]]:
            nonlocal calls
            calls += 1
            async for deltas in super().stream(request):
                yield deltas

    later = stage.agent(Counted()).chat(chat.id)
    await later.interrupt()
    async with asyncio.timeout(20):
        while await later.status() != "idle":
            await later.wait((await later.state()).head, 1.0)
    (completion,) = of(await later.events(), e.CompactionComplete)
    assert (completion.success, completion.error, calls) == (False, "interrupted", 0)


async def test_a_second_compaction_waits_for_the_end_of_the_stopped_one(stage: Stage) -> None:
    model = HeldModel(is_slow=True)
    chat = stage.agent(model).chat()
    await chat.ask("one")
    await chat.ask("two")
    compacting = asyncio.ensure_future(play(chat.compact()))
    async with asyncio.timeout(20):
        await model.entered.wait()
        await chat.interrupt()
        await chat.interrupt()  # asked again, nothing more is recorded
        assert await chat.status() == "interrupting"
        with pytest.raises(Refused, match="idle"):
            await chat.command(c.Compact())
        model.may_answer.set()
        await compacting
    log = await chat.events()
    assert len(of(log, e.Interrupted)) == 1
    assert len(of(log, e.CompactionComplete)) == 1
