"""Worlds are looked after: gc takes what was dropped, fsck names what is damaged (W-11)."""

from pathlib import Path

from treadle.housekeeping.collecting import sweep_worlds
from treadle.worlds.record import World, WorldFolders


def test_gc_takes_what_was_dropped_and_fsck_names_what_is_damaged(tmp_path: Path) -> None:
    folders = WorldFolders(str(tmp_path))
    world = folders.make(World("", str(tmp_path)))
    left = Path(folders.folder, ".dropped-world_x")
    left.mkdir()
    sweep_worlds(tmp_path)
    assert not left.exists()
    assert [each.id for each in folders.all()] == [world.id]
    assert list(folders.problems()) == []
    Path(folders.path(world.id), "world.json").write_text("{")
    (told,) = folders.problems()
    assert world.id in told
