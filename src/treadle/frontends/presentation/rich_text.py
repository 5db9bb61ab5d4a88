"""Text for Rich and Textual (S-22). It is made inert when it is written. A plain string is not accepted: both libraries
would read markup in it, links included."""

from typing import Any, Self

from rich.console import ConsoleRenderable
from rich.console import Group as RichGroup
from rich.style import StyleType
from rich.text import Text as RichText

from treadle.base.inert import make_inert

__all__ = ["Drawable", "Group", "RichText", "Text"]

Drawable = ConsoleRenderable  # anything that Rich can draw, except a string


class Text(RichText):
    """Rich's text. The lines, parts and copies that Rich makes of it are inert too."""

    def __init__(self, text: str = "", style: StyleType = "", **layout: Any) -> None:
        super().__init__(make_inert(text), style, **layout)

    def append(self, text: RichText | str, style: StyleType | None = None) -> Self:
        super().append(make_inert(text) if isinstance(text, str) else text, style)
        return self

    @classmethod
    def assemble(cls, *parts: str | RichText | tuple[str, StyleType], **layout: Any) -> Self:
        text = super().assemble(*parts, **layout)
        assert isinstance(text, cls)
        return text


class Group(RichGroup):
    def __init__(self, *parts: Drawable) -> None:
        super().__init__(*parts)
