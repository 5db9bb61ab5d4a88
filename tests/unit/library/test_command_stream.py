"""The result of a run, as `ask` gives it."""

import asyncio

from treadle import Agent, ScriptedModel, tool
from treadle.adapters.models.scripted import Call, Say
from treadle.adapters.stores.memory import MemoryStore
from treadle.library.command_stream import collect
from treadle.protocol.tools import DynamicTool


async def test_a_run_that_waits_does_not_carry_the_end_of_the_run_before() -> None:
    """The message was queued behind a run that stopped at its turn cap; its own run waits for a client's tool."""
    began, go_on = asyncio.Event(), asyncio.Event()

    @tool(name="wait")
    async def wait() -> str:
        """Wait."""
        began.set()
        await go_on.wait()
        return "waited"

    model = ScriptedModel([[Call("wait")], Say("Partly."), [Call("weather")]])
    async with Agent(MemoryStore(), model=model, tools=[wait], builtin=False) as agent:
        weather = DynamicTool("weather", "Tells the weather.", {"type": "object"})
        chat = await agent.chat(dynamic_tools=[weather], max_turns=1, on_limit="answer")
        first = asyncio.create_task(collect(chat.send("first")))
        await began.wait()
        second = asyncio.create_task(collect(chat.send("second")))
        while not (await chat.state()).queue:  # noqa: ASYNC110 - no event tells a caller that its message is queued
            await asyncio.sleep(0)
        go_on.set()
        async with asyncio.timeout(30):
            end, waiting = await first, await second
        assert (end.reason, bool(end.error)) == ("turn_cap", True)
        assert (waiting.reason, waiting.error, waiting.text) == ("action_required", "", "")
