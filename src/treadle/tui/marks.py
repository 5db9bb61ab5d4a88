"""The signs of the app, with and without Unicode."""

from typing import NamedTuple

_ASCII = str.maketrans({"●": "*", "✗": "x", "✓": "v", "·": "-", "…": "~", "\N{MINUS SIGN}": "-", "│": "|", "─": "-"})


class Marks(NamedTuple):
    unicode: bool = True
    prompt: str = "\N{HEAVY RIGHT-POINTING ANGLE QUOTATION MARK ORNAMENT}"
    call: str = "●"
    running: str = "○"
    asks: str = "?"
    failed: str = "✗"
    done: str = "✓"
    now: str = "▸"
    todo: str = "·"
    dot: str = "·"
    bar: str = "│"
    rule: str = "─"
    thought: str = "✻"
    full: str = "━"
    spinner: str = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"

    def plain(self, text: str) -> str:
        """Signs that come with texts of the presentation, as this terminal can show them."""
        return text if self.unicode else text.translate(_ASCII)


PLAIN = Marks(
    unicode=False, prompt=">", call="*", running="o", asks="?", failed="x", done="v", now=">", todo="-", dot="-",
    bar="|", rule="-", thought="*", full="=", spinner="|/-\\",
)  # fmt: skip


def marks_for(encoding: str | None) -> Marks:
    return Marks() if "utf" in (encoding or "").lower() else PLAIN
