"""Scenes of models that fail."""

from collections.abc import AsyncIterator, Sequence

from tests.scenario.scenes.world import (
    PRICED,
    World,
    finish,
    scene,
    watch,
)
from treadle.adapters.models.scripted import Call, Fail, ReportUsage, Say, ScriptedModel
from treadle.base.types import ChatId
from treadle.ports.model import ModelRequest
from treadle.protocol.content import AssistantEntry, Usage
from treadle.protocol.deltas import Delta


@scene
async def retries(world: World) -> ChatId:
    steps = [
        [Fail("rate_limit", "slow down", retry_after=0.01), Say("One."), Call("look", what="a")],
        [Say("Two"), Fail("network", times=2), Say(".")],
        [ReportUsage(Usage(50, 1)), Fail("cut_stream", times=1), Say("Three.")],
    ]
    model = ScriptedModel(steps, info=PRICED)
    agent = world.agent(model)
    chat = agent.chat(options=world.options())
    await watch(chat.send("Go."))
    await watch(chat.send("Go on."))
    await finish(agent)
    return chat.id


@scene
async def errors_that_end_a_run(world: World) -> ChatId:
    steps = [
        [Fail("auth", "no key", times=1), Say("One.")],
        [Say("Half"), Fail("bad_request", "bad", times=1), Say(" whole.")],
        [Fail("overloaded", "too much", times=6), Say("At last.")],
        [Fail("rate_limit", "tomorrow", times=1, retry_after=86_400.0), Say("Tomorrow.")],
    ]
    model = ScriptedModel(steps)
    agent = world.agent(model)
    chat = agent.chat(options=world.options())
    for number in range(8):
        await watch(chat.send(f"Try {number}."))
    await finish(agent)
    return chat.id


@scene
async def a_model_that_cannot_be_had(world: World) -> ChatId:
    agent = world.agent(env={})
    chat = agent.chat(options=world.options(model="nowhere:model"))
    await watch(chat.send("Hello?"))
    await finish(agent)
    return chat.id


class Faulty(ScriptedModel):
    """A model with a fault of its own, at its second call."""

    async def stream(self, request: ModelRequest) -> AsyncIterator[Sequence[Delta]]:
        async for deltas in super().stream(request):
            yield deltas
            if any(isinstance(entry, AssistantEntry) for entry in request.entries):
                raise RuntimeError("boom: something broke")


@scene
async def a_fault_of_our_own(world: World) -> ChatId:
    agent = world.agent(Faulty([Call("look", what="a"), Say("Never.")]))
    chat = agent.chat(options=world.options())
    await watch(chat.send("Go."))
    await finish(agent)
    return chat.id
