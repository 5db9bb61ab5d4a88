"""What Rich and Textual are given to show (S-22): text that is made inert where it is written, and nothing that is a
plain string, which either of them would read for markup, links included."""

from typing import Any, Self

from rich.console import ConsoleRenderable
from rich.console import Group as RichGroup
from rich.style import StyleType
from rich.text import Text as RichText

from treadle.inert import inert

__all__ = ["Drawable", "Group", "RichText", "Text"]

Drawable = ConsoleRenderable
"""Everything that can be drawn but a string."""


class Text(RichText):
    """Rich's text. What Rich derives from it (lines, parts, copies) holds nothing else."""

    def __init__(self, text: str = "", style: StyleType = "", **layout: Any) -> None:
        super().__init__(inert(text), style, **layout)

    def append(self, text: RichText | str, style: StyleType | None = None) -> Self:
        super().append(inert(text) if isinstance(text, str) else text, style)
        return self

    @classmethod
    def assemble(cls, *parts: str | RichText | tuple[str, StyleType], **layout: Any) -> Self:
        text = super().assemble(*parts, **layout)
        assert isinstance(text, cls)
        return text


class Group(RichGroup):
    def __init__(self, *parts: Drawable) -> None:
        super().__init__(*parts)
