"""What all widgets of the app share: its signs, with and without Unicode, its colours on a light ground, the filters
before the terminal, and the widget for text."""

from typing import NamedTuple

from rich.cells import cell_len
from rich.segment import Segment
from rich.terminal_theme import TerminalTheme
from textual import widgets
from textual.color import Color
from textual.filter import LineFilter

from treadle.base.inert import make_inert_line
from treadle.frontends.presentation.rich_text import Drawable, Text

_DARK = [(0, 0, 0), (160, 40, 40), (38, 105, 20), (128, 88, 0), (45, 85, 185), (115, 55, 150), (0, 98, 135)]
LIGHT = TerminalTheme((247, 247, 247), (0, 0, 0), [*_DARK, (247, 247, 247)], [(100, 100, 100), *_DARK[1:], (0, 0, 0)])
"""The sixteen colours of terminals, each dark enough to be read on a light ground."""
_ASCII = str.maketrans(
    {
        **{"●": "*", "✗": "x", "✓": "v", "·": "-", "…": "~", "\N{MINUS SIGN}": "-", "•": "*", "⋮": ":"},
        **dict.fromkeys("─━▁▂▃▔", "-"),
        **dict.fromkeys("│┃▌▐▎▏▕", "|"),
        **dict.fromkeys("╭╮╰╯┌┐└┘┏┓┗┛├┤┼╋", "+"),
        **dict.fromkeys("▄▅▆▇█▀", "#"),
    }
)


class Marks(NamedTuple):
    unicode: bool = True
    prompt: str = "\N{HEAVY RIGHT-POINTING ANGLE QUOTATION MARK ORNAMENT}"
    call: str = "●"
    running: str = "○"
    asks: str = "?"
    failed: str = "✗"
    completed: str = "✓"
    now: str = "▸"
    todo: str = "·"
    dot: str = "·"
    bar: str = "│"
    rule: str = "─"
    thinking: str = "✻"
    full: str = "━"
    spinner: str = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"

    def adapt_text(self, text: str) -> str:
        """Signs that come with texts of the presentation, as this terminal can show them."""
        return text if self.unicode else text.translate(_ASCII)


PLAIN = Marks(
    unicode=False, prompt=">", call="*", running="o", asks="?", failed="x", completed="v", now=">", todo="-", dot="-",
    bar="|", rule="-", thinking="*", full="=", spinner="|/-\\",
)  # fmt: skip


def convert_to_ascii(text: str) -> str:
    if text.isascii():
        return text
    return "".join(each if each.isascii() else "?" * cell_len(each) for each in text.translate(_ASCII))


class InertFilter(LineFilter):
    """The last check before the terminal, for every widget (S-22): removes characters that the terminal would obey and
    links that it would open. `Text` shows such characters as escapes; here the width of a line must not change."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        return [_make_inert(segment) for segment in segments]


def _make_inert(segment: Segment) -> Segment:
    text, style, control = segment
    if make_inert_line(text) != text:
        text = "".join(each if make_inert_line(each) == each else "?" * cell_len(each) for each in text)
    elif style is None or not style.link:
        return segment
    return Segment(text, style and style.update_link(None), control)


class Colourless(LineFilter):
    """NO_COLOR: no colour at all, neither of letters nor of their ground. Bold, underlined and reversed text stays."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        return [Segment(text, style and style.without_color, control) for text, style, control in segments]


class Plain(LineFilter):
    """Signs for terminals without Unicode, borders and bars included."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        return [Segment(convert_to_ascii(text), style, control) for text, style, control in segments]


def choose_marks(encoding: str | None) -> Marks:
    return Marks() if "utf" in (encoding or "").lower() else PLAIN


class Static(widgets.Static):
    """Textual's widget for text. It takes no plain string: Textual would read markup in it (S-22)."""

    def __init__(self, content: Drawable | None = None, *, id: str | None = None) -> None:
        super().__init__(Text() if content is None else content, id=id)

    def update(self, content: Drawable, *, layout: bool = True) -> None:  # type: ignore[override]  # narrower on purpose
        super().update(content, layout=layout)
