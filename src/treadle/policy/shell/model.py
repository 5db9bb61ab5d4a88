"""The words of shell analysis: what is found, what would run, and what a program hands on to others. No rules here."""

from collections.abc import Iterable, Mapping
from typing import Literal

import msgspec

Severity = Literal["none", "medium", "high", "critical"]
RANK: dict[Severity, int] = {"none": 0, "medium": 1, "high": 2, "critical": 3}

UNKNOWN = "\ue001"
"""Stands in a text for what cannot be known: a character for private use, which is taken out of what comes in."""
NEXT = "\ue002"
"""Ends a word even inside quotes, as between the elements of "${a[@]}"."""


class Finding(msgspec.Struct, frozen=True):
    """How dangerous a command is, and why, in sentences for people."""

    severity: Severity
    reasons: tuple[str, ...] = ()


class Part(msgspec.Struct, frozen=True):
    """One simple command that would run. `certain` is False where its words depend on what the text does not say;
    such places read `…`. A text that cannot be read as a whole gives a part without a program that is not certain."""

    program: str
    words: tuple[str, ...]
    """The program and its arguments."""
    certain: bool = True
    wrapped_by: tuple[str, ...] = ()
    """The programs that run it, outermost first: `sudo env X=1 ls` gives ("sudo", "env") for `ls`."""
    writes: tuple[str, ...] = ()
    """Where its output is redirected to."""
    assigns: tuple[str, ...] = ()
    """The variables set for it, by name."""
    severity: Severity = "none"
    reasons: tuple[str, ...] = ()


class ShellCall(msgspec.Struct, frozen=True):
    """A program with its arguments, as its rule sees it."""

    name: str
    args: tuple[str, ...]
    cwd: str = "."
    stdin: str | None = None
    """What it reads, if the text says; UNKNOWN if something is piped in that it does not say; None for nothing."""
    files: Mapping[str, str] = {}
    """What files hold that the same text has written before."""


class Found(msgspec.Struct, frozen=True):
    severity: Severity
    reason: str


class Run(msgspec.Struct, frozen=True):
    """The program runs another one, with these words."""

    argv: tuple[str, ...]
    cwd: str | None = None
    stdin: str | None = None


class Script(msgspec.Struct, frozen=True):
    """The program gives this text to a shell."""

    text: str
    arguments: tuple[str, ...] = ()


class Code(msgspec.Struct, frozen=True):
    """The program runs this text in a language other than the shell's."""

    language: str
    text: str


Effect = Found | Run | Script | Code
Effects = Iterable[Effect]


def worst(severities: Iterable[Severity]) -> Severity:
    return max(severities, key=RANK.__getitem__, default="none")


def shown(text: str) -> str:
    return text.replace(UNKNOWN, "…").replace(NEXT, " ")


def known(text: str | None) -> bool:
    return text is not None and UNKNOWN not in text


def names(text: str) -> frozenset[str]:
    """Many names, written as one text."""
    return frozenset(text.split())
