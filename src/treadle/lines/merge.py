"""Two changes of one text, put together (three-way merge). Where both changed the same lines, or lines beside each
other, and not in the same way, there is no answer: nobody's text is thrown away, and no marks are written into it."""

from collections.abc import Iterator

import msgspec

from treadle.lines.diff import Opcode, opcodes, split


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
    """What became of `base` in `ours`, and also what became of it in `theirs`."""
    if ours == theirs or theirs == base:
        return Merged(ours)
    if ours == base:
        return Merged(theirs)
    old, one, other = (split(text.decode("utf-8", "surrogateescape")) for text in (base, ours, theirs))
    merged: list[str] = []
    clashes: list[Clash] = []
    o = a = b = 0
    for next_o, next_a, next_b, size in _agreed(opcodes(old, one), opcodes(old, other), len(old), len(one), len(other)):
        was, mine, yours = old[o:next_o], one[a:next_a], other[b:next_b]
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


def _agreed(
    one: list[Opcode], other: list[Opcode], old: int, first: int, second: int
) -> Iterator[tuple[int, int, int, int]]:
    """Stretches of the base that neither changed: where they begin in all three, and how long they are. The end of
    all three is the last of them."""
    mine = [code for code in one if code[0] == "equal"]
    yours = [code for code in other if code[0] == "equal"]
    i = j = 0
    while i < len(mine) and j < len(yours):
        _, a1, a2, at, _ = mine[i]
        _, b1, b2, to, _ = yours[j]
        begin, end = max(a1, b1), min(a2, b2)
        if begin < end:
            yield begin, at + begin - a1, to + begin - b1, end - begin
        if a2 < b2:
            i += 1
        else:
            j += 1
    yield old, first, second, 0
