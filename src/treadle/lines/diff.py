"""What changed in a text, as a unified diff and as two numbers. Bounded in time and size: what is equal at both ends is
passed over at the speed of memory, and a text that changed beyond recognition is shown as removed and added."""

import difflib
from collections.abc import Callable

import msgspec

from treadle.protocol.files import DiffStat

_MAX_SHOWN_LINES = 200
_MAX_SHOWN_CHARS = 12_000
_MAX_LINE = 2_000
_MAX_COMPARED = 1_500
"""Changed lines on either side that are still compared line by line; the comparison is quadratic."""
_CONTEXT = 3


class Diff(msgspec.Struct, frozen=True):
    text: str
    stat: DiffStat


def diff(path: str, old: str | None, new: str | None) -> Diff:
    """`old` is None for a file that did not exist, `new` for one that is deleted."""
    before, after, line = _middle(old or "", new or "")
    opcodes = _opcodes(before, after)
    added = sum(j2 - j1 for tag, _, _, j1, j2 in opcodes if tag != "equal")
    removed = sum(i2 - i1 for tag, i1, i2, _, _ in opcodes if tag != "equal")
    head = [f"--- {'/dev/null' if old is None else path}", f"+++ {'/dev/null' if new is None else path}"]
    text = bounded("\n".join([*head, *_hunks(before, after, opcodes, line)]))
    return Diff(text, DiffStat(added, removed))


_Opcode = tuple[str, int, int, int, int]


def _middle(old: str, new: str) -> tuple[list[str], list[str], int]:
    """The lines of both around what differs, with enough equal ones for the context, and how many come before."""
    start = old.rfind("\n", 0, _common(old, new)) + 1
    for _ in range(_CONTEXT + 1):
        start = old.rfind("\n", 0, max(0, start - 1)) + 1
    most = min(len(old), len(new)) - start
    tail = _common_end(old, new, most)
    tail = 0 if tail <= 0 else _line_start_within(old, tail)
    return _split(old[start : len(old) - tail]), _split(new[start : len(new) - tail]), old.count("\n", 0, start)


def _line_start_within(text: str, tail: int) -> int:
    """How much of an equal end can be left out: it begins at a line, some lines behind the difference."""
    at = len(text) - tail
    for _ in range(_CONTEXT + 2):
        feed = text.find("\n", at)
        if feed == -1:
            return 0
        at = feed + 1
    return len(text) - at


def _common(one: str, other: str) -> int:
    """How many characters are equal from the beginning."""
    return _longest(min(len(one), len(other)), lambda at, size: one[at : at + size] == other[at : at + size])


def _common_end(one: str, other: str, most: int) -> int:
    """How many characters are equal at the end, of at most so many."""

    def equal(at: int, size: int) -> bool:
        a, b = len(one) - at, len(other) - at
        return one[a - size : a] == other[b - size : b]

    return _longest(most, equal)


def _longest(most: int, equal: Callable[[int, int], bool]) -> int:
    """How far two texts are equal, asked piece by piece: in growing ones as long as they are, in shrinking ones around
    the place where they no longer are."""
    low, high = 0, most
    step = 4_096
    while low < high:
        size = min(step, high - low)
        if equal(low, size):
            low += size
            step *= 2
        elif size == 1:
            break
        else:
            step = max(1, size // 2)
            high = low + size
    return low


def _split(text: str) -> list[str]:
    """Lines with their ends, split at newlines only."""
    lines = text.split("\n")
    last = lines.pop()
    return [f"{line}\n" for line in lines] + ([last] if last else [])


def _opcodes(before: list[str], after: list[str]) -> list[_Opcode]:
    """What differs between the equal beginning and the equal end; those are found in linear time."""
    start = 0
    most = min(len(before), len(after))
    while start < most and before[start] == after[start]:
        start += 1
    end = 0
    while end < most - start and before[-1 - end] == after[-1 - end]:
        end += 1
    old, new = before[start : len(before) - end], after[start : len(after) - end]
    codes: list[_Opcode] = [("equal", 0, start, 0, start)] if start else []
    if len(old) > _MAX_COMPARED or len(new) > _MAX_COMPARED:
        codes.append(("replace", start, start + len(old), start, start + len(new)))
    elif old or new:
        for tag, i1, i2, j1, j2 in difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
            codes.append((tag, i1 + start, i2 + start, j1 + start, j2 + start))
    if end:
        codes.append(("equal", len(before) - end, len(before), len(after) - end, len(after)))
    return codes


def _hunks(before: list[str], after: list[str], opcodes: list[_Opcode], skipped: int) -> list[str]:
    lines: list[str] = []
    for group in _groups(opcodes):
        (_, i1, _, j1, _), (_, _, i2, _, j2) = group[0], group[-1]
        lines.append(f"@@ -{_range(i1 + skipped, i2 + skipped)} +{_range(j1 + skipped, j2 + skipped)} @@")
        for tag, a1, a2, b1, b2 in group:
            if tag == "equal":
                lines += _marked(" ", before[a1:a2])
            else:
                lines += _marked("-", before[a1:a2]) + _marked("+", after[b1:b2])
    return lines


def _groups(opcodes: list[_Opcode]) -> list[list[_Opcode]]:
    """Hunks: changes with three lines around them, joined where those overlap."""
    groups: list[list[_Opcode]] = []
    group: list[_Opcode] = []
    for index, (tag, i1, i2, j1, j2) in enumerate(opcodes):
        if tag != "equal":
            group.append((tag, i1, i2, j1, j2))
            continue
        first, last = index == 0, index == len(opcodes) - 1
        if not first and not last and i2 - i1 <= 2 * _CONTEXT:
            group.append((tag, i1, i2, j1, j2))
            continue
        if not first:
            group.append((tag, i1, min(i2, i1 + _CONTEXT), j1, min(j2, j1 + _CONTEXT)))
            groups.append(group)
            group = []
        if not last:
            group = [(tag, max(i1, i2 - _CONTEXT), i2, max(j1, j2 - _CONTEXT), j2)]
    if any(code[0] != "equal" for code in group):
        groups.append(group)
    return groups


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
