"""Scenes of completions that are verified (L-16)."""

from tests.scenario.scenes.crashes import crash
from tests.scenario.scenes.world import SCENES, Scene, World, ask, finish, idle, is_kind, scene, watch
from treadle import Agent
from treadle.adapters.models.scripted import Call, Say, ScriptedModel
from treadle.base.types import ChatId
from treadle.protocol import commands as c
from treadle.protocol.events import ExecutionOutput

MENDED = "test -e mended || { echo it is broken; exit 3; }"
MEND = Call("write_file", path="mended", content="")


@scene
async def checks_that_fail_and_pass(world: World) -> ChatId:
    steps = [Say("Done."), [Call("task_complete", summary="really")], MEND, Say("Now."), Say("Nothing else.")]
    model = ScriptedModel(steps)
    return await ask(world, model, "Go.", "What was it?", checks=(MENDED, "true"), max_turns=10)


@scene
async def checks_that_never_pass(world: World) -> ChatId:
    return await ask(world, ScriptedModel([Say("Done.")] * 4), "Go.", checks=("echo no; exit 1",))


@scene
async def nothing_was_written(world: World) -> ChatId:
    return await ask(world, ScriptedModel([Say("I did."), Say("It was so.")]), "Fix it.", verify=True)


@scene
async def checks_that_cannot_be_run(world: World) -> ChatId:
    agent = Agent(world.store, model=ScriptedModel([Say("Done.")]), builtin=False)
    chat = agent.chat(options=world.options(checks=("true",)))
    await watch(chat.send("Go."))
    await finish(agent)
    return chat.id


@scene
async def a_check_is_stopped(world: World) -> ChatId:
    agent = world.agent(ScriptedModel([Say("Done."), Say("As you like.")]))
    chat = agent.chat(options=world.options(checks=("echo begun; exec sleep 600",)))
    await watch(chat.send("Go."), is_kind(ExecutionOutput))
    await chat.interrupt()
    await idle(chat)
    await chat.command(_disable_checks())
    await watch(chat.send("Never mind."))
    await finish(agent)
    return chat.id


def _disable_checks() -> c.ChangeOptions:
    return c.ChangeOptions({"checks": ()})


def _crash_scene(point: str) -> Scene:
    async def run_scene(world: World) -> ChatId:
        return await crash(world, point, [MEND, Say("Done.")], checks=(MENDED,))

    return run_scene


for _point in ("append.after:check.started", "check.before", "check.after", "append.before:check.completed"):
    SCENES[f"a_crash_at_{_point}"] = _crash_scene(_point)
