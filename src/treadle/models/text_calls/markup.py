"""Reads the call that begins at a place in a text, in the notation of each family of models (P-05). Decides by what it
reads and never by how the text was split: what more text could change is undecided.

Nothing here looks for a call: where one may begin is the business of the scanner.
"""

import re
from collections.abc import Callable

from treadle.models.text_calls.blocks import read_arg_keys, read_function, read_invoke
from treadle.models.text_calls.finding import Found, Missed, Result, Source, ended, short, spaces
from treadle.models.text_calls.reader import Read, read
from treadle.models.text_calls.shapes import (
    NAME,
    NAME_KEYS,
    OPENING_KEYS,
    TextCall,
    call_of,
    calls_in,
    may_become_known,
    named,
    plain,
)
from treadle.models.text_calls.tokens import BORDER, OPENER, OPENERS, SEPARATOR, Family, begun

JSON_FENCES = frozenset(("", "json", "json5", "jsonc"))
TOOL_FENCES = frozenset(("tool_call", "tool_calls", "tool", "tools", "tool_use", "function_call", "function"))
CODE_FENCES = frozenset(("tool_code",))
CALL_FENCES = JSON_FENCES | TOOL_FENCES | CODE_FENCES

_FENCE = re.compile(r"```\w{0,20}[ \t]{0,8}\n?")
_HEAD = re.compile(rf"({NAME.pattern})\s{{0,40}}(?=[{{<(])")
_MISTRAL = re.compile(rf"({NAME.pattern})(?:\[CALL_ID\][\w-]{{0,64}})?(?:\[ARGS\])?\s{{0,40}}(?={{)")
_SECTION = re.compile(
    rf"(?:function\s{{0,8}}(?:{SEPARATOR})\s{{0,8}})?({NAME.pattern})\s{{0,8}}(?:{SEPARATOR})?\s{{0,40}}"
    rf"(```\w{{0,20}}\s{{0,8}})?(?={{)"
)
_WORD = r"[^\W\d]\w{0,63}"
_PYTHON = re.compile(rf"(print\()?(?!print\()({_WORD}(?:\.{_WORD}){{0,3}})(?=\()")
_WORD_ARRIVING = re.compile(rf"{_WORD}(?:\.{_WORD}){{0,3}}\.?\Z")
_FENCE_END = re.compile(r"\n[ \t]*+```")
_BETWEEN = re.compile(r"[\s,;]*+")


def read_marked(source: Source, at: int) -> Result:
    """The call at an opener, or at several."""
    text, depth = source.text, 0
    while (opener := OPENER.match(text, at)) is not None:
        family, at = OPENERS[opener[0]], spaces(text, opener.end())
        depth += family not in ("mistral", "python")
        if at == len(text):
            return ended(source)
        if family not in ("tag", "section") or OPENER.match(text, at) is None:
            got = _READERS[family](source, opener.end() if family in ("function", "invoke") else at)
            return got._replace(depth=depth) if isinstance(got, Found) else got
    return Missed(at)


def _tag(source: Source, at: int) -> Result:
    text = source.text
    fence = _FENCE.match(text, at)
    if fence is None:
        return _tag_body(source, at)
    at = spaces(text, fence.end())
    if at == len(text):
        return ended(source)
    got = _tag_body(source, at)
    return got._replace(fenced=True) if isinstance(got, Found) else got


def _tag_body(source: Source, at: int) -> Result:
    text = source.text
    if text[at] in "{[":
        return _list_or_value(source, at)
    if not source.final and "```".startswith(text[at:]):
        return None
    head = _HEAD.match(text, at)
    if head is None:
        return _name_arriving(source, at)
    match text[head.end()]:
        case "{":
            return _named(source, head[1], head.end())
        case "<":
            return read_arg_keys(source, head.end(), head[1])
        case _:
            return _python(source, at)


def _tools(source: Source, at: int) -> Result:
    """`<tools>` marks the definitions that models are given; some small ones put their calls into it."""
    return _value(source, at, marked=False, border=BORDER) if source.text[at] in "{[" else Missed(at)


def _mistral(source: Source, at: int) -> Result:
    if source.text[at] in "{[":
        return _value(source, at, marked=True, border=BORDER)
    head = _MISTRAL.match(source.text, at)
    if head is None:
        return _name_arriving(source, at)
    return _named(source, head[1], head.end())


def _section(source: Source, at: int) -> Result:
    """DeepSeek and Kimi: a name, a separator, arguments; older ones put the word `function` first and a fence around
    the arguments."""
    head = _SECTION.match(source.text, at)
    if head is None:
        return _name_arriving(source, at)
    got = _named(source, head[1], head.end())
    return got._replace(fenced=bool(head[2])) if isinstance(got, Found) else got


def _python_tag(source: Source, at: int) -> Result:
    if source.text[at] in "{[":
        return _list_or_value(source, at)
    return _python(source, at) if source.text[at].isidentifier() else Missed(at)


_READERS: dict[Family, Callable[[Source, int], Result]] = {
    "tag": _tag,
    "tools": _tools,
    "function": read_function,
    "invoke": read_invoke,
    "mistral": _mistral,
    "python": _python_tag,
    "section": _section,
}


def _name_arriving(source: Source, at: int) -> Result:
    """A name may stand there, or a word of markup, of which the rest has not come."""
    if source.text[at].isidentifier():
        return short(source, at)
    return None if not source.final and begun(source.text, at) else Missed(at)


# -- values ---------------------------------------------------------------------------------------------------------


def _value(source: Source, at: int, *, marked: bool, border: re.Pattern[str] | None) -> Result:
    """A JSON value that is a call or several. A broken one is taken for what can be read of it if something shows
    where it ends."""
    got = read(source.text, at, final=source.final)
    if got.state == "cut" and not source.final:
        return None
    calls = calls_in(got, source.known, marked=marked)
    if calls is None or (got.state == "broken" and border is None):
        return Missed(got.end, cut=got.state == "cut")
    return _settled(source, got, calls, border or BORDER)


def _named(source: Source, name: str, at: int) -> Result:
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
        return Found(calls, got.end)
    found = border.search(source.text, got.end)
    if found is None and not source.final:
        return None
    if found is None:
        return Found(calls, len(source.text) if border is _FENCE_END else got.end)
    return Found(calls, found.start())


def _list_or_value(source: Source, at: int) -> Result:
    """A value, or a list of calls in Python's notation: `[read_file(path="a"), …]`."""
    inside = spaces(source.text, at + 1)
    if source.text[at] == "[" and source.text[inside : inside + 1].isidentifier():
        return _python_list(source, inside)
    return _value(source, at, marked=True, border=BORDER)


# -- Python's notation ----------------------------------------------------------------------------------------------


def _python(source: Source, at: int) -> Result:
    """`name(key=value)`, `name.call(key=value)` or `print(default_api.name(key=value))`."""
    head = _PYTHON.match(source.text, at)
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
    return Found([call_of(name, got.value, source.known, got.state != "whole")], end)


def _python_list(source: Source, at: int) -> Result:
    calls: list[TextCall] = []
    text = source.text
    while True:
        got = _python(source, at)
        if not isinstance(got, Found):
            return got
        calls += got.calls
        match = _BETWEEN.match(text, got.end)
        at = match.end() if match else got.end
        if at == len(text):
            return Found([*calls[:-1], _doubted(calls[-1])], at) if source.final else None
        if text[at] == "]":
            return Found(calls, at + 1)


def _doubted(call: TextCall) -> TextCall:
    return TextCall(call.name, call.arguments, True)


# -- without a mark -------------------------------------------------------------------------------------------------


def read_fenced(source: Source, info: str, at: int) -> Result:
    """The calls that a fenced block consists of. `at` is the place behind its opening line."""
    text = source.text
    calls: list[TextCall] = []
    while True:
        match = _BETWEEN.match(text, at)
        at = match.end() if match else at
        if at == len(text):
            if not source.final:
                return None
            return Found(calls, at) if calls else Missed(at)
        if text.startswith("```", at):
            return Found(calls, at, fenced=True) if calls else Missed(at)
        if not source.final and "```".startswith(text[at:]):
            return None
        got = _fenced_item(source, info, at)
        if not isinstance(got, Found):
            return got
        calls += got.calls
        at = got.end
        if OPENER.match(text, at) or got.fenced:
            return Found(calls, at, fenced=True)


def _fenced_item(source: Source, info: str, at: int) -> Result:
    text = source.text
    if OPENER.match(text, at):
        got = read_marked(source, at)
        return got._replace(fenced=True) if isinstance(got, Found) else got
    if not source.final and begun(text, at):
        return None
    if info in CODE_FENCES and text[at].isidentifier():
        return _if_known(source, _python(source, at))
    if text[at] not in "{[":
        return Missed(at)
    if info not in JSON_FENCES:
        return _value(source, at, marked=True, border=_FENCE_END)
    if source.known is not None:
        return read_bare(source, at, border=_FENCE_END)
    value = read(text, at, final=source.final)
    if not plain(value.value) and (value.state != "cut" or source.final):
        return Missed(value.end)
    return _value(source, at, marked=True, border=_FENCE_END)


def _if_known(source: Source, got: Result) -> Result:
    if isinstance(got, Found) and not all(source.known is None or call.name in source.known for call in got.calls):
        return Missed(got.end)
    return got


def read_next(source: Source, at: int) -> Result:
    """A further call behind one that was marked: any name will do, but it must be readable."""
    return _value(source, at, marked=True, border=None)


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
    got = _value(source, at, marked=False, border=border)
    if isinstance(got, Missed) and inside > at:  # the bracket may belong to the prose before a call
        alone = _value(source, inside, marked=False, border=None)
        return alone._replace(begin=inside) if isinstance(alone, Found) else got
    return got


def _bare_python(source: Source, at: int) -> Result:
    head = _PYTHON.match(source.text, at)
    if head is None or head[1]:
        word = _WORD_ARRIVING.match(source.text, at)
        arriving = word is not None and not source.final and may_become_known(word[0], source.known)
        return None if arriving else Missed(at)
    if named(head[2], source.known) not in (source.known or ()):
        return Missed(at)
    return _if_known(source, _python_list(source, at))


_KEY = re.compile(r"""\{\s*+(?:(["'“‘])([\w]{0,20})(?:["'”’](\s*+(?::\s*+)?+))?+)?+""")  # noqa: RUF001
_STRING = re.compile(r"""["'“‘]([\w.:/-]{0,128}+)(["'”’])?""")  # noqa: RUF001


def _viable(source: Source, at: int) -> bool | None:
    """Whether a JSON object begins as calls do: with a key that calls have, and if that is the name, with a name
    that is known. None while it has not all come."""
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
            if value.end() == len(text) and not source.final and may_become_known(value[1], source.known)
            else False
        )
    return source.known is not None and named(value[1], source.known) in source.known
