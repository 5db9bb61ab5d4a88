"""Scenes in which a worker dies and another one goes on."""

import contextlib
from typing import Any

from tests.scenario.scenes.world import (
    SCENES,
    Scene,
    World,
    finish,
    idle,
    is_kind,
    scene,
    watch,
)
from treadle import Agent
from treadle.adapters.models.scripted import Call, Hang, Say, ScriptedModel
from treadle.base.file_system import install_fault_hook
from treadle.base.types import ChatId
from treadle.engine.loop import advance
from treadle.engine.tenure import Tenure
from treadle.ports.store import Lease
from treadle.protocol import commands as c
from treadle.protocol.events import MessageDelta


class Dies(BaseException):
    """What a fault point raises in place of a `kill -9`: nothing of the engine catches it."""


async def crash(world: World, point: str, steps: list[Any], **options: Any) -> ChatId:
    """A chat whose worker dies at a fault point and is followed by another one."""
    armed = True

    def strike(name: str) -> None:
        nonlocal armed
        if armed and name == point:
            armed = False
            raise Dies(name)

    agent = world.agent(ScriptedModel(steps))
    chat = agent.chat(options=world.options(**options))
    await chat.open()
    await agent.deps.log.execute(chat.id, c.Send("Go."))
    install_fault_hook(strike)
    try:
        lease = await world.store.claim("doomed", chat.id)
        assert lease is not None
        await _drive_to_death(agent, lease)
    finally:
        install_fault_hook(None)
    assert not armed, f"{point} was never reached"
    await finish(agent)
    agent = world.agent(ScriptedModel(steps))
    await watch(agent.chat(chat.id).resume())
    await finish(agent)
    return chat.id


async def _drive_to_death(agent: Agent, lease: Lease) -> None:
    tenure = Tenure(lease, agent.deps.log, await agent.deps.log.load(lease.chat))
    with contextlib.suppress(Dies, BaseExceptionGroup):
        await advance(tenure, agent.deps)
    await agent.deps.store.release(lease)


CRASH_STEPS: list[Any] = [
    [Say("I look."), Call("look", what="a"), Call("look", what="b")],
    [Call("change", what="c"), Call("write_file", path="d.txt", content="d")],
    Say("Done."),
]
CRASH_POINTS = (
    "model.before_call",
    "model.first_delta",
    "model.after_call",
    "append.before:assistant.message",
    "append.after:assistant.message",
    "append.after:tool.execution_start",
    "tool.before:look",
    "tool.after:look",
    "tool.before:change",
    "tool.after:change",
    "tool.before:write_file",
    "tool.after:write_file",
    "append.after:tool.execution_complete",
)


def _crash_scene(point: str) -> Scene:
    async def run_scene(world: World) -> ChatId:
        return await crash(world, point, CRASH_STEPS)

    return run_scene


for _point in CRASH_POINTS:
    SCENES[f"a_crash_at_{_point}"] = _crash_scene(_point)


@scene
async def a_crash_and_a_stop(world: World) -> ChatId:
    """A worker goes away in mid-stream; the run is stopped before another one takes over (fault 22)."""
    agent = world.agent(ScriptedModel([[Say("Half"), Hang()]]))
    chat = agent.chat(options=world.options())
    await watch(chat.send("Go."), is_kind(MessageDelta))
    await finish(agent)
    agent = world.agent(ScriptedModel([Say("Again.")]))
    await agent.deps.log.execute(chat.id, c.Interrupt())
    chat = agent.chat(chat.id)
    await idle(chat)
    await watch(chat.send("Once more."))
    await finish(agent)
    return chat.id


@scene
async def a_chat_that_is_cut_off(world: World) -> ChatId:
    """Its log ends in mid-run, and nobody took it up."""
    agent = world.agent(ScriptedModel([Call("look", what="a"), [Say("Half"), Hang()]]))
    chat = agent.chat(options=world.options())
    await watch(chat.send("Go."), is_kind(MessageDelta))
    await finish(agent)
    return chat.id
