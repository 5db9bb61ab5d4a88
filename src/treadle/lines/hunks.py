"""The hunks of two texts, numbered from 1 as a diff shows them, and texts with only some of them (W-03); a change
of a file as people look at it, by its hunks or in words (W-04). Texts are bytes here: whatever they hold, line ends and
a missing last one included, comes out as it went in. Knows no disk."""

from collections.abc import Collection

import msgspec
from msgspec.structs import replace

from treadle.errors import ToolError
from treadle.lines.diff import Opcode, groups, header, marked, middle, opcodes, split
from treadle.protocol.files import FileChange, FileState, Hunk

MAX_TEXT = 16 << 20
"""What is larger is not compared."""


def is_text(data: bytes) -> bool:
    """Whether it can be compared line by line: no NUL byte, which no text has, and not too large."""
    return len(data) <= MAX_TEXT and b"\0" not in data


def hunks(old: bytes, new: bytes) -> tuple[Hunk, ...]:
    before, after, skipped = middle(_decoded(old), _decoded(new))
    return tuple(
        Hunk(
            number,
            header(group, skipped),
            tuple(map(_printable, marked(before, after, group))),
            sum(j2 - j1 for tag, _, _, j1, j2 in group if tag != "equal"),
            sum(i2 - i1 for tag, i1, i2, _, _ in group if tag != "equal"),
        )
        for number, group in enumerate(groups(opcodes(before, after)), 1)
    )


def without(old: bytes, new: bytes, chosen: Collection[int]) -> bytes:
    """`new` with these hunks taken back."""
    return _mixed(old, new, set(chosen), taken_back=True)


def only(old: bytes, new: bytes, chosen: Collection[int]) -> bytes:
    """`old` with these hunks and no other."""
    return _mixed(old, new, set(chosen), taken_back=False)


def _mixed(old: bytes, new: bytes, chosen: set[int], *, taken_back: bool) -> bytes:
    text = _decoded(new)
    before, after, skipped = middle(_decoded(old), text)
    found = groups(opcodes(before, after))
    if unknown := sorted(chosen - set(range(1, len(found) + 1))):
        names = ", ".join(map(str, unknown))
        raise ToolError(f"There is no hunk {names}: the difference has {len(found)}, counted from 1.")
    lines = split(text)
    for number in range(len(found), 0, -1):  # from the end, so that what is left keeps its place
        if (number in chosen) == taken_back:
            _take_back(lines, before, found[number - 1], skipped)
    return "".join(lines).encode("utf-8", "surrogateescape")


def _take_back(lines: list[str], before: list[str], group: list[Opcode], skipped: int) -> None:
    for tag, i1, i2, j1, j2 in reversed(group):
        if tag != "equal":
            lines[skipped + j1 : skipped + j2] = before[i1:i2]


def _printable(line: str) -> str:
    """A line as any encoding takes it: bytes that are no UTF-8 are shown as such."""
    if line.isascii():
        return line
    return line.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _decoded(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


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
