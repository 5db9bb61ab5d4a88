"""Where a passage stands in a text, exactly or with small differences left aside: the cascade that edit_file and
apply_patch share (T-03, T-08). Pure, and linear in the size of the text: each level compares canonical forms of whole
lines by one substring search. Knows nothing of what is done with a match."""

from bisect import bisect_right
from functools import cached_property
from itertools import accumulate
from typing import Literal

import msgspec

from treadle.tools.builtin.indentation import Shift, infer, split_indent

How = Literal["exact", "line_endings", "trailing_space", "punctuation", "indentation", "line_numbers"]
"""How a passage was found. Each level leaves aside what the ones before it do, too."""

LOOSE: tuple[How, ...] = ("line_endings", "trailing_space", "punctuation")

_PUNCTUATION = (
    ("'", "\u2018\u2019\u201a\u201b\u2032\u02bc"),
    ('"', "\u201c\u201d\u201e\u201f\u2033"),
    ("-", "\u2010\u2011\u2012\u2013\u2014\u2015\u2212"),
    (" ", "\u00a0\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f\u3000"),
)


class Span(msgspec.Struct, frozen=True):
    """A match in the original text: where it begins and ends, and how its lines are shifted."""

    start: int
    end: int
    shift: Shift | None = None
    unended: bool = False
    """The passage ends with a newline that the text lacks at its very end."""


def plain_punctuation(text: str) -> str:
    """Typographic quotes, dashes and spaces as ASCII, one character for one; so columns stay what they are."""
    if text.isascii():
        return text
    for plain, fancy in _PUNCTUATION:
        for character in fancy:
            text = text.replace(character, plain)
    return text


def canonical(lines: list[str], how: How) -> list[str]:
    """Each line without what the level leaves aside. What is taken away stands at its end, so that columns hold; only
    `indentation` takes the beginning, too."""
    match how:
        case "line_endings":
            return [line[:-1] if line.endswith("\r") else line for line in lines]
        case "trailing_space":
            return [line.rstrip() for line in lines]
        case "punctuation":
            return [line.rstrip() for line in plain_punctuation("\n".join(lines)).split("\n")]
        case "indentation":
            return [line.strip() for line in plain_punctuation("\n".join(lines)).split("\n")]
        case _:
            return lines


class _Form:
    """A canonical text, its lines, and where each of them begins."""

    def __init__(self, text: str, lines: list[str]) -> None:
        self.text = text
        self.lines = lines

    @cached_property
    def starts(self) -> list[int]:
        """One more than there are lines: the last is behind the end."""
        return [0, *accumulate(map((1).__add__, map(len, self.lines)))]


class Body:
    """A text that passages are looked for in. Canonical forms are made once and kept."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.lines = text.split("\n")
        self._forms: dict[How, _Form] = {}

    @property
    def starts(self) -> list[int]:
        """Where each line begins, and one more than the end."""
        return self._form("exact").starts

    def line_at(self, offset: int) -> int:
        """The number of the line, from 0, in which an offset lies."""
        return min(bisect_right(self.starts, offset), len(self.lines)) - 1

    def _form(self, how: How) -> _Form:
        if how not in self._forms:
            lines = canonical(self.lines, how)
            text = self.text if how == "exact" else "\n".join(lines)
            self._forms[how] = _Form(text, lines)
        return self._forms[how]

    # -- passages of characters -----------------------------------------------------------------------------------

    def worth(self, passage: str, how: How) -> bool:
        """Whether a level can find anything that the one before it cannot."""
        match how:
            case "line_endings":
                return "\r" in self.text or "\r" in passage or passage.endswith("\n")
            case "punctuation":
                return not (self.text.isascii() and passage.isascii())
            case _:
                return True

    def find(self, passage: str, how: How, *, every: bool = False) -> list[Span]:
        """The places of a passage that may begin and end inside a line. Those that overlap count, too, unless `every`
        place is to be replaced."""
        wanted = passage.split("\n")
        plain = plain_punctuation(wanted[-1]) if how == "punctuation" else wanted[-1]
        forms = canonical(wanted, how)
        if how != "line_endings" and not any(form.strip() for form in forms):
            return []  # blank lines alone say too little
        cut = forms[-1] != plain
        found = self._spans("\n".join(forms), how, cut, every)
        if cut:  # what looks like trailing space may be space before something
            found += self._spans("\n".join([*forms[:-1], plain]), how, False, every)
        return sorted(found, key=lambda span: span.start)

    def _spans(self, needle: str, how: How, to_line_end: bool, every: bool) -> list[Span]:
        if not needle:
            return []
        form = self._form(how)
        virtual = needle.endswith("\n") and bool(needle.strip()) and not form.text.endswith("\n")
        hay = form.text + "\n" if virtual else form.text
        spans = []
        for at in places(hay, needle, every=every):
            end = at + len(needle)
            if not to_line_end or end == len(hay) or hay[end] == "\n":
                spans.append(self._span(form, at, end, needle, to_line_end))
        return spans

    def _span(self, form: _Form, at: int, end: int, needle: str, to_line_end: bool) -> Span:
        """From canonical offsets to those of the text itself."""
        first = bisect_right(form.starts, at) - 1
        begin = self.starts[first] + (self._content(first) if needle[0] == "\n" else at - form.starts[first])
        last = bisect_right(form.starts, end) - 1
        if last >= len(form.lines):
            return Span(begin, len(self.text), unended=True)
        return Span(begin, self.starts[last] + (self._content(last) if to_line_end else end - form.starts[last]))

    def _content(self, line: int) -> int:
        """How long a line is without its carriage return."""
        return len(self.lines[line].removesuffix("\r"))

    # -- passages of whole lines ----------------------------------------------------------------------------------

    def find_lines(self, wanted: list[str], how: How) -> list[int]:
        """Where these whole lines stand one after the other: the numbers of the first, from 0."""
        form = self._form(how)
        needle = "\n" + "\n".join(canonical(wanted, how)) + "\n"
        return [bisect_right(form.starts, at) - 1 for at in places(f"\n{form.text}\n", needle)]

    def find_shifted(self, wanted: list[str], new: list[str]) -> list[tuple[int, Shift]]:
        """Where these whole lines stand with another indentation, if it is the same shift for all of them. `new` are
        the lines that shall be shifted likewise; their indentation helps to tell how wide a level is."""
        forms = canonical(wanted, "indentation")
        if not any(forms):
            return []
        mine = [split_indent(line)[0] for line, form in zip(wanted, forms, strict=True) if form]
        asked = [split_indent(line)[0] for line in new if line.strip()]
        found = []
        for at in self.find_lines(wanted, "indentation"):
            theirs = [split_indent(self.lines[at + i])[0] for i, form in enumerate(forms) if form]
            shift = infer(mine, theirs, asked)
            if shift is not None:
                found.append((at, shift))
        return found


def places(text: str, passage: str, *, every: bool = False) -> list[int]:
    """Where a passage begins. Bounded, where it overlaps itself over and over: each place costs its length."""
    most = len(text) + 1 if every else max(200, 20_000_000 // len(passage))
    step = len(passage) if every else 1
    found: list[int] = []
    at = text.find(passage)
    while at != -1 and len(found) < most:
        found.append(at)
        at = text.find(passage, at + step)
    return found
