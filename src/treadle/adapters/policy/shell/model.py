"""The data types of shell parsing: ratings, commands that would run, nested commands and scripts. No rules."""

from collections.abc import Iterable
from functools import lru_cache
from typing import Literal

import msgspec

Severity = Literal["none", "medium", "high", "critical"]
RANK: dict[Severity, int] = {"none": 0, "medium": 1, "high": 2, "critical": 3}

UNKNOWN = "\ue001"
"""Stands in a word for what the text does not say: a character for private use, which is taken out of what comes in."""


class Finding(msgspec.Struct, frozen=True):
    """How dangerous a command is, and why, in sentences for people."""

    severity: Severity
    reasons: tuple[str, ...] = ()
    network: bool = False
    """Its words plainly need the network."""


class Part(msgspec.Struct, frozen=True):
    """One simple command that would run; an unknown one without a program for a text that cannot be read."""

    program: str
    words: tuple[str, ...]
    """The program and its arguments; a part that is not literal reads `…`."""
    unknown: bool = False
    """Something in it is not literal."""
    wrapped_by: tuple[str, ...] = ()
    """The programs that run it, outermost first: `sudo env X=1 ls` gives ("sudo", "env") for `ls`."""
    writes: tuple[str, ...] = ()
    """Where its output is redirected to."""
    assigns: tuple[str, ...] = ()
    """The variables set for it, by name."""
    severity: Severity = "none"
    reasons: tuple[str, ...] = ()
    network: bool = False
    text: str = ""
    """Its source, where it stands in the command itself."""
    reads_input: bool = False
    """It gets input by a pipe, a redirection, a here-document or a here-string."""
    hides_commands: bool = False
    """It runs shell words that the text does not contain: `eval "$X"`, `curl … | sh`."""


class ShellCall(msgspec.Struct, frozen=True):
    """A program with its arguments, as its rule sees it."""

    name: str
    args: tuple[str, ...]
    cwd: str = "."
    stdin: str | None = None
    """The standard input; UNKNOWN if it is piped in and not in the text; None if there is none."""

    @property
    def line(self) -> str:
        """The arguments as one text, without the messages of commits."""
        if self.name not in ("git", "gh", "hg"):
            return " ".join(self.args)
        skipped = {at + 1 for at, word in enumerate(self.args) if word in MESSAGES}
        words = (word for at, word in enumerate(self.args) if at not in skipped and not word.startswith("--message="))
        return " ".join(words)


class Rating(msgspec.Struct, frozen=True):
    severity: Severity
    reason: str
    network: bool = False
    unseen: bool = False
    """It runs a text that does not stand in the command as such: another part of the command may have made it."""
    hides_commands: bool = False
    """See `Part`."""


class NestedCommand(msgspec.Struct, frozen=True):
    """The program runs another one, with these words."""

    argv: tuple[str, ...]
    stdin: str | None = None
    cwd: str | None = None


class Script(msgspec.Struct, frozen=True):
    """The program gives this text to a shell."""

    text: str


Meaning = Rating | NestedCommand | Script
Meanings = Iterable[Meaning]
MESSAGES = frozenset(("-m", "--message", "-am"))


def worst(severities: Iterable[Severity]) -> Severity:
    return max(severities, key=RANK.__getitem__, default="none")


def mask_unknown(text: str) -> str:
    return text.replace(UNKNOWN, "…")


@lru_cache(maxsize=256)
def names(text: str) -> frozenset[str]:
    """Many names, written as one text."""
    return frozenset(text.split())
