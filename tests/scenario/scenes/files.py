"""Scenes in which what a chat did to files is taken back, kept, refused or shown before it is done."""

import asyncio
import subprocess
from pathlib import Path

from tests.scenario.scenes.world import World, finish, scene, watch
from treadle.adapters.models.scripted import Call, Say, ScriptedModel
from treadle.base.types import ChatId


def work() -> ScriptedModel:
    return ScriptedModel(
        [
            [
                Call("write_file", path="one.txt", content="one\n"),
                Call("run_command", command="mkdir -p deep/er && echo two > deep/er/two.txt && chmod 600 one.txt"),
            ],
            Say("Done."),
            Call("run_command", command="for n in $(seq 1 230); do echo $n > many.$n; done"),
            Say("Many."),
        ]
    )


@scene
async def changes_are_undone_redone_and_kept(world: World) -> ChatId:
    model = work()
    agent = world.agent(model)
    chat = agent.chat(options=world.options(mode="autopilot"))
    await watch(chat.send("Change some files."))
    await chat.files.undo(paths=["deep"])
    await chat.files.redo()
    await chat.files.keep(paths=["one.txt"])
    await watch(chat.send("Change very many."))
    await chat.files.undo()
    await chat.files.back_to((await chat.files.runs())[-1].since)
    model.assert_done()
    await finish(agent)
    return chat.id


@scene
async def a_command_writes_through(world: World) -> ChatId:
    """The confinement is less than it could be, and that is said once."""
    command = Call("run_command", command="echo two >> two.txt")
    model = ScriptedModel([command, command, Say("Done.")])
    agent = world.agent(model)
    chat = agent.chat(options=world.options(mode="autopilot", command_view=False))
    await watch(chat.send("Write directly."))
    model.assert_done()
    await finish(agent)
    return chat.id


@scene
async def a_command_in_the_background(world: World) -> ChatId:
    command = Call("run_command", command="echo job > job.txt; echo up; sleep 1000", background=True)
    watched = Call("check_command", handle="1.0", wait_s=1)
    again = Call("run_command", command="echo again > job.txt; echo up; sleep 1000", background=True)
    model = ScriptedModel([command, watched, Call("stop_command", handle="1.0"), again, Say("It runs again.")])
    agent = world.agent(model)
    chat = agent.chat(options=world.options(mode="autopilot"))
    await watch(chat.send("Serve it for a while."))
    model.assert_done()
    [_, job] = await chat.jobs()
    async with asyncio.timeout(30):
        while "up" not in (await job.tail()).text:  # noqa: ASYNC110 - a fact of another process
            await asyncio.sleep(0.02)
    await job.stop()  # by a person, when the run is over
    assert not (await chat.state()).jobs
    await job.discard()
    assert not (await chat.state()).pending_jobs
    await finish(agent)
    return chat.id


@scene
async def an_earlier_message_is_edited_with_the_files(world: World) -> ChatId:
    script = [Call("write_file", path="made", content="x"), Say("Made."), Say("As you like.")]
    model = ScriptedModel(script, follow="calls")
    agent = world.agent(model)
    chat = agent.chat(options=world.options())
    await watch(chat.send("Make it."))
    await watch(chat.edit(2, "Do not make it.", files=True))
    assert not (world.root / "made").exists()
    await finish(agent)
    return chat.id


@scene
async def a_command_meets_somebody_elses_edit(world: World) -> ChatId:
    """The command waits on its view for a file that tells it to go on; meanwhile another writer changes that file."""
    (world.root / "shared").write_text("mine\n")
    gate = world.root / "gate"
    gate.write_text("wait\n")
    command = "echo theirs > shared; echo waiting; until grep -q go gate; do sleep 0.02; done"
    model = ScriptedModel([Call("run_command", command=command), Say("Oh.")])
    agent = world.agent(model)
    chat = agent.chat(options=world.options(mode="autopilot"))
    async for envelope in chat.send("Write it."):
        if envelope.type == "tool.execution_output":
            (world.root / "shared").write_text("mine, and newer\n")
            gate.write_text("go\n")  # in place: a view shows what becomes of files that were there when it began
    assert (world.root / "shared").read_text() == "mine, and newer\n"
    await finish(agent)
    return chat.id


@scene
async def an_effect_is_refused_and_then_allowed(world: World) -> ChatId:
    steps = [
        Call("run_command", command="echo a > reviewed"),
        Call("run_command", command="echo b > reviewed"),
        Call("run_command", command="cat reviewed"),
        Say("Done."),
    ]
    agent = world.agent(ScriptedModel(steps))
    chat = agent.chat(options=world.options(mode="review", interactive=True))
    await watch(chat.send("Write it."))
    (action,) = await chat.actions()
    await watch(chat.deny(action, "not that"))
    assert not (world.root / "reviewed").exists()
    (action,) = await chat.actions()
    await watch(chat.approve(action))
    assert (world.root / "reviewed").read_text() == "b\n"
    await finish(agent)
    return chat.id


def repository(root: Path) -> None:
    quiet = ["git", "-c", "init.defaultBranch=main", "-c", "user.name=A", "-c", "user.email=a@example.org"]
    subprocess.run([*quiet, "init", "-q"], cwd=root, check=True)
    subprocess.run([*quiet, "commit", "-q", "--allow-empty", "-m", "first"], cwd=root, check=True)


@scene
async def a_branch_of_its_own(world: World) -> ChatId:
    await asyncio.to_thread(repository, world.root)
    model = ScriptedModel([Call("write_file", path="on_a_branch", content="x"), Say("Made.")])
    agent = world.agent(model)
    chat = agent.chat(options=world.options(git_branch=True))
    await watch(chat.send("Make it."))
    await finish(agent)
    return chat.id
