"""Calls that are messages to a tool, in the notations of models that address every message or put it into a channel:

- harmony of gpt-oss, `<|channel|>commentary to=functions.name <|constrain|>json<|message|>{…}<|call|>` (described in
  openai/harmony; the recipient may also stand behind `<|start|>assistant`);
- functionary 2, `<|recipient|>name\\n<|content|>{…}` (the chat template of meetkai/functionary-small-v2.2);
- Kimi K3's XTML, `<|open|>call tool="name"<|sep|><|open|>argument key="k" type="string"<|sep|>…` (vLLM's and SGLang's
  parsers for it).

Text that is addressed to the user in this way is text of the answer; thinking is left out.
"""

import re

from treadle.adapters.models.text_calls.reader import json_or_text
from treadle.adapters.models.text_calls.shapes import (
    NAME,
    FoundCalls,
    Missed,
    Result,
    Source,
    Wrapper,
    call_of,
    short,
    spaces,
)
from treadle.adapters.models.text_calls.tokens import ENDING
from treadle.adapters.models.text_calls.values import read_named

_HEADER = re.compile(r"((?:[^<]{1,160}+|<\|(?:channel|constrain)\|>){0,6}+)<\|message\|>")
_TO = re.compile(rf"(?:^|\s)to=({NAME.pattern})")
_HALF_HEADER = re.compile(r"\s{0,8}(?:analysis|commentary|final|to=)[^<\n]{0,200}\Z")
_THOUGHT_ENDS = ("<|end|>", "<|start|>", "<|channel|>")


def read_harmony(source: Source, at: int) -> Result:
    """Behind `<|channel|>` or `<|start|>assistant`."""
    header = _HEADER.match(source.text, at)
    if header is None and source.final and _HALF_HEADER.match(source.text, at):
        return Missed(len(source.text), is_cut_off=True)
    if header is None:
        return short(source, at)
    to = _TO.search(header[1])
    if to is not None:
        return _body(source, to[1], header.end())
    return Wrapper(header.end(), _THOUGHT_ENDS if "analysis" in header[1] else ())


_RECIPIENT = re.compile(rf"({NAME.pattern})\s{{0,8}}<\|content\|>")


def read_recipient(source: Source, at: int) -> Result:
    """Behind `<|recipient|>`."""
    header = _RECIPIENT.match(source.text, at)
    if header is None:
        return short(source, at)
    return Wrapper(header.end()) if header[1] == "all" else _body(source, header[1], header.end())


def _body(source: Source, name: str, at: int) -> Result:
    text, at = source.text, spaces(source.text, at)
    if text.startswith("{", at):
        return read_named(source, name, at)
    if ENDING.match(text, at):
        return FoundCalls([call_of(name, {}, source.tool_names, False)], at)
    return short(source, at) if at == len(text) or text[at] == "<" else Missed(at)


_OPEN, _CLOSE, _SEP = r"<\|open\|>", r"<\|close\|>", r"<\|sep\|>"
_ATTRIBUTES = rf'((?:\s{{0,8}}\w{{1,32}}="[^"<]{{0,256}}"){{0,8}})\s{{0,8}}{_SEP}'
_CALL = re.compile(_ATTRIBUTES)
_PIECE = re.compile(rf"\s{{0,80}}{_OPEN}(argument|json){_ATTRIBUTES}")
_ATTRIBUTE = re.compile(r'(\w+)="([^"]*)"')
_CALL_END = re.compile(rf"\s{{0,80}}{_CLOSE}call{_SEP}")
# A value is raw: it ends where what may follow it follows, since it may itself contain the word that ends it.
_PIECE_END = re.compile(rf"{_CLOSE}(?:argument|json){_SEP}(?=\s*+(?:{_OPEN}(?:argument|json)|{_CLOSE}call|\Z))")
_HALF_WORD = re.compile(r"<(?:\|[a-z|]{0,10}|\|close\|>[a-z]{0,10}(?:<[a-z|]{0,5})?)?\Z")


def read_xtml(source: Source, at: int) -> Result:
    """Behind `<|open|>call `; or, of the other channels, behind the whole word."""
    text = source.text
    if text.startswith("think<|sep|>", at - 12):
        return Wrapper(at, ("<|close|>think<|sep|>",))
    if text.startswith("response<|sep|>", at - 15):
        return Wrapper(at)
    head = _CALL.match(text, at)
    if head is None:
        return short(source, at)
    name = _attributes(head[1]).get("tool", "")
    if not NAME.fullmatch(name):
        return Missed(head.end())
    return _pieces(source, name, head.end())


def _pieces(source: Source, name: str, at: int) -> Result:
    text = source.text
    arguments: dict[str, object] = {}
    while (opening := _PIECE.match(text, at)) is not None:
        closing = _PIECE_END.search(text, opening.end())
        end = len(text) if closing is None else closing.end()
        if not source.final and (closing is None or spaces(text, end) == len(text)):
            return None
        raw = text[opening.end() : len(text) if closing is None else closing.start()]
        attributes = _attributes(opening[2])
        raw = _HALF_WORD.sub("", raw) if closing is None else raw
        value = raw if attributes.get("type", "string") == "string" else json_or_text(raw)
        if opening[1] == "json":
            arguments |= value if isinstance(value, dict) else {}
        else:
            arguments[attributes.get("key", "")] = value
        at = end
    is_closed = _CALL_END.match(text, at) is not None
    if not is_closed and not source.final and len(text) - at < 400:
        return None
    if not is_closed and not arguments:
        return Missed(at, is_cut_off=source.final and len(text) - at < 400)
    return FoundCalls([call_of(name, arguments, source.tool_names, not is_closed)], at)


def _attributes(text: str) -> dict[str, str]:
    pairs = _ATTRIBUTE.findall(text)
    return {key: value.replace("&quot;", '"').replace("&amp;", "&") for key, value in pairs}
