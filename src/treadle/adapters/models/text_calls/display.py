"""The text around calls: which part of it is shown (spaces before a call are dropped with it), and the stretches in
which calls are not looked for (fenced blocks and the model's thinking)."""

import re
from collections.abc import Callable
from functools import lru_cache

from treadle.adapters.models.text_calls.shapes import Source


class Display:
    def __init__(self) -> None:
        self._out: list[str] = []
        self._gap: list[str] = []
        """Spaces at the end: dropped if a call follows."""
        self.tail = ""
        """The last characters, without spaces; empty as long as nothing is shown."""

    def show(self, text: str, *, flush: bool = False) -> bool:
        """Append to the shown text; `flush` drops leading spaces. Return True if more than spaces was added."""
        if flush and not self.tail:
            text = text.lstrip()
        stripped = text.rstrip()
        if stripped:
            self._out += self._gap
            self._gap.clear()
            self._out.append(stripped)
            self.tail = _tail(self.tail, stripped)
        if len(stripped) < len(text):
            self._gap.append(text[len(stripped) :])
        return bool(stripped)

    def drop_gap(self) -> None:
        self._gap.clear()

    def take(self) -> str:
        """Return the text that may be shown now and was not returned before."""
        visible_text = "".join(self._out)
        self._out.clear()
        return visible_text

    def end(self, *, dropped: bool) -> str:
        """Return the rest. If a call, or part of one, was dropped at the end, the spaces before it are dropped too."""
        if not dropped:
            self._out += self._gap
        self._gap.clear()
        return self.take()

    @property
    def gap(self) -> str:
        return "".join(self._gap)


def _tail(old_tail: str, text: str) -> str:
    last = "".join(text[-16:].split())
    if len(last) < 4 and len(text) > 16:
        last = "".join(text.split())
    return (old_tail + last)[-4:]


CallFree = Callable[[Source, int], tuple[int, bool]]
"""How far the text belongs to the stretch as far as can be told, and whether the stretch ends there."""


@lru_cache(maxsize=64)
def thinking(ends: tuple[str, ...], *, with_end: bool = False) -> CallFree:
    """The model's thinking, up to the first of these words, which is part of it or not."""
    word = re.compile("|".join(map(re.escape, ends)))
    partial_ends = frozenset(end[:length] for end in ends for length in range(1, len(end)))
    longest = max(map(len, ends))

    def stretch(source: Source, at: int) -> tuple[int, bool]:
        text = source.text
        end = word.search(text, at)
        if end is not None:
            return end.end() if with_end else end.start(), True
        sure = len(text)
        if not source.final:
            lengths = range(min(longest - 1, sure - at), 0, -1)
            sure -= next((length for length in lengths if text[sure - length :] in partial_ends), 0)
        return sure, False

    return stretch


@lru_cache(maxsize=64)
def fenced(run: str) -> CallFree:
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
