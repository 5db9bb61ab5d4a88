"""What changed in a text, as a unified diff and as two numbers; which lines of two texts are the same. Bounded in size,
and in time: what is equal at both ends is passed over at the speed of memory, long texts are first cut at lines that
stand in both exactly once, and what is beyond recognition even then counts as replaced."""

import difflib
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
"""As difflib has it: what became of lines i1 to i2 of the one, which are lines j1 to j2 of the other."""


def middle(old: str, new: str) -> tuple[list[str], list[str], int]:
    """The lines of both around what differs, with enough equal ones for the context, and how many come before."""
    start = old.rfind("\n", 0, _common(old, new)) + 1
    for _ in range(CONTEXT + 1):
        start = old.rfind("\n", 0, max(0, start - 1)) + 1
    most = min(len(old), len(new)) - start
    tail = _common_end(old, new, most)
    tail = 0 if tail <= 0 else _line_start_within(old, tail)
    return split(old[start : len(old) - tail]), split(new[start : len(new) - tail]), old.count("\n", 0, start)


def split(text: str) -> list[str]:
    """Lines with their ends, split at newlines only."""
    lines = text.split("\n")
    last = lines.pop()
    return [f"{line}\n" for line in lines] + ([last] if last else [])


def opcodes(before: list[str], after: list[str]) -> list[Opcode]:
    """What became of every line; equal and changed stretches take turns."""
    codes: list[Opcode] = []
    for code in _pieces(before, after):
        tag, i1, i2, j1, j2 = code
        if codes and (codes[-1][0] == "equal") == (tag == "equal"):
            _, i1, _, j1, _ = codes.pop()
            tag = "equal" if tag == "equal" else "replace" if i1 < i2 and j1 < j2 else "delete" if i1 < i2 else "insert"
        codes.append((tag, i1, i2, j1, j2))
    return codes


def _pieces(before: list[str], after: list[str]) -> Iterator[Opcode]:
    """The same, in pieces that may have to be joined."""
    start, end = equal_ends(before, after)
    i2, j2 = len(before) - end, len(after) - end
    if start:
        yield "equal", 0, start, 0, start
    old, new = before[start:i2], after[start:j2]
    if max(len(old), len(new)) <= _MAX_COMPARED:
        yield from _compared(old, new, start, start)
    else:
        yield from _anchored(old, new, start, start)
    if end:
        yield "equal", i2, len(before), j2, len(after)


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
    """Long texts, compared between the lines that both have exactly once and in the same order. What may be spent on
    that is what one comparison of the greatest allowed size costs."""
    left = _MAX_COMPARED * _MAX_COMPARED
    a = b = 0
    for next_a, next_b in [*anchors(old, new), (len(old), len(new))]:
        start, end = equal_ends(old[a:next_a], new[b:next_b])
        if start:
            yield "equal", i + a, i + a + start, j + b, j + b + start
        a, b = a + start, b + start
        until_a, until_b = next_a - end, next_b - end
        cost = (until_a - a) * (until_b - b)
        if cost <= left:
            left -= cost
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
    before: list[int] = []
    for number, (_, place) in enumerate(pairs):
        length = bisect_left(ends, place)
        before.append(tops[length - 1] if length else -1)
        ends[length : length + 1] = [place]
        tops[length : length + 1] = [number]
    row: list[tuple[int, int]] = []
    at = tops[-1] if tops else -1
    while at >= 0:
        row.append(pairs[at])
        at = before[at]
    return row[::-1]


def groups(codes: list[Opcode]) -> list[list[Opcode]]:
    """Hunks: changes with three lines around them, joined where those overlap."""
    found: list[list[Opcode]] = []
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
            found.append(group)
            group = []
        if not last:
            group = [(tag, max(i1, i2 - CONTEXT), i2, max(j1, j2 - CONTEXT), j2)]
    if any(code[0] != "equal" for code in group):
        found.append(group)
    return found


# -- equal ends, at the speed of memory -------------------------------------------------------------------------------


def _line_start_within(text: str, tail: int) -> int:
    """How much of an equal end can be left out: it begins at a line, some lines behind the difference."""
    at = len(text) - tail
    for _ in range(CONTEXT + 2):
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
    head = [f"--- {'/dev/null' if old is None else path}", f"+++ {'/dev/null' if new is None else path}"]
    text = bounded("\n".join([*head, *_hunks(before, after, codes, line)]))
    return Diff(text, _stat(codes))


def count_lines(old: str, new: str) -> DiffStat:
    """How many lines come and go."""
    before, after = (_told_apart(old), _told_apart(new)) if len(old) + len(new) <= _SHORT else middle(old, new)[:2]
    start, end = equal_ends(before, after)
    removed, added = len(before) - start - end, len(after) - start - end
    if not removed or not added:
        return DiffStat(added, removed)
    return _stat(_pieces(before, after))


def _told_apart(text: str) -> list[str]:
    """Lines that are equal where those of `split` are: only a last one without an end has an end here."""
    lines = text.split("\n")
    last = lines.pop()
    return [*lines, f"{last}\n"] if last else lines


def _stat(codes: Iterable[Opcode]) -> DiffStat:
    added = removed = 0
    for tag, i1, i2, j1, j2 in codes:
        if tag != "equal":
            added, removed = added + j2 - j1, removed + i2 - i1
    return DiffStat(added, removed)


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
