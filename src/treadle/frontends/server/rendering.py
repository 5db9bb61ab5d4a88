"""Markdown, code and diffs as HTML (S-12). The input is untrusted: its HTML does not get through, no image is loaded,
links lead to the web or a mailbox. The output has no styles, only classes."""

import re
from collections.abc import Callable, Iterator
from functools import cache, lru_cache, partial
from html import escape
from itertools import starmap, zip_longest
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from treadle.base.inert import LEXERS, make_inert, make_inert_line

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.rules_core import StateCore
    from markdown_it.token import Token

Kind = Literal["markdown", "code", "diff"]

MOST_MARKDOWN = 200_000
MOST_COLOURED = 64_000  # Characters; longer texts are shown as plain text.
_DIFFS = ("diff", "patch")
_DIFF_MARKS = {"+": "added", "-": "removed"}
_LINKS = ("http://", "https://", "mailto:")


def render(kind: Kind, text: str, language: str = "", *, split: bool = False, numbered: bool = False) -> str:
    """Takes as long as the text makes it: servers ask `render_process` instead."""
    match kind:
        case "markdown":
            return render_markdown(text)
        case "code":
            return render_code(text, language, numbered=numbered)
        case "diff":
            return make_diff_table(
                make_inert(text), split=split, coloured=lambda lines, path: _colour_lines(lines, path or language)
            )


def render_plain(text: str) -> str:
    """The text as it is, without marks and colours."""
    return f"<pre class=plain>{escape(make_inert(text))}</pre>"


def render_markdown(text: str) -> str:
    """A message. One that is too long stays as it is."""
    safe = make_inert(text)
    if len(safe) > MOST_MARKDOWN:
        return render_plain(text)
    return make_inert(_make_parser().render(safe))  # once more: Markdown decodes entities such as &#x202e;


def render_code(text: str, language: str = "", *, numbered: bool = False) -> str:
    """A block of code; `language` is a name or a file name. With `numbered` each line can be found by its number."""
    lines = make_inert(text).split("\n")
    rows = [_format_diff_line(line) for line in lines] if language.lower() in _DIFFS else _colour_lines(lines, language)
    if numbered:
        rows = [f'<span class="numbered" data-line="{number}">{row}</span>' for number, row in enumerate(rows, 1)]
    coloured = "\n".join(rows)
    label = f"<span class=language>{escape(make_inert_line(language, 40))}</span>" if language else ""
    return f'<div class="code">{label}<pre tabindex="0"><code>{coloured}</code></pre></div>\n'


def _format_diff_line(line: str) -> str:
    kind = "hunk" if line.startswith("@@") else _DIFF_MARKS.get(line[:1], "")
    if not kind or line.startswith(("+++ ", "--- ")):
        return escape(line)
    return f'<span class="{kind}">{escape(line)}</span>'


@cache
def _make_parser() -> "MarkdownIt":
    from markdown_it import MarkdownIt

    parser = MarkdownIt("commonmark", {"html": False, "linkify": False, "typographer": False})
    parser.enable(["table", "strikethrough"])
    parser.validateLink = lambda url: url.strip().lower().startswith(_LINKS)  # type: ignore[method-assign]
    parser.core.ruler.after("inline", "treadle", _rewrite)
    rules = {"place": _render_place, "task": _render_task, "image": _render_image}
    rules |= {"fence": _render_fence, "code_block": _render_fence, "th_open": _open_cell, "td_open": _open_cell}
    for name, rule in rules.items():
        parser.add_render_rule(name, rule)
    parser.add_render_rule(
        "link_open", lambda _self, tokens, index, *_: f"<a {_format_link(tokens[index].attrGet('href'))}>"
    )
    parser.add_render_rule("table_open", lambda *_: '<div class="wide" tabindex="0"><table>\n')
    parser.add_render_rule("table_close", lambda *_: "</table></div>\n")
    return parser


def _render_image(_self: Any, tokens: Any, index: int, options: Any, env: Any) -> str:
    """An image is named, never loaded: loading it would tell its server who reads."""
    token = tokens[index]
    return f'<a class="image" {_format_link(token.attrGet("src"))}>▣ {escape(token.content or "image")}</a>'


def _format_link(address: object) -> str:
    """Attributes of a link: where it leads is seen before it is followed, and that site is not told from where."""
    url = escape(str(address or ""), quote=True)
    return f'href="{url}" title="{url}" rel="noopener noreferrer nofollow" target="_blank"'


def _open_cell(_self: Any, tokens: Any, index: int, options: Any, env: Any) -> str:
    """How a column is aligned is a class: there are no styles."""
    token = tokens[index]
    aligned = str(token.attrGet("style") or "").rpartition(":")[2]
    return f'<{token.tag} class="{aligned}">' if aligned in ("center", "right") else f"<{token.tag}>"


def _render_fence(_self: Any, tokens: Any, index: int, options: Any, env: Any) -> str:
    token = tokens[index]
    return render_code(token.content.removesuffix("\n"), token.info.strip().split(" ")[0] if token.info else "")


def _colour_lines(lines: list[str], language: str) -> list[str]:
    """Each line as HTML, coloured as its language demands; as it is where the language is not known."""
    text = "\n".join(lines)
    lexer = _find_lexer(language) if language and len(text) <= MOST_COLOURED else None
    if lexer is None:
        return [escape(line) for line in lines]
    from pygments import highlight  # type: ignore[import-untyped]

    html_lines = highlight(text, lexer(), _make_formatter()).split("\n")[: len(lines)]
    return html_lines if len(html_lines) == len(lines) else [escape(line) for line in lines]


@cache
def _make_formatter() -> Any:
    from pygments.formatters import HtmlFormatter  # type: ignore[import-untyped]

    return HtmlFormatter(nowrap=True)


@lru_cache(256)  # bounded: clients choose the names of languages
def _find_lexer(language: str) -> Callable[[], Any] | None:
    from pygments.lexers import find_lexer_class_for_filename, get_lexer_by_name  # type: ignore[import-untyped]
    from pygments.util import ClassNotFound  # type: ignore[import-untyped]

    plain = {"stripnl": False, "ensurenl": True, "stripall": False}
    name = language.rpartition("/")[2].strip().lower()[:80]
    for each in [name, f"x.{name}"] if "." not in name else [name]:  # the name of a file, of a language, or an ending
        try:
            lexer_class: Any = find_lexer_class_for_filename(each) if "." in each else type(get_lexer_by_name(each))
        except ClassNotFound:
            continue
        if lexer_class is not None and lexer_class.name in LEXERS:
            return partial(lexer_class, **plain)
    return None


# -- additions to CommonMark: task lists, plain addresses, places in files --------------------------------------------

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


def _rewrite(state: "StateCore") -> None:
    for at, token in enumerate(state.tokens):
        if token.type != "inline" or token.children is None:
            continue
        _mark_task(state.tokens, at)
        token.children = list(_link_places(token.children))


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


def _link_places(tokens: "list[Token]") -> "Iterator[Token]":
    depth = 0
    for token in tokens:
        depth += {"link_open": 1, "link_close": -1}.get(token.type, 0)
        if depth == 0 and token.type == "text":
            yield from _split_token(token)
        elif depth == 0 and token.type == "code_inline" and _WHOLE_PLACE.fullmatch(token.content):
            yield _make_place(token.content, code=True)
        else:
            yield token


def _split_token(token: "Token") -> "Iterator[Token]":
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
            yield _make_place(content, code=False)
        position = match.start() + len(content)
    if not position:
        yield token
    elif position < len(text):
        yield Token("text", "", 0, content=text[position:])


def _make_place(content: str, *, code: bool) -> "Token":
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
    checked, label = (" checked", "done") if tokens[index].meta["done"] else ("", "to do")
    return f'<input type="checkbox" disabled{checked} aria-label="{label}"> '


# -- diffs as tables: inline, or both sides beside each other ---------------------------------------------------------

Coloured = Callable[[list[str], str], list[str]]  # Lines of a file of this name, as HTML.

_HUNK = re.compile(r"@@ -(\d{1,9})(?:,(\d{1,9}))? \+(\d{1,9})(?:,(\d{1,9}))? @@(.*)")
_MARKS = {"+": "added", "-": "removed", " ": "same"}
Line = tuple[str, int, int, str]  # Its mark, its numbers on both sides (0: it is not there), and its HTML.


class _Hunk(msgspec.Struct):
    header: str
    old: int
    new: int
    lines: list[str]


def make_diff_table(text: str, *, split: bool, coloured: Coloured) -> str:
    html_parts: list[str] = []
    path = ""
    rows: list[str] = []

    def close() -> None:
        if rows:
            kind = "split" if split else "inline"
            columns = '<colgroup><col class="ln"><col><col class="ln"><col></colgroup>' if split else ""
            table = f'<table class="diff {kind}">{columns}<tbody>{"".join(rows)}</tbody></table>'
            html_parts.append(f'<div class="wide" tabindex="0">{table}</div>')
            rows.clear()

    for part in _iterate_parts(text.split("\n")):
        if isinstance(part, _Hunk):
            lines = list(_number_lines(part, path, coloured))
            rows.append(f'<tr class="hunk"><td colspan="{4 if split else 3}">{escape(part.header)}</td></tr>')
            rows += _render_side_by_side(lines) if split else map(_render_row, lines)
        else:
            close()
            path = _find_path(part) or path
            if about_text := "\n".join(part).strip("\n"):
                html_parts.append(f'<pre class="about">{escape(about_text)}</pre>')
    close()
    return "".join(html_parts)


def _iterate_parts(lines: list[str]) -> Iterator[_Hunk | list[str]]:
    """Hunks, and what stands between them."""
    between: list[str] = []
    at = 0
    while at < len(lines):
        if (match := _HUNK.match(lines[at])) is None:
            between.append(lines[at])
            at += 1
            continue
        if between:
            yield between
            between = []
        hunk = _Hunk(lines[at], int(match[1]), int(match[3]), [])
        left_old, left_new = int(match[2] or 1), int(match[4] or 1)
        at += 1
        while at < len(lines) and (left_old > 0 or left_new > 0 or lines[at][:1] == "\\"):
            mark = lines[at][:1] or " "
            if mark not in "+- \\":
                break
            left_old -= mark in "- "
            left_new -= mark in "+ "
            hunk.lines.append(lines[at] or " ")
            at += 1
        yield hunk
    if between:
        yield between


def _find_path(lines: list[str]) -> str:
    new = (line for line in lines if line.startswith("+++ ") and not line.startswith("+++ /dev/null"))
    if line := next(new, ""):
        return line[4:].partition("\t")[0].removeprefix("b/")
    return next((line for line in lines if line.startswith("--- ")), "")[4:].partition("\t")[0].removeprefix("a/")


def _number_lines(hunk: _Hunk, path: str, coloured: Coloured) -> Iterator[Line]:
    sides = {side: iter(coloured([line[1:] for line in hunk.lines if line[0] in side], path)) for side in ("- ", "+ ")}
    old, new = hunk.old, hunk.new
    for line in hunk.lines:
        match line[0]:
            case "+":
                yield "+", 0, new, next(sides["+ "])
                new += 1
            case "-":
                yield "-", old, 0, next(sides["- "])
                old += 1
            case " ":
                next(sides["- "])
                yield " ", old, new, next(sides["+ "])
                old, new = old + 1, new + 1
            case _:
                yield "\\", 0, 0, f"<i>{escape(line[1:].strip())}</i>"


def _render_cells(number: int, mark: str, html: str) -> str:
    kind = _MARKS.get(mark, "note")
    return f'<td class="ln">{number or ""}</td><td class="{kind}"><span class="mark">{mark.strip()}</span>{html}</td>'


def _render_row(line: Line) -> str:
    mark, old, new, html = line
    return f'<tr><td class="ln">{old or ""}</td>{_render_cells(new, mark, html)}</tr>'


def _render_side_by_side(lines: list[Line]) -> Iterator[str]:
    """Removed lines beside the added ones that follow them."""
    left_lines: list[Line] = []
    right: list[Line] = []
    for line in [*lines, (" ", 0, 0, "")]:
        if line[0] == "-" and not right:
            left_lines.append(line)
        elif line[0] == "+":
            right.append(line)
        else:
            yield from starmap(_render_pair, zip_longest(left_lines, right))
            left_lines, right = ([line], []) if line[0] == "-" else ([], [])
            if line[0] != "-" and (line[1] or line[2] or line[3]):
                yield f"<tr>{_render_cells(line[1], line[0], line[3])}{_render_cells(line[2], line[0], line[3])}</tr>"


def _render_pair(old: Line | None, new: Line | None) -> str:
    empty = '<td class="ln"></td><td class="none"></td>'
    old_cells = _render_cells(old[1], "-", old[3]) if old else empty
    new_cells = _render_cells(new[2], "+", new[3]) if new else empty
    return f"<tr>{old_cells}{new_cells}</tr>"
