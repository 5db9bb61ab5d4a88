"""Rebase of a world onto the current state beneath it (W-13): changes by others since it began come in, and where both
changed the same text, the two are merged (`lines.merge`) with the text that the world changed. All of it or nothing.

Layers show everything that the world did not change itself, so only paths that both changed need work; a copy needs all
changes by others.
"""

import os
from collections.abc import Sequence

from treadle.adapters.workspace.history.beginnings import Beginnings, States
from treadle.adapters.workspace.history.copied import Beginning
from treadle.adapters.workspace.history.snapshots import ProjectSnapshots
from treadle.adapters.workspace.history.states import is_folder
from treadle.base.faultpoint import faultpoint
from treadle.diff.hunks import is_text
from treadle.diff.merge import merge
from treadle.errors import Conflict, NotFound, ToolError
from treadle.ports.snapshots import Effect
from treadle.ports.workspace import inert
from treadle.protocol.files import DiffStat, FileChange, FileState, change_of, decode_path, encode_path

_AT_THIS_MOMENT = "Files are being changed there right now; try again."


class Unmergeable(Exception):
    """Both changed a path, and in ways that cannot be put together."""


class Rebase:
    """The rebase of one world, by the process that holds it alone. An interrupted rebase is completed first."""

    def __init__(self, id: str, world: ProjectSnapshots, beneath: ProjectSnapshots) -> None:
        self._name = f"{id}/rebase"
        self._world = world
        self._beneath = beneath
        if world.unfinished(self._name):
            world.change(self._name, (), None)

    def layers(self, effect: Effect, beginnings: Beginnings) -> tuple[str, ...]:
        """The paths that it changed in the world. Conflict if something cannot be merged: nothing is changed."""
        changes, base_states = {change.path: change for change in effect.files}, beginnings.all()
        merged_changes: list[FileChange] = []
        unmergeable: list[str] = []
        for path in sorted({conflict.path for conflict in effect.conflicts}):
            try:
                if path not in changes or path not in base_states:
                    raise Unmergeable
                ours, theirs = changes[path].after, changes[path].before
                if (merged_state := self._merge_state(path, base_states[path], ours, theirs)) != ours:
                    merged_changes.append(change_of(path, ours, merged_state, DiffStat()))
                    self._have(path, merged_state)
            except Unmergeable:
                unmergeable.append(path)
        self._make(merged_changes, unmergeable)
        now = {change.path: change.before for change in effect.files}
        beginnings.update(now)
        return tuple(change.path for change in merged_changes)

    def _have(self, path: str, new_state: FileState | None) -> None:
        """See to it that the bytes are kept which a file gets."""
        if new_state is None or new_state.kind == "directory":  # its entries would have to be checked, too
            raise Unmergeable
        if new_state.kind == "file" and not self._beneath.images.has(new_state.digest):
            with self._beneath.root.open(decode_path(path)) as fd:
                self._beneath.images.put_file(fd)

    def copy(self, beginning: Beginning) -> tuple[str, ...]:
        """The same; given back are the paths that both had changed."""
        ours, theirs = {change.path: change.after for change in beginning.ours()}, beginning.theirs()
        had = {change.path: ours.get(change.path, change.before) for change in theirs}
        new_states: dict[str, FileState | None] = {}
        unmergeable: list[str] = []
        for change in theirs:
            try:
                new_states[change.path] = self._merge_state(change.path, change.before, had[change.path], change.after)
            except Unmergeable:
                unmergeable.append(change.path)
        unmergeable += self._torn(ours, had, new_states)
        merged_changes = [
            change_of(path, had[path], new_states[path], DiffStat())
            for path in new_states
            if new_states[path] != had[path]
        ]
        self._make(merged_changes, unmergeable)
        faultpoint("world.rebased")
        beginning.move(theirs)
        return tuple(change.path for change in merged_changes if change.path in ours)

    def _torn(self, ours: States, had: States, new_states: dict[str, FileState | None]) -> list[str]:
        """Return the paths that would lie where there is no folder. A folder that others removed stays if it is not
        empty."""
        all_states = {**ours, **new_states}
        torn = []
        for path in sorted(new_states, key=lambda path: path.count("/"), reverse=True):
            if is_folder(had[path]) and not is_folder(new_states[path]) and self._has_more(path, all_states):
                torn += [] if new_states[path] is None else [path]
                new_states[path] = all_states[path] = had[path]
        for path, state in new_states.items():
            above = encode_path(os.path.dirname(decode_path(path)))
            if state is not None and above in all_states and not is_folder(all_states[above]):
                torn.append(path)
        return torn

    def _has_more(self, path: str, states: States) -> bool:
        """True if a folder of the world has an entry that is not removed."""
        folder = decode_path(path)
        removed_paths = {path for path, state in states.items() if state is None}
        return any(
            encode_path(f"{folder}/{child.name}") not in removed_paths for child in self._world.root.listdir(folder)
        )

    def _make(self, merged_changes: Sequence[FileChange], unmergeable: Sequence[str]) -> None:
        if unmergeable:
            path_list = ", ".join(inert(decode_path(path)) for path in sorted(set(unmergeable))[:20])
            raise Conflict(
                f"These files changed both in the world and in the project, and cannot be merged: {path_list}."
            )
        if self._world.change(self._name, merged_changes, None).conflicts:
            raise Conflict(_AT_THIS_MOMENT)

    # -- one path -----------------------------------------------------------------------------------------------------

    def _merge_state(
        self, path: str, was: FileState | None, ours: FileState | None, theirs: FileState | None
    ) -> FileState | None:
        """Return the merged state of a path in the world; its bytes are kept."""
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
        if self._beneath.images.put(texts[2]) != theirs:  # the base of later merges
            raise Conflict(_AT_THIS_MOMENT)
        return merged.data
