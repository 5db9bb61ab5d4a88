"""Scenes of compactions, and of calls that are no turn."""

from typing import Any

from tests.scenario.scenes.world import (
    HOLD,
    PRICED,
    ModelHold,
    World,
    ask,
    finish,
    idle,
    scene,
    watch,
)
from treadle.adapters.models.scripted import Call, Fail, ReportUsage, Say, ScriptedModel, Turn
from treadle.base.types import ChatId
from treadle.protocol import commands as c
from treadle.protocol.content import Usage
from treadle.protocol.options import Budget


@scene
async def compactions(world: World) -> ChatId:
    """By a summary, twice: there is nothing to mask."""
    answers = [Say("Yes.") for _ in range(24)]
    model = ScriptedModel(answers, side_answers={"compaction": "Much was said."}, follow="turns")
    return await ask(world, model, *(f"{n} {'word ' * 1_500}" for n in range(24)), context_window=40_000)


@scene
async def a_compaction_that_only_masks(world: World) -> ChatId:
    (world.root / "big.txt").write_text("\n".join(f"line {number} " + "x" * 60 for number in range(400)))
    steps: list[Any] = [Call("read_file", path="big.txt", start_line=1 + number) for number in range(8)]
    model = ScriptedModel([*steps, Say("Read.")], follow="turns")
    return await ask(world, model, "Read it all.", context_window=40_000)


@scene
async def a_compaction_by_hand_and_one_by_force(world: World) -> ChatId:
    steps = [
        [Say("One."), ReportUsage(Usage(100, 2))],
        Say("Two."),
        Say("Three."),
        [Fail("context_limit", "too long"), Say("Four.")],
    ]
    counted = Turn((Say("They counted."), ReportUsage(Usage(50, 9))))
    model = ScriptedModel(steps, side_answers={"compaction": counted}, info=PRICED, follow="turns")
    agent = world.agent(model)
    chat = agent.chat(options=world.options())
    await watch(chat.send("One?"))
    await watch(chat.send("Two?"))
    await watch(chat.compact())
    await watch(chat.send("Three?"))
    await watch(chat.send("Four?"))
    await finish(agent)
    return chat.id


@scene
async def compactions_that_fail(world: World) -> ChatId:
    broken = Turn((Fail("bad_request", "no summary today", times=0),))
    model = ScriptedModel([Say("One."), Say("Two.")], side_answers={"compaction": broken})
    agent = world.agent(model)
    chat = agent.chat(options=world.options())
    await watch(chat.send("One?"))
    await watch(chat.compact())
    await watch(chat.send("Two?"))
    await watch(chat.compact())
    await finish(agent)
    return chat.id


@scene
async def a_compaction_beyond_the_budget(world: World) -> ChatId:
    agent = world.agent(ScriptedModel([Say("Yes.") for _ in range(9)], follow="turns", info=PRICED))
    chat = agent.chat(options=world.options(context_window=40_000))
    for number in range(7):
        await watch(chat.send(f"{number} {'word ' * 1_500}"))
    for budget in ({"usd": 0.05}, {"tokens": 3_000}):
        await chat.command(c.ChangeOptions({"run_budget": budget}))
        await watch(chat.send("word " * 12_000))
    await finish(agent)
    return chat.id


@scene
async def an_interrupt_of_a_summary(world: World) -> ChatId:
    model_hold = ModelHold()
    model = ScriptedModel(
        [Call("look", what="a"), Say("")], side_answers={"summary": Turn((HOLD,))}, sleep=model_hold.hold
    )
    agent = world.agent(model)
    chat = agent.chat(options=world.options())
    await chat.send("Look.")
    await model_hold.reached.wait()
    await chat.interrupt()
    await idle(chat)
    await finish(agent)
    return chat.id


@scene
async def an_interrupt_of_a_compaction(world: World) -> ChatId:
    model_hold = ModelHold()
    answers = [Say("Yes.") for _ in range(4)]
    side_answers: Any = {"compaction": Turn((Say("Half"), HOLD))}
    model = ScriptedModel(answers, side_answers=side_answers, follow="turns", sleep=model_hold.hold)
    agent = world.agent(model)
    chat = agent.chat(options=world.options(context_window=40_000))
    await watch(chat.send("word " * 12_000))
    await watch(chat.send("Yes?"))
    await chat.send("word " * 12_000)
    await model_hold.reached.wait()
    await chat.interrupt()
    await idle(chat)
    await finish(agent)
    return chat.id


@scene
async def a_retry_beyond_the_budget(world: World) -> ChatId:
    steps = [[Say("Half"), ReportUsage(Usage(2_000, 10)), Fail("network", times=9), Say("Never.")]]
    agent = world.agent(ScriptedModel(steps, info=PRICED))
    chat = agent.chat(options=world.options(run_budget=Budget(tokens=5_000)))
    await watch(chat.send("Go."))
    await finish(agent)
    return chat.id
