"""Removal of unused worlds (W-11): the worlds of sub-agents and of race attempts, some time after the calls that
created them have ended. Worlds that people opened are removed only by people."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from treadle.base.types import ChatId
from treadle.errors import NotFound, ToolError
from treadle.library.housekeeping.retention import worth_of
from treadle.ports.store import Listed
from treadle.protocol.subagent_events import world_of

if TYPE_CHECKING:
    from treadle.library.worlds.record import World, WorldFolders


def collect_worlds(chats: Sequence[Listed], home: Path, line: float, *, dry: bool = False) -> int:
    """Drop those whose chats, and the chats that began them, rest since before `line`, and what is left of worlds that
    were dropped or never finished; how many there were. One in which commands run stays."""
    if not (home / "worlds").is_dir():  # most users have none, and nothing is to be loaded for them
        return 0
    from treadle.library.worlds.ground import WorldGround
    from treadle.library.worlds.record import WorldFolders

    folders, count = WorldFolders(str(home)), 0
    for world in _old(chats, folders, line):
        if not dry:
            try:
                with folders.alone(world.id, patience_s=0.0):
                    WorldGround(folders, world.id).end()
                    folders.remove(world)
            except ToolError:
                continue
            except NotFound:
                pass  # another process removed it
        count += 1
    if not dry:
        folders.sweep()
    return count


def begun_from(home: Path) -> Iterator[set[str]]:
    """The hashes of what worlds began with, world by world: as long as one is there it may be rebased."""
    if not (home / "worlds").is_dir():
        return
    from treadle.adapters.workspace.history.beginnings import Beginnings
    from treadle.adapters.workspace.history.capture import Upkeep
    from treadle.library.worlds.record import WorldFolders

    folders = WorldFolders(str(home))
    for world in folders.all():
        view = folders.view(world)
        yield {state.digest for state in Beginnings(view).all().values() if state is not None}
        upkeep = Upkeep(Path(view))
        for _, capture in upkeep.captures():
            yield upkeep.relied_on(upkeep.tree_of(capture)) or set() if capture is not None else set()


def _old(chats: Sequence[Listed], folders: "WorldFolders", line: float) -> "Iterator[World]":
    """Those of worlds before what they are worlds of."""
    worth = {listed.summary.chat: worth_of(listed) for listed in chats}
    began = {
        world_of(each.summary.chat): (each.summary.chat, ChatId(each.summary.parent.partition("/")[0]))
        for each in chats
        if each.summary.parent
    }
    needed_ids: set[str] = set()
    for world in reversed([*folders.all()]):
        child = began.get(world.id)
        if child is None or max(worth.get(chat, 0.0) for chat in child) >= line or world.id in needed_ids:
            needed_ids.add(world.parent)
        else:
            yield world
