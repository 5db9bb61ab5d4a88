"""Calls that are a value: JSON with a name in it, arguments behind a name that was read, and Python's notation."""

import re

from treadle.models.text_calls.reader import Read, read
from treadle.models.text_calls.shapes import (
    FoundCalls,
    Missed,
    Result,
    Source,
    TextCall,
    call_of,
    calls_in,
    short,
    spaces,
)
from treadle.models.text_calls.tokens import BORDER

WORD = r"[^\W\d]\w{0,63}"
PYTHON = re.compile(rf"(print\()?(?!print\()({WORD}(?:\.{WORD}){{0,3}})(?=\()")
FENCE_END = re.compile(r"\n[ \t]*+```")
BETWEEN = re.compile(r"[\s,;]*+")


def read_value(source: Source, at: int, *, marked: bool, border: re.Pattern[str] | None) -> Result:
    """A JSON value that is a call or several. A broken one is taken for what can be read of it if something shows
    where it ends."""
    got = read(source.text, at, final=source.final)
    if got.state == "cut" and not source.final:
        return None
    calls = calls_in(got, source.known, marked=marked)
    if calls is None or (got.state == "broken" and border is None):
        return Missed(got.end, cut=got.state == "cut")
    return _settled(source, got, calls, border or BORDER)


def read_named(source: Source, name: str, at: int) -> Result:
    """The arguments of a call whose name is known already."""
    got = read(source.text, at, final=source.final)
    if got.state == "cut" and not source.final:
        return None
    if not isinstance(got.value, dict):
        return Missed(got.end, cut=got.state == "cut")
    return _settled(source, got, [call_of(name, got.value, source.known, got.state != "whole")], BORDER)


def _settled(source: Source, got: Read, calls: list[TextCall], border: re.Pattern[str]) -> Result:
    """Where a call ends: behind its value; if that is broken, at the next word of markup."""
    if got.state != "broken":
        return FoundCalls(calls, got.end)
    found = border.search(source.text, got.end)
    if found is None and not source.final:
        return None
    if found is None:
        return FoundCalls(calls, len(source.text) if border is FENCE_END else got.end)
    return FoundCalls(calls, found.start())


def list_or_value(source: Source, at: int) -> Result:
    """A value, or a list of calls in Python's notation: `[read_file(path="a"), …]`."""
    inside = spaces(source.text, at + 1)
    if source.text[at] == "[" and source.text[inside : inside + 1].isidentifier():
        return read_python_list(source, inside)
    return read_value(source, at, marked=True, border=BORDER)


# -- Python's notation ----------------------------------------------------------------------------------------------


def read_python(source: Source, at: int) -> Result:
    """`name(key=value)`, `name.call(key=value)` or `print(default_api.name(key=value))`."""
    head = PYTHON.match(source.text, at)
    if head is None:
        return short(source, at)
    name = head[2].removesuffix(".call")
    got = read(source.text, head.end(), final=source.final)
    if got.state == "cut" and not source.final:
        return None
    if got.state == "broken" or not isinstance(got.value, dict):
        return Missed(got.end, cut=got.state == "cut")
    end = got.end
    if head[1] and got.state != "cut":
        end = spaces(source.text, end)
        if end == len(source.text) and not source.final:
            return None
        end += source.text[end : end + 1] == ")"
    return FoundCalls([call_of(name, got.value, source.known, got.state != "whole")], end)


def read_python_list(source: Source, at: int) -> Result:
    calls: list[TextCall] = []
    text = source.text
    while True:
        got = read_python(source, at)
        if not isinstance(got, FoundCalls):
            return got
        calls += got.calls
        match = BETWEEN.match(text, got.end)
        at = match.end() if match else got.end
        if at == len(text):
            last = calls[-1]
            doubted = TextCall(last.name, last.arguments, True)
            return FoundCalls([*calls[:-1], doubted], at) if source.final else None
        if text[at] == "]":
            return FoundCalls(calls, at + 1)


def read_next(source: Source, at: int) -> Result:
    """A further call behind one that was marked: any name will do, but it must be readable."""
    return read_value(source, at, marked=True, border=None)
