"""Textual's widget for text. It takes no plain string: Textual would read markup in it (S-22)."""

from textual import widgets

from treadle.frontends.presentation.rich_text import Drawable, Text


class Static(widgets.Static):
    def __init__(self, content: Drawable | None = None, *, id: str | None = None) -> None:
        super().__init__(Text() if content is None else content, id=id)

    def update(self, content: Drawable, *, layout: bool = True) -> None:  # type: ignore[override]  # narrower on purpose
        super().update(content, layout=layout)
