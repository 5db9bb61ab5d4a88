"""Replacing one piece of a text by another: the pure core of edit_file (T-03). Exact first; then with line endings
and byte-order mark left aside. What is not found once is an EditError that shows where to look."""

import difflib
import re
from typing import Literal

import msgspec

from treadle.errors import EditError
from treadle.tools.builtin.text import BOM

How = Literal["exact", "line_endings"]

_LINES_NAMED = 50
_LINES_SEARCHED = 5_000
_LINE_COMPARED = 300


class Replacement(msgspec.Struct, frozen=True):
    """The new text, how the old piece was matched, and how often it was replaced."""

    text: str
    how: How
    count: int


def replace(text: str, old: str, new: str, replace_all: bool = False) -> Replacement:
    """Replace `old`, which must occur exactly once unless `replace_all`. The file's line endings are kept."""
    if not old:
        raise EditError("old_str is empty. Give the text to replace; to write a whole file use write_file.")
    if old == new:
        raise EditError("old_str and new_str are the same; there is nothing to change.")
    exact = _starts(text, old)
    if exact:
        _require_once(text, exact, replace_all)
        return Replacement(text.replace(old, _with_ending_of(text, new)), "exact", text.count(old))
    loose = _loose_matches(text, old)
    if loose:
        _require_once(text, [match.start() for match in loose], replace_all)
        return Replacement(_splice(text, loose, new), "line_endings", len(loose))
    raise EditError(_not_found(text, old, new))


def _starts(text: str, old: str) -> list[int]:
    """Where `old` begins, overlapping occurrences too: two places that overlap are still two places."""
    starts: list[int] = []
    at = text.find(old)
    while at != -1 and len(starts) <= _LINES_NAMED * 100:
        starts.append(at)
        at = text.find(old, at + 1)
    return starts


def _loose_matches(text: str, old: str) -> list[re.Match[str]]:
    pieces = old.removeprefix(BOM).replace("\r\n", "\n").split("\n")
    if pieces == [""]:
        return []
    return list(re.finditer(r"\r?\n".join(re.escape(piece) for piece in pieces), text))


def _splice(text: str, matches: list[re.Match[str]], new: str) -> str:
    parts = []
    at = 0
    plain = new.removeprefix(BOM).replace("\r\n", "\n")
    for match in matches:
        ending = "\r\n" if "\r\n" in match.group() else _ending(text)
        parts += [text[at : match.start()], plain.replace("\n", ending)]
        at = match.end()
    return "".join([*parts, text[at:]])


def _ending(text: str) -> str:
    return "\r\n" if text.count("\r\n") * 2 > text.count("\n") else "\n"


def _with_ending_of(text: str, new: str) -> str:
    """Line feeds as the file has them, if all its lines end in CRLF; a mixed file gets what the model wrote."""
    if "\r\n" not in text or text.count("\r\n") != text.count("\n"):
        return new
    return new.replace("\r\n", "\n").replace("\n", "\r\n")


def _require_once(text: str, starts: list[int], replace_all: bool) -> None:
    if len(starts) == 1 or replace_all:
        return
    named = ", ".join(str(_line_of(text, start)) for start in starts[:_LINES_NAMED])
    more = f" and {len(starts) - _LINES_NAMED} more" if len(starts) > _LINES_NAMED else ""
    raise EditError(
        f"old_str occurs {len(starts)} times, beginning in lines {named}{more}. Add lines around the one you mean "
        "so that it is unique, or set replace_all to true."
    )


def _line_of(text: str, at: int) -> int:
    return text.count("\n", 0, at) + 1


def _not_found(text: str, old: str, new: str) -> str:
    there = [text.find(new)] if new else []
    if not there or there[0] == -1:
        there = [match.start() for match in _loose_matches(text, new)[:1]] if new else []
    if there and new.strip():
        line = _line_of(text, there[0])
        return f"old_str was not found, but new_str is already there, in line {line}: the edit seems to be made."
    nearest = _nearest(text, old)
    return f"old_str was not found. {nearest} Read the file again and copy the text exactly."


def _nearest(text: str, old: str) -> str:
    """The line of the file that is most like the first line of the text that was looked for."""
    wanted = next((line.strip() for line in old.split("\n") if line.strip()), "")[:_LINE_COMPARED]
    matcher = difflib.SequenceMatcher(autojunk=False)
    matcher.set_seq2(wanted)
    best, number, shown = 0.5, 0, ""
    for index, line in enumerate(text.split("\n")[:_LINES_SEARCHED], 1):
        stripped = line.strip()[:_LINE_COMPARED]
        matcher.set_seq1(stripped)
        if matcher.real_quick_ratio() > best and matcher.quick_ratio() > best and (ratio := matcher.ratio()) > best:
            best, number, shown = ratio, index, line.rstrip("\r")[:_LINE_COMPARED]
    if not number:
        return "No line of the file resembles it."
    return f"The nearest line is {number}: {shown}\n"
