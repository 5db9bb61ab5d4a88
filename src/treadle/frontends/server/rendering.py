"""Markdown, code and diffs as HTML, by libraries (S-12). The input is by a model, a tool or a stranger: their HTML does
not get through, no image is loaded, links lead to the web or to a mailbox and nowhere else. The output has no styles,
only classes."""

from collections.abc import Callable, Iterator
from functools import cache, lru_cache
from html import escape
from typing import TYPE_CHECKING, Any, Literal

from treadle.base.inert import LEXERS, inert, inert_line
from treadle.frontends.server.diff_tables import diff_table
from treadle.frontends.server.markdown_rules import extend

if TYPE_CHECKING:
    from markdown_it import MarkdownIt

Kind = Literal["markdown", "code", "diff"]

MOST_MARKDOWN = 200_000
MOST_COLOURED = 64_000
"""Characters; longer texts are shown as plain text."""
_DIFFS = ("diff", "patch")
_DIFF_MARKS = {"+": "added", "-": "removed"}
_LINKS = ("http://", "https://", "mailto:")


def render(kind: Kind, text: str, language: str = "", *, split: bool = False, numbered: bool = False) -> str:
    """Takes as long as the text makes it: servers ask `render_process` instead."""
    match kind:
        case "markdown":
            return markdown(text)
        case "code":
            return code(text, language, numbered=numbered)
        case "diff":
            return diff_table(inert(text), split=split, coloured=lambda lines, path: _lines(lines, path or language))


def plain(text: str) -> str:
    """The text as it is, without marks and colours."""
    return f"<pre class=plain>{escape(inert(text))}</pre>"


def markdown(text: str) -> str:
    """A message. One that is too long stays as it is."""
    safe = inert(text)
    if len(safe) > MOST_MARKDOWN:
        return plain(text)
    return inert(_parser().render(safe))  # once more: Markdown decodes entities such as &#x202e;


def code(text: str, language: str = "", *, numbered: bool = False) -> str:
    """A block of code; `language` is a name or a file name. With `numbered` each line can be found by its number."""
    lines = inert(text).split("\n")
    rows = [_diff_line(line) for line in lines] if language.lower() in _DIFFS else _lines(lines, language)
    if numbered:
        rows = [f'<span class="numbered" data-line="{number}">{row}</span>' for number, row in enumerate(rows, 1)]
    coloured = "\n".join(rows)
    label = f"<span class=language>{escape(inert_line(language, 40))}</span>" if language else ""
    return f'<div class="code">{label}<pre tabindex="0"><code>{coloured}</code></pre></div>\n'


def _diff_line(line: str) -> str:
    kind = "hunk" if line.startswith("@@") else _DIFF_MARKS.get(line[:1], "")
    if not kind or line.startswith(("+++ ", "--- ")):
        return escape(line)
    return f'<span class="{kind}">{escape(line)}</span>'


@cache
def _parser() -> "MarkdownIt":
    from markdown_it import MarkdownIt

    parser = MarkdownIt("commonmark", {"html": False, "linkify": False, "typographer": False})
    parser.enable(["table", "strikethrough"])
    parser.validateLink = lambda url: url.strip().lower().startswith(_LINKS)  # type: ignore[method-assign]
    extend(parser)
    parser.add_render_rule("image", _image)
    parser.add_render_rule("link_open", _link)
    parser.add_render_rule("fence", _fence)
    parser.add_render_rule("code_block", _fence)
    for cell in ("th", "td"):
        parser.add_render_rule(f"{cell}_open", _cell)
    parser.add_render_rule("table_open", lambda *_: '<div class="wide" tabindex="0"><table>\n')
    parser.add_render_rule("table_close", lambda *_: "</table></div>\n")
    return parser


def _link(_self: Any, tokens: Any, index: int, options: Any, env: Any) -> str:
    return f"<a {_leading_to(tokens[index].attrGet('href'))}>"


def _image(_self: Any, tokens: Any, index: int, options: Any, env: Any) -> str:
    """An image is named, never loaded: loading it would tell its server who reads."""
    token = tokens[index]
    return f'<a class="image" {_leading_to(token.attrGet("src"))}>▣ {escape(token.content or "image")}</a>'


def _leading_to(address: object) -> str:
    """Attributes of a link: where it leads is seen before it is followed, and that site is not told from where."""
    url = escape(str(address or ""), quote=True)
    return f'href="{url}" title="{url}" rel="noopener noreferrer nofollow" target="_blank"'


def _cell(_self: Any, tokens: Any, index: int, options: Any, env: Any) -> str:
    """How a column is aligned is a class: there are no styles."""
    token = tokens[index]
    aligned = str(token.attrGet("style") or "").rpartition(":")[2]
    return f'<{token.tag} class="{aligned}">' if aligned in ("center", "right") else f"<{token.tag}>"


def _fence(_self: Any, tokens: Any, index: int, options: Any, env: Any) -> str:
    token = tokens[index]
    return code(token.content.removesuffix("\n"), token.info.strip().split(" ")[0] if token.info else "")


def _lines(lines: list[str], language: str) -> list[str]:
    """Each line as HTML, coloured as its language demands; as it is where the language is not known."""
    text = "\n".join(lines)
    lexer = _lexer(language) if language and len(text) <= MOST_COLOURED else None
    if lexer is None:
        return [escape(line) for line in lines]
    from pygments import highlight  # type: ignore[import-untyped]

    html_lines = highlight(text, lexer(), _formatter()).split("\n")[: len(lines)]
    return html_lines if len(html_lines) == len(lines) else [escape(line) for line in lines]


@cache
def _formatter() -> Any:
    from pygments.formatters import HtmlFormatter  # type: ignore[import-untyped]

    return HtmlFormatter(nowrap=True)


@lru_cache(256)  # bounded: clients choose the names of languages
def _lexer(language: str) -> Callable[[], Any] | None:
    from pygments.lexers import find_lexer_class_for_filename, get_lexer_by_name  # type: ignore[import-untyped]
    from pygments.util import ClassNotFound  # type: ignore[import-untyped]

    plain = {"stripnl": False, "ensurenl": True, "stripall": False}
    for find in _by_name(language):
        try:
            lexer_class = find_lexer_class_for_filename(find) if "." in find else type(get_lexer_by_name(find))
        except ClassNotFound:
            continue
        if lexer_class is not None and lexer_class.name in LEXERS:
            kind = lexer_class
            return lambda: kind(**plain)
    return None


def _by_name(language: str) -> Iterator[str]:
    """How a language may be meant: a file, or the name of one."""
    name = language.rpartition("/")[2].strip().lower()[:80]
    if name:
        yield name
        if "." not in name:
            yield f"x.{name}"
