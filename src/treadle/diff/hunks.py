"""The hunks of two texts, numbered from 1 as in a diff; texts with only some of the hunks (W-03); and a file change as
shown to people, by its hunks or in words (W-04). Texts are bytes: their content is kept exactly, including line ends
and a missing last line end. Does not access the disk."""

from collections.abc import Collection

import msgspec
from msgspec.structs import replace

from treadle.diff.diff import groups, header, marked, middle, opcodes, split
from treadle.errors import ToolError
from treadle.protocol.files import FileChange, FileState, Hunk

MAX_TEXT = 16 << 20
"""Larger texts are not compared."""


def is_text(data: bytes) -> bool:
    """True if the data can be compared line by line: it has no NUL byte and is not too large."""
    return len(data) <= MAX_TEXT and b"\0" not in data


def hunks(old: bytes, new: bytes) -> tuple[Hunk, ...]:
    old_lines, new_lines, skipped = middle(_decoded(old), _decoded(new))
    return tuple(
        Hunk(
            number,
            header(group, skipped),
            tuple(map(_replace_broken_bytes, marked(old_lines, new_lines, group))),
            sum(j2 - j1 for tag, _, _, j1, j2 in group if tag != "equal"),
            sum(i2 - i1 for tag, i1, i2, _, _ in group if tag != "equal"),
        )
        for number, group in enumerate(groups(opcodes(old_lines, new_lines)), 1)
    )


def without(old: bytes, new: bytes, hunk_numbers: Collection[int]) -> bytes:
    """`new` with these hunks taken back."""
    return _mixed(old, new, set(hunk_numbers), taken_back=True)


def only(old: bytes, new: bytes, hunk_numbers: Collection[int]) -> bytes:
    """`old` with these hunks and no other."""
    return _mixed(old, new, set(hunk_numbers), taken_back=False)


def _mixed(old: bytes, new: bytes, hunk_numbers: set[int], *, taken_back: bool) -> bytes:
    text = _decoded(new)
    old_lines, new_lines, skipped = middle(_decoded(old), text)
    hunk_groups = groups(opcodes(old_lines, new_lines))
    if unknown := sorted(hunk_numbers - set(range(1, len(hunk_groups) + 1))):
        names = ", ".join(map(str, unknown))
        raise ToolError(f"There is no hunk {names}: the difference has {len(hunk_groups)}, counted from 1.")
    lines = split(text)
    for number in range(len(hunk_groups), 0, -1):  # from the end, so that what is left keeps its place
        if (number in hunk_numbers) == taken_back:
            for tag, i1, i2, j1, j2 in reversed(hunk_groups[number - 1]):
                if tag != "equal":
                    lines[skipped + j1 : skipped + j2] = old_lines[i1:i2]
    return "".join(lines).encode("utf-8", "surrogateescape")


def _replace_broken_bytes(line: str) -> str:
    return line if line.isascii() else line.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _decoded(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


Texts = tuple[bytes | None, bytes | None]
"""Both ends of a change; None: no text, or one that is no longer to be had. Of nothing: empty."""


class FileDiff(msgspec.Struct, frozen=True):
    """A change with its true counts. `notes` say what no line shows: kinds, modes, targets, bytes."""

    change: FileChange
    hunks: tuple[Hunk, ...] = ()
    notes: tuple[str, ...] = ()


def build_file_diff(change: FileChange, texts: Texts) -> FileDiff:
    old_state, new_state = change.before, change.after
    notes = _kinds(old_state, new_state)
    if old_state and new_state and old_state.kind == new_state.kind and old_state.mode != new_state.mode:
        notes.append(f"mode {old_state.mode:o}, now {new_state.mode:o}")
    if _content(old_state) == _content(new_state):
        return FileDiff(change, (), tuple(notes))
    old, new = texts
    if old is None or new is None:
        sizes = [f"{0 if state is None else state.size:,}" for state in (old_state, new_state)]
        return FileDiff(change, (), (*notes, f"no lines to show ({sizes[0]} bytes, now {sizes[1]})"))
    file_hunks = hunks(old, new)
    added, removed = sum(each.added for each in file_hunks), sum(each.removed for each in file_hunks)
    return FileDiff(replace(change, added=added, removed=removed), file_hunks, tuple(notes))


def _content(state: FileState | None) -> str:
    return state.digest if state is not None and state.kind == "file" else ""


def _kinds(old_state: FileState | None, new_state: FileState | None) -> list[str]:
    """Nothing about plain files that are still such: that goes without saying."""
    if old_state is None:
        return [] if new_state is None or new_state.kind == "file" else [f"new {_words(new_state)}"]
    if new_state is None:
        return [] if old_state.kind == "file" else [f"{_words(old_state)} removed"]
    if old_state.kind == new_state.kind and old_state.target == new_state.target:
        return []
    return [f"{_words(old_state)}, now {_words(new_state)}"]


def _words(state: FileState) -> str:
    names = {"file": "file", "directory": "folder", "link": "link", "fifo": "FIFO", "other": "socket or device"}
    return f"{names[state.kind]} to {state.target}" if state.kind == "link" else names[state.kind]
