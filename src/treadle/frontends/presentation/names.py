"""Names for people: of modes, and of what has a long name where there is little room."""

from collections.abc import Mapping

from treadle.base.inert import inert_line
from treadle.frontends.presentation.styled import tail
from treadle.protocol.options import Mode

MODE_WORDS: Mapping[Mode, tuple[str, str]] = {
    "read-only": ("Read only", "Reads and searches; changes and runs nothing."),
    "confirm": ("Confirm", "Asks before anything is changed or run."),
    "review": ("Review", "Shows what a command would change before it is committed."),
    "ask": ("Ask", "Asks for commands and for changes of sensitive files."),
    "auto-edit": ("Auto-edit", "Edits files without asking; asks before risky actions."),
    "autopilot": ("Autopilot", "Works until the task is done; asks only before critical actions."),
}
"""A name and a sentence for each (S-07)."""


def model_name(ref: str, width: int = 0) -> str:
    """A model; one that is a file by the file's own name: which folder it lies in says little."""
    provider, colon, name = inert_line(ref).partition(":")
    if colon and name.startswith(("/", "./", "../", "~")):
        name = name.rpartition("/")[2]
    if 0 < width < len(f"{provider}{colon}{name}"):
        name = tail(name, max(6, width - len(provider) - 1))
    return f"{provider}{colon}{name}"


_STATUS_WORDS = {
    "requires_action": "waits for you",
    "running": "works",
    "pending": "was cut off",
    "interrupting": "stops",
    "error": "failed",
}


def status_words(status: str) -> str:
    """The status of a chat in words for people; programs read the status itself."""
    return _STATUS_WORDS.get(status, status)
