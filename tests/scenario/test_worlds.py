"""A chat works in a world of its project: files, searches, commands and undo see it, and the project changes when the
world is committed, as one call that can be undone (W-11, W-12)."""

from pathlib import Path

import pytest

from tests.scenario.kit import Stage, of, play
from tests.trees import tree
from tests.writing import write
from treadle.errors import Conflict
from treadle.models.scripted import Call, Say
from treadle.protocol import events as e


@pytest.fixture
def root(tmp_path: Path) -> Path:
    made = tmp_path / "project"
    (made / "src").mkdir(parents=True)
    (made / "notes.txt").write_text("one\ntwo\n")
    (made / "src/a.py").write_text("a = 1\n")
    return made


def ran(command: str, **more: object) -> Call:
    return Call("run_command", command=command, **more)


async def test_nothing_of_the_project_changes_until_the_world_is_committed(stage: Stage, root: Path) -> None:
    steps = [
        Call("write_file", path="new/b.py", content="b = 2\n"),
        ran("cat new/b.py && sed -i s/two/2/ notes.txt && rm src/a.py && pwd"),
        Call("read_file", path="notes.txt"),
        Call("grep_search", pattern="b = 2"),
        Call("find_files", pattern="*.py"),
        Say("Done."),
    ]
    agent = stage.agent(steps, builtin=True)
    before = tree(root)
    world = await agent.worlds.open(root, label="a try")
    chat = agent.chat(root=root, world=world.id)
    seen = await play(chat.send("Go."))
    results = [done.result for done in of(seen, e.ExecutionComplete)]
    assert all(done.success for done in of(seen, e.ExecutionComplete)), results
    assert "b = 2" in results[1]
    assert str(root) in results[1], "the path that a command sees is the project's own"
    assert "2" in results[2]
    assert "new/b.py" in results[3]
    assert "src/a.py" not in results[4]
    assert tree(root) == before, "the project is as it was"
    assert [each.id for each in await agent.worlds.list()] == [world.id]
    shown = await agent.worlds.diff(world.id)
    assert "-two" in shown
    assert "D src/a.py" in shown
    committed = await agent.worlds.commit(world.id)
    assert {file.path for file in committed.files} == {"new", "new/b.py", "notes.txt", "src/a.py"}
    assert (root / "notes.txt").read_text() == "one\n2\n"
    assert not (await agent.worlds.effect(world.id)).files
    await agent.chat(committed.chat).files.undo()
    assert tree(root) == before, "the undo of a commit is exact"
    assert agent.workspace_of(world.project).read_bytes("notes.txt") == b"one\n2\n", "and leaves the world alone"
    await agent.worlds.drop(world.id)
    assert not await agent.worlds.list()


async def test_undo_inside_a_world_leaves_the_project_alone(stage: Stage, root: Path) -> None:
    agent = stage.agent([Call("write_file", path="notes.txt", content="mine\n"), Say("Done.")], builtin=True)
    world = await agent.worlds.open(root)
    chat = agent.chat(root=root, world=world.id)
    before = tree(root)
    await play(chat.send("Read notes.txt, then change it."))
    (root / "later.txt").write_text("the user's\n")
    await chat.files.undo()
    assert not (await agent.worlds.effect(world.id)).files
    assert tree(root) == {**before, **tree(root)}


async def test_a_background_command_writes_to_the_world(stage: Stage, root: Path) -> None:
    steps = [
        ran("echo late > late.txt", background=True),
        ran("until test -s late.txt; do sleep 0.05; done"),
        Say("Ok."),
    ]
    agent = stage.agent(steps, builtin=True)
    world = await agent.worlds.open(root)
    seen = await play(agent.chat(root=root, world=world.id).send("Go."))
    assert all(done.success for done in of(seen, e.ExecutionComplete)), of(seen, e.ExecutionComplete)
    assert not (root / "late.txt").exists()
    assert agent.workspace_of(world.project).read_bytes("late.txt") == b"late\n"


async def test_what_somebody_changed_meanwhile_is_a_conflict(stage: Stage, root: Path) -> None:
    agent = stage.agent([], builtin=True)
    world = await agent.worlds.open(root)
    write(agent.workspace_of(world.project), "notes.txt", b"the world's\n")
    (root / "notes.txt").write_text("the user's\n")
    with pytest.raises(Conflict, match="somebody"):
        await agent.worlds.commit(world.id)
    assert (root / "notes.txt").read_text() == "the user's\n"


async def test_a_world_of_a_world_is_committed_into_it(stage: Stage, root: Path) -> None:
    agent = stage.agent([], builtin=True)
    before = tree(root)
    outer = await agent.worlds.open(root)
    write(agent.workspace_of(outer.project), "notes.txt", b"outer\n")
    inner = await agent.worlds.open(root, outer.id)
    files = agent.workspace_of(inner.project)
    assert files.read_bytes("notes.txt") == b"outer\n"
    write(files, "src/a.py", b"a = 2\n")
    await agent.worlds.commit(inner.id)
    assert agent.workspace_of(outer.project).read_bytes("src/a.py") == b"a = 2\n"
    assert tree(root) == before
    await agent.worlds.drop(inner.id)
    await agent.worlds.commit(outer.id)
    assert (root / "src/a.py").read_text() == "a = 2\n"
