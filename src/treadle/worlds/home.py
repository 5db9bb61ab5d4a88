"""The worlds of one home, as files and layers (`ports.worlds.WorldPlaces`, and what `Worlds` does in threads). What is
committed goes through the one transaction of projects (`workspace.history`). Knows no chats."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from treadle.errors import InvalidInput, NotFound, ToolError
from treadle.ports.snapshots import Effect
from treadle.protocol.options import Project
from treadle.workspace.history.snapshots import ProjectSnapshots
from treadle.workspace.paths.identity import locate
from treadle.worlds.ground import WorldGround
from treadle.worlds.record import World, WorldFolders

HistoryOf = Callable[[str, str, str], ProjectSnapshots]
"""Of a root, its identity and a world."""


class WorldHome:
    """All methods block. NotFound for a world that is not there; ToolError from those that tools call."""

    def __init__(self, folders: WorldFolders, ground_of: Callable[[str], WorldGround], history_of: HistoryOf) -> None:
        self.folders = folders
        self._ground_of = ground_of
        self._history_of = history_of

    def open(self, root: str, parent: str, owner: str, label: str, id: str = "") -> World:
        with suppress(NotFound):
            if id:
                return self.folders.get(id)
        found = locate(os.path.abspath(root))
        if found is None:
            raise InvalidInput(f"{root!r} is no folder.")
        above = self.folders.get(parent) if parent else None
        if above is not None and (above.root, above.root_id) != found:
            raise InvalidInput(f"The world {parent} is one of {above.root}, not of {found[0]}.")
        return self.folders.make(World(id, *found, parent, owner=owner, label=label))

    def effect(self, id: str) -> Effect:
        world = self.folders.get(id)
        return self._beneath(world).effect(self.folders.view(world))

    def diff(self, id: str) -> str:
        world = self.folders.get(id)
        return self._beneath(world).diff(self.folders.view(world), self.effect(id))

    def bring_in(self, name: str, id: str) -> Effect:
        world = self._known(id)
        view = self.folders.view(world)
        with self.alone(id):
            effect = self._beneath(world).commit(name, view)
            if not effect.conflicts:
                self.committed(id)
        return effect

    def call_off(self, name: str, id: str) -> Effect | None:
        return self._beneath(self.folders.get(id)).discard(name)

    def drop(self, id: str) -> None:
        world = self.folders.get(id)
        if inner := [each.id for each in self.folders.all() if each.parent == id]:
            raise InvalidInput(f"There are worlds of {id}: {', '.join(inner[:5])}. Drop them first.")
        self._ground_of(id).end()
        self.folders.remove(world)

    # -- for tools ----------------------------------------------------------------------------------------------------

    def beneath(self, world: str) -> Project:
        return self._known(world).beneath

    def view(self, world: str) -> str:
        return self.folders.view(self._known(world))

    @contextmanager
    def alone(self, world: str) -> Iterator[None]:
        history = self._history_of(*self._known(world).project)
        with history.journals.lock(history.root.key):
            yield

    def committed(self, world: str) -> None:
        """The stamp is older than the look: what changes after it is seen as somebody else's."""
        found = self._known(world)
        stamped = self.folders.stamp(found)
        if not self.effect(world).files:
            self.folders.begin_anew(found, stamped)

    # -- inside -------------------------------------------------------------------------------------------------------

    def _known(self, id: str) -> World:
        try:
            return self.folders.get(id)
        except NotFound as error:
            raise ToolError(str(error)) from error

    def _beneath(self, world: World) -> ProjectSnapshots:
        return self._history_of(*world.beneath)
