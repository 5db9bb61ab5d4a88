"""A change of a file as people look at it: its hunks, numbered, or in words where there are no lines to compare (W-04).
Knows no disk: the texts of both ends are handed in."""

import msgspec
from msgspec.structs import replace

from treadle.lines.hunks import Hunk, hunks
from treadle.protocol.files import FileChange, FileState

Texts = tuple[bytes | None, bytes | None]
"""Both ends of a change; None: no text, or one that is no longer to be had. Of nothing: empty."""


class Shown(msgspec.Struct, frozen=True):
    """A change with its true counts. `notes` say what no line shows: kinds, modes, targets, bytes."""

    change: FileChange
    hunks: tuple[Hunk, ...] = ()
    notes: tuple[str, ...] = ()


def shown(change: FileChange, texts: Texts) -> Shown:
    before, after = change.before, change.after
    notes = [*_kinds(before, after), *_modes(before, after)]
    if _content(before) == _content(after):
        return Shown(change, (), tuple(notes))
    old, new = texts
    if old is None or new is None:
        return Shown(change, (), (*notes, _sizes(before, after)))
    found = hunks(old, new)
    counted = replace(change, added=sum(each.added for each in found), removed=sum(each.removed for each in found))
    return Shown(counted, found, tuple(notes))


def _content(state: FileState | None) -> str:
    return state.digest if state is not None and state.kind == "file" else ""


def _kinds(before: FileState | None, after: FileState | None) -> list[str]:
    """Nothing about plain files that are still such: that goes without saying."""
    if before is None:
        return [] if after is None or after.kind == "file" else [f"new {_words(after)}"]
    if after is None:
        return [] if before.kind == "file" else [f"{_words(before)} removed"]
    if before.kind == after.kind and before.target == after.target:
        return []
    return [f"{_words(before)}, now {_words(after)}"]


def _words(state: FileState) -> str:
    names = {"file": "file", "directory": "folder", "link": "link", "fifo": "FIFO", "other": "socket or device"}
    return f"{names[state.kind]} to {state.target}" if state.kind == "link" else names[state.kind]


def _modes(before: FileState | None, after: FileState | None) -> list[str]:
    if before is None or after is None or before.kind != after.kind or before.mode == after.mode:
        return []
    return [f"mode {before.mode:o}, now {after.mode:o}"]


def _sizes(before: FileState | None, after: FileState | None) -> str:
    sizes = [f"{0 if state is None else state.size:,}" for state in (before, after)]
    return f"no lines to show ({sizes[0]} bytes, now {sizes[1]})"
