"""What reading a call at a place comes to: found, missed, or undecided until more text has come."""

import re
from collections.abc import Collection
from typing import NamedTuple

from treadle.models.text_calls.shapes import TextCall


class Source(NamedTuple):
    """A text in which calls are read."""

    text: str
    known: Collection[str] | None
    """The names of the tools; None when nobody knows them."""
    final: bool
    """Whether no more text will come."""


class Found(NamedTuple):
    calls: list[TextCall]
    end: int
    fenced: bool = False
    """A fence was opened with the call, whose end is yet to come."""
    begin: int = -1
    """Where the call begins, if not at the place that was asked for."""
    depth: int = 0
    """How many words of markup were opened whose ends are yet to come."""


class Missed(NamedTuple):
    """It is no call."""

    end: int
    """How far the text was read to know it."""
    cut: bool = False
    """It may have become one, had the text not ended."""


Result = Found | Missed | None
"""None: it depends on text that has not come yet."""

HEAD = 400
"""What stands between an opener and its arguments is shorter than this."""

_SPACES = re.compile(r"\s*+")
_NO_SPACE = re.compile(r"\S*+\Z")


def spaces(text: str, at: int) -> int:
    """Where the spaces that begin at `at` end."""
    match = _SPACES.match(text, at)
    return match.end() if match else at


def ended(source: Source) -> Missed | None:
    """What to say where the text ends and something must follow."""
    return Missed(len(source.text), cut=True) if source.final else None


def short(source: Source, at: int) -> Result:
    """What to say when a head cannot be read: it may not have arrived."""
    rest = len(source.text) - at
    if not source.final:
        return None if rest < HEAD else Missed(at + HEAD)
    return Missed(at + min(rest, HEAD), cut=rest < HEAD and _NO_SPACE.match(source.text, at) is not None)
