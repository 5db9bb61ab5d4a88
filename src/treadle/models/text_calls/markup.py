"""Reads the call that begins at a place in a text, in the notation of each family of models (P-05). Decides by what it
reads and never by how the text was split: what more text could change is undecided.

Nothing here looks for a call: where one may begin is the business of the scanner.
"""

import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

import msgspec

from treadle.models.text_calls.reader import Read, read
from treadle.models.text_calls.shapes import (
    NAME,
    FoundCalls,
    Missed,
    Result,
    Source,
    TextCall,
    call_of,
    calls_in,
    ended,
    short,
    spaces,
)
from treadle.models.text_calls.tokens import BORDER, DSML, OPENER, OPENERS, SEPARATOR, Family, begun

HEAD_OF_TAG = 300
"""A parameter's opening tag is shorter than this."""

_DSML = rf"(?:{DSML})?"
_FUNCTION_NAME = re.compile(r"""\s{0,8}["']?([^>\s"']{1,128})["']?\s{0,8}>""")
_INVOKE_NAME = re.compile(r"""\s{0,8}["']([^>\s"']{1,128})["'][^>\n]{0,80}>""")
_PARAMETER = re.compile(
    rf"""<{_DSML}parameter(?:\s*=\s*["']?([^>\n"']{{1,128}})["']?|\s+name\s*=\s*["']([^>\n"']{{1,128}})["'])([^>\n]{{0,80}})>"""
)
# A value ends at its closing tag, if something follows that may follow it: file content may contain the tag. Models
# also leave it out: then the next tag on a line of its own ends the value.
_END = rf"</{_DSML}(?:function|invoke)>|</(?:minimax:)?tool_call>"
_CUT = r"<[^<>\n]{0,40}\Z|\Z"
_VALUE_END = re.compile(
    rf"(\n?)</{_DSML}parameter>(?=\s*+(?:<{_DSML}parameter[\s=]|{_END}|{_CUT}))"
    rf"|\n(?=<{_DSML}parameter[\s=])|\n(?={_END})"
)
_CLOSED = re.compile(_END)
_ARG_KEY = re.compile(r"<arg_key>\s*([^<]{1,128}?)\s*</arg_key>\s{0,40}<arg_value>")
_ARG_END = re.compile(rf"</arg_value>(?=\s*+(?:<arg_key>|</tool_call>|{_CUT}))")
_REST_CUT = re.compile(rf"\s*+(?:{_CUT})")
_CUT_TAG = re.compile(rf"\n?<(?:/?{_DSML}[a-z_:]{{0,12}})?\Z")


class _Parameter(NamedTuple):
    key: str
    value: object
    end: int
    whole: bool


def read_function(source: Source, at: int) -> Result:
    """Behind `<function=`."""
    return _read(source, at, _FUNCTION_NAME)


def read_invoke(source: Source, at: int) -> Result:
    """Behind `<invoke name=`."""
    return _read(source, at, _INVOKE_NAME)


def _read(source: Source, at: int, header: re.Pattern[str]) -> Result:
    text = source.text
    match = header.match(text, at)
    if match is None:
        return short(source, at)
    name = match[1]
    body = spaces(text, match.end())
    if text[body : body + 1] == "{":
        return _json(source, body, name)
    arguments: dict[str, object] = {}
    end = body
    for parameter in _parameters(text, body):
        if not parameter.whole and not source.final:
            return None
        arguments[parameter.key] = parameter.value
        end = spaces(text, parameter.end)
    closed = _CLOSED.match(text, end) is not None
    over = closed or (end < len(text) and text[end] != "<")
    if not over and not source.final and len(text) - end < HEAD_OF_TAG:
        return None
    if not NAME.fullmatch(name) or (not closed and not arguments and end < len(text)):
        return Missed(end)
    return FoundCalls([call_of(name, arguments, source.known, not over)], end)


def _json(source: Source, at: int, name: str) -> Result:
    got = read(source.text, at, final=source.final)
    if got.state == "cut" and not source.final:
        return None
    if not isinstance(got.value, dict):
        return Missed(got.end, cut=got.state == "cut")
    return FoundCalls([call_of(name, got.value, source.known, got.state != "whole")], got.end)


def _parameters(text: str, at: int) -> Iterator[_Parameter]:
    while (opening := _PARAMETER.match(text, at)) is not None:
        key = (opening[1] or opening[2]).strip()
        begin = opening.end()
        closing = _VALUE_END.search(text, begin)
        if closing is None:
            yield _Parameter(key, _CUT_TAG.sub("", text[begin:]).removeprefix("\n"), len(text), False)
            return
        # Only the notation with `=` puts the value on lines of its own.
        bare = opening[1] is None
        end = closing.start() + (len(closing[1] or "") if bare else 0)
        value: object = text[begin:end] if bare else text[begin:end].removeprefix("\n")
        if 'string="false"' in opening[3]:
            value = _json_value(str(value))
        # An end that only the end of the text made one may yet turn out to be content.
        whole = spaces(text, closing.end()) < len(text)
        yield _Parameter(key, value, closing.end(), whole)
        at = spaces(text, closing.end())


def _json_value(text: str) -> object:
    try:
        return msgspec.json.decode(text)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return text


def read_arg_keys(source: Source, at: int, name: str) -> Result:
    """Behind the name: pairs of `<arg_key>` and `<arg_value>`."""
    text = source.text
    arguments: dict[str, object] = {}
    while (opening := _ARG_KEY.match(text, at)) is not None:
        closing = _ARG_END.search(text, opening.end())
        if closing is None or _REST_CUT.match(text, closing.end()):
            if not source.final:
                return None
            end = len(text) if closing is None else closing.start()
            arguments[opening[1]] = _CUT_TAG.sub("", text[opening.end() : end])
            return FoundCalls([call_of(name, arguments, source.known, closing is None)], len(text))
        arguments[opening[1]] = text[opening.end() : closing.start()]
        at = spaces(text, closing.end())
    arriving = not source.final and text.startswith("<", at) and not _CLOSED.match(text, at)
    if arriving and len(text) - at < HEAD_OF_TAG:
        return None
    return FoundCalls([call_of(name, arguments, source.known, False)], at) if arguments else short(source, at)


_FENCE = re.compile(r"```\w{0,20}[ \t]{0,8}\n?")
_HEAD = re.compile(rf"({NAME.pattern})\s{{0,40}}(?=[{{<(])")
_MISTRAL = re.compile(rf"({NAME.pattern})(?:\[CALL_ID\][\w-]{{0,64}})?(?:\[ARGS\])?\s{{0,40}}(?={{)")
_SECTION = re.compile(
    rf"(?:function\s{{0,8}}(?:{SEPARATOR})\s{{0,8}})?({NAME.pattern})\s{{0,8}}(?:{SEPARATOR})?\s{{0,40}}"
    rf"(```\w{{0,20}}\s{{0,8}})?(?={{)"
)
WORD = r"[^\W\d]\w{0,63}"
PYTHON = re.compile(rf"(print\()?(?!print\()({WORD}(?:\.{WORD}){{0,3}})(?=\()")
FENCE_END = re.compile(r"\n[ \t]*+```")
BETWEEN = re.compile(r"[\s,;]*+")


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
            return got._replace(depth=depth) if isinstance(got, FoundCalls) else got
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
    return got._replace(fenced=True) if isinstance(got, FoundCalls) else got


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
            return read_python(source, at)


def _tools(source: Source, at: int) -> Result:
    """`<tools>` marks the definitions that models are given; some small ones put their calls into it."""
    return read_value(source, at, marked=False, border=BORDER) if source.text[at] in "{[" else Missed(at)


def _mistral(source: Source, at: int) -> Result:
    if source.text[at] in "{[":
        return read_value(source, at, marked=True, border=BORDER)
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
    return got._replace(fenced=bool(head[2])) if isinstance(got, FoundCalls) else got


def _python_tag(source: Source, at: int) -> Result:
    if source.text[at] in "{[":
        return _list_or_value(source, at)
    return read_python(source, at) if source.text[at].isidentifier() else Missed(at)


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
        return FoundCalls(calls, got.end)
    found = border.search(source.text, got.end)
    if found is None and not source.final:
        return None
    if found is None:
        return FoundCalls(calls, len(source.text) if border is FENCE_END else got.end)
    return FoundCalls(calls, found.start())


def _list_or_value(source: Source, at: int) -> Result:
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
            return FoundCalls([*calls[:-1], _doubted(calls[-1])], at) if source.final else None
        if text[at] == "]":
            return FoundCalls(calls, at + 1)


def _doubted(call: TextCall) -> TextCall:
    return TextCall(call.name, call.arguments, True)


def read_next(source: Source, at: int) -> Result:
    """A further call behind one that was marked: any name will do, but it must be readable."""
    return read_value(source, at, marked=True, border=None)
