"""The calls of MiniMax M3: every tag has `]<]minimax[>[` before it, a parameter's tag is its name, and objects and
lists are tags in tags, a list's being `item` (vLLM's, SGLang's and TensorRT-LLM's parsers for it)."""

import re

from treadle.adapters.models.text_calls.reader import MAX_DEPTH
from treadle.adapters.models.text_calls.shapes import NAME, FoundCalls, Missed, Result, Source, call_of, short
from treadle.adapters.models.text_calls.tokens import MINIMAX

_NAME = re.compile(r"""\s{0,8}["']([^>\s"']{1,128})["'][^>\n]{0,80}>""")
_MARK = re.escape(MINIMAX)
_TAG = re.compile(rf"{_MARK}\s{{0,8}}<(/?)([^<>\s/]{{1,128}})>")
_HALF_TAG = re.compile(rf"{_MARK}\s{{0,8}}<?/?[^<>\s/]{{0,128}}\Z")


class _Node:
    def __init__(self, key: str) -> None:
        self.key = key
        self.text: list[str] = []
        self.inner: list[tuple[str, object]] = []

    def value(self) -> object:
        if not self.inner:
            return "".join(self.text)
        if all(key == "item" for key, _ in self.inner):
            return [value for _, value in self.inner]
        return dict(self.inner)


def read_namespaced(source: Source, at: int) -> Result:
    """Behind `]<]minimax[>[<invoke name=`."""
    text = source.text
    head = _NAME.match(text, at)
    if head is None:
        return short(source, at)
    if not NAME.fullmatch(head[1]):
        return Missed(head.end())
    nodes, at, guessed = [_Node("")], head.end(), False
    while (tag := _TAG.search(text, at)) is not None:
        nodes[-1].text.append(text[at : tag.start()])
        if tag[1] and tag[2] in ("invoke", "tool_call"):
            guessed = guessed or len(nodes) > 1
            return _build_call(source, head[1], nodes, tag.start(), guessed)
        if not tag[1] and len(nodes) < MAX_DEPTH:
            nodes.append(_Node(tag[2]))
        elif tag[1] and len(nodes) > 1:
            guessed = guessed or tag[2] != nodes[-1].key
            _close(nodes)
        at = tag.end()
    if not source.final:
        return None
    nodes[-1].text.append(_HALF_TAG.sub("", _without_half_mark(text[at:])))
    return _build_call(source, head[1], nodes, len(text), True)


def _close(nodes: list[_Node]) -> None:
    node = nodes.pop()
    nodes[-1].inner.append((node.key, node.value()))


def _build_call(source: Source, name: str, nodes: list[_Node], end: int, guessed: bool) -> Result:
    while len(nodes) > 1:
        _close(nodes)
    return FoundCalls([call_of(name, dict(nodes[0].inner), source.tool_names, guessed)], end)


def _without_half_mark(text: str) -> str:
    partial_length = next((n for n in range(len(MINIMAX) - 1, 0, -1) if text.endswith(MINIMAX[:n])), 0)
    return text[: len(text) - partial_length]
