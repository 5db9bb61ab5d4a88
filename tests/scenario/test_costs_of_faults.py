"""The cost of a model call counts, however the call ended: a fault of an adapter, an interrupt, a compaction by hand
(L-11, fault 30)."""

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest

from tests.scenario.kit import Stage, of, play
from treadle import Budget
from treadle.adapters.models.scripted import Say, ScriptedModel
from treadle.errors import InvalidInput
from treadle.ports.model import ModelInfo, ModelRequest
from treadle.protocol import commands as c
from treadle.protocol import events as e
from treadle.protocol.content import Usage
from treadle.protocol.deltas import Delta, TextDelta, UsageDelta

PRICED = ModelInfo("scripted", "priced", window=200_000, usd_per_million_input=1_000.0, usd_per_million_output=1_000.0)
SPENT = Usage(1_000, 500)


class FaultyModel:
    """Answers `good` calls, then tells what a call costs and fails in the middle of it."""

    info = PRICED

    def __init__(self, good: int, fault: Exception | None) -> None:
        self._good = good
        self._fault = fault
        self.told = asyncio.Event()

    async def stream(self, request: ModelRequest) -> AsyncIterator[Sequence[Delta]]:
        if self._good > 0:
            self._good -= 1
            async for deltas in ScriptedModel([Say("Fine. " * 400)] * 3, info=PRICED).stream(request):
                yield deltas
            return
        yield [TextDelta("Half an ans"), UsageDelta(SPENT)]
        self.told.set()
        if self._fault is None:
            await asyncio.Event().wait()
        else:
            raise self._fault

    async def close(self) -> None:
        """Nothing is open."""


@pytest.mark.parametrize("fault", [KeyError("choices"), InvalidInput("no such shape")], ids=type)
async def test_a_fault_of_an_adapter_costs_what_was_told(stage: Stage, fault: Exception) -> None:
    chat = stage.agent(FaultyModel(0, fault)).chat()
    events = await play(chat.send("go"))
    (retry,) = of(events, e.TurnRetry)
    assert (retry.usage.input, retry.usage.output) == (SPENT.input, SPENT.output)
    assert of(events, e.SessionError)[0].error_class == "internal"
    assert (await chat.state()).totals.usage.usd >= 1.5


@pytest.mark.parametrize("fault", [KeyError("choices"), InvalidInput("no such shape")], ids=type)
async def test_a_fault_in_a_compaction_costs_what_was_told(stage: Stage, fault: Exception) -> None:
    chat = stage.agent(FaultyModel(2, fault)).chat()
    await chat.ask("one")
    await chat.ask("two")
    old_usage = (await chat.state()).totals.usage
    events = await play(chat.compact())
    (call,) = of(events, e.ModelCall)
    assert (call.purpose, call.usage.input, call.usage.output) == ("compaction", SPENT.input, SPENT.output)
    assert (await chat.state()).totals.usage.tokens == old_usage.tokens + SPENT.tokens


async def test_a_compaction_by_hand_obeys_the_budget_of_the_chat(stage: Stage) -> None:
    chat = stage.agent(ScriptedModel([Say("Fine. " * 400), Say("Fine. " * 400), Say("Short.")], info=PRICED)).chat()
    await chat.ask("one")
    await chat.ask("two")
    spent = (await chat.state()).totals.usage
    await chat.command(c.ChangeOptions({"chat_budget": {"tokens": spent.tokens + 1}}))
    events = await play(chat.compact())
    assert of(events, e.ModelCall) == []
    assert "budget" in of(events, e.CompactionComplete)[0].error
    assert (await chat.state()).totals.usage == spent
    assert (await chat.state()).options.chat_budget == Budget(tokens=spent.tokens + 1)


@pytest.mark.parametrize("idle", [True, False])
async def test_an_interrupted_compaction_costs_what_was_told(stage: Stage, idle: bool) -> None:
    """By hand, and in the middle of a run."""
    model = FaultyModel(2, None)
    chat = stage.agent(model).chat()
    await chat.ask("one")
    await chat.ask("two")
    old_tokens = (await chat.state()).totals.usage.tokens
    if not idle:
        await chat.command(c.ChangeOptions({"context_window": 3_000}))
    following = asyncio.ensure_future(play(chat.compact() if idle else chat.send("three " * 200)))
    async with asyncio.timeout(20):
        await model.told.wait()
        await chat.interrupt()
        events = await following
        while not of(await chat.events(), e.ModelCall):
            await chat.wait((await chat.state()).head, 1.0)
    (call,) = of(await chat.events(), e.ModelCall)
    assert (call.purpose, call.error, call.usage.tokens) == ("compaction", "interrupted", SPENT.tokens)
    assert (await chat.state()).totals.usage.tokens == old_tokens + SPENT.tokens
    assert events
