"""Calls whose arguments stand in tags of their own: `<function=…><parameter=…>`, `<invoke name=…><parameter name=…>`,
`<function name=…><param name=…>` (MiniCPM 5), `<arg_key>…<arg_value>` (GLM, LongCat)."""

import re
from collections.abc import Iterator
from typing import NamedTuple

from treadle.adapters.models.text_calls.reader import json_or_text, read
from treadle.adapters.models.text_calls.shapes import NAME, FoundCalls, Missed, Result, Source, call_of, short, spaces
from treadle.adapters.models.text_calls.tokens import DSML

HEAD_OF_TAG = 300
"""A parameter's opening tag is shorter than this."""

_DSML = rf"(?:{DSML})?"
_FUNCTION_NAME = re.compile(r"""\s{0,8}["']?([^>\s"']{1,128})["']?\s{0,8}>""")
_INVOKE_NAME = re.compile(r"""\s{0,8}["']([^>\s"']{1,128})["'][^>\n]{0,80}>""")
_PARAMETER = re.compile(
    rf"""<{_DSML}param(?:eter)?(?:\s*=\s*["']?([^>\n"']{{1,128}})["']?|\s+name\s*=\s*["']([^>\n"']{{1,128}})["'])([^>\n]{{0,80}})>"""
)
# A value ends at its closing tag, if something follows that may follow it: file content may contain the tag. Models
# also leave it out: then the next tag on a line of its own ends the value.
_END = rf"</{_DSML}(?:function|invoke)>|</(?:minimax:)?tool_call>"
_CUT = r"<[^<>\n]{0,40}\Z|\Z"
_VALUE_END = re.compile(
    rf"(\n?)</{_DSML}param(?:eter)?>(?=\s*+(?:<{_DSML}param(?:eter)?[\s=]|{_END}|{_CUT}))"
    rf"|\n(?=<{_DSML}param(?:eter)?[\s=])|\n(?={_END})"
)
_CLOSED = re.compile(_END)
_CDATA = re.compile(r"\s{0,8}<!\[CDATA\[(.*)\]\]>\s{0,8}", re.S)
_ARG_KEY = re.compile(
    r"<(?:longcat_)?arg_key>\s*([^<]{1,128}?)\s*</(?:longcat_)?arg_key>\s{0,40}<(?:longcat_)?arg_value>"
)
_ARG_END = re.compile(rf"</(?:longcat_)?arg_value>(?=\s*+(?:<(?:longcat_)?arg_key>|</(?:longcat_)?tool_call>|{_CUT}))")
_REST_CUT = re.compile(rf"\s*+(?:{_CUT})")
_CUT_TAG = re.compile(rf"\n?<(?:/?{_DSML}[a-z_:]{{0,12}})?\Z")


class _Parameter(NamedTuple):
    key: str
    value: object
    end: int
    is_complete: bool


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
    if match[0].endswith("/>") and NAME.fullmatch(name.removesuffix("/")):
        return FoundCalls([call_of(name.removesuffix("/"), {}, source.tool_names, False)], match.end())
    body = spaces(text, match.end())
    if text[body : body + 1] == "{":
        return _json(source, body, name)
    arguments: dict[str, object] = {}
    end = body
    for parameter in _parameters(text, body):
        if not parameter.is_complete and not source.final:
            return None
        arguments[parameter.key] = parameter.value
        end = spaces(text, parameter.end)
    is_closed = _CLOSED.match(text, end) is not None
    over = is_closed or (end < len(text) and text[end] != "<")
    if not over and not source.final and len(text) - end < HEAD_OF_TAG:
        return None
    if not NAME.fullmatch(name) or (not is_closed and not arguments and end < len(text)):
        return Missed(end)
    return FoundCalls([call_of(name, arguments, source.tool_names, not over)], end)


def _json(source: Source, at: int, name: str) -> Result:
    parsed = read(source.text, at, final=source.final)
    if parsed.state == "cut" and not source.final:
        return None
    if not isinstance(parsed.value, dict):
        return Missed(parsed.end, is_cut_off=parsed.state == "cut")
    return FoundCalls([call_of(name, parsed.value, source.tool_names, parsed.state != "whole")], parsed.end)


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
            value = json_or_text(str(value))
        elif (data := _CDATA.fullmatch(str(value))) is not None:
            value = data[1]
        # An end that only the end of the text made one may yet turn out to be content.
        is_complete = spaces(text, closing.end()) < len(text)
        yield _Parameter(key, value, closing.end(), is_complete)
        at = spaces(text, closing.end())


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
            return FoundCalls([call_of(name, arguments, source.tool_names, closing is None)], len(text))
        arguments[opening[1]] = text[opening.end() : closing.start()]
        at = spaces(text, closing.end())
    arriving = not source.final and text.startswith("<", at) and not _CLOSED.match(text, at)
    if arriving and len(text) - at < HEAD_OF_TAG:
        return None
    return FoundCalls([call_of(name, arguments, source.tool_names, False)], at) if arguments else short(source, at)
