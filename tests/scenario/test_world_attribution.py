"""A chat works in a world while a person saves files of the project by renaming, and others rebase and commit the
world: every line is recorded as the change of the side that wrote it, and no line is lost (W-11 to W-13, fault 39)."""

import asyncio
import os
import random
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.faults.chance import SEED, SOAK
from tests.scenario.kit import Stage, of, play
from treadle.adapters.models.scripted import Call, Say
from treadle.adapters.stores.sqlite import SqliteStore
from treadle.errors import Conflict, ToolError
from treadle.protocol import events as e

MIDDLE = [f"middle {number}" for number in range(8)]
TRIALS = 20 if SOAK else 2
TURNS = 12 if SOAK else 5
NAMES = ("notes.txt", "src/list.txt")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    project = tmp_path / "project"
    (project / "src").mkdir(parents=True)
    for name in NAMES:
        (project / name).write_text("\n".join(MIDDLE) + "\n")
    return project


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Stage]:
    new_stage = Stage(SqliteStore(tmp_path / "home" / "chats.db"))
    yield new_stage
    await new_stage.close()


def save(path: Path, line: str) -> None:
    """Insert a line at the top, as an editor saves: a new file takes the place of the old one."""
    fresh = path.with_name(f".{path.name}.new")
    fresh.write_text(f"{line}\n{path.read_text()}")
    os.rename(fresh, path)


def append(name: str, line: str) -> Call:
    return Call("run_command", command=f"echo '{line}' >> {name}")


def counts(events: list[Any]) -> list[tuple[str, int, int]]:
    """Path, added and removed lines of each recorded change."""
    files = [file for event in of(events, e.FilesChanged) for file in event.files]
    return [(file.path, file.added, file.removed) for file in files]


# W-11, W-13: a saved file is not taken for the command's change
@pytest.mark.parametrize("between", ["nothing", "rebase", "commit"])
async def test_a_file_saved_by_renaming_is_not_the_commands_change(stage: Stage, root: Path, between: str) -> None:
    steps = [Call("read_file", path="notes.txt"), Say("Read."), append("notes.txt", "world"), Say("Done.")]
    agent = stage.agent(steps, builtin=True)
    world = await agent.worlds.open(root)
    chat = agent.chat(root=root, world=world.id)
    await play(chat.send("Read."))
    save(root / "notes.txt", "person")
    if between == "rebase":
        await agent.worlds.rebase(world.id)
    if between == "commit":
        await agent.worlds.bring_in("c/1", world.id)
    events = await play(chat.send("Append."))
    assert counts(events) == [("notes.txt", 1, 0)]
    with suppress(Conflict):
        await agent.worlds.rebase(world.id)
    assert not (await agent.worlds.bring_in("c/2", world.id)).conflicts
    assert (root / "notes.txt").read_text().splitlines() == ["person", *MIDDLE, "world"]


# W-12: file tools see what was saved, and do not revert it
@pytest.mark.parametrize("between", ["rebase", "commit"])
async def test_an_edit_in_a_world_keeps_what_was_saved_before(stage: Stage, root: Path, between: str) -> None:
    edit = Call("edit_file", path="notes.txt", old_str="middle 7\n", new_str="middle 7\nworld\n")
    steps = [Call("read_file", path="notes.txt"), Say("Read."), edit, Say("Done.")]
    agent = stage.agent(steps, builtin=True)
    world = await agent.worlds.open(root)
    chat = agent.chat(root=root, world=world.id)
    await play(chat.send("Read."))
    save(root / "notes.txt", "person")
    with agent.worlds.open_folder(world.id):  # a process keeps the world mounted
        await (agent.worlds.rebase(world.id) if between == "rebase" else agent.worlds.bring_in("c/1", world.id))
    events = await play(chat.send("Edit."))
    assert counts(events) in ([("notes.txt", 1, 0)], []), "or it was refused because the file had changed"
    await agent.worlds.rebase(world.id)
    assert not (await agent.worlds.bring_in("c/2", world.id)).conflicts
    assert (root / "notes.txt").read_text().startswith("person\n")


# fault 39
@pytest.mark.parametrize("trial", range(TRIALS))
async def test_random_saves_commands_rebases_and_commits(stage: Stage, root: Path, trial: int) -> None:
    print(f"TEST_SEED={SEED}")
    chance = random.Random(f"{SEED} {trial}")
    lines = [(chance.choice(NAMES), f"world {number}") for number in range(TURNS)]
    agent = stage.agent([step for line in lines for step in (append(*line), Say("Done."))], builtin=True)
    world = await agent.worlds.open(root)
    chat = agent.chat(root=root, world=world.id)
    saved: list[tuple[str, str]] = []
    names: Iterator[str] = (f"commit/{number}" for number in range(10_000))
    alone = asyncio.Lock()  # a person who saves over a commit loses it, in any program
    stop_event = asyncio.Event()

    async def edit() -> None:
        while not stop_event.is_set():
            async with alone:
                saved.append((chance.choice(NAMES), f"person {len(saved)}"))
                save(root / saved[-1][0], saved[-1][1])
            await asyncio.sleep(chance.uniform(0.02, 0.2))

    async def operate() -> None:
        while not stop_event.is_set():
            with suppress(Conflict, ToolError):
                if chance.random() < 0.5:
                    await agent.worlds.rebase(world.id)
                else:
                    async with alone:
                        await agent.worlds.bring_in(next(names), world.id)
            await asyncio.sleep(chance.uniform(0.01, 0.1))

    world_lines: list[tuple[str, str]] = []

    async def work() -> None:
        for name, line in lines:
            events = await play(chat.send("Go."))
            assert counts(events) in ([(name, 1, 0)], []), "its own line, or a conflict"
            world_lines.extend([(name, line)] * len(counts(events)))
        stop_event.set()

    try:
        async with asyncio.TaskGroup() as group:
            for each in (edit, operate, operate, work):
                group.create_task(each())
    finally:
        stop_event.set()
    await agent.worlds.rebase(world.id)
    assert not (await agent.worlds.bring_in("commit/last", world.id)).conflicts
    for name in NAMES:
        file_lines = (root / name).read_text().splitlines()
        people, worlds = ([line for at, line in side if at == name] for side in (saved, world_lines))
        assert file_lines == [*reversed(people), *MIDDLE, *worlds]


# W-13: what was committed is what later changes of both sides are merged with
async def test_a_world_is_rebased_after_its_commit(stage: Stage, root: Path) -> None:
    steps = [append("notes.txt", "world 1"), Say("Done."), append("notes.txt", "world 2"), Say("Done.")]
    agent = stage.agent(steps, builtin=True)
    world = await agent.worlds.open(root)
    chat = agent.chat(root=root, world=world.id)
    await play(chat.send("Append."))
    await agent.worlds.commit(world.id)
    save(root / "notes.txt", "person")
    assert counts(await play(chat.send("Append."))) == [("notes.txt", 1, 0)]
    await agent.worlds.rebase(world.id)
    await agent.worlds.commit(world.id)
    assert (root / "notes.txt").read_text().splitlines() == ["person", *MIDDLE, "world 1", "world 2"]
