"""Where a passage stands in a text, exactly or with small differences left aside: the cascade that edit_file and
apply_patch share (T-03, T-08). Pure, and linear in the size of the text: each level compares canonical forms of whole
lines by one substring search. A passage may be shifted against the file by spaces or tabs; a shift
must hold for every line, or there is none. Knows nothing of what is done with a match."""

from bisect import bisect_right
from fractions import Fraction
from functools import cached_property
from itertools import accumulate
from math import gcd
from os.path import commonprefix
from typing import Literal

import msgspec


class Shift(msgspec.Struct, frozen=True):
    """Either `add` is put before and `drop` taken from each line's indentation, or its width is scaled into `kind`."""

    add: str = ""
    drop: str = ""
    kind: str = ""  # The character to indent with; empty: no scaling
    factor: Fraction = Fraction(1)
    offset: Fraction = Fraction(0)

    def apply(self, line: str) -> str:
        """The line at its new indentation. Blank lines stay as they are."""
        indent, content = split_indent(line)
        return self.indent(indent) + content if content.strip() else line

    def indent(self, indent: str) -> str:
        if self.kind:
            return self.kind * max(0, int(self.factor * len(indent) + self.offset))
        return self.add + indent[len(commonprefix((indent, self.drop))) :]  # noqa: RUF071 - letters, not folders


def split_indent(line: str) -> tuple[str, str]:
    content = line.lstrip(" \t")
    return line[: len(line) - len(content)], content


def infer(mine: list[str], theirs: list[str], new_indents: list[str]) -> Shift | None:
    """The shift that makes each indentation of `mine` the one in `theirs`; `new_indents` will be shifted, too."""
    pairs = list(dict.fromkeys(zip(mine, theirs, strict=True)))
    own_indent, file = pairs[0]
    added, dropped = file.removesuffix(own_indent), own_indent.removesuffix(file)
    if file.endswith(own_indent) and all(f == added + o for o, f in pairs):
        return Shift(add=added)
    if own_indent.endswith(file) and all(o == dropped + f for o, f in pairs):
        return Shift(drop=dropped)
    return _find_scaled_shift(pairs, new_indents)


def _find_scaled_shift(pairs: list[tuple[str, str]], new_indents: list[str]) -> Shift | None:
    mine, theirs = (
        _find_common_character([own_indent for own_indent, _ in pairs] + new_indents),
        _find_common_character([file for _, file in pairs]),
    )
    if not mine or not theirs:
        return None
    widths = sorted({(len(own_indent), len(file)) for own_indent, file in pairs})
    factor = _find_factor(widths, mine, theirs, [len(indent) for indent in new_indents])
    if factor is None:
        return None
    offset = widths[0][1] - factor * widths[0][0]
    shift = Shift(kind=theirs, factor=factor, offset=offset)
    if any(shift.indent(own_indent) != file for own_indent, file in pairs):
        return None
    # A level that does not come out whole would be a guess.
    return shift if all((factor * len(indent) + offset).denominator == 1 for indent in new_indents) else None


def _find_factor(widths: list[tuple[int, int]], mine: str, theirs: str, new_widths: list[int]) -> Fraction | None:
    (low, low_file), (high, high_file) = widths[0], widths[-1]
    if high != low:
        return Fraction(high_file - low_file, high - low) if high_file > low_file else None
    if mine == theirs:
        return Fraction(1)
    ratio = Fraction(low_file, low) if low and low_file else None
    if ratio is not None and 1 in (ratio.numerator, ratio.denominator):
        return ratio  # one level only: its width is what both sides must agree on
    level = gcd(*new_widths, low)
    return Fraction(4) if mine != " " else Fraction(1, level if level in (2, 3, 4, 8) else 4)


def _find_common_character(indents: list[str]) -> str:
    """The one character that all of them consist of; a space if all are empty, nothing if they are mixed."""
    characters = set("".join(indents)) or {" "}
    return characters.pop() if len(characters) == 1 else ""


MatchKind = Literal["exact", "line_endings", "trailing_space", "punctuation", "indentation", "line_numbers"]
"""How a passage was found. Each level leaves aside what the ones before it do, too."""

LOOSE: tuple[MatchKind, ...] = ("line_endings", "trailing_space", "punctuation")

_PUNCTUATION = {
    "'": "\u2018\u2019\u201a\u201b\u2032\u02bc",
    '"': "\u201c\u201d\u201e\u201f\u2033",
    "-": "\u2010\u2011\u2012\u2013\u2014\u2015\u2212",
    " ": "\u00a0\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f\u3000",
}


class TextSpan(msgspec.Struct, frozen=True):
    start: int
    end: int
    shift: Shift | None = None
    unended: bool = False  # The passage ends with a newline that the text lacks at its very end


def simplify_punctuation(text: str) -> str:
    """Typographic quotes, dashes and spaces as ASCII, one character for one; so columns stay what they are."""
    if text.isascii():
        return text
    for plain, variants in _PUNCTUATION.items():
        for character in variants:  # `str.translate` takes twenty times as long
            text = text.replace(character, plain)
    return text


def normalize_lines(lines: list[str], match_kind: MatchKind) -> list[str]:
    """Lines without what the level ignores: at their ends, so that columns stay; with `indentation` at both."""
    match match_kind:
        case "line_endings":
            return [line[:-1] if line.endswith("\r") else line for line in lines]
        case "trailing_space":
            return [line.rstrip() for line in lines]
        case "punctuation":
            return [line.rstrip() for line in simplify_punctuation("\n".join(lines)).split("\n")]
        case "indentation":
            return [line.strip() for line in simplify_punctuation("\n".join(lines)).split("\n")]
        case _:
            return lines


class _Form:
    def __init__(self, text: str, lines: list[str]) -> None:
        self.text, self.lines = text, lines

    @cached_property
    def starts(self) -> list[int]:
        """One more than there are lines: the last is behind the end."""
        return [0, *accumulate(map((1).__add__, map(len, self.lines)))]


class SearchedText:
    """A text that passages are looked for in. Canonical forms are made once and kept."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.lines = text.split("\n")
        self._forms: dict[MatchKind, _Form] = {}

    @property
    def starts(self) -> list[int]:
        """Where each line begins, and one more than the end."""
        return self._get_form("exact").starts

    def find_line_number(self, offset: int) -> int:
        return min(bisect_right(self.starts, offset), len(self.lines)) - 1

    def _get_form(self, match_kind: MatchKind) -> _Form:
        if match_kind not in self._forms:
            lines = normalize_lines(self.lines, match_kind)
            text = self.text if match_kind == "exact" else "\n".join(lines)
            self._forms[match_kind] = _Form(text, lines)
        return self._forms[match_kind]

    # -- passages of characters -----------------------------------------------------------------------------------
    def can_find_more(self, passage: str, match_kind: MatchKind) -> bool:
        """True if a level can find anything that the one before it cannot."""
        if match_kind == "line_endings":
            return "\r" in self.text or "\r" in passage or passage.endswith("\n")
        return match_kind != "punctuation" or not (self.text.isascii() and passage.isascii())

    def find(self, passage: str, match_kind: MatchKind, *, every: bool = False) -> list[TextSpan]:
        """The places of a passage, also inside of lines; overlapping ones, too, unless `every` is replaced."""
        passage_lines = passage.split("\n")
        plain = simplify_punctuation(passage_lines[-1]) if match_kind == "punctuation" else passage_lines[-1]
        forms = normalize_lines(passage_lines, match_kind)
        if match_kind != "line_endings" and not any(form.strip() for form in forms):
            return []  # blank lines alone say too little
        is_trimmed = forms[-1] != plain
        spans = self._find_spans("\n".join(forms), match_kind, is_trimmed, every)
        if is_trimmed:  # the space may also stand before other text
            spans += self._find_spans("\n".join([*forms[:-1], plain]), match_kind, False, every)
        return sorted(spans, key=lambda span: span.start)

    def _find_spans(self, needle: str, match_kind: MatchKind, to_line_end: bool, every: bool) -> list[TextSpan]:
        if not needle:
            return []
        form = self._get_form(match_kind)
        virtual = needle.endswith("\n") and bool(needle.strip()) and not form.text.endswith("\n")
        hay = form.text + "\n" if virtual else form.text
        ends = ((at, at + len(needle)) for at in find_offsets(hay, needle, every=every))
        fitting = [(at, end) for at, end in ends if not to_line_end or end == len(hay) or hay[end] == "\n"]
        return [self._make_span(form, at, end, needle, to_line_end) for at, end in fitting]

    def _make_span(self, form: _Form, at: int, end: int, needle: str, to_line_end: bool) -> TextSpan:
        first = bisect_right(form.starts, at) - 1
        begin = self.starts[first] + (self._measure_content(first) if needle[0] == "\n" else at - form.starts[first])
        last = bisect_right(form.starts, end) - 1
        if last >= len(form.lines):
            return TextSpan(begin, len(self.text), unended=True)
        return TextSpan(
            begin, self.starts[last] + (self._measure_content(last) if to_line_end else end - form.starts[last])
        )

    def _measure_content(self, line: int) -> int:
        return len(self.lines[line].removesuffix("\r"))

    # -- passages of whole lines ----------------------------------------------------------------------------------
    def find_lines(self, passage_lines: list[str], match_kind: MatchKind) -> list[int]:
        """Where these whole lines stand one after the other: the numbers of the first, from 0."""
        form = self._get_form(match_kind)
        needle = "\n" + "\n".join(normalize_lines(passage_lines, match_kind)) + "\n"
        return [bisect_right(form.starts, at) - 1 for at in find_offsets(f"\n{form.text}\n", needle)]

    def find_shifted(self, passage_lines: list[str], new: list[str]) -> list[tuple[int, Shift]]:
        """Where these lines stand with one shift of all. `new`: lines to shift likewise; they tell a level's width."""
        forms = normalize_lines(passage_lines, "indentation")
        if not any(forms):
            return []
        mine = [split_indent(line)[0] for line, form in zip(passage_lines, forms, strict=True) if form]
        new_indents = [split_indent(line)[0] for line in new if line.strip()]
        matches = []
        for at in self.find_lines(passage_lines, "indentation"):
            theirs = [split_indent(self.lines[at + i])[0] for i, form in enumerate(forms) if form]
            if (shift := infer(mine, theirs, new_indents)) is not None:
                matches.append((at, shift))
        return matches


def find_offsets(text: str, passage: str, *, every: bool = False) -> list[int]:
    """Where a passage begins. Bounded, where it overlaps itself over and over: each place costs its length."""
    most = len(text) + 1 if every else max(200, 20_000_000 // len(passage))
    step = len(passage) if every else 1
    offsets: list[int] = []
    at = text.find(passage)
    while at != -1 and len(offsets) < most:
        offsets.append(at)
        at = text.find(passage, at + step)
    return offsets
