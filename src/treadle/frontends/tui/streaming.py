"""Markdown that is still coming, cut into the settled part, which later text cannot change, and the rest. The settled
part is drawn once, for an answer of any length. Knows no screen."""

import re

CODE_LINES = 24
"""Lines of a code block that are settled together; the colours of a language seldom reach further back."""
_LINES = re.compile(r"[^\n]*\n|[^\n]+")
_FENCE = re.compile(r"^(```|~~~)[^\n]*\n", re.MULTILINE)
_GOES_ON = "-*+|>"
"""Characters that may continue a list, a table or a quotation before them."""


def settled_part(text: str) -> str:
    """The beginning of a Markdown text that nothing behind it can change: whole paragraphs, no open code block, list or
    table at its end."""
    end = fence = 0
    open_with = ""
    for match in _LINES.finditer(text):
        line = match[0]
        mark = line.lstrip()[:3]
        if mark in ("```", "~~~") and (not open_with or mark == open_with):
            open_with = "" if open_with else mark
        elif not open_with and line == "\n":
            fence = match.end()
        elif not open_with and line.endswith("\n") and not line[:1].isspace() and fence == match.start():
            end = fence if line[0] not in _GOES_ON and not line[0].isdecimal() else end
    return text[:end]


def code_parts(text: str) -> list[str]:
    """A text in which a code block is open, as texts to be drawn one below the other: all but the last are settled.
    Any other text is one part."""
    match = _FENCE.search(text)
    if match is None or re.search(rf"^{match[1]}", text[match.end() :], re.MULTILINE):
        return [text]
    lines = text[match.end() :].splitlines(keepends=True)
    parts, begin = list[str](), text[: match.end()]
    while line_count := _find_split(lines):
        parts.append(f"{begin}{''.join(lines[:line_count])}{match[1]}\n")
        lines, begin = lines[line_count:], match[0]
    return [*parts, begin + "".join(lines)]


def _find_split(lines: list[str]) -> int:
    """Where the first part of code ends, not beside an empty line, which would be lost; 0: it is still to come."""
    return next(
        (at for at in range(CODE_LINES, len(lines)) if lines[at - 1].strip() and lines[at].strip()),
        0,
    )
