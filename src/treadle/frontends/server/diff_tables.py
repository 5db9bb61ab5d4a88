"""Unified diffs as tables of HTML: inline, or both sides beside each other. Accepts any text that looks like a diff;
the rest of the text stands between the tables. Knows nothing of its source."""

import re
from collections.abc import Callable, Iterator
from html import escape
from itertools import starmap, zip_longest

import msgspec

Coloured = Callable[[list[str], str], list[str]]
"""Lines of a file of this name, as HTML."""

_HUNK = re.compile(r"@@ -(\d{1,9})(?:,(\d{1,9}))? \+(\d{1,9})(?:,(\d{1,9}))? @@(.*)")
_MARKS = {"+": "added", "-": "removed", " ": "same"}
Line = tuple[str, int, int, str]
"""Its mark, its numbers on both sides (0: it is not there), and its HTML."""


class _Hunk(msgspec.Struct):
    header: str
    old: int
    new: int
    lines: list[str]


def diff_table(text: str, *, split: bool, coloured: Coloured) -> str:
    html_parts: list[str] = []
    path = ""
    rows: list[str] = []

    def close() -> None:
        if rows:
            kind = "split" if split else "inline"
            columns = '<colgroup><col class="ln"><col><col class="ln"><col></colgroup>' if split else ""
            table = f'<table class="diff {kind}">{columns}<tbody>{"".join(rows)}</tbody></table>'
            html_parts.append(f'<div class="wide" tabindex="0">{table}</div>')
            rows.clear()

    for part in _parts(text.split("\n")):
        if isinstance(part, _Hunk):
            lines = list(_numbered(part, path, coloured))
            rows.append(f'<tr class="hunk"><td colspan="{4 if split else 3}">{escape(part.header)}</td></tr>')
            rows += _render_side_by_side(lines) if split else map(_below, lines)
        else:
            close()
            path = _path(part) or path
            about_text = "\n".join(part).strip("\n")
            if about_text:
                html_parts.append(f'<pre class="about">{escape(about_text)}</pre>')
    close()
    return "".join(html_parts)


def _parts(lines: list[str]) -> Iterator[_Hunk | list[str]]:
    """Hunks, and what stands between them."""
    between: list[str] = []
    at = 0
    while at < len(lines):
        match = _HUNK.match(lines[at])
        if match is None:
            between.append(lines[at])
            at += 1
            continue
        if between:
            yield between
            between = []
        hunk = _Hunk(lines[at], int(match[1]), int(match[3]), [])
        left_old, left_new = int(match[2] or 1), int(match[4] or 1)
        at += 1
        while at < len(lines) and (left_old > 0 or left_new > 0 or lines[at][:1] == "\\"):
            mark = lines[at][:1] or " "
            if mark not in "+- \\":
                break
            left_old -= mark in "- "
            left_new -= mark in "+ "
            hunk.lines.append(lines[at] or " ")
            at += 1
        yield hunk
    if between:
        yield between


def _path(lines: list[str]) -> str:
    for line in lines:
        if line.startswith("+++ ") and not line.startswith("+++ /dev/null"):
            return line[4:].partition("\t")[0].removeprefix("b/")
    for line in lines:
        if line.startswith("--- "):
            return line[4:].partition("\t")[0].removeprefix("a/")
    return ""


def _numbered(hunk: _Hunk, path: str, coloured: Coloured) -> Iterator[Line]:
    sides = {side: iter(coloured([line[1:] for line in hunk.lines if line[0] in side], path)) for side in ("- ", "+ ")}
    old, new = hunk.old, hunk.new
    for line in hunk.lines:
        match line[0]:
            case "+":
                yield "+", 0, new, next(sides["+ "])
                new += 1
            case "-":
                yield "-", old, 0, next(sides["- "])
                old += 1
            case " ":
                next(sides["- "])
                yield " ", old, new, next(sides["+ "])
                old, new = old + 1, new + 1
            case _:
                yield "\\", 0, 0, f"<i>{escape(line[1:].strip())}</i>"


def _cells(number: int, mark: str, html: str) -> str:
    kind = _MARKS.get(mark, "note")
    return f'<td class="ln">{number or ""}</td><td class="{kind}"><span class="mark">{mark.strip()}</span>{html}</td>'


def _below(line: Line) -> str:
    mark, old, new, html = line
    return f'<tr><td class="ln">{old or ""}</td>{_cells(new, mark, html)}</tr>'


def _render_side_by_side(lines: list[Line]) -> Iterator[str]:
    """Removed lines beside the added ones that follow them."""
    left_lines: list[Line] = []
    right: list[Line] = []
    for line in [*lines, (" ", 0, 0, "")]:
        if line[0] == "-" and not right:
            left_lines.append(line)
        elif line[0] == "+":
            right.append(line)
        else:
            yield from starmap(_pair, zip_longest(left_lines, right))
            left_lines, right = ([line], []) if line[0] == "-" else ([], [])
            if line[0] != "-" and (line[1] or line[2] or line[3]):
                yield f"<tr>{_cells(line[1], line[0], line[3])}{_cells(line[2], line[0], line[3])}</tr>"


def _pair(old: Line | None, new: Line | None) -> str:
    empty = '<td class="ln"></td><td class="none"></td>'
    old_cells = _cells(old[1], "-", old[3]) if old else empty
    new_cells = _cells(new[2], "+", new[3]) if new else empty
    return f"<tr>{old_cells}{new_cells}</tr>"
