"""Scenes in which a chat waits for somebody: clients, approvals, questions."""

from tests.scenario.scenes.world import (
    CLIENT,
    World,
    ask,
    finish,
    idle,
    scene,
    watch,
)
from treadle.adapters.models.scripted import Call, RawCall, Say, ScriptedModel
from treadle.base.types import ChatId
from treadle.protocol import commands as c
from treadle.testing.clock import ManualClock


@scene
async def client_tools(world: World) -> ChatId:
    steps = [
        [
            Call("ask_client", q="a"),
            Call("look", what="b"),
            Call("ask_client", q="c"),
            RawCall("ask_client", '{"q": 1}'),
        ],
        [Call("ask_client", q="d")],
        Say("Thanks."),
    ]
    agent = world.agent(ScriptedModel(steps))
    chat = agent.chat(options=world.options(dynamic_tools=(CLIENT,)))
    await watch(chat.send("Ask."))
    await watch(chat.submit({action.tool_call_id: {"n": 1} for action in await chat.actions()}))
    (action,) = await chat.actions()
    await watch(chat.submit([c.Result(action.tool_call_id, "broken", True)]))
    await finish(agent)
    return chat.id


async def _deadline(world: World, on_deadline: str) -> ChatId:
    clock = ManualClock()
    agent = world.agent(ScriptedModel([Call("ask_client", q="a"), Say("Nobody there.")]), clock=clock)
    chat = agent.chat(options=world.options(dynamic_tools=(CLIENT,), action_deadline_s=60.0, on_deadline=on_deadline))
    await watch(chat.send("Ask."))
    clock.advance(61.0)
    await idle(chat)
    await finish(agent)
    return chat.id


@scene
async def a_person_applies_a_block(world: World) -> ChatId:
    agent = world.agent(ScriptedModel([Say("```\nhello\n```"), Say("Good.")], follow="calls"))
    chat = agent.chat(options=world.options(tools=(), interactive=True))
    await watch(chat.send("How?"))
    await watch(chat.apply("applied.txt"))
    await watch(chat.apply(".env"))
    (action,) = await chat.actions()
    await watch(chat.approve(action))
    await watch(chat.apply("../outside"))
    await watch(chat.send("Thanks."))
    await finish(agent)
    return chat.id


@scene
async def a_deadline_passes(world: World) -> ChatId:
    return await _deadline(world, "continue")


@scene
async def a_deadline_is_an_error(world: World) -> ChatId:
    return await _deadline(world, "error")


@scene
async def approvals(world: World) -> ChatId:
    steps = [
        [Call("look", what="a"), Call("launch", target="one"), Call("change", what="b"), Call("launch", target="two")],
        [Call("launch", target="three")],
        Say("Launched."),
    ]
    agent = world.agent(ScriptedModel(steps))
    chat = agent.chat(options=world.options(interactive=True))
    await watch(chat.send("Launch."))
    await watch(chat.approve((await chat.actions())[0]))
    await watch(chat.deny((await chat.actions())[0], "not that one"))
    await watch(chat.approve((await chat.actions())[0], arguments={"target": "four"}))
    await finish(agent)
    return chat.id


@scene
async def what_a_mode_denies(world: World) -> ChatId:
    steps = [[Call("change", what="a"), Call("look", what="b")], Say("I may not.")]
    return await ask(world, ScriptedModel(steps), "Change.", mode="read-only")


@scene
async def a_question_is_answered(world: World) -> ChatId:
    steps = [[Call("ask_user", question="Which?", options=["a", "b"]), Call("look", what="c")], Say("So be it.")]
    agent = world.agent(ScriptedModel(steps))
    chat = agent.chat(options=world.options(interactive=True))
    await watch(chat.send("Choose."))
    await watch(chat.answer((await chat.actions())[0], "neither"))
    await finish(agent)
    return chat.id
