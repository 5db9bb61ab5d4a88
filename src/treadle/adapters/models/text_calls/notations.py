"""Calls in the notations of families of models. In tags:

- `<function=…><parameter=…>`, `<invoke name=…><parameter name=…>`, `<function name=…><param name=…>` (MiniCPM 5),
  `<arg_key>…<arg_value>` (GLM, LongCat);
- MiniMax M3: every tag has `]<]minimax[>[` before it, a parameter's tag is its name, and objects and lists are tags in
  tags, a list's being `item` (vLLM's, SGLang's and TensorRT-LLM's parsers for it).

As messages to a tool, of models that address every message or put it into a channel (text that is addressed to the user
in this way is text of the answer; thinking is left out):

- harmony of gpt-oss, `<|channel|>commentary to=functions.name <|constrain|>json<|message|>{…}<|call|>` (described in
  openai/harmony; the recipient may also stand behind `<|start|>assistant`);
- functionary 2, `<|recipient|>name\\n<|content|>{…}` (the chat template of meetkai/functionary-small-v2.2);
- Kimi K3's XTML, `<|open|>call tool="name"<|sep|><|open|>argument key="k" type="string"<|sep|>…` (vLLM's and SGLang's
  parsers for it)."""

import re
from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from treadle.adapters.models.text_calls import shapes
from treadle.adapters.models.text_calls.reader import MAX_DEPTH, measure_partial, parse_json_or_text

HEAD_OF_TAG = 300  # A parameter's opening tag is shorter than this

_DSML = rf"(?:{shapes.DSML})?"
_FUNCTION_NAME = re.compile(r"""\s{0,8}["']?([^>\s"']{1,128})["']?\s{0,8}>""")
INVOKE_NAME = re.compile(r"""\s{0,8}["']([^>\s"']{1,128})["'][^>\n]{0,80}>""")
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


def read_function(source: shapes.Source, at: int, header: re.Pattern[str] = _FUNCTION_NAME) -> shapes.Result:
    """Behind `<function=`, or with another header behind `<invoke name=`."""
    text = source.text
    match = header.match(text, at)
    if match is None:
        return source.report_short_head(at)
    name = match[1]
    if match[0].endswith("/>") and shapes.NAME.fullmatch(name.removesuffix("/")):
        return shapes.FoundCalls([source.make_call(name.removesuffix("/"), {})], match.end())
    body = shapes.skip_spaces(text, match.end())
    if text[body : body + 1] == "{":
        return source.read_named(name, body, border=None)
    arguments: dict[str, object] = {}
    end = body
    for parameter in _iterate_parameters(text, body):
        if not parameter.is_complete and not source.final:
            return None
        arguments[parameter.key] = parameter.value
        end = shapes.skip_spaces(text, parameter.end)
    is_closed = _CLOSED.match(text, end) is not None
    over = is_closed or (end < len(text) and text[end] != "<")
    if not over and not source.final and len(text) - end < HEAD_OF_TAG:
        return None
    if not shapes.NAME.fullmatch(name) or (not is_closed and not arguments and end < len(text)):
        return shapes.Missed(end)
    return shapes.FoundCalls([source.make_call(name, arguments, not over)], end)


def _iterate_parameters(text: str, at: int) -> Iterator[_Parameter]:
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
            value = parse_json_or_text(str(value))
        elif (data := _CDATA.fullmatch(str(value))) is not None:
            value = data[1]
        # An end that only the end of the text made one may yet turn out to be content.
        is_complete = shapes.skip_spaces(text, closing.end()) < len(text)
        yield _Parameter(key, value, closing.end(), is_complete)
        at = shapes.skip_spaces(text, closing.end())


def read_arg_keys(source: shapes.Source, at: int, name: str) -> shapes.Result:
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
            return shapes.FoundCalls([source.make_call(name, arguments, closing is None)], len(text))
        arguments[opening[1]] = text[opening.end() : closing.start()]
        at = shapes.skip_spaces(text, closing.end())
    arriving = not source.final and text.startswith("<", at) and not _CLOSED.match(text, at)
    if arriving and len(text) - at < HEAD_OF_TAG:
        return None
    return shapes.FoundCalls([source.make_call(name, arguments)], at) if arguments else source.report_short_head(at)


_MARK = re.escape(shapes.MINIMAX)
_TAG = re.compile(rf"{_MARK}\s{{0,8}}<(/?)([^<>\s/]{{1,128}})>")
_HALF_TAG = re.compile(rf"{_MARK}\s{{0,8}}<?/?[^<>\s/]{{0,128}}\Z")


class _Node(msgspec.Struct):
    key: str
    text: list[str] = []
    inner: list[tuple[str, object]] = []

    def build_value(self) -> object:
        if not self.inner:
            return "".join(self.text)
        is_list = all(key == "item" for key, _ in self.inner)
        return [value for _, value in self.inner] if is_list else dict(self.inner)


def read_namespaced(source: shapes.Source, at: int) -> shapes.Result:
    """Behind `]<]minimax[>[<invoke name=`."""
    text = source.text
    head = INVOKE_NAME.match(text, at)
    if head is None:
        return source.report_short_head(at)
    if not shapes.NAME.fullmatch(head[1]):
        return shapes.Missed(head.end())
    nodes, at, guessed = [_Node("")], head.end(), False
    while (tag := _TAG.search(text, at)) is not None:
        nodes[-1].text.append(text[at : tag.start()])
        if tag[1] and tag[2] in ("invoke", "tool_call"):
            return _build_call(source, head[1], nodes, tag.start(), guessed or len(nodes) > 1)
        if not tag[1] and len(nodes) < MAX_DEPTH:
            nodes.append(_Node(tag[2]))
        elif tag[1] and len(nodes) > 1:
            guessed = guessed or tag[2] != nodes[-1].key
            _close(nodes)
        at = tag.end()
    if not source.final:
        return None
    nodes[-1].text.append(_HALF_TAG.sub("", text[at : len(text) - measure_partial(text[at:], shapes.MINIMAX)]))
    return _build_call(source, head[1], nodes, len(text), True)


def _close(nodes: list[_Node]) -> None:
    node = nodes.pop()
    nodes[-1].inner.append((node.key, node.build_value()))


def _build_call(source: shapes.Source, name: str, nodes: list[_Node], end: int, guessed: bool) -> shapes.Result:
    while len(nodes) > 1:
        _close(nodes)
    return shapes.FoundCalls([source.make_call(name, dict(nodes[0].inner), guessed)], end)


_HEADER = re.compile(r"((?:[^<]{1,160}+|<\|(?:channel|constrain)\|>){0,6}+)<\|message\|>")
_TO = re.compile(rf"(?:^|\s)to=({shapes.NAME.pattern})")
_HALF_HEADER = re.compile(r"\s{0,8}(?:analysis|commentary|final|to=)[^<\n]{0,200}\Z")
_THOUGHT_ENDS = ("<|end|>", "<|start|>", "<|channel|>")


def read_harmony(source: shapes.Source, at: int) -> shapes.Result:
    """Behind `<|channel|>` or `<|start|>assistant`."""
    header = _HEADER.match(source.text, at)
    if header is None and source.final and _HALF_HEADER.match(source.text, at):
        return shapes.Missed(len(source.text), is_cut_off=True)
    if header is None:
        return source.report_short_head(at)
    to = _TO.search(header[1])
    if to is not None:
        return _read_body(source, to[1], header.end())
    return shapes.Wrapper(header.end(), _THOUGHT_ENDS if "analysis" in header[1] else ())


_RECIPIENT = re.compile(rf"({shapes.NAME.pattern})\s{{0,8}}<\|content\|>")


def read_recipient(source: shapes.Source, at: int) -> shapes.Result:
    """Behind `<|recipient|>`."""
    header = _RECIPIENT.match(source.text, at)
    if header is None:
        return source.report_short_head(at)
    return shapes.Wrapper(header.end()) if header[1] == "all" else _read_body(source, header[1], header.end())


def _read_body(source: shapes.Source, name: str, at: int) -> shapes.Result:
    text, at = source.text, shapes.skip_spaces(source.text, at)
    if text.startswith("{", at):
        return source.read_named(name, at)
    if shapes.ENDING.match(text, at):
        return shapes.FoundCalls([source.make_call(name, {})], at)
    return source.report_short_head(at) if at == len(text) or text[at] == "<" else shapes.Missed(at)


_OPEN, _CLOSE, _SEP = r"<\|open\|>", r"<\|close\|>", r"<\|sep\|>"
_ATTRIBUTES = rf'((?:\s{{0,8}}\w{{1,32}}="[^"<]{{0,256}}"){{0,8}})\s{{0,8}}{_SEP}'
_CALL = re.compile(_ATTRIBUTES)
_PIECE = re.compile(rf"\s{{0,80}}{_OPEN}(argument|json){_ATTRIBUTES}")
_ATTRIBUTE = re.compile(r'(\w+)="([^"]*)"')
_CALL_END = re.compile(rf"\s{{0,80}}{_CLOSE}call{_SEP}")
# A value is raw: it ends where what may follow it follows, since it may itself contain the word that ends it.
_PIECE_END = re.compile(rf"{_CLOSE}(?:argument|json){_SEP}(?=\s*+(?:{_OPEN}(?:argument|json)|{_CLOSE}call|\Z))")
_HALF_WORD = re.compile(r"<(?:\|[a-z|]{0,10}|\|close\|>[a-z]{0,10}(?:<[a-z|]{0,5})?)?\Z")


def read_xtml(source: shapes.Source, at: int) -> shapes.Result:
    """Behind `<|open|>call `; or, of the other channels, behind the whole word."""
    text = source.text
    if text.startswith("think<|sep|>", at - 12):
        return shapes.Wrapper(at, ("<|close|>think<|sep|>",))
    if text.startswith("response<|sep|>", at - 15):
        return shapes.Wrapper(at)
    head = _CALL.match(text, at)
    if head is None:
        return source.report_short_head(at)
    name = _parse_attributes(head[1]).get("tool", "")
    if not shapes.NAME.fullmatch(name):
        return shapes.Missed(head.end())
    at = head.end()
    arguments: dict[str, object] = {}
    while (opening := _PIECE.match(text, at)) is not None:
        closing = _PIECE_END.search(text, opening.end())
        end = len(text) if closing is None else closing.end()
        if not source.final and (closing is None or shapes.skip_spaces(text, end) == len(text)):
            return None
        raw = text[opening.end() : len(text) if closing is None else closing.start()]
        attributes = _parse_attributes(opening[2])
        raw = _HALF_WORD.sub("", raw) if closing is None else raw
        value = raw if attributes.get("type", "string") == "string" else parse_json_or_text(raw)
        if opening[1] == "json":
            arguments |= value if isinstance(value, dict) else {}
        else:
            arguments[attributes.get("key", "")] = value
        at = end
    is_closed = _CALL_END.match(text, at) is not None
    if not is_closed and not source.final and len(text) - at < 400:
        return None
    if not is_closed and not arguments:
        return shapes.Missed(at, is_cut_off=source.final and len(text) - at < 400)
    return shapes.FoundCalls([source.make_call(name, arguments, not is_closed)], at)


def _parse_attributes(text: str) -> dict[str, str]:
    pairs = _ATTRIBUTE.findall(text)
    return {key: value.replace("&quot;", '"').replace("&amp;", "&") for key, value in pairs}
