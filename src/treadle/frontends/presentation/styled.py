"""Text with a style that says how it should stand out. Drawing is the front end's business."""

from typing import Literal, NamedTuple

Colour = Literal["bold", "dim", "red", "green", "yellow", "cyan"]


class Span(NamedTuple):
    text: str
    colours: tuple[Colour, ...] = ()


Line = tuple[Span, ...]


def line(text: str, *colours: Colour) -> Line:
    """A line that looks the same from end to end."""
    return (Span(text, colours),)


def spans(*parts: str | Span) -> Line:
    """A line of several looks; plain text needs none."""
    return tuple(Span(part) if isinstance(part, str) else part for part in parts)


def spaced(*spans: Span) -> Line:
    """Those that say something, with a space between any two."""
    nonempty = [span for span in spans if span.text]
    return tuple(part for span in nonempty for part in (Span(" "), span))[1:]


def tail(text: str, width: int) -> str:
    """The end of a path, or of a name, says more than its beginning."""
    return text if len(text) <= width else f"…{text[1 - width :]}"
