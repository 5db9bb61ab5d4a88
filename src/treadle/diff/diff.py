"""The difference of two texts, as a unified diff and as line counts, and the lines that two texts share. Size and time
are bounded: equal ends are skipped at memory speed, long texts are first split at lines that occur in both exactly
once, and parts that are still too large to compare count as replaced."""

import difflib
import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence

import msgspec

from treadle.protocol.files import DiffStat

CONTEXT = 3
"""Equal lines that are shown around a change."""
_MAX_COMPARED = 1_500
"""Changed lines on either side that are still compared line by line; the comparison is quadratic."""
_SHORT = 4_096
"""Texts of so many characters are split as they are."""

Opcode = tuple[str, int, int, int, int]
"""The tag and the ranges i1:i2 (old lines) and j1:j2 (new lines), as in difflib."""


def middle(old: str, new: str) -> tuple[list[str], list[str], int]:
    """The lines of both around what differs, with enough equal ones for the context, and how many come before."""

    def equal_at_end(at: int, size: int) -> bool:
        a, b = len(old) - at, len(new) - at
        return old[a - size : a] == new[b - size : b]

    shorter = min(len(old), len(new))
    common_length = _longest(shorter, lambda at, size: old[at : at + size] == new[at : at + size])
    start = old.rfind("\n", 0, common_length) + 1
    for _ in range(CONTEXT + 1):
        start = old.rfind("\n", 0, max(0, start - 1)) + 1
    tail = _longest(shorter - start, equal_at_end)
    tail = 0 if tail <= 0 else _line_start_within(old, tail)
    return split(old[start : len(old) - tail]), split(new[start : len(new) - tail]), old.count("\n", 0, start)


def split(text: str) -> list[str]:
    """Lines with their ends, split at newlines only."""
    lines = text.split("\n")
    last = lines.pop()
    return [f"{line}\n" for line in lines] + ([last] if last else [])


def opcodes(old_lines: list[str], new_lines: list[str]) -> list[Opcode]:
    """Return the opcodes of all lines; equal and changed stretches alternate."""
    codes: list[Opcode] = []
    for code in _pieces(old_lines, new_lines):
        tag, i1, i2, j1, j2 = code
        if codes and (codes[-1][0] == "equal") == (tag == "equal"):
            _, i1, _, j1, _ = codes.pop()
            tag = "equal" if tag == "equal" else "replace" if i1 < i2 and j1 < j2 else "delete" if i1 < i2 else "insert"
        codes.append((tag, i1, i2, j1, j2))
    return codes


def _pieces(old_lines: list[str], new_lines: list[str]) -> Iterator[Opcode]:
    """The same, in pieces that may have to be joined."""
    start, end = equal_ends(old_lines, new_lines)
    i2, j2 = len(old_lines) - end, len(new_lines) - end
    if start:
        yield "equal", 0, start, 0, start
    old, new = old_lines[start:i2], new_lines[start:j2]
    if max(len(old), len(new)) <= _MAX_COMPARED:
        yield from _compared(old, new, start, start)
    else:
        yield from _anchored(old, new, start, start)
    if end:
        yield "equal", i2, len(old_lines), j2, len(new_lines)


def equal_ends(old: Sequence[str], new: Sequence[str]) -> tuple[int, int]:
    """How many lines are equal at the beginning and, of the rest, at the end."""
    start = end = 0
    most = min(len(old), len(new))
    while start < most and old[start] == new[start]:
        start += 1
    while end < most - start and old[-1 - end] == new[-1 - end]:
        end += 1
    return start, end


def _compared(old: list[str], new: list[str], i: int, j: int) -> Iterator[Opcode]:
    if not old or not new:
        if old or new:
            yield "delete" if old else "insert", i, i + len(old), j, j + len(new)
    else:
        for tag, i1, i2, j1, j2 in difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
            yield tag, i1 + i, i2 + i, j1 + j, j2 + j


def _anchored(old: list[str], new: list[str], i: int, j: int) -> Iterator[Opcode]:
    """Compare long texts between the lines that occur in both exactly once and in the same order. The total cost is
    limited to that of one comparison of the largest allowed size."""
    remaining_cost = _MAX_COMPARED * _MAX_COMPARED
    a = b = 0
    for next_a, next_b in [*anchors(old, new), (len(old), len(new))]:
        start, end = equal_ends(old[a:next_a], new[b:next_b])
        if start:
            yield "equal", i + a, i + a + start, j + b, j + b + start
        a, b = a + start, b + start
        until_a, until_b = next_a - end, next_b - end
        cost = (until_a - a) * (until_b - b)
        if cost <= remaining_cost:
            remaining_cost -= cost
            yield from _compared(old[a:until_a], new[b:until_b], i + a, j + b)
        else:
            yield "replace", i + a, i + until_a, j + b, j + until_b
        last = next_a < len(old)  # the anchor itself
        if end or last:
            yield "equal", i + until_a, i + next_a + last, j + until_b, j + next_b + last
        a, b = next_a + last, next_b + last


def anchors(old: Sequence[Hashable], new: Sequence[Hashable]) -> list[tuple[int, int]]:
    """The most lines that stand in both exactly once and in the same order: where they are in each."""
    counts = Counter(new)
    places = {line: at for at, line in enumerate(new) if counts[line] == 1}
    counts = Counter(old)
    pairs = [(at, places[line]) for at, line in enumerate(old) if counts[line] == 1 and line in places]
    ends: list[int] = []  # by length: the smallest place at which a growing row of that length ends
    tops: list[int] = []
    predecessors: list[int] = []
    for number, (_, place) in enumerate(pairs):
        length = bisect_left(ends, place)
        predecessors.append(tops[length - 1] if length else -1)
        ends[length : length + 1] = [place]
        tops[length : length + 1] = [number]
    row: list[tuple[int, int]] = []
    at = tops[-1] if tops else -1
    while at >= 0:
        row.append(pairs[at])
        at = predecessors[at]
    return row[::-1]


def groups(codes: list[Opcode]) -> list[list[Opcode]]:
    """Hunks: changes with three lines around them, joined where those overlap."""
    hunks: list[list[Opcode]] = []
    group: list[Opcode] = []
    for index, (tag, i1, i2, j1, j2) in enumerate(codes):
        if tag != "equal":
            group.append((tag, i1, i2, j1, j2))
            continue
        first, last = index == 0, index == len(codes) - 1
        if not first and not last and i2 - i1 <= 2 * CONTEXT:
            group.append((tag, i1, i2, j1, j2))
            continue
        if not first:
            group.append((tag, i1, min(i2, i1 + CONTEXT), j1, min(j2, j1 + CONTEXT)))
            hunks.append(group)
            group = []
        if not last:
            group = [(tag, max(i1, i2 - CONTEXT), i2, max(j1, j2 - CONTEXT), j2)]
    if any(code[0] != "equal" for code in group):
        hunks.append(group)
    return hunks


def _line_start_within(text: str, tail: int) -> int:
    """How much of an equal end can be left out: it begins at a line, some lines behind the difference."""
    at = len(text) - tail
    for _ in range(CONTEXT + 2):
        at = text.find("\n", at) + 1
        if not at:
            return 0
    return len(text) - at


def _longest(most: int, equal: Callable[[int, int], bool]) -> int:
    """How far two texts are equal, asked piece by piece: in growing ones as long as they are, in shrinking ones around
    the place where they no longer are."""
    low, high, step = 0, most, 4_096
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


_MAX_SHOWN_LINES = 200
_MAX_SHOWN_CHARS = 12_000
_MAX_LINE = 2_000


class Diff(msgspec.Struct, frozen=True):
    text: str
    stat: DiffStat


def diff(path: str, old: str | None, new: str | None) -> Diff:
    """`old` is None for a file that did not exist, `new` for one that is deleted."""
    old_lines, new_lines, line = middle(old or "", new or "")
    codes = opcodes(old_lines, new_lines)
    head = [f"--- {'/dev/null' if old is None else path}", f"+++ {'/dev/null' if new is None else path}"]
    for group in groups(codes):
        head += [header(group, line), *marked(old_lines, new_lines, group)]
    return Diff(bounded("\n".join(head)), _stat(codes))


def count_lines(old: str, new: str) -> DiffStat:
    old_lines, new_lines = (
        (_told_apart(old), _told_apart(new)) if len(old) + len(new) <= _SHORT else middle(old, new)[:2]
    )
    start, end = equal_ends(old_lines, new_lines)
    removed_count, added_count = len(old_lines) - start - end, len(new_lines) - start - end
    if not removed_count or not added_count:
        return DiffStat(added_count, removed_count)
    return _stat(_pieces(old_lines, new_lines))


def _told_apart(text: str) -> list[str]:
    """Lines that are equal where those of `split` are: only a last one without an end has an end here."""
    lines = text.split("\n")
    last = lines.pop()
    return [*lines, f"{last}\n"] if last else lines


def _stat(codes: Iterable[Opcode]) -> DiffStat:
    changed = [code for code in codes if code[0] != "equal"]
    return DiffStat(sum(j2 - j1 for *_, j1, j2 in changed), sum(i2 - i1 for _, i1, i2, *_ in changed))


def header(group: Sequence[Opcode], skipped: int) -> str:
    """The line above a hunk; `skipped` lines come before what was compared."""
    (_, i1, _, j1, _), (_, _, i2, _, j2) = group[0], group[-1]
    return f"@@ -{_range(i1 + skipped, i2 + skipped)} +{_range(j1 + skipped, j2 + skipped)} @@"


def marked(old_lines: list[str], new_lines: list[str], group: Sequence[Opcode]) -> list[str]:
    lines: list[str] = []
    for tag, a1, a2, b1, b2 in group:
        lines += _marked(" " if tag == "equal" else "-", old_lines[a1:a2])
        lines += [] if tag == "equal" else _marked("+", new_lines[b1:b2])
    return lines


def _range(start: int, stop: int) -> str:
    length = stop - start
    return f"{start + 1}" if length == 1 else f"{start + bool(length)},{length}"


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
    shown_lines: list[str] = []
    size = 0
    for line in lines:
        if len(line) > _MAX_LINE:
            line = f"{line[:_MAX_LINE]}… [{len(line) - _MAX_LINE:,} more characters]"
        size += len(line) + 1
        if len(shown_lines) >= _MAX_SHOWN_LINES or size > _MAX_SHOWN_CHARS:
            shown_lines.append(f"[{len(lines) - len(shown_lines):,} more lines of the diff are not shown]")
            break
        shown_lines.append(line)
    return "\n".join(shown_lines)


_HUNK = re.compile(r"@@ -\d+(?:,(\d+))? \+\d+(?:,(\d+))? @@")


class Sides(msgspec.Struct, frozen=True):
    """One hunk: the lines before and after, each with its newline."""

    path: str
    old: str
    new: str


def sides(text: str) -> Iterator[Sides]:
    """The hunks of all diffs in a text, which may have other lines around them."""
    path = ""
    lines = iter(text.split("\n"))
    for line in lines:
        if line.startswith(("--- ", "+++ ")):
            name = line[4:].partition("\t")[0]
            path = path if name == "/dev/null" else name.removeprefix("a/" if line[0] == "-" else "b/")
        elif (match := _HUNK.match(line)) is not None:
            yield Sides(path, *_both(lines, int(match[1] or 1), int(match[2] or 1)))


def _both(lines: Iterator[str], old_left: int, new_left: int) -> tuple[str, str]:
    """Read as many lines as the hunk header says: a line of content may look like a header."""
    old = new = ""
    while old_left > 0 or new_left > 0:
        line = next(lines, None)
        if line is None:  # it was cut
            break
        if line[:1] in (" ", "-", ""):
            old, old_left = f"{old}{line[1:]}\n", old_left - 1
        if line[:1] in (" ", "+", ""):
            new, new_left = f"{new}{line[1:]}\n", new_left - 1
    return old, new
