"""Two changes of one text, put together (three-way merge). Where both changed the same lines or neighbouring lines, and
not in the same way, the merge reports a clash: it drops no text and writes no conflict markers.

Where lines repeat, a change can be read in several places, and two changes could then be the same one, or slide onto
each other. Only lines that are unchanged under every reading separate two changes, so a merge without a clash does not
depend on a choice among readings: a pair of equal lines is certain if every shortest edit script keeps it. Shortest
scripts are paths through a grid (Myers 1986), and all of them lie between two outermost ones: one path has its
additions as late as possible, the other one its removals. A pair on both outermost paths is therefore on every path."""

from array import array
from collections import Counter
from collections.abc import Iterator, Sequence

import msgspec

from treadle.diff.diff import count_equal_ends, find_anchors, split_lines

_MAX_STEPS = 1_000_000
"""Steps that one comparison may take. Longer ones are cut at lines that both texts have exactly once."""

Pair = tuple[int, int]  # Where a line is in the old text and in the new one


def find_certain_stretches(old: Sequence[str], new: Sequence[str]) -> list[tuple[int, int, int]]:
    """Lines without a change between them: where they begin in both texts, and their number."""
    start, end = _count_certain_ends(old, new)
    stretches = [(0, 0, start)]
    pairs = _find_certain_pairs(old[start : len(old) - end], new[start : len(new) - end])
    for i, j, size in (*((start + i, start + j, 1) for i, j in pairs), (len(old) - end, len(new) - end, end)):
        last_i, last_j, last_size = stretches[-1]
        if (i, j) == (last_i + last_size, last_j + last_size):
            stretches[-1] = (last_i, last_j, last_size + size)
        else:
            stretches.append((i, j, size))
    return stretches


def _count_certain_ends(old: Sequence[str], new: Sequence[str]) -> tuple[int, int]:
    """Equal lines at the beginning and at the end that need no comparison: those up to a line that both texts have only
    once. A script that does not keep them all is longer than one that does."""
    start, end = count_equal_ends(old, new)
    if not start and not end:
        return 0, 0
    counts, other_counts = Counter(old), Counter(new)
    while start and not counts[old[start - 1]] == other_counts[old[start - 1]] == 1:
        start -= 1
    while end and not counts[old[-end]] == other_counts[old[-end]] == 1:
        end -= 1
    return start, end


def _find_certain_pairs(old: Sequence[str], new: Sequence[str]) -> list[Pair]:
    # Lines that only one text has are in no pair. Without them a comparison is short also where much was replaced.
    numbers = {line: number for number, line in enumerate({*old} & {*new})}
    old_places, new_places = ([at for at, line in enumerate(lines) if line in numbers] for lines in (old, new))
    a, b = [numbers[old[at]] for at in old_places], [numbers[new[at]] for at in new_places]
    compared = _compare(a, b, _MAX_STEPS)
    pairs = _compare_in_parts(a, b) if compared is None else compared
    return [(old_places[i], new_places[j]) for i, j in pairs]


def _compare_in_parts(a: list[int], b: list[int]) -> Iterator[Pair]:
    """Between lines that both have once in the same order, which are certain. A part too long counts as replaced."""
    i = j = 0
    for next_i, next_j in [*find_anchors(a, b), (len(a), len(b))]:
        part = _compare(a[i:next_i], b[j:next_j], _MAX_STEPS // 100) or ()
        yield from ((i + x, j + y) for x, y in part)
        if next_i < len(a):
            yield next_i, next_j
        i, j = next_i + 1, next_j + 1


def _compare(a: Sequence[int], b: Sequence[int], max_steps: int) -> list[Pair] | None:
    """None if that takes too many steps."""
    rows = _reach(a, b, max_steps)
    if rows is None:
        return None
    paths = (_trace_outermost_path(a, b, rows, late_additions=late) for late in (True, False))
    return [pair for pair, other_pair in zip(*paths, strict=True) if pair == other_pair][::-1]


def _reach(a: Sequence[int], b: Sequence[int], max_steps: int) -> "list[array[int]] | None":
    """For every number of edits `d` up to the least that lead from `a` to `b`: how far into `a` they reach on each
    diagonal, which is the place in `a` less the place in `b`. Row `d` has diagonals -d, 2 - d, … d."""
    rows: list[array[int]] = []
    row = array("q")
    for d in range(len(a) + len(b) + 1):
        previous_row, row = row, array("q")
        for index in range(d + 1):
            # after an addition, or after a removal
            start = x = max(previous_row[index] if index < d else 0, previous_row[index - 1] + 1 if index else 0)
            y = x - (2 * index - d)
            while x < len(a) and y < len(b) and a[x] == b[y]:
                x, y = x + 1, y + 1
            max_steps -= x - start + 1
            row.append(x)
            if x >= len(a) and y >= len(b):
                return [*rows, row]
        rows.append(row)
        if max_steps < 0:
            return None
    raise AssertionError("as many edits as there are lines lead from every text to every other")


def _trace_outermost_path(
    a: Sequence[int], b: Sequence[int], rows: "list[array[int]]", *, late_additions: bool
) -> list[Pair]:
    """The pairs of equal lines on that path, last one first."""
    pairs: list[Pair] = []
    x, y = len(a), len(b)
    for d in range(len(rows) - 1, 0, -1):
        row = rows[d - 1]
        while True:
            index = (x - y + d) // 2
            addition = index < d and row[index] >= x and y > 0
            removal = index > 0 and row[index - 1] >= x - 1 and x > 0
            if addition and (late_additions or (not removal and not _is_equal_before(a, b, x, y))):
                y -= 1
                break
            if removal and (not late_additions or not _is_equal_before(a, b, x, y)):
                x -= 1
                break
            x, y = x - 1, y - 1
            pairs.append((x, y))
    return [*pairs, *zip(range(x - 1, -1, -1), range(y - 1, -1, -1), strict=True)]


def _is_equal_before(a: Sequence[int], b: Sequence[int], x: int, y: int) -> bool:
    return x > 0 and y > 0 and a[x - 1] == b[y - 1]


class Clash(msgspec.Struct, frozen=True):
    """Lines that both changed, counted from 1, in `ours`: from the first to before the last, or none."""

    first: int
    last: int


class Merged(msgspec.Struct, frozen=True):
    data: bytes  # Nothing, if there are clashes
    clashes: tuple[Clash, ...] = ()


def merge(base: bytes, ours: bytes, theirs: bytes) -> Merged:
    """Apply the changes from `base` to `theirs` to `ours` (three-way merge)."""
    if ours == theirs or theirs == base:
        return Merged(ours)
    if ours == base:
        return Merged(theirs)
    old, one, their_lines = (split_lines(text.decode("utf-8", "surrogateescape")) for text in (base, ours, theirs))
    merged: list[str] = []
    clashes: list[Clash] = []
    o = a = b = 0
    unchanged = _iterate_unchanged(find_certain_stretches(old, one), find_certain_stretches(old, their_lines))
    for next_o, next_a, next_b, size in (*unchanged, (len(old), len(one), len(their_lines), 0)):
        was, mine, yours = old[o:next_o], one[a:next_a], their_lines[b:next_b]
        if mine == was:
            merged += yours
        elif yours in (was, mine):
            merged += mine
        else:
            clashes.append(Clash(a + 1, next_a + 1))
        merged += old[next_o : next_o + size]
        o, a, b = next_o + size, next_a + size, next_b + size
    if clashes:
        return Merged(b"", tuple(clashes))
    return Merged("".join(merged).encode("utf-8", "surrogateescape"))


def _iterate_unchanged(
    first: Sequence[tuple[int, int, int]], second: Sequence[tuple[int, int, int]]
) -> Iterator[tuple[int, int, int, int]]:
    """Stretches of the base: where they begin in all three texts, and their number of lines."""
    i = j = 0
    while i < len(first) and j < len(second):
        (first_base, first_at, first_size), (second_base, second_at, second_size) = first[i], second[j]
        begin = max(first_base, second_base)
        end = min(first_base + first_size, second_base + second_size)
        if begin < end:
            yield begin, first_at + begin - first_base, second_at + begin - second_base, end - begin
        if first_base + first_size < second_base + second_size:
            i += 1
        else:
            j += 1
