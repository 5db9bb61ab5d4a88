"""Scenes of limits, budgets, the guard, and of completion."""

from typing import Any

from tests.scenario.scenes.world import (
    PRICED,
    World,
    ask,
    finish,
    scene,
    watch,
)
from treadle.adapters.models.scripted import Call, Delay, ReportUsage, Say, ScriptedModel, Turn
from treadle.base.types import ChatId
from treadle.protocol import commands as c
from treadle.protocol.content import Usage
from treadle.protocol.options import Budget
from treadle.testing.clock import ManualClock


def looks(count: int) -> list[Any]:
    return [Call("look", what=str(number)) for number in range(count)]


@scene
async def the_turn_cap_answers(world: World) -> ChatId:
    return await ask(world, ScriptedModel([*looks(4), Say("Enough.")]), "Look.", max_turns=4)


@scene
async def the_turn_cap_is_an_error(world: World) -> ChatId:
    return await ask(world, ScriptedModel(looks(2)), "Look.", max_turns=2, on_limit="error")


@scene
async def the_turn_cap_asks(world: World) -> ChatId:
    agent = world.agent(ScriptedModel(looks(5)))
    chat = agent.chat(options=world.options(max_turns=2, on_limit="ask", interactive=True))
    await watch(chat.send("Look."))
    await watch(chat.answer((await chat.actions())[0], "continue"))
    await watch(chat.answer((await chat.actions())[0], "stop"))
    await finish(agent)
    return chat.id


@scene
async def the_guard_nudges_and_stops(world: World) -> ChatId:
    return await ask(world, ScriptedModel([Call("look", what="a")] * 5), "Look.")


@scene
async def the_guard_asks(world: World) -> ChatId:
    agent = world.agent(ScriptedModel([*[Call("look", what="a")] * 5, Say("I stop.")]))
    chat = agent.chat(options=world.options(interactive=True))
    await watch(chat.send("Look."))
    await watch(chat.answer((await chat.actions())[0], "continue"))
    await finish(agent)
    return chat.id


@scene
async def budgets(world: World) -> ChatId:
    """Tokens, money, tool calls and turns; a run of which the first call is too dear; a chat that has nothing left."""
    usage = ReportUsage(Usage(1_000, 100))
    steps = [[Call("look", what="a"), usage], [Call("look", what="b"), usage], [Call("look", what="c"), usage]] * 3
    agent = world.agent(ScriptedModel(steps, info=PRICED, follow="calls"))
    chat = agent.chat(options=world.options(run_budget=Budget(tokens=3_500)))
    await watch(chat.send("Tokens."))
    await chat.command(c.ChangeOptions({"run_budget": {"usd": 0.01}}))
    await watch(chat.send("Money."))
    await chat.command(c.ChangeOptions({"run_budget": {"tool_calls": 1}}))
    await watch(chat.send("Calls."))
    await chat.command(c.ChangeOptions({"run_budget": {"turns": 1}}))
    await watch(chat.send("Turns."))
    await chat.command(c.ChangeOptions({"run_budget": {}, "chat_budget": {"tokens": 10}}))
    await watch(chat.send("Nothing is left."))
    await finish(agent)
    return chat.id


@scene
async def a_budget_too_small_for_anything(world: World) -> ChatId:
    agent = world.agent(ScriptedModel([Say("Never said.")], info=PRICED))
    chat = agent.chat(options=world.options(run_budget=Budget(tokens=50)))
    await watch(chat.send("Hello?"))
    await chat.command(c.ChangeOptions({"run_budget": {"usd": 0.00001}}))
    await watch(chat.send("Hello?"))
    await finish(agent)
    return chat.id


@scene
async def a_wall_budget(world: World) -> ChatId:
    clock = ManualClock()

    async def sleep(seconds: float) -> None:
        clock.advance(seconds)

    steps = [[Delay(9.0), Call("look", what="a")], [Delay(5.0), Call("look", what="b"), Call("change", what="c")]]
    agent = world.agent(ScriptedModel(steps, sleep=sleep), clock=clock)
    chat = agent.chat(options=world.options(run_budget=Budget(wall_s=10.0)))
    await watch(chat.send("Hurry."))
    await finish(agent)
    return chat.id


@scene
async def autopilot(world: World) -> ChatId:
    steps = [Say("I think."), [Call("look", what="a")], Say("Well."), [Call("task_complete", summary="looked")]]
    return await ask(world, ScriptedModel(steps), "Work.", mode="autopilot")


@scene
async def autopilot_gives_up(world: World) -> ChatId:
    return await ask(world, ScriptedModel([Say("I think."), Say("Still."), Say("Hm.")]), "Work.", mode="autopilot")


@scene
async def markers(world: World) -> ChatId:
    steps = [Turn((Say("All done. [TASK_COMPLETE]"),), chunk=3), Say("Not quite [TASK_")]
    return await ask(world, ScriptedModel(steps), "Work.", "More.", completion="marker", mode="autopilot")
