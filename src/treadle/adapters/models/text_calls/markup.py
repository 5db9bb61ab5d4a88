"""Reads the call that begins at a position of a text, in the notation of each family of models (P-05). The result never
depends on how the text was split: it is undecided if more text could change it.

The scanner decides where a call may begin; this module does not search.
"""

import re
from collections.abc import Callable

from treadle.adapters.models.text_calls.channels import read_harmony, read_recipient, read_xtml
from treadle.adapters.models.text_calls.namespaced import read_namespaced
from treadle.adapters.models.text_calls.reader import read
from treadle.adapters.models.text_calls.shapes import (
    NAME,
    FoundCalls,
    Missed,
    Result,
    Source,
    TextCall,
    call_of,
    is_told,
    missed_at_end,
    short,
    spaces,
)
from treadle.adapters.models.text_calls.tagged import read_arg_keys, read_function, read_invoke
from treadle.adapters.models.text_calls.tokens import (
    BORDER,
    ENDING,
    OPENER,
    OPENERS,
    SEPARATOR,
    Family,
    is_partial_opener,
)
from treadle.adapters.models.text_calls.values import BETWEEN, list_or_value, read_named, read_python, read_value

_FENCE = re.compile(r"```\w{0,20}[ \t]{0,8}\n?")
_HEAD = re.compile(rf"({NAME.pattern})\s{{0,40}}(?=[{{<(])")
_MISTRAL = re.compile(rf"({NAME.pattern})(?:\[CALL_ID\][\w-]{{0,64}})?(?:\[ARGS\])?\s{{0,40}}(?={{)")
_SECTION_HEAD = rf"(?:function\s{{0,8}}(?:{SEPARATOR})\s{{0,8}})?({NAME.pattern})\s{{0,8}}(?:{SEPARATOR})?\s{{0,40}}"
_SECTION = re.compile(rf"{_SECTION_HEAD}(```\w{{0,20}}\s{{0,8}})?(?={{)")
_GEMMA = re.compile(rf"call:({NAME.pattern})\s{{0,40}}(?={{)")

# A call may have no arguments, and then some models write nothing where they would stand. What ends the call must have
# come: else they may be yet to come, or were cut off.
_TAG_EMPTY = re.compile(rf"({NAME.pattern})\s{{0,40}}(?={ENDING.pattern})")
_MISTRAL_EMPTY = re.compile(
    rf"({NAME.pattern})(?:\[CALL_ID\][\w-]{{0,64}})?\[ARGS\]\s{{0,40}}(?={ENDING.pattern}|\[TOOL_CALLS\])"
)
_SECTION_EMPTY = re.compile(rf"{_SECTION_HEAD}(?:```\w{{0,20}}\s{{0,8}}```\s{{0,8}})?(?={ENDING.pattern})")


def read_marked(source: Source, at: int) -> Result:
    """The call at an opener, or at several."""
    text, depth = source.text, 0
    while (opener := OPENER.match(text, at)) is not None:
        family, at = OPENERS[opener[0]], spaces(text, opener.end())
        depth += family not in ("mistral", "python")
        if at == len(text):
            return missed_at_end(source)
        if family not in ("tag", "section") or OPENER.match(text, at) is None:
            outcome = _READERS[family](source, opener.end() if family in _EXACT else at)
            return outcome._replace(depth=depth) if isinstance(outcome, FoundCalls) else outcome
    return Missed(at)


def _tag(source: Source, at: int) -> Result:
    text = source.text
    fence = _FENCE.match(text, at)
    if fence is None:
        return _tag_body(source, at)
    at = spaces(text, fence.end())
    if at == len(text):
        return missed_at_end(source)
    outcome = _python_lines(source, at) if text[at].isidentifier() else _tag_body(source, at)
    return outcome._replace(fenced=True) if isinstance(outcome, FoundCalls) else outcome


def _python_lines(source: Source, at: int) -> Result:
    """Calls in Python's notation, one or more: so MiniCPM 3 and 4 write them."""
    text = source.text
    calls: list[TextCall] = []
    while True:
        outcome = _tag_body(source, at)
        if not isinstance(outcome, FoundCalls):
            return FoundCalls(calls, at) if calls and outcome is not None else outcome
        calls += outcome.calls
        match = BETWEEN.match(text, outcome.end)
        at = match.end() if match else outcome.end
        if at == len(text) and not source.final:
            return None
        if at == len(text) or not text[at].isidentifier():
            return FoundCalls(calls, outcome.end)


def _tag_body(source: Source, at: int) -> Result:
    text = source.text
    if text[at] in "{[":
        return _behind_data(source, at)
    if not source.final and "```".startswith(text[at:]):
        return None
    if (empty := _TAG_EMPTY.match(text, at)) is not None and is_told(empty[1], source.tool_names):
        return _without_arguments(source, empty)
    head = _HEAD.match(text, at)
    if head is None:
        return _name_arriving(source, at)
    match text[head.end()]:
        case "{":
            return read_named(source, head[1], head.end())
        case "<":
            return read_arg_keys(source, head.end(), head[1])
        case _:
            return read_python(source, at)


def _behind_data(source: Source, at: int) -> Result:
    """A call, or other objects and then the call: some models first write what they think of it."""
    text = source.text
    while True:
        outcome = list_or_value(source, at)
        if not isinstance(outcome, Missed) or outcome.is_cut_off or text[at] != "{" or text[outcome.end - 1] != "}":
            return outcome
        match = BETWEEN.match(text, outcome.end)
        further = match.end() if match else outcome.end
        if further == len(text) and not source.final:
            return None
        if further == len(text) or text[further] != "{":
            return outcome
        at = further


def _without_arguments(source: Source, head: re.Match[str]) -> Result:
    return FoundCalls([call_of(head[1], {}, source.tool_names, False)], head.end())


def _tools(source: Source, at: int) -> Result:
    """`<tools>` marks the definitions that models are given; some small ones put their calls into it."""
    return read_value(source, at, marked=False, border=BORDER) if source.text[at] in "{[" else Missed(at)


def _mistral(source: Source, at: int) -> Result:
    if source.text[at] in "{[":
        return read_value(source, at, marked=True, border=BORDER)
    head = _MISTRAL.match(source.text, at)
    if head is None and (empty := _MISTRAL_EMPTY.match(source.text, at)) is not None:
        return _without_arguments(source, empty)
    if head is None:
        return _name_arriving(source, at)
    return read_named(source, head[1], head.end())


def _section(source: Source, at: int) -> Result:
    """DeepSeek and Kimi: a name, a separator, arguments; older ones put the word `function` first and a fence around
    the arguments."""
    head = _SECTION.match(source.text, at)
    if head is None and (empty := _SECTION_EMPTY.match(source.text, at)) is not None:
        return _without_arguments(source, empty)
    if head is None:
        return _name_arriving(source, at)
    outcome = read_named(source, head[1], head.end())
    return outcome._replace(fenced=bool(head[2])) if isinstance(outcome, FoundCalls) else outcome


def _python_tag(source: Source, at: int) -> Result:
    if source.text[at] in "{[":
        return list_or_value(source, at)
    return read_python(source, at) if source.text[at].isidentifier() else Missed(at)


def _gemma(source: Source, at: int) -> Result:
    """Gemma 4 and FunctionGemma: `call:name{key:value}`, where strings stand between tokens instead of quotes."""
    head = _GEMMA.match(source.text, at)
    return _name_arriving(source, at) if head is None else read_named(source, head[1], head.end())


def _apertus(source: Source, at: int) -> Result:
    """A list of objects, each with one key, which is the name, and the arguments behind it."""
    if source.text[at] not in "[{":
        return Missed(at)
    parsed = read(source.text, at, final=source.final)
    if parsed.state == "cut" and not source.final:
        return None
    items = parsed.value if isinstance(parsed.value, list) else [parsed.value]
    pairs = [pair for item in items for pair in (item.items() if isinstance(item, dict) else [("", item)])]
    calls = [
        call_of(name, arguments or {}, source.tool_names, parsed.state != "whole" and number == len(pairs) - 1)
        for number, (name, arguments) in enumerate(pairs)
        if NAME.fullmatch(name) and (isinstance(arguments, dict) or arguments is None)
    ]
    if not calls or len(calls) < len(pairs):
        return read_value(source, at, marked=True, border=BORDER)
    return FoundCalls(calls, parsed.end)


_EXACT = ("function", "invoke", "harmony", "xtml", "namespaced")
"""Here what stands directly behind the opener belongs to it, spaces too."""
_READERS: dict[Family, Callable[[Source, int], Result]] = {
    "tag": _tag,
    "tools": _tools,
    "function": read_function,
    "invoke": read_invoke,
    "mistral": _mistral,
    "python": _python_tag,
    "section": _section,
    "gemma": _gemma,
    "apertus": _apertus,
    "harmony": read_harmony,
    "recipient": read_recipient,
    "xtml": read_xtml,
    "namespaced": read_namespaced,
}


def _name_arriving(source: Source, at: int) -> Result:
    """A name may stand there, or a word of markup, of which the rest has not come."""
    if source.text[at].isidentifier():
        return short(source, at)
    return None if not source.final and is_partial_opener(source.text, at) else Missed(at)
