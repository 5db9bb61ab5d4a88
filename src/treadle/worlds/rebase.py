"""Putting a world onto what is beneath it now (W-13): what others changed since it began comes in, and where both
changed the same text, the two are merged (`lines.merge`) with what the world changed it from. All of it or nothing.

Through layers everything shows that the world did not change itself, so only what both changed needs work; into a copy
all that others changed has to be brought.
"""

import os
from collections.abc import Sequence

from treadle.errors import Conflict, NotFound, ToolError
from treadle.faultpoint import faultpoint
from treadle.lines.hunks import is_text
from treadle.lines.merge import merge
from treadle.ports.snapshots import Effect
from treadle.ports.workspace import inert
from treadle.protocol.files import DiffStat, FileChange, FileState, change_of, decode_path, encode_path
from treadle.workspace.history.beginnings import Beginnings, States
from treadle.workspace.history.copied import Beginning
from treadle.workspace.history.snapshots import ProjectSnapshots
from treadle.workspace.history.states import is_folder

_AT_THIS_MOMENT = "Files are being changed there right now; try again."


class Unmergeable(Exception):
    """Both changed a path, and in ways that cannot be put together."""


class Rebase:
    """Of one world, by whoever holds it alone. One that died on the way is completed before anything is looked at."""

    def __init__(self, id: str, world: ProjectSnapshots, beneath: ProjectSnapshots) -> None:
        self._name = f"{id}/rebase"
        self._world = world
        self._beneath = beneath
        if world.unfinished(self._name):
            world.change(self._name, (), None)

    def layers(self, effect: Effect, beginnings: Beginnings) -> tuple[str, ...]:
        """The paths that it changed in the world. Conflict if something cannot be merged: nothing is changed."""
        changes, known = {change.path: change for change in effect.files}, beginnings.all()
        made: list[FileChange] = []
        left: list[str] = []
        for path in sorted({conflict.path for conflict in effect.conflicts}):
            try:
                if path not in changes or path not in known:
                    raise Unmergeable
                ours, theirs = changes[path].after, changes[path].before
                if (after := self._settled(path, known[path], ours, theirs)) != ours:
                    made.append(change_of(path, ours, after, DiffStat()))
                    self._have(path, after)
            except Unmergeable:
                left.append(path)
        self._make(made, left)
        now = {change.path: change.before for change in effect.files}
        beginnings.update(now)
        return tuple(change.path for change in made)

    def _have(self, path: str, after: FileState | None) -> None:
        """See to it that the bytes are kept which a file gets."""
        if after is None or after.kind == "directory":  # what lies below it would have to be asked, too
            raise Unmergeable
        if after.kind == "file" and not self._beneath.images.has(after.digest):
            with self._beneath.root.open(decode_path(path)) as fd:
                self._beneath.images.put_file(fd)

    def copy(self, beginning: Beginning) -> tuple[str, ...]:
        """The same; given back are the paths that both had changed."""
        ours, theirs = {change.path: change.after for change in beginning.ours()}, beginning.theirs()
        had = {change.path: ours.get(change.path, change.before) for change in theirs}
        after: dict[str, FileState | None] = {}
        left: list[str] = []
        for change in theirs:
            try:
                after[change.path] = self._settled(change.path, change.before, had[change.path], change.after)
            except Unmergeable:
                left.append(change.path)
        left += self._torn(ours, had, after)
        made = [change_of(path, had[path], after[path], DiffStat()) for path in after if after[path] != had[path]]
        self._make(made, left)
        faultpoint("world.rebased")
        beginning.move(theirs)
        return tuple(change.path for change in made if change.path in ours)

    def _torn(self, ours: States, had: States, after: dict[str, FileState | None]) -> list[str]:
        """What would lie where there is no folder. A folder that others removed stays if there is something in it."""
        found = {**ours, **after}
        torn = []
        for path in sorted(after, key=lambda path: path.count("/"), reverse=True):
            if is_folder(had[path]) and not is_folder(after[path]) and self._has_more(path, found):
                torn += [] if after[path] is None else [path]
                after[path] = found[path] = had[path]
        for path, state in after.items():
            above = encode_path(os.path.dirname(decode_path(path)))
            if state is not None and above in found and not is_folder(found[above]):
                torn.append(path)
        return torn

    def _has_more(self, path: str, states: States) -> bool:
        """Whether something lies in a folder of the world that does not go."""
        folder = decode_path(path)
        gone = {path for path, state in states.items() if state is None}
        return any(encode_path(f"{folder}/{child.name}") not in gone for child in self._world.root.listdir(folder))

    def _make(self, made: Sequence[FileChange], left: Sequence[str]) -> None:
        if left:
            shown = ", ".join(inert(decode_path(path)) for path in sorted(set(left))[:20])
            raise Conflict(f"These files changed both in the world and in the project, and cannot be merged: {shown}.")
        if self._world.change(self._name, made, None).conflicts:
            raise Conflict(_AT_THIS_MOMENT)

    # -- one path -----------------------------------------------------------------------------------------------------

    def _settled(
        self, path: str, was: FileState | None, ours: FileState | None, theirs: FileState | None
    ) -> FileState | None:
        """What becomes of it in the world; the bytes are kept."""
        if theirs in (was, ours):
            return ours
        if ours == was:
            return theirs
        if was is None or ours is None or theirs is None or not was.kind == ours.kind == theirs.kind:
            raise Unmergeable
        mode = theirs.mode if ours.mode == was.mode else ours.mode
        if theirs.mode not in (was.mode, mode):
            raise Unmergeable
        if was.kind == "directory":
            return FileState("directory", mode)
        if was.kind != "file":
            raise Unmergeable
        data = self._merged(decode_path(path), was.digest, theirs.digest)
        return FileState("file", mode, self._beneath.images.put(data), len(data))

    def _merged(self, path: str, was: str, theirs: str) -> bytes:
        try:
            texts = (
                self._world.content(was),
                self._world.root.read_bytes(path),
                self._beneath.root.read_bytes(path),
            )
        except (ToolError, NotFound) as error:
            raise Unmergeable from error
        if not all(map(is_text, texts)):
            raise Unmergeable
        merged = merge(*texts)
        if merged.clashes:
            raise Unmergeable
        if self._beneath.images.put(texts[2]) != theirs:  # what it is from now on merged with
            raise Conflict(_AT_THIS_MOMENT)
        return merged.data
