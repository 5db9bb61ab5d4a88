"""Calls that are a value: JSON with a name in it, arguments behind a name that was read, and Python's notation."""

import re

from treadle.adapters.models.text_calls.reader import ParsedValue, read
from treadle.adapters.models.text_calls.shapes import (
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
from treadle.adapters.models.text_calls.tokens import BORDER

WORD = r"[^\W\d]\w{0,63}"
PYTHON = re.compile(rf"(print\()?(?!print\()({WORD}(?:\.{WORD}){{0,3}})(?=\()")
FENCE_END = re.compile(r"\n[ \t]*+```")
BETWEEN = re.compile(r"[\s,;]*+")


def read_value(source: Source, at: int, *, marked: bool, border: re.Pattern[str] | None) -> Result:
    """A JSON value that is a call or several. A broken one is taken for what can be read of it if something shows
    where it ends."""
    parsed = read(source.text, at, final=source.final)
    if parsed.state == "cut" and not source.final:
        return None
    calls = calls_in(parsed, source.tool_names, marked=marked)
    if calls is None or (parsed.state == "broken" and border is None):
        return Missed(parsed.end, is_cut_off=parsed.state == "cut")
    return _find_call_end(source, parsed, calls, border or BORDER)


def read_named(source: Source, name: str, at: int) -> Result:
    """The arguments of a call whose name is known already."""
    parsed = read(source.text, at, final=source.final)
    if parsed.state == "cut" and not source.final:
        return None
    if not isinstance(parsed.value, dict):
        return Missed(parsed.end, is_cut_off=parsed.state == "cut")
    return _find_call_end(
        source, parsed, [call_of(name, parsed.value, source.tool_names, parsed.state != "whole")], BORDER
    )


def _find_call_end(source: Source, parsed: ParsedValue, calls: list[TextCall], border: re.Pattern[str]) -> Result:
    """Where a call ends: behind its value; if that is broken, at the next word of markup."""
    if parsed.state != "broken":
        return FoundCalls(calls, parsed.end)
    end_match = border.search(source.text, parsed.end)
    if end_match is None and not source.final:
        return None
    if end_match is None:
        return FoundCalls(calls, len(source.text) if border is FENCE_END else parsed.end)
    return FoundCalls(calls, end_match.start())


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
    parsed = read(source.text, head.end(), final=source.final)
    if parsed.state == "cut" and not source.final:
        return None
    if parsed.state == "broken" or not isinstance(parsed.value, dict):
        return Missed(parsed.end, is_cut_off=parsed.state == "cut")
    end = parsed.end
    if head[1] and parsed.state != "cut":
        end = spaces(source.text, end)
        if end == len(source.text) and not source.final:
            return None
        end += source.text[end : end + 1] == ")"
    return FoundCalls([call_of(name, parsed.value, source.tool_names, parsed.state != "whole")], end)


def read_python_list(source: Source, at: int) -> Result:
    calls: list[TextCall] = []
    text = source.text
    while True:
        outcome = read_python(source, at)
        if not isinstance(outcome, FoundCalls):
            return outcome
        calls += outcome.calls
        match = BETWEEN.match(text, outcome.end)
        at = match.end() if match else outcome.end
        if at == len(text):
            last = calls[-1]
            doubted = TextCall(last.name, last.arguments, True)
            return FoundCalls([*calls[:-1], doubted], at) if source.final else None
        if text[at] == "]":
            return FoundCalls(calls, at + 1)


def read_next(source: Source, at: int) -> Result:
    """A further call behind one that was marked: any name will do, but it must be readable."""
    return read_value(source, at, marked=True, border=None)
