"""Treadle's additions to CommonMark: task lists, plain addresses as links, and places in files (`src/a.py:12`) that the
page opens. Works on the parser's tokens, never on HTML."""

import re
from collections.abc import Iterator
from html import escape
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.rules_core import StateCore
    from markdown_it.token import Token

_ENDINGS = (
    "bash|c|cc|cfg|clj|cpp|cs|css|csv|dart|ex|exs|fish|go|gradle|h|hpp|hs|html|ini|java|jl|js|json|jsonl|jsx|kt|less|"
    "lock|lua|m|md|mjs|ml|mm|php|pl|proto|ps1|py|pyi|r|rb|rs|rst|scala|scss|sh|sql|svelte|svg|swift|tf|toml|ts|tsx|"
    "txt|vue|xml|yaml|yml|zig|zsh"
)
_ADDRESS = r"https?://[^\s<>\"'`()\[\]{}|\\]{1,2000}"
_PLACE = rf"/?(?:[\w.@+-]{{1,80}}/){{0,20}}[\w.@+-]{{1,80}}\.(?:{_ENDINGS}):\d{{1,7}}(?!\w)"
_LINKED = re.compile(rf"(?<![\w/.@+-])(?:(?P<address>{_ADDRESS})|(?P<place>{_PLACE}))")
_WHOLE_PLACE = re.compile(_PLACE)
_PUNCTUATION = ".,;:!?*_~"
_TASK = re.compile(r"\[([ xX])\] ")


def extend(parser: "MarkdownIt") -> None:
    parser.core.ruler.after("inline", "treadle", _rewrite)
    parser.add_render_rule("place", _render_place)
    parser.add_render_rule("task", _render_task)


def _rewrite(state: "StateCore") -> None:
    for at, token in enumerate(state.tokens):
        if token.type != "inline" or token.children is None:
            continue
        _mark_task(state.tokens, at)
        token.children = list(_linked(token.children))


def _mark_task(tokens: "list[Token]", at: int) -> None:
    """An item of a list that begins with [ ] or [x]."""
    from markdown_it.token import Token

    inline = tokens[at]
    if at < 2 or tokens[at - 2].type != "list_item_open" or not inline.children:
        return
    first = inline.children[0]
    if first.type != "text" or (mark := _TASK.match(first.content)) is None:
        return
    first.content = first.content[mark.end() :]
    tokens[at - 2].attrSet("class", "task")
    inline.children.insert(0, Token("task", "", 0, meta={"done": mark[1] != " "}))


def _linked(tokens: "list[Token]") -> "Iterator[Token]":
    depth = 0
    for token in tokens:
        depth += {"link_open": 1, "link_close": -1}.get(token.type, 0)
        if depth == 0 and token.type == "text":
            yield from _split(token)
        elif depth == 0 and token.type == "code_inline" and _WHOLE_PLACE.fullmatch(token.content):
            yield _place(token.content, code=True)
        else:
            yield token


def _split(token: "Token") -> "Iterator[Token]":
    from markdown_it.token import Token

    text, position = token.content, 0
    for match in _LINKED.finditer(text):
        content = match[0].rstrip(_PUNCTUATION) if match["address"] else match[0]
        if match.start() > position:
            yield Token("text", "", 0, content=text[position : match.start()])
        if match["address"]:
            yield Token("link_open", "a", 1, attrs={"href": content})
            yield Token("text", "", 0, content=content)
            yield Token("link_close", "a", -1)
        else:
            yield _place(content, code=False)
        position = match.start() + len(content)
    if not position:
        yield token
    elif position < len(text):
        yield Token("text", "", 0, content=text[position:])


def _place(content: str, *, code: bool) -> "Token":
    from markdown_it.token import Token

    path, _, line = content.rpartition(":")
    return Token("place", "", 0, content=content, meta={"path": path, "line": line, "code": code})


def _render_place(_self: Any, tokens: Any, index: int, options: Any, env: Any) -> str:
    token = tokens[index]
    path, line = escape(token.meta["path"], quote=True), token.meta["line"]
    escaped = escape(token.content)
    text = f"<code>{escaped}</code>" if token.meta["code"] else escaped
    return f'<button type="button" class="place" data-path="{path}" data-line="{line}">{text}</button>'


def _render_task(_self: Any, tokens: Any, index: int, options: Any, env: Any) -> str:
    is_done = tokens[index].meta["done"]
    checked, label = (" checked", "done") if is_done else ("", "to do")
    return f'<input type="checkbox" disabled{checked} aria-label="{label}"> '
