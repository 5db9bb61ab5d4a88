"""Text with a style that says how it should stand out, and names for people: of modes, models and states."""

from collections.abc import Mapping
from typing import Literal, NamedTuple

from treadle.base.inert import make_inert_line
from treadle.protocol.choices import Mode

Colour = Literal["bold", "dim", "red", "green", "yellow", "cyan"]


class Span(NamedTuple):
    text: str
    colours: tuple[Colour, ...] = ()


Line = tuple[Span, ...]


def make_line(text: str, *colours: Colour) -> Line:
    """A line that looks the same from end to end."""
    return (Span(text, colours),)


def join_spans(*parts: str | Span) -> Line:
    """A line of several looks; plain text needs none."""
    return tuple(Span(part) if isinstance(part, str) else part for part in parts)


def shorten_to_tail(text: str, width: int) -> str:
    """The end of a path, or of a name, says more than its beginning."""
    return text if len(text) <= width else f"…{text[1 - width :]}"


MODE_WORDS: Mapping[Mode, tuple[str, str]] = {  # a name and a sentence for each (S-07)
    "read-only": ("Read only", "Reads and searches; changes and runs nothing."),
    "confirm": ("Confirm", "Asks before anything is changed or run."),
    "review": ("Review", "Shows what a command would change before it is committed."),
    "ask": ("Ask", "Plain changes pass; asks for risky ones and for sensitive files."),
    "auto-edit": ("Auto-edit", "Edits files without asking; asks before risky actions."),
    "autopilot": ("Autopilot", "Works until the task is done; asks only before critical actions."),
}
_STATUS_WORDS = {
    "requires_action": "waits for you",
    "running": "works",
    "pending": "was cut off",
    "interrupting": "stops",
    "error": "failed",
}


def format_model_name(ref: str, width: int = 0) -> str:
    """A model; one that is a file by the file's own name: which folder it lies in says little."""
    provider, colon, name = make_inert_line(ref).partition(":")
    if colon and name.startswith(("/", "./", "../", "~")):
        name = name.rpartition("/")[2]
    if 0 < width < len(f"{provider}{colon}{name}"):
        name = shorten_to_tail(name, max(6, width - len(provider) - 1))
    return f"{provider}{colon}{name}"


def describe_status(status: str) -> str:
    """The status of a chat in words for people; programs read the status itself."""
    return _STATUS_WORDS.get(status, status)
