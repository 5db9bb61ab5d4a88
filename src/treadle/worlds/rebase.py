"""Putting a world onto what is beneath it now (W-13): what others changed since it began comes in, and where both
changed the same text, the two are merged (`lines.merge`) with what the world changed it from. All of it or nothing."""

import hashlib
import os
from collections.abc import Mapping
from contextlib import suppress

import msgspec

from treadle.errors import Conflict, NotFound, ToolError
from treadle.file_system import replace_file
from treadle.lines.hunks import is_text
from treadle.lines.merge import merge
from treadle.ports.snapshots import Effect
from treadle.ports.workspace import inert
from treadle.protocol.content import Value
from treadle.protocol.files import DiffStat, FileChange, FileState, change_of, decode_path
from treadle.types import new_id
from treadle.workspace.history.snapshots import ProjectSnapshots

_FILE = "beginnings"


class _Beginning(Value, frozen=True):
    path: str
    state: FileState | None = None


_decoder = msgspec.json.Decoder(_Beginning)


class Beginnings:
    """What files were before the world first changed them: one line of JSON each, the first of a path counts. `view`
    is the world's."""

    def __init__(self, view: str) -> None:
        self._file = f"{view}/{_FILE}"

    def all(self) -> dict[str, FileState | None]:
        found: dict[str, FileState | None] = {}
        with suppress(FileNotFoundError), open(self._file, "rb") as file:
            for line in file:
                with suppress(msgspec.MsgspecError):  # cut off by a power cut: then it is not known
                    read = _decoder.decode(line)
                    found.setdefault(read.path, read.state)
        return found

    def add(self, states: Mapping[str, FileState | None]) -> None:
        known = self.all()
        lines = [
            msgspec.json.encode(_Beginning(path, state)) + b"\n" for path, state in states.items() if path not in known
        ]
        if lines:
            fd = os.open(self._file, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
            with open(fd, "ab", buffering=0) as file:
                file.write(b"".join(lines))

    def replace(self, states: Mapping[str, FileState | None]) -> None:
        lines = (msgspec.json.encode(_Beginning(path, state)) + b"\n" for path, state in states.items())
        replace_file(self._file, b"".join(lines))


class Rebase:
    """Of one world, read once: what `merged` says is made by whoever holds the world alone."""

    def __init__(
        self, effect: Effect, beginnings: Beginnings, world: ProjectSnapshots, beneath: ProjectSnapshots
    ) -> None:
        self._effect = effect
        self._beginnings = beginnings
        self._world = world
        self._beneath = beneath

    def make(self) -> tuple[str, ...]:
        """The paths that it changed in the world. Conflict if something cannot be merged: nothing is changed."""
        merged = self._merged()
        contents = {change.after.digest: data for change, data in merged if change.after is not None}
        done = self._world.change(new_id("rebase"), [change for change, _ in merged], contents)
        if done.conflicts:
            raise Conflict("The world was changed at this moment; try again.")
        now = {change.path: change.before for change in self._effect.files}
        self._beginnings.replace({**self._beginnings.all(), **now})
        return tuple(change.path for change, _ in merged)

    def _merged(self) -> list[tuple[FileChange, bytes]]:
        """What has to change in the world, with the new bytes."""
        contested = {conflict.path for conflict in self._effect.conflicts}
        changes = {change.path: change for change in self._effect.files}
        known = self._beginnings.all()
        made: list[tuple[FileChange, bytes]] = []
        left: list[str] = []
        for path in sorted(contested):
            change = changes.get(path)
            if change is None or path not in known:
                left.append(path)
            elif known[path] != change.before:  # else only its time is new
                merged = self._merge(change, known[path])
                left += [path] if merged is None else []
                made += [] if merged is None else [merged]
        if left:
            shown = ", ".join(inert(decode_path(path)) for path in left[:20])
            raise Conflict(f"Both the world and somebody else changed these, and they cannot be merged: {shown}.")
        return made

    def _merge(self, change: FileChange, base: FileState | None) -> tuple[FileChange, bytes] | None:
        states = (base, change.after, change.before)
        if any(state is None or state.kind != "file" for state in states):
            return None
        was, ours, theirs = (state for state in states if state is not None)
        mode = theirs.mode if ours.mode == was.mode else ours.mode
        if theirs.mode not in (was.mode, mode):
            return None
        try:
            path = decode_path(change.path)
            texts = (
                self._world.content(was.digest),
                self._world.root.read_bytes(path),
                self._beneath.root.read_bytes(path),
            )
        except (ToolError, NotFound):
            return None
        if not all(map(is_text, texts)):
            return None
        merged = merge(*texts)
        if merged.clashes:
            return None
        self._beneath.images.put(texts[2])  # what it is from now on merged with
        after = FileState("file", mode, hashlib.sha256(merged.data).hexdigest(), len(merged.data))
        return change_of(change.path, ours, after, DiffStat()), merged.data
