"""Reads calls that nothing but their shape and the name of a known tool shows to be calls: in a fenced block of their
own, or bare in the text (P-05)."""

import re

from treadle.adapters.models.text_calls.markup import read_marked
from treadle.adapters.models.text_calls.reader import read
from treadle.adapters.models.text_calls.shapes import (
    NAME,
    NAME_KEYS,
    OPENING_KEYS,
    FoundCalls,
    Missed,
    Result,
    Source,
    TextCall,
    Wrapper,
    may_become_known,
    normalize_name,
    plain,
    spaces,
)
from treadle.adapters.models.text_calls.tokens import OPENER, is_partial_opener
from treadle.adapters.models.text_calls.values import (
    BETWEEN,
    FENCE_END,
    PYTHON,
    WORD,
    read_named,
    read_python,
    read_python_list,
    read_value,
)

JSON_FENCES = frozenset(("", "json", "json5", "jsonc"))
TOOL_FENCES = frozenset(("tool_call", "tool_calls", "tool", "tools", "tool_use", "function_call", "function"))
CODE_FENCES = frozenset(("tool_code",))
CALL_FENCES = JSON_FENCES | TOOL_FENCES | CODE_FENCES

_WORD_ARRIVING = re.compile(rf"{WORD}(?:\.{WORD}){{0,3}}\.?\Z")


def read_fenced(source: Source, info: str, at: int) -> Result:
    """The calls that a fenced block consists of. `at` is the place behind its opening line."""
    text = source.text
    calls: list[TextCall] = []
    while True:
        match = BETWEEN.match(text, at)
        at = match.end() if match else at
        if at == len(text):
            if not source.final:
                return None
            return FoundCalls(calls, at) if calls else Missed(at)
        if text.startswith("```", at):
            return FoundCalls(calls, at, fenced=True) if calls else Missed(at)
        if not source.final and "```".startswith(text[at:]):
            return None
        outcome = _fenced_item(source, info, at)
        if not isinstance(outcome, FoundCalls):
            return outcome
        calls += outcome.calls
        at = outcome.end
        if OPENER.match(text, at) or outcome.fenced:
            return FoundCalls(calls, at, fenced=True)


def _fenced_item(source: Source, info: str, at: int) -> Result:
    text = source.text
    if OPENER.match(text, at):
        outcome = read_marked(source, at)
        return outcome._replace(fenced=True) if isinstance(outcome, FoundCalls) else outcome
    if not source.final and is_partial_opener(text, at):
        return None
    if info in CODE_FENCES and text[at].isidentifier():
        return _if_known(source, read_python(source, at))
    if text[at] not in "{[":
        return Missed(at)
    if info not in JSON_FENCES:
        return read_value(source, at, marked=True, border=FENCE_END)
    if source.tool_names is not None:
        return read_bare(source, at, border=FENCE_END)
    value = read(text, at, final=source.final)
    if not plain(value.value) and (value.state != "cut" or source.final):
        return Missed(value.end)
    return read_value(source, at, marked=True, border=FENCE_END)


def _if_known(source: Source, outcome: Result) -> Result:
    if isinstance(outcome, FoundCalls) and not all(
        source.tool_names is None or call.name in source.tool_names for call in outcome.calls
    ):
        return Missed(outcome.end)
    return outcome


def read_bare(source: Source, at: int, *, border: re.Pattern[str] | None = None) -> Result:
    """A call that nothing marks: JSON, or a list in Python's notation, with the name of a tool that is known."""
    text = source.text
    inside = at if text[at] == "{" else spaces(text, at + 1)
    if inside == len(text):
        return Missed(inside) if source.final else None
    if text[inside] != "{":
        return _bare_python(source, inside)
    viable = _viable(source, inside)
    if not viable:
        return None if viable is None else Missed(inside)
    outcome = read_value(source, at, marked=False, border=border)
    if isinstance(outcome, Missed) and inside > at:  # the bracket may belong to the prose before a call
        alone = read_value(source, inside, marked=False, border=None)
        return alone._replace(begin=inside) if isinstance(alone, FoundCalls) else outcome
    return outcome


def _bare_python(source: Source, at: int) -> Result:
    head = PYTHON.match(source.text, at)
    if head is None or head[1]:
        word = _WORD_ARRIVING.match(source.text, at)
        arriving = word is not None and not source.final and may_become_known(word[0], source.tool_names)
        return None if arriving else Missed(at)
    if normalize_name(head[2], source.tool_names) not in (source.tool_names or ()):
        return Missed(at)
    return _if_known(source, read_python_list(source, at))


_ADDRESS = ">>>"
_ADDRESSED = re.compile(rf"(?:{_ADDRESS})?+({NAME.pattern})(?:[ \t]{{0,8}}\n\s{{0,20}}(?:({{)|(\Z))?|(\Z))")


def read_addressed(source: Source, at: int) -> Result:
    """Functionary 3.2: `>>>name`, and its arguments on the next line; `>>>all` is for the user (llama.cpp's parser
    and tests). The prompt ends with the first `>>>`, so that an answer may begin without it."""
    text, tool_names = source.text, source.tool_names
    if not tool_names:
        return Missed(at)
    if not source.final and len(text) - at <= len(_ADDRESS) and _ADDRESS.startswith(text[at:]):
        return None
    marked = text.startswith(_ADDRESS, at)
    if marked and text.startswith("all\n", at + len(_ADDRESS)):
        return Wrapper(at + len(_ADDRESS) + 4)
    head = _ADDRESSED.match(text, at)
    if head is None:
        return Missed(at)
    if head[4] is not None and not source.final:
        arriving = may_become_known(head[1], tool_names) or (marked and "all".startswith(head[1]))
        return None if arriving else Missed(at)
    if normalize_name(head[1], tool_names) not in tool_names:
        return Missed(at)
    if head[2]:
        return read_named(source, head[1], head.end() - 1)
    return None if head[3] is not None and not source.final else Missed(at)


_KEY = re.compile(r"""\{\s*+(?:(["'“‘])([\w]{0,20})(?:["'”’](\s*+(?::\s*+)?+))?+)?+""")  # noqa: RUF001
_STRING = re.compile(r"""["'“‘]([\w.:/-]{0,128}+)(["'”’])?""")  # noqa: RUF001


def _viable(source: Source, at: int) -> bool | None:
    """True if a JSON object begins as calls do: with a key that calls have, and if that key is the name, with a known
    name. None if too little of it has arrived."""
    text = source.text
    match = _KEY.match(text, at)
    if match is None:
        return False
    arrived = match.end() < len(text) or source.final
    if match[3] is None:
        begins = match[2] is None or any(key.startswith(match[2]) for key in OPENING_KEYS)
        return None if not arrived and begins else False
    if match[2] not in OPENING_KEYS:
        return False
    if ":" not in match[3]:
        return False if arrived else None
    if match[2] not in NAME_KEYS:
        return True
    if not arrived:
        return None
    value = _STRING.match(text, match.end())
    if value is None:
        return text[match.end() : match.end() + 1] == "{"
    if value[2] is None:
        return (
            None
            if value.end() == len(text) and not source.final and may_become_known(value[1], source.tool_names)
            else False
        )
    return source.tool_names is not None and normalize_name(value[1], source.tool_names) in source.tool_names
