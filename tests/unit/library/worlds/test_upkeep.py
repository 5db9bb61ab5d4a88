"""Worlds are looked after: gc takes what was dropped, fsck names what is damaged (W-11)."""

from pathlib import Path

from treadle.base.types import ChatId
from treadle.library.housekeeping.collecting import collect_worlds
from treadle.library.worlds.record import World, WorldFolders
from treadle.ports.store import Listed
from treadle.protocol.subagent_events import world_of
from treadle.protocol.views import ChatSummary


def test_gc_takes_what_was_dropped_and_fsck_names_what_is_damaged(tmp_path: Path) -> None:
    folders = WorldFolders(str(tmp_path))
    world = folders.make(World("", str(tmp_path)))
    left = Path(folders.folder, ".dropped-world_x")
    left.mkdir()
    assert collect_worlds([], tmp_path, 0.0) == 0
    assert not left.exists()
    assert [each.id for each in folders.all()] == [world.id]
    assert list(folders.problems()) == []
    Path(folders.path(world.id), "world.json").write_text("{")
    (told,) = folders.problems()
    assert world.id in told


def resting(chat: str, since_s: int, parent: str = "", **more: object) -> Listed:
    summary = ChatSummary(ChatId(chat), updated_ms=since_s * 1000, parent=parent and f"{parent}/t1.0", **more)  # type: ignore[arg-type]
    return Listed(summary, False)


def test_worlds_of_sub_agents_and_races_go_when_all_concerned_have_rested(tmp_path: Path) -> None:
    folders = WorldFolders(str(tmp_path))

    def opened(chat: str, parent: str = "") -> str:
        return folders.make(World(world_of(ChatId(chat)), str(tmp_path), parent=parent)).id

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
    lost = opened("c_lost")
    deep = opened("c_deep", lost)
    above = opened("c_above")
    kept = {opened("c_young"), opened("c_own"), opened("c_waits"), above, opened("c_below", above)}
    assert collect_worlds(chats, tmp_path, 200.0, dry=True) == 2
    assert {each.id for each in folders.all()} == kept | {lost, deep}
    assert collect_worlds(chats, tmp_path, 200.0) == 2
    assert {each.id for each in folders.all()} == kept
