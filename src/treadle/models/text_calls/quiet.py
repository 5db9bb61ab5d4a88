"""Stretches of text in which calls are not looked for: fenced blocks, and the model's thinking. Each knows its end."""

import re
from collections.abc import Callable
from functools import lru_cache

from treadle.models.text_calls.finding import Source
from treadle.models.text_calls.tokens import THINK_END

Quiet = Callable[[Source, int], tuple[int, bool]]
"""How far the text belongs to the stretch as far as can be told, and whether the stretch ends there."""


def thinking(source: Source, at: int) -> tuple[int, bool]:
    text = source.text
    end = text.find(THINK_END, at)
    if end >= 0:
        return end + len(THINK_END), True
    sure = len(text)
    if not source.final:
        lengths = range(min(len(THINK_END) - 1, sure - at), 0, -1)
        sure -= next((length for length in lengths if text.endswith(THINK_END[:length])), 0)
    return sure, False


@lru_cache(maxsize=64)
def fenced(run: str) -> Quiet:
    """A block that was opened with these backticks or tildes. It begins with the newline behind its first line."""
    closing = re.compile(rf"\n[ \t]*+{run[0]}{{{len(run)},}}[ \t]*+(?=\n|\Z)")

    def block(source: Source, at: int) -> tuple[int, bool]:
        text = source.text
        end = closing.search(text, at)
        if end is not None and (source.final or end.end() < len(text)):
            return end.end(), True
        line = end.start() if end is not None else text.rfind("\n", at)
        arriving = line >= 0 and (end is not None or not text[line:].strip("` ~\t\n"))
        return (line if arriving and not source.final else len(text)), False

    return block
