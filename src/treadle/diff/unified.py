"""Parsing of unified diffs: the old and the new lines of each hunk. For side-by-side views that have only the diff."""

import re
from collections.abc import Iterator

import msgspec

_HUNK = re.compile(r"@@ -\d+(?:,(\d+))? \+\d+(?:,(\d+))? @@")


class Sides(msgspec.Struct, frozen=True):
    """One hunk: the lines before and after, each with its newline."""

    path: str
    old: str
    new: str


def sides(text: str) -> Iterator[Sides]:
    """The hunks of all diffs in a text, which may have other lines around them."""
    path = ""
    lines = iter(text.split("\n"))
    for line in lines:
        if line.startswith(("--- ", "+++ ")):
            name = line[4:].partition("\t")[0]
            path = path if name == "/dev/null" else name.removeprefix("a/" if line[0] == "-" else "b/")
        elif (match := _HUNK.match(line)) is not None:
            yield Sides(path, *_both(lines, int(match[1] or 1), int(match[2] or 1)))


def _both(lines: Iterator[str], old_left: int, new_left: int) -> tuple[str, str]:
    """Read as many lines as the hunk header says: a line of content may look like a header."""
    old = new = ""
    while old_left > 0 or new_left > 0:
        line = next(lines, None)
        if line is None:  # it was cut
            break
        if line[:1] in (" ", "-", ""):
            old, old_left = f"{old}{line[1:]}\n", old_left - 1
        if line[:1] in (" ", "+", ""):
            new, new_left = f"{new}{line[1:]}\n", new_left - 1
    return old, new
