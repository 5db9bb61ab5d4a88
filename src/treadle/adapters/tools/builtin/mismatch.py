"""The message to a model if a passage is not found exactly once (T-03): all its occurrences, the nearest passage as a
small diff, and the usual cause. Votes of rare words find the nearest passage anywhere in a large file; only a few lines
are compared in earnest. Pure, in bounded time; the texts are bounded, too."""

import difflib
import html
import re
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

import msgspec
from msgspec.json import encode

from treadle.adapters.tools.builtin.matching import How, SearchedText, plain_punctuation

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
_WAYS_SHOWN = 3
_NUMBERED = re.compile(r"[ \t]*(\d{1,7})(\t|→|[:|│](?! )|[:|│] )")


def ambiguous(text: str, starts: list[int], old: str, match_kind: How) -> str:
    """Every line where the passage begins, how to say which is meant, and the first places with the line before, which
    may tell them apart."""
    listed_starts = starts[:_LINES_NAMED]
    begins = lines_of(text, listed_starts, old)
    numbers = list(dict.fromkeys(begins))
    total = max(len(starts), text.count(old))
    places = f"line{'s' if len(numbers) > 1 else ''} {', '.join(map(str, numbers))}"
    more = f" and {total - len(listed_starts):,} more places" if total > len(listed_starts) else ""
    aside = f" ({ASIDE[match_kind]})" if ASIDE[match_kind] else ""
    return (
        f"old_str occurs {total:,} times, beginning in {places}{more}{aside}. {_way_out(begins)}\n"
        f"{_around(text.split(chr(10)), numbers[:_PLACES_SHOWN])}"
    )


def _way_out(begins: list[int]) -> str:
    """The argument to send, word for word: small models read "add lines around it" and send the same call again."""
    alone = [line for line in begins if begins.count(line) == 1]
    if not alone:
        return "Add what stands around the one you mean so that it is unique."
    line_arguments = [f'"line": {line}' for line in alone]
    if len(line_arguments) > _WAYS_SHOWN:
        return f"Send the call again with the line of the one you mean, as in {line_arguments[0]}."
    return f"Send the call again with {' or '.join(line_arguments)}."


def lines_of(text: str, starts: list[int], old: str) -> list[int]:
    """The lines, from 1, where a passage begins; a leading newline belongs to the line before."""
    shift = len(old) - len(old.lstrip("\r\n"))
    return _lines_of(text, [start + shift for start in starts])


def _around(lines: list[str], numbers: list[int]) -> str:
    """Lines by their numbers, each with the one before it."""
    width = len(str(numbers[-1]))
    excerpts = []
    for number in numbers:
        pair = [number - 1, number] if number > 1 else [number]
        excerpts.append("\n".join(f" {at:>{width}}  {clip(lines[at - 1])}" for at in pair))
    return "\n\n".join(excerpts)


def _lines_of(text: str, offsets: list[int]) -> list[int]:
    numbers = []
    at, line = 0, 1
    for offset in offsets:
        line += text.count("\n", at, offset)
        at = offset
        numbers.append(line)
    return numbers


def not_found(body: SearchedText, old: str, new: str, name: str = "old_str") -> str:
    """Return the cause of the failure, as far as it can be told, and the passage that was probably meant."""
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


def already_there(body: SearchedText, new: str) -> int:
    """The line, from 1, where the new text already stands; 0 if it does not, or if that means nothing."""
    bare = new.strip()
    if not bare:
        return 0
    spans = body.find(new, "trailing_space")
    if not spans or (len(spans) > 1 and len(bare) < 4):
        return 0
    begins = spans[0].start + len(new) - len(new.lstrip("\r\n"))
    return body.line_at(begins) + 1


def _escaped(body: SearchedText, old: str) -> str:
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
    line_matches = [_NUMBERED.match(line) for line in body]
    if not all(line_matches):
        return None
    matches = [match for match in line_matches if match is not None]
    numbers = [int(match[1]) for match in matches]
    if in_order and any(b != a + 1 for a, b in pairwise(numbers)):
        return None
    spaced = all(
        match[2][0] not in ":|│" or match[2].endswith(" ") or match.end() == len(line.rstrip("\r"))
        for match, line in zip(matches, body, strict=True)
    )
    bare_lines = [
        line[match.end() if spaced else match.end(1) + 1 :] for match, line in zip(matches, body, strict=True)
    ]
    return Bare("\n".join([*bare_lines, *last]), numbers[0], len(numbers) > 1)


def some_numbers(text: str) -> bool:
    """True if any line begins as those of read_file do."""
    return any(_NUMBERED.match(line) for line in text.split("\n"))


_WORD = re.compile(r"\w{2,40}")
_WORDS = 64
_SCANNED = 60_000_000
"""Characters that may be searched for words in all."""
_PLACES_OF_A_WORD = 50
_LINES_SAMPLED = 60
_LINES_COMPARED = 60
_LINES_TRIED = 2_000
_ROWS = 24
_WIDTH = 200
_LAST_LINES = 20
_LEGEND = "(- is what the file has, + is what {name} has{spaces})"

_Op = tuple[str, int, int, int, int]


def clip(line: str) -> str:
    line = line.rstrip("\r")
    return line if len(line) <= _WIDTH else f"{line[:_WIDTH]}…"


def nearest(body: SearchedText, old: str, name: str = "old_str") -> str:
    """A sentence, and below it the place that comes nearest; or that there is none."""
    passage_lines = old.replace("\r\n", "\n").strip("\n").split("\n")
    if not old.strip():
        return "It is white space only; add the lines around it."
    at = _place(body, passage_lines)
    if at is None:
        advice = _anchor(body) if name == "old_str" else ""
        return f"No line of the file resembles it. {advice or 'Read the file again, or look for it in another file.'}"
    first, rows, spaces = _diff(body, passage_lines, at)
    legend = _LEGEND.format(name=name, spaces="; · is a space, → a tab" if spaces else "")
    return (
        f"The nearest passage begins in line {first + 1} {legend}:\n" + "\n".join(rows) + "\n"
        "Copy the text exactly as the file has it."
    )


def _anchor(body: SearchedText) -> str:
    """How to add what is not there yet: with a line that is, if one of the last ones is there only once."""
    for line in reversed(body.lines[-_LAST_LINES:]):
        anchor = line.rstrip("\r")
        if anchor.strip() and len(anchor) <= _WIDTH and body.text.count(anchor) == 1:
            quoted = encode(anchor).decode()
            return (
                "If it should be there, read the file again, or look for it in another one. If you want to add "
                f'something, send the call again with "old_str": {quoted} and with a new_str that begins with this '
                "line and has the new ones below it."
            )
    return ""


# -- where it is --------------------------------------------------------------------------------------------------


def _place(body: SearchedText, passage_lines: list[str]) -> int | None:
    """The line, from 0 (or below, if the passage began before the text), where `wanted` would begin."""
    votes = _votes(body, passage_lines)
    best, at = 0.0, None
    for place, _ in votes.most_common(4):
        likeness = _likeness(body, passage_lines, place)
        if likeness > best:
            best, at = likeness, place
    if at is not None and best >= 0.4:
        return at
    return _by_letters(body, passage_lines)


def _votes(body: SearchedText, passage_lines: list[str]) -> Counter[int]:
    """Each word votes for the places where it stands, the more the rarer it is."""
    sample = [i for i, line in enumerate(passage_lines) if line.strip()]
    if len(sample) > _LINES_SAMPLED:
        sample = sample[: _LINES_SAMPLED // 2] + sample[-_LINES_SAMPLED // 2 :]
    words: dict[str, int] = {}
    for i in sample:
        for word in _WORD.findall(passage_lines[i][:1_000]):
            words.setdefault(word, i)
    votes: Counter[int] = Counter()
    affordable = max(8, min(_WORDS, _SCANNED // (len(body.text) + 1)))
    for word in sorted(words, key=len, reverse=True)[:affordable]:
        places: list[int] = []
        at = body.text.find(word)
        while at != -1 and len(places) < _PLACES_OF_A_WORD:
            places.append(at)
            at = body.text.find(word, at + len(word))
        for place in {body.line_at(place) for place in places}:
            votes[place - words[word]] += round(1_000 * len(word) / len(places))
    return votes


def _likeness(body: SearchedText, passage_lines: list[str], at: int) -> float:
    """How like the lines are on average, 0 to 1, indentation aside; of the first lines that are not blank."""
    total, count = 0.0, 0
    for i, line in enumerate(passage_lines):
        if not line.strip():
            continue
        theirs = body.lines[at + i] if 0 <= at + i < len(body.lines) else ""
        total += _ratio(line, theirs)
        count += 1
        if count == 12:
            break
    return total / count if count else 0.0


def _ratio(one: str, second: str) -> float:
    one, second = plain_punctuation(one.strip()[:_WIDTH]), plain_punctuation(second.strip()[:_WIDTH])
    if one == second:
        return 1.0
    return difflib.SequenceMatcher(None, one, second, autojunk=False).ratio()


def _by_letters(body: SearchedText, passage_lines: list[str]) -> int | None:
    """For passages without a word in common: the line most like the longest one."""
    key = max(range(len(passage_lines)), key=lambda i: len(passage_lines[i].strip()))
    line = passage_lines[key].strip()[:_WIDTH]
    matcher = difflib.SequenceMatcher(autojunk=False)
    matcher.set_seq2(line)
    best, at = 0.5, None
    for index, theirs in enumerate(body.lines[:_LINES_TRIED]):
        matcher.set_seq1(theirs.strip()[:_WIDTH])
        if matcher.real_quick_ratio() > best and matcher.quick_ratio() > best and (ratio := matcher.ratio()) > best:
            best, at = ratio, index - key
    return at


# -- how it differs -----------------------------------------------------------------------------------------------


def _diff(body: SearchedText, passage_lines: list[str], at: int) -> tuple[int, list[str], bool]:
    """The first line that is shown, the rows, and whether spaces and tabs are drawn in them."""
    skipped = _equal_lines(body, passage_lines, at)
    skipped = max(0, skipped - 2)
    ours = passage_lines[skipped : skipped + _LINES_COMPARED]
    start = max(0, at + skipped)
    theirs = [line.rstrip("\r") for line in body.lines[start : start + len(ours) + 3]]
    ops = _trimmed(difflib.SequenceMatcher(None, theirs, ours, autojunk=False).get_opcodes(), len(theirs))
    spaces = any(tag == "replace" and _only_spaces(theirs[a:b], ours[c:d]) for tag, a, b, c, d in ops)
    rows = _rows(theirs, ours, ops, start, spaces)
    if len(rows) > _ROWS:
        rows = [*rows[:_ROWS], f"[{len(rows) - _ROWS} more lines are not shown]"]
    return start + ops[0][1], rows, spaces


def _equal_lines(body: SearchedText, passage_lines: list[str], at: int) -> int:
    """How many lines are equal from the beginning."""
    count = 0
    while count < len(passage_lines) and 0 <= at + count < len(body.lines):
        if body.lines[at + count].rstrip("\r") != passage_lines[count]:
            break
        count += 1
    return count


def _trimmed(ops: Sequence[_Op], most: int) -> Sequence[_Op]:
    """Without lines of the file before or behind what was looked for."""
    while len(ops) > 1 and ops[0][0] == "delete":
        ops = ops[1:]
    while len(ops) > 1 and ops[-1][0] == "delete" and ops[-1][2] == most:
        ops = ops[:-1]
    tag, a, b, c, d = ops[-1]
    if tag == "replace" and b == most and b - a > d - c:
        ops = [*ops[:-1], (tag, a, a + (d - c), c, d)]
    return ops


def _rows(theirs: list[str], ours: list[str], ops: Sequence[_Op], start: int, spaces: bool) -> list[str]:
    width = len(str(start + len(theirs)))
    rows = []
    for index, (tag, a, b, c, d) in enumerate(ops):
        if tag == "equal":
            lines = range(a, b)
            if len(lines) > 4:  # two lines beside each difference are enough
                lines = range(a if index else b - 2, b if index < len(ops) - 1 else a + 2)
            if len(lines) > 4:
                rows += [f" {start + i + 1:>{width}}  {clip(theirs[i])}" for i in (lines[0], lines[1])]
                rows.append(f" {'…':>{width}}")
                lines = lines[-2:]
            rows += [f" {start + i + 1:>{width}}  {clip(theirs[i])}" for i in lines]
            continue
        rows += [f"-{start + i + 1:>{width}}  {_mark_spaces(clip(theirs[i]), spaces)}" for i in range(a, b)]
        rows += [f"+{'':>{width}}  {_mark_spaces(clip(ours[i]), spaces)}" for i in range(c, d)]
    return rows


def _only_spaces(theirs: list[str], ours: list[str]) -> bool:
    return any("".join(a.split()) == "".join(b.split()) for a, b in zip(theirs, ours, strict=False) if a.strip())


def _mark_spaces(line: str, spaces: bool) -> str:
    return line.replace("\t", "→").replace(" ", "·") if spaces else line
