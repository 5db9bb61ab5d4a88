"""The log records the cost of model calls (L-02, L-11)."""

import asyncio
import math

import pytest

from treadle import Agent, tool
from treadle.adapters.models.scripted import Call, Delay, Fail, ReportUsage, Say, ScriptedModel, Turn
from treadle.ports.model import ModelInfo, ModelRequest
from treadle.ports.toolset import Invocation
from treadle.protocol.content import Usage, UserEntry
from treadle.protocol.events import CompactionComplete, ExecutionComplete, ModelCall, TurnEnd, TurnRetry
from treadle.protocol.options import MAX_COUNT, MAX_USD, Budget

PRICED = ModelInfo("scripted", "priced", window=200_000, usd_per_million_input=1.0, usd_per_million_output=2.0)


async def test_a_cost_that_the_provider_tells_is_believed() -> None:  # L-11
    model = ScriptedModel([[Say("Hello."), ReportUsage(Usage(1_000, 10, usd=0.5))]], info=PRICED)
    async with Agent(model=model) as agent:
        chat = agent.chat()
        await chat.ask("Hello?")
        (end,) = [e.data for e in await chat.events() if isinstance(e.data, TurnEnd)]
    assert end.usage == Usage(1_000, 10, usd=0.5)


@pytest.mark.parametrize("usd", [math.inf, math.nan, -1.0])
async def test_a_count_without_bounds_is_recorded_within_them(usd: float) -> None:  # L-11, S-20
    """A server may send a number of any length; it must neither end the run nor take from what was spent."""
    model = ScriptedModel([[Say("Hello."), ReportUsage(Usage(10**400, -5, usd=usd))]], info=PRICED)
    async with Agent(model=model) as agent:
        chat = agent.chat()
        assert (await chat.ask("Hello?")).text == "Hello."
        usage = (await chat.state()).totals.usage
    assert (usage.input, usage.output) == (MAX_COUNT, 0)
    assert 0 < usage.usd <= MAX_USD


async def test_a_failed_attempt_costs_what_the_provider_counted() -> None:  # L-11
    model = ScriptedModel([[ReportUsage(Usage(1_000, 500)), Say("Hel"), Fail("network"), Say("lo.")]], info=PRICED)
    async with Agent(model=model, retry_base_s=0.0) as agent:
        chat = agent.chat()
        await chat.ask("Hello?")
        (retry,) = [e.data for e in await chat.events() if isinstance(e.data, TurnRetry)]
    assert retry.usage == Usage(1_000, 500, usd=0.002)


async def test_a_failed_side_call_costs_what_the_provider_counted() -> None:  # L-02
    broken = Turn((ReportUsage(Usage(1_000, 500)), Fail("bad_request", times=0)))
    model = ScriptedModel([Say("One."), Say("Two.")], side_answers={"compaction": broken}, info=PRICED)
    async with Agent(model=model) as agent:
        chat = agent.chat()
        await chat.ask("One?")
        await chat.ask("Two?")
        async for _ in chat.compact():
            pass
        (call,) = [e.data for e in await chat.events() if isinstance(e.data, ModelCall)]
    assert call.usage == Usage(1_000, 500, usd=0.002)
    assert call.error == "scripted failure"


async def test_a_compaction_of_an_idle_chat_may_take_its_time() -> None:  # L-19
    slow = Turn((Delay(0.1), Say("They counted.")))
    model = ScriptedModel([Say("One."), Say("Two.")], side_answers={"compaction": slow})
    async with Agent(model=model) as agent:
        chat = agent.chat()
        await chat.ask("One?")
        await chat.ask("Two?")
        async for _ in chat.compact():
            pass
        (completion,) = [e.data for e in await chat.events() if isinstance(e.data, CompactionComplete)]
    assert completion.success, completion.error
    assert completion.summary == "They counted."


@tool(read_only=True)
async def ask_thrice(invocation: Invocation) -> str:
    """Ask the model two things at once, and then a third."""

    async def ask() -> str:
        assert invocation.ask_model is not None
        return await invocation.ask_model(ModelRequest("", [UserEntry("Which colour?")]))

    answers = await asyncio.gather(ask(), ask(), return_exceptions=True)
    return " | ".join(str(one) for one in [*answers, await ask()])


async def test_calls_at_once_in_the_middle_of_a_tool_keep_to_one_budget() -> None:  # L-11, E-01
    turns = [Turn((part, ReportUsage(Usage(10, 10)))) for part in (Call("ask_thrice"), Say("Done."))]
    model = ScriptedModel(
        turns, side_answers={"sampling": Turn((Delay(0.05), Say("Blue."), ReportUsage(Usage(10, 10))))}
    )
    async with Agent(model=model, tools=[ask_thrice], builtin=False) as agent:
        chat = agent.chat(run_budget=Budget(tokens=1_000))  # of a call that is not over, 600 and more are expected
        await chat.ask("Go.")
        events = [e.data for e in await chat.events()]
    (completion,) = [e for e in events if isinstance(e, ExecutionComplete)]
    assert completion.result == "Blue. | The budget does not allow another call of the model. | Blue."
    assert len([e for e in events if isinstance(e, ModelCall)]) == 2
