"""Worlds are looked after: gc takes what was dropped, fsck names what is damaged (W-11)."""

import time
from pathlib import Path

import pytest

from treadle import Agent, Chat, ScriptedModel
from treadle.base.types import ChatId
from treadle.library.housekeeping.collecting import collect, collect_worlds
from treadle.library.housekeeping.retention import Retention
from treadle.library.worlds.record import World, WorldFolders
from treadle.ports.store import Listed
from treadle.protocol.options import ChatOptions
from treadle.protocol.subagent_events import make_world_name
from treadle.protocol.views import ChatSummary
from treadle.testing.faults import InjectedFault, faults


def test_gc_takes_what_was_dropped_and_fsck_names_what_is_damaged(tmp_path: Path) -> None:
    folders = WorldFolders(str(tmp_path))
    world = folders.make(World("", str(tmp_path)))
    dropped_folder = Path(folders.folder, ".dropped-world_x")
    dropped_folder.mkdir()
    assert collect_worlds([], tmp_path, 0.0) == 0
    assert not dropped_folder.exists()
    assert [each.id for each in folders.iterate_worlds()] == [world.id]
    assert list(folders.find_problems()) == []
    Path(folders.locate_view(world), "upper").rmdir()
    assert list(folders.find_problems()) == [f"the world {world.id} has lost the files that were changed in it"]
    Path(folders.locate_world(world.id), "world.json").write_text("{")
    (problem,) = folders.find_problems()
    assert world.id in problem


def resting(chat: str, since_s: int, parent: str = "", **more: object) -> Listed:
    summary = ChatSummary(ChatId(chat), updated_ms=since_s * 1000, parent=parent and f"{parent}/t1.0", **more)  # type: ignore[arg-type]
    return Listed(summary, False)


def test_worlds_of_sub_agents_and_races_go_when_all_concerned_have_rested(tmp_path: Path) -> None:
    folders = WorldFolders(str(tmp_path))

    def make_world(chat: str, parent: str = "") -> str:
        return folders.make(World(make_world_name(ChatId(chat)), str(tmp_path), parent=parent)).id

    chats = [
        resting("c_race", 100),
        resting("c_lost", 90, "c_race"),
        resting("c_deep", 80, "c_lost"),
        resting("c_young", 500, "c_race"),
        resting("c_own", 10),
        resting("c_working", 100, runnable=True),
        resting("c_waits", 50, "c_working"),
        resting("c_above", 50, "c_race"),
        resting("c_below", 500, "c_above"),
    ]
    lost_world = make_world("c_lost")
    deep = make_world("c_deep", lost_world)
    above = make_world("c_above")
    kept_worlds = {
        make_world("c_young"),
        make_world("c_own"),
        make_world("c_waits"),
        above,
        make_world("c_below", above),
    }
    assert collect_worlds(chats, tmp_path, 200.0, dry=True) == 2
    assert {each.id for each in folders.iterate_worlds()} == kept_worlds | {lost_world, deep}
    assert collect_worlds(chats, tmp_path, 200.0) == 2
    assert {each.id for each in folders.iterate_worlds()} == kept_worlds


async def test_a_world_that_was_opened_for_a_chat_that_was_never_recorded_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a kill between the steps of a creation: a world is there, and its chat, or the claim, is not."""
    project = tmp_path / "project"
    project.mkdir()
    async with Agent(tmp_path / "treadle.db", model=ScriptedModel([]), home=tmp_path) as agent:

        def make_chat() -> Chat:
            return agent.chat(options=ChatOptions(root=str(project), world="chat"))

        async def list_worlds() -> list[str]:
            return [world.id for world in await agent.worlds.list()]

        async def run_gc() -> None:
            await collect(agent.deps.store, tmp_path, Retention())

        whole, killed = await make_chat(), make_chat()
        with faults("raise@world.before_claim"), pytest.raises(InjectedFault):
            await killed
        make_chat()
        make_chat()
        *kept, changed, lost = await list_worlds()
        agent.worlds.run_inside(changed, ("touch", "made.txt"))
        await run_gc()
        assert await list_worlds() == [*kept, changed, lost], "they may be about to be recorded"
        now = time.time()
        monkeypatch.setattr(time, "time", lambda: now + 7200)
        await run_gc()
        assert await list_worlds() == [*kept, changed]
        assert [(await chat.state()).options.world for chat in (whole, agent.chat(killed.id))] == kept
        await agent.worlds.drop(changed)
