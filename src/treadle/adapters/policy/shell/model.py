"""The data types of shell parsing: ratings, commands that would run, nested ones, scripts, arguments. No rules."""

from collections.abc import Iterable
from functools import lru_cache
from typing import Literal

import msgspec

Severity = Literal["none", "medium", "high", "critical"]
RANK: dict[Severity, int] = {"none": 0, "medium": 1, "high": 2, "critical": 3}

UNKNOWN = "\ue001"  # stands in a word for what the text does not say: a private character, not accepted as input


class Finding(msgspec.Struct, frozen=True):
    severity: Severity
    reasons: tuple[str, ...] = ()
    network: bool = False  # its words plainly need the network


class Part(msgspec.Struct, frozen=True):
    """One simple command that would run; an unknown one without a program for a text that cannot be read."""

    program: str
    words: tuple[str, ...]  # the program and its arguments; a part that is not literal reads `…`
    unknown: bool = False  # something in it is not literal
    wrapped_by: tuple[str, ...] = ()  # outermost first: `sudo env X=1 ls` gives ("sudo", "env") for `ls`
    writes: tuple[str, ...] = ()  # where its output is redirected to
    assigns: tuple[str, ...] = ()  # the variables set for it, by name
    severity: Severity = "none"
    reasons: tuple[str, ...] = ()
    network: bool = False
    text: str = ""  # its source, where it stands in the command itself
    reads_input: bool = False  # it gets input by a pipe, a redirection, a here-document or a here-string
    hides_commands: bool = False  # it runs shell words that the text does not contain: `eval "$X"`, `curl … | sh`


class ShellCall(msgspec.Struct, frozen=True):
    name: str
    args: tuple[str, ...]
    cwd: str = "."
    stdin: str | None = None  # the standard input; UNKNOWN if it is piped in and not in the text; None if there is none

    @property
    def line(self) -> str:
        if self.name not in ("git", "gh", "hg"):
            return " ".join(self.args)
        skipped = {at + 1 for at, word in enumerate(self.args) if word in MESSAGES}
        words = (word for at, word in enumerate(self.args) if at not in skipped and not word.startswith("--message="))
        return " ".join(words)


class Rating(msgspec.Struct, frozen=True):
    severity: Severity
    reason: str
    network: bool = False
    unseen: bool = False  # it runs a text that is not in the command as such: another part may have made it
    hides_commands: bool = False  # see `Part`


class NestedCommand(msgspec.Struct, frozen=True):
    argv: tuple[str, ...]
    stdin: str | None = None
    cwd: str | None = None


class Script(msgspec.Struct, frozen=True):
    text: str


Meaning = Rating | NestedCommand | Script
Meanings = Iterable[Meaning]
MESSAGES = frozenset(("-m", "--message", "-am"))


def select_worst(severities: Iterable[Severity]) -> Severity:
    return max(severities, key=RANK.__getitem__, default="none")


def mask_unknown(text: str) -> str:
    return text.replace(UNKNOWN, "…")


@lru_cache(maxsize=256)
def parse_names(text: str) -> frozenset[str]:
    return frozenset(text.split())


def parse_table(text: str) -> dict[str, str]:
    """By name, what stands behind the colon of its lines."""
    values: dict[str, str] = {}
    for listed, _, value in (line.partition(":") for line in text.strip().splitlines()):
        for name in listed.split():
            values[name] = f"{values.get(name, '')} {value.strip()}".strip()
    return values


# -- arguments as programs read them: options with and without values, clusters, `--`, abbreviated long names ----------
class Options(msgspec.Struct, frozen=True):
    flags: tuple[str, ...]  # names without their dashes; those that take a value are here, too
    values: tuple[tuple[str, str], ...]
    operands: tuple[str, ...]

    def has(self, *names: str) -> bool:
        """True if one of the options was given. A long name also matches its prefix of three letters or more."""
        return any(_is_option(flag, name) for name in names for flag in self.flags)

    def list_values(self, *names: str) -> list[str]:
        return [value for flag, value in self.values if any(_is_option(flag, name) for name in names)]


def _is_option(flag: str, name: str) -> bool:
    return flag == name or (len(name) > 3 and len(flag) >= 3 and name.startswith(flag))


def read(args: Iterable[str], valued: str = "", *, until_word: bool = False) -> Options:
    """`valued`: options with a value. With `until_word` the first word that is none and all behind it are operands."""
    takes = frozenset(valued.split())
    flags: list[str] = []
    values: list[tuple[str, str]] = []
    operands: list[str] = []
    words = list(args)
    at = 0
    while at < len(words):
        word = words[at]
        at += 1
        if word == "--":
            operands += words[at:]
            break
        if word[:1] != "-" or word == "-":
            operands.append(word)
            if until_word:
                operands += words[at:]
                break
            continue
        at += _parse_option(word, words[at : at + 1], takes, flags, values)
    return Options(tuple(flags), tuple(values), tuple(operands))


def _parse_option(
    word: str, more: list[str], takes: frozenset[str], flags: list[str], values: list[tuple[str, str]]
) -> int:
    name, equals, value = word.lstrip("-").partition("=")
    if word.startswith("--") or (name in takes and len(name) > 1):
        flags.append(name)
        if equals:
            values.append((name, value))
        elif more and any(_is_option(name, each) for each in takes):
            values.append((name, more[0]))
            return 1
        return 0
    for at, letter in enumerate(word[1:], 1):
        flags.append(letter)
        if letter in takes:
            inline = word[at + 1 :]
            if inline or more:
                values.append((letter, inline or more[0]))
            return 0 if inline else 1
    return 0
