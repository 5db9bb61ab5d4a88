"""Scenes of chats that came from another store."""

from tests.scenario.scenes.world import HOLD, ModelHold, World, ask, finish, is_kind, scene, watch
from treadle.adapters.models.scripted import Call, Say, ScriptedModel
from treadle.base.types import ChatId
from treadle.library.transfer import export_chat, import_chat
from treadle.protocol.events import ExecutionStart


async def brought_in(world: World, chat: ChatId) -> ChatId:
    lines = [line async for line in export_chat(world.store, chat)]
    return await import_chat(world.store, lines, True, local=world.options())


async def goes_on(world: World, chat: ChatId) -> ChatId:
    agent = world.agent(
        ScriptedModel([Call("write_file", path="here", content="x"), Say("Here I am.")], follow="calls")
    )
    await watch(agent.chat(chat).send("Are you there?"))
    await finish(agent)
    return chat


@scene
async def a_chat_from_elsewhere(world: World) -> ChatId:
    (world.root / "a.txt").write_text("one\n")
    steps = [
        [Call("read_file", path="a.txt"), Call("run_command", command="export SEEN=1; mkdir -p sub; cd sub")],
        Say("Done."),
    ]
    chat = await ask(world, ScriptedModel(steps), "Look.", auto_approve_commands=True, mode="autopilot")
    return await goes_on(world, await brought_in(world, chat))


@scene
async def a_chat_from_elsewhere_that_was_calling_a_tool(world: World) -> ChatId:
    agent = world.agent(ScriptedModel([[Call("look", what="it"), Call("linger")]]))
    chat = agent.chat(options=world.options())
    is_start = is_kind(ExecutionStart)
    await watch(chat.send("Stay."), lambda envelope: is_start(envelope) and "linger" in str(envelope.data))
    copy = await brought_in(world, chat.id)
    await finish(agent)
    return await goes_on(world, copy)


@scene
async def a_chat_from_elsewhere_that_was_asking_a_model(world: World) -> ChatId:
    model_hold = ModelHold()
    agent = world.agent(ScriptedModel([[Say("Half"), HOLD]], sleep=model_hold.hold))
    chat = agent.chat(options=world.options())
    await chat.send("Begin.")
    await model_hold.reached.wait()
    await chat.send("And then?")
    copy = await brought_in(world, chat.id)
    await finish(agent)
    return await goes_on(world, copy)
