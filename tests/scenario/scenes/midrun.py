"""Scenes in which something happens in mid-run: queue, steering, interrupts, edits, another model."""

from tests.scenario.scenes.world import (
    CLIENT,
    HOLD,
    PRICED,
    ModelHold,
    World,
    finish,
    idle,
    is_kind,
    scene,
    watch,
)
from treadle.adapters.models.scripted import Call, Delay, Fail, Hang, ReportUsage, Say, ScriptedModel, Think, Turn
from treadle.base.types import ChatId
from treadle.ports.model import ModelInfo
from treadle.protocol import commands as c
from treadle.protocol.content import Usage
from treadle.protocol.events import ExecutionStart, MessageDelta, TurnRetry, UserMessage


@scene
async def queue_and_steering(world: World) -> ChatId:
    steps = [
        [Say("Let me"), Delay(0.06), Say(" see."), Call("look", what="a"), Call("peek", what="b", wait=0.06)],
        [Say("I turn."), Delay(0.06)],
        Say("And the queued one."),
        Say("And the last."),
    ]
    agent = world.agent(ScriptedModel(steps, follow="calls"))
    chat = agent.chat(options=world.options())
    await watch(chat.send("Go."), is_kind(MessageDelta))
    await chat.send("Queued.")
    await chat.send("Deleted.")
    state = await chat.send("Edited.")
    await chat.command(c.DeleteQueued(state.queue[1].id))
    await chat.command(c.EditQueued(state.queue[2].id, "Edited indeed."))
    await watch(chat.resume(), is_kind(ExecutionStart))
    await chat.send("Turn around.", delivery="steering")
    await chat.command(c.Rename("A busy chat"))
    await watch(
        chat.resume(), lambda event: isinstance(event.data, UserMessage) and event.data.content == "Edited indeed."
    )
    await idle(chat)
    await finish(agent)
    return chat.id


@scene
async def an_interrupt_in_mid_stream(world: World) -> ChatId:
    agent = world.agent(ScriptedModel([[Think("Hm."), Say("Half a"), Hang()], Say("A whole one.")]))
    chat = agent.chat(options=world.options())
    await watch(chat.send("Go."), is_kind(MessageDelta))
    await chat.interrupt()
    await idle(chat)
    await watch(chat.send("Again."))
    await finish(agent)
    return chat.id


@scene
async def an_interrupt_before_a_word(world: World) -> ChatId:
    model_hold = ModelHold()
    agent = world.agent(ScriptedModel([Turn((HOLD,))], sleep=model_hold.hold))
    chat = agent.chat(options=world.options())
    await chat.send("Go.")
    await model_hold.reached.wait()
    await chat.interrupt()
    await idle(chat)
    await finish(agent)
    return chat.id


@scene
async def an_interrupt_in_mid_tool(world: World) -> ChatId:
    calls = [Call("ask_client", q="a"), Call("look", what="b"), Call("linger"), Call("change", what="c")]
    agent = world.agent(ScriptedModel([calls, Say("Stopped.")]))
    chat = agent.chat(options=world.options(dynamic_tools=(CLIENT,)))
    await watch(chat.send("Go."), lambda e: isinstance(e.data, ExecutionStart) and e.data.name == "linger")
    await chat.interrupt()
    await idle(chat)
    await watch(chat.send("What now?"))
    await finish(agent)
    return chat.id


@scene
async def an_interrupt_among_parallel_reads(world: World) -> ChatId:
    calls = [Call("peek", what="a", wait=60.0), Call("peek", what="b"), Call("peek", what="c", wait=60.0)]
    agent = world.agent(ScriptedModel([calls]))
    chat = agent.chat(options=world.options())
    await watch(chat.send("Go."), lambda e: e.type == "tool.execution_complete")
    await chat.interrupt()
    await idle(chat)
    await finish(agent)
    return chat.id


@scene
async def an_interrupt_while_waiting_to_retry(world: World) -> ChatId:
    agent = world.agent(ScriptedModel([[Fail("overloaded"), Say("Never.")]]), retry_base_s=60.0, retry_limit_s=0.0)
    chat = agent.chat(options=world.options())
    await watch(chat.send("Go."), is_kind(TurnRetry))
    await chat.interrupt()
    await idle(chat)
    await finish(agent)
    return chat.id


@scene
async def an_interrupt_of_what_waits(world: World) -> ChatId:
    agent = world.agent(ScriptedModel([[Call("ask_client", q="a")], Say("Well.")]))
    chat = agent.chat(options=world.options(dynamic_tools=(CLIENT,)))
    await watch(chat.send("Go."))
    await chat.interrupt()
    await watch(chat.send("Go on."))
    await finish(agent)
    return chat.id


@scene
async def steering_past_what_waits(world: World) -> ChatId:
    agent = world.agent(ScriptedModel([[Call("ask_client", q="a")], Say("Well.")]))
    chat = agent.chat(options=world.options(dynamic_tools=(CLIENT,)))
    await watch(chat.send("Go."))
    await watch(chat.send("Never mind.", delivery="steering"))
    await finish(agent)
    return chat.id


@scene
async def an_earlier_message_is_edited(world: World) -> ChatId:
    agent = world.agent(
        ScriptedModel([Say("One."), [Call("ask_client", q="a")], Say("Uno."), Say("Due.")], follow="calls")
    )
    chat = agent.chat(options=world.options(dynamic_tools=(CLIENT,)))
    await watch(chat.send("One?"))
    await watch(chat.send("Two?"))
    first = next(e.seq for e in await chat.events() if isinstance(e.data, UserMessage))
    await watch(chat.edit(first, "Uno?"))
    await watch(chat.send("Due?"))
    await finish(agent)
    return chat.id


@scene
async def the_model_is_changed(world: World) -> ChatId:
    steps = [
        [Think("Hm."), Say("One."), ReportUsage(Usage(500, 20))],
        [Say("Two."), Call("look", what="a")],
        Say("Three."),
    ]
    agent = world.agent(ScriptedModel(steps, info=PRICED))
    chat = agent.chat(options=world.options(model="scripted:priced"))
    await watch(chat.send("One?"))
    await finish(agent)
    cheap_model = ModelInfo("scripted", "cheap", usd_per_million_input=0.1, usd_per_million_output=0.1)
    agent = world.agent(ScriptedModel(steps, info=cheap_model))
    chat = agent.chat(chat.id, model="scripted:cheap")
    await watch(chat.send("Two?"))
    await finish(agent)
    return chat.id
