"""Markdown and code in colours. Its libraries take long to load: they are loaded behind the first frame, and imported
only where something is drawn with them."""

from collections.abc import Iterator
from contextlib import suppress
from functools import lru_cache
from typing import ClassVar

from pygments.lexer import Lexer  # type: ignore[import-untyped]
from pygments.lexers import get_lexer_by_name, get_lexer_for_filename  # type: ignore[import-untyped]
from pygments.util import ClassNotFound  # type: ignore[import-untyped]
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.markdown import CodeBlock, Heading, Markdown, MarkdownElement
from rich.padding import Padding
from rich.syntax import Syntax
from rich.theme import Theme

from treadle.base.inert import LEXERS, InertText, make_inert
from treadle.frontends.presentation.rich_text import Drawable, RichText, Text

MOST_COLOURED = 40_000  # characters of a text that is given colours


@lru_cache(100)
def get_lexer(name: str) -> Lexer:
    with suppress(ClassNotFound):
        lexer = get_lexer_by_name(name or "text")
        if lexer.name in LEXERS:
            return lexer
    return get_lexer_by_name("text")


@lru_cache(200)
def get_file_lexer(file: str) -> Lexer:
    """By the name of a file: the colours of its language. Finding it costs more than using it."""
    with suppress(ClassNotFound):
        lexer = get_lexer_for_filename(file)
        if lexer.name in LEXERS:
            return lexer
    return get_lexer("text")


class _Code(CodeBlock):
    """A fenced block without the padding that would be copied along."""

    def __rich_console__(self, console: object, options: object) -> Iterator[RenderableType]:
        code = str(self.text).rstrip()
        yield Padding(Syntax(code, get_lexer(self.lexer_name), theme=self.theme, word_wrap=True), (0, 2))


class _Heading(Heading):
    """At the left, and in no box."""

    def __rich_console__(self, console: object, options: object) -> Iterator[RenderableType]:
        self.text.justify = "left"
        yield self.text


class _Markdown(Markdown):
    elements: ClassVar[dict[str, type[MarkdownElement]]] = {
        **Markdown.elements,
        "fence": _Code,
        "code_block": _Code,
        "heading_open": _Heading,
    }

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        with console.use_theme(_THEME):
            yield from super().__rich_console__(console, options)


_THEME = Theme(
    {
        "markdown.h1": "bold underline",
        "markdown.h2": "bold underline",
        "markdown.code": "cyan",
        "markdown.table.header": "bold",
        "markdown.table.border": "dim",
    }
)
"""No red: a heading is no failure."""


def render_markdown(text: InertText, theme: str) -> Drawable:
    """Links are shown with where they lead, and lead nowhere by themselves."""
    document = _Markdown(text, code_theme=theme, hyperlinks=False, inline_code_theme=None)
    for token in document.parsed:
        for part in (token, *(token.children or ())):
            part.content = make_inert(part.content)  # once more: Markdown decodes entities such as &#x202e;
    return document


def render_code(text: InertText, language: str, theme: str) -> Drawable:
    return Syntax(text, get_lexer(language), theme=theme, word_wrap=True)


def highlight_lines(lines: list[str], path: str, theme: str) -> list[RichText]:
    """The lines of a file, or some of them, in the colours of its language."""
    text = make_inert("\n".join(make_inert(line.replace("\t", "    ")) for line in lines))
    if len(text) > MOST_COLOURED:
        return [Text(line) for line in text.split("\n")]
    coloured = Syntax(text, get_file_lexer(path.rpartition("/")[2]), theme=theme).highlight(text)
    coloured_lines = coloured.split("\n", allow_blank=True)
    return [*coloured_lines, *(Text() for _ in range(len(lines) - len(coloured_lines)))][: len(lines)]
