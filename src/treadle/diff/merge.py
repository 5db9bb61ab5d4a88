"""Two changes of one text, put together (three-way merge). Where both changed the same lines or neighbouring lines, and
not in the same way, the merge reports a clash: it drops no text and writes no conflict markers.

Where lines repeat, a change can be read in several places, and two changes could then be the same one, or slide onto
each other. Only lines that are unchanged under every reading separate two changes (`alignment`), so a merge without a
clash does not depend on a choice among readings."""

from collections.abc import Iterator, Sequence

import msgspec

from treadle.diff.alignment import certain_stretches
from treadle.diff.diff import split


class Clash(msgspec.Struct, frozen=True):
    """Lines that both changed, counted from 1, in `ours`: from the first to before the last; none if it only lacks
    what is there in the others."""

    first: int
    last: int


class Merged(msgspec.Struct, frozen=True):
    data: bytes
    """Nothing, if there are clashes."""
    clashes: tuple[Clash, ...] = ()


def merge(base: bytes, ours: bytes, theirs: bytes) -> Merged:
    """Apply the changes from `base` to `theirs` to `ours` (three-way merge)."""
    if ours == theirs or theirs == base:
        return Merged(ours)
    if ours == base:
        return Merged(theirs)
    old, one, their_lines = (split(text.decode("utf-8", "surrogateescape")) for text in (base, ours, theirs))
    merged: list[str] = []
    clashes: list[Clash] = []
    o = a = b = 0
    unchanged = _unchanged_by_both(certain_stretches(old, one), certain_stretches(old, their_lines))
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


def _unchanged_by_both(
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
