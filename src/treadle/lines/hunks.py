"""The hunks of two texts, numbered from 1 as a diff shows them, and texts with only some of them (W-03). Texts are
bytes here: whatever they hold, line ends and a missing last one included, comes out as it went in."""

from collections.abc import Collection

import msgspec

from treadle.errors import ToolError
from treadle.lines.compare import Opcode, groups, middle, opcodes, split
from treadle.lines.diff import header, marked

MAX_TEXT = 16 << 20
"""What is larger is not compared."""


class Hunk(msgspec.Struct, frozen=True):
    """A change with the lines around it."""

    number: int
    header: str
    lines: tuple[str, ...]
    """Each behind its mark: unchanged, removed or added."""
    added: int
    removed: int


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
