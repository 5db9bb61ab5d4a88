"""How a passage that a model wrote is shifted against the same lines in a file, and the same shift for other lines
(T-03). Spaces and tabs; a shift must hold for every line, or there is none."""

from fractions import Fraction
from math import gcd

import msgspec


class Shift(msgspec.Struct, frozen=True):
    """Either `add` is put before and `drop` taken from each line's indentation, or its width is scaled into `kind`."""

    add: str = ""
    drop: str = ""
    kind: str = ""
    """The character to indent with; empty: no scaling."""
    factor: Fraction = Fraction(1)
    offset: Fraction = Fraction(0)

    def apply(self, line: str) -> str:
        """The line at its new indentation. Blank lines stay as they are."""
        indent, rest = split_indent(line)
        if not rest.strip():
            return line
        return self.indent(indent) + rest

    def indent(self, indent: str) -> str:
        if self.kind:
            width = self.factor * len(indent) + self.offset
            return self.kind * max(0, int(width))
        if self.drop:
            common = 0
            while common < len(self.drop) and indent[common : common + 1] == self.drop[common]:
                common += 1
            return indent[common:]
        return self.add + indent


def split_indent(line: str) -> tuple[str, str]:
    rest = line.lstrip(" \t")
    return line[: len(line) - len(rest)], rest


def infer(mine: list[str], theirs: list[str], asked: list[str]) -> Shift | None:
    """The shift that makes each indentation of `mine` the one in `theirs`; `asked` are others that will be shifted."""
    pairs = list(dict.fromkeys(zip(mine, theirs, strict=True)))
    own, file = pairs[0]
    if file.endswith(own) and all(f == file[: len(file) - len(own)] + o for o, f in pairs):
        return Shift(add=file[: len(file) - len(own)])
    if own.endswith(file) and all(o == own[: len(own) - len(file)] + f for o, f in pairs):
        return Shift(drop=own[: len(own) - len(file)])
    return _scaled(pairs, asked)


def _scaled(pairs: list[tuple[str, str]], asked: list[str]) -> Shift | None:
    """Tabs for spaces, spaces for tabs, or another number of spaces a level."""
    mine, theirs = _kind([own for own, _ in pairs] + asked), _kind([file for _, file in pairs])
    if not mine or not theirs:
        return None
    widths = sorted({(len(own), len(file)) for own, file in pairs})
    factor = _factor(widths, mine, theirs, [len(indent) for indent in asked])
    if factor is None:
        return None
    offset = widths[0][1] - factor * widths[0][0]
    shift = Shift(kind=theirs, factor=factor, offset=offset)
    if any(shift.indent(own) != file for own, file in pairs):
        return None
    # A level that does not come out whole would be a guess.
    return shift if all((factor * len(indent) + offset).denominator == 1 for indent in asked) else None


def _factor(widths: list[tuple[int, int]], mine: str, theirs: str, asked: list[int]) -> Fraction | None:
    (low, low_file), (high, high_file) = widths[0], widths[-1]
    if high != low:
        return Fraction(high_file - low_file, high - low) if high_file > low_file else None
    if mine == theirs:
        return Fraction(1)
    if low and low_file:  # one level only: its width is what both sides must agree on
        ratio = Fraction(low_file, low)
        if ratio.numerator == 1 or ratio.denominator == 1:
            return ratio
    level = gcd(*asked, low) if mine == " " else 4
    if mine == " " and level not in (2, 3, 4, 8):
        level = 4
    return Fraction(1, level) if mine == " " else Fraction(level)


def _kind(indents: list[str]) -> str:
    """The one character that all of them consist of; a space if all are empty, nothing if they are mixed."""
    characters = set("".join(indents))
    if len(characters) > 1:
        return ""
    return characters.pop() if characters else " "
