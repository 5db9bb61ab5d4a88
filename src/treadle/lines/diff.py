"""What changed in a text, as a unified diff and as two numbers. Bounded in time (see `compare`) and in size."""

from collections.abc import Sequence

import msgspec

from treadle.lines.compare import Opcode, groups, middle, opcodes
from treadle.protocol.files import DiffStat

_MAX_SHOWN_LINES = 200
_MAX_SHOWN_CHARS = 12_000
_MAX_LINE = 2_000


class Diff(msgspec.Struct, frozen=True):
    text: str
    stat: DiffStat


def diff(path: str, old: str | None, new: str | None) -> Diff:
    """`old` is None for a file that did not exist, `new` for one that is deleted."""
    before, after, line = middle(old or "", new or "")
    codes = opcodes(before, after)
    added = sum(j2 - j1 for tag, _, _, j1, j2 in codes if tag != "equal")
    removed = sum(i2 - i1 for tag, i1, i2, _, _ in codes if tag != "equal")
    head = [f"--- {'/dev/null' if old is None else path}", f"+++ {'/dev/null' if new is None else path}"]
    text = bounded("\n".join([*head, *_hunks(before, after, codes, line)]))
    return Diff(text, DiffStat(added, removed))


def _hunks(before: list[str], after: list[str], codes: list[Opcode], skipped: int) -> list[str]:
    lines: list[str] = []
    for group in groups(codes):
        lines += [header(group, skipped), *marked(before, after, group)]
    return lines


def header(group: Sequence[Opcode], skipped: int) -> str:
    """The line above a hunk; `skipped` lines come before what was compared."""
    (_, i1, _, j1, _), (_, _, i2, _, j2) = group[0], group[-1]
    return f"@@ -{_range(i1 + skipped, i2 + skipped)} +{_range(j1 + skipped, j2 + skipped)} @@"


def marked(before: list[str], after: list[str], group: Sequence[Opcode]) -> list[str]:
    """The lines of a hunk."""
    lines: list[str] = []
    for tag, a1, a2, b1, b2 in group:
        if tag == "equal":
            lines += _marked(" ", before[a1:a2])
        else:
            lines += _marked("-", before[a1:a2]) + _marked("+", after[b1:b2])
    return lines


def _range(start: int, stop: int) -> str:
    length = stop - start
    first = start + 1 if length else start
    return f"{first}" if length == 1 else f"{first},{length}"


def _marked(mark: str, lines: list[str]) -> list[str]:
    marked = []
    for line in lines:
        if line.endswith("\n"):
            marked.append(mark + line[:-1].removesuffix("\r"))
        else:
            marked += [mark + line, "\\ No newline at end of file"]
    return marked


def bounded(text: str) -> str:
    """As much of a diff as is shown, and how much is not."""
    lines = text.split("\n")
    shown: list[str] = []
    size = 0
    for line in lines:
        if len(line) > _MAX_LINE:
            line = f"{line[:_MAX_LINE]}… [{len(line) - _MAX_LINE:,} more characters]"
        size += len(line) + 1
        if len(shown) >= _MAX_SHOWN_LINES or size > _MAX_SHOWN_CHARS:
            shown.append(f"[{len(lines) - len(shown):,} more lines of the diff are not shown]")
            break
        shown.append(line)
    return "\n".join(shown)
