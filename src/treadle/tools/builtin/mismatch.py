"""What a model is told when a passage is not found once (T-03): every place it stands, the nearest passage as a small
diff, and what usually went wrong. Pure, in bounded time; the texts are bounded, too."""

import html
import re
from itertools import pairwise

import msgspec

from treadle.tools.builtin.matching import Body, How
from treadle.tools.builtin.nearest import clip, nearest

ASIDE: dict[How, str] = {
    "exact": "",
    "line_endings": "line endings left aside",
    "trailing_space": "space at the ends of lines left aside",
    "punctuation": "typographic quotes, dashes and spaces taken for plain ones",
    "indentation": "its lines indented differently",
    "line_numbers": "the line numbers before its lines left out",
}
"""How a match that was not exact was found, in words."""

_LINES_NAMED = 50
_PLACES_SHOWN = 5
_NUMBERED = re.compile(r"[ \t]*(\d{1,7})(\t|→|[:|│](?! )|[:|│] )")


def ambiguous(text: str, starts: list[int], old: str, how: How) -> str:
    """Every line where the passage begins, and the first places with the line before, which may tell them apart."""
    shift = len(old) - len(old.lstrip("\r\n"))  # a leading newline belongs to the line before
    named = starts[:_LINES_NAMED]
    numbers = list(dict.fromkeys(_lines_of(text, [start + shift for start in named])))
    total = max(len(starts), text.count(old))
    places = f"line{'s' if len(numbers) > 1 else ''} {', '.join(map(str, numbers))}"
    more = f" and {total - len(named):,} more places" if total > len(named) else ""
    aside = f" ({ASIDE[how]})" if ASIDE[how] else ""
    return (
        f"old_str occurs {total:,} times, beginning in {places}{more}{aside}. Add lines around the one you mean "
        f"so that it is unique, or set replace_all to true.\n{_around(text.split(chr(10)), numbers[:_PLACES_SHOWN])}"
    )


def _around(lines: list[str], numbers: list[int]) -> str:
    """Lines by their numbers, each with the one before it."""
    width = len(str(numbers[-1]))
    shown = []
    for number in numbers:
        pair = [number - 1, number] if number > 1 else [number]
        shown.append("\n".join(f" {at:>{width}}  {clip(lines[at - 1])}" for at in pair))
    return "\n\n".join(shown)


def _lines_of(text: str, offsets: list[int]) -> list[int]:
    numbers = []
    at, line = 0, 1
    for offset in offsets:
        line += text.count("\n", at, offset)
        at = offset
        numbers.append(line)
    return numbers


def not_found(body: Body, old: str, new: str, name: str = "old_str") -> str:
    """What went wrong, as far as it can be told, and the passage that was probably meant."""
    there = already_there(body, new)
    if there:
        return (
            f"{name} was not found, but new_str is already there, in line {there}: the edit seems to be already "
            "applied."
        )
    slip = _escaped(body, old)
    if slip:
        return slip
    bare = without_numbers(old)
    if bare is None:
        return f"{name} was not found. {nearest(body, old, name)}"
    return (
        f"{name} was not found. It seems to contain the line numbers that read_file puts before each line; they are "
        f"not part of the file. {nearest(body, bare.text, name)}"
    )


def already_there(body: Body, new: str) -> int:
    """The line, from 1, where the new text already stands; 0 if it does not, or if that means nothing."""
    bare = new.strip()
    if not bare:
        return 0
    spans = body.find(new, "trailing_space")
    if not spans or (len(spans) > 1 and len(bare) < 4):
        return 0
    begins = spans[0].start + len(new) - len(new.lstrip("\r\n"))
    return body.line_at(begins) + 1


def _escaped(body: Body, old: str) -> str:
    """Escapes that were made once too often."""
    plain = old.replace("\\r\\n", "\n").replace("\\n", "\n").replace("\\t", "\t").replace('\\"', '"')
    if plain != old and (spans := body.find(plain, "trailing_space")):
        line = body.line_at(spans[0].start) + 1
        return (
            f"old_str was not found as it is, but its text stands in line {line} without the backslashes: old_str has "
            'the two characters \\n (or \\t, or \\") where the file has the one that they stand for. Send real line '
            "breaks, tabs and quotes: escape once for JSON, not twice."
        )
    plain = html.unescape(old)
    if plain != old and (spans := body.find(plain, "trailing_space")):
        line = body.line_at(spans[0].start) + 1
        return (
            f"old_str was not found as it is, but its text stands in line {line} with the characters that &lt;, &gt; "
            "or &amp; stand for. Send the characters themselves."
        )
    return ""


class Bare(msgspec.Struct, frozen=True):
    """A passage without the line numbers before its lines."""

    text: str
    first: int
    several: bool


def without_numbers(text: str, *, in_order: bool = True) -> Bare | None:
    """The passage without its line numbers, if every line has one and they count up; None otherwise."""
    lines = text.split("\n")
    last = [""] if len(lines) > 1 and not lines[-1] else []
    body = lines[: len(lines) - len(last)]
    found = [_NUMBERED.match(line) for line in body]
    if not all(found):
        return None
    matches = [match for match in found if match is not None]
    numbers = [int(match[1]) for match in matches]
    if in_order and any(b != a + 1 for a, b in pairwise(numbers)):
        return None
    spaced = all(
        match[2][0] not in ":|│" or match[2].endswith(" ") or match.end() == len(line.rstrip("\r"))
        for match, line in zip(matches, body, strict=True)
    )
    cut = [line[match.end() if spaced else match.end(1) + 1 :] for match, line in zip(matches, body, strict=True)]
    return Bare("\n".join([*cut, *last]), numbers[0], len(numbers) > 1)


def some_numbers(text: str) -> bool:
    """Whether any line begins as those of read_file do."""
    return any(_NUMBERED.match(line) for line in text.split("\n"))
