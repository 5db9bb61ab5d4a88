"""What a shell remembers from one command of a text to the next: variables, functions, directory, files it has made."""

from typing import TYPE_CHECKING

import msgspec

from treadle.policy.shell.lexical import Heredoc
from treadle.policy.shell.model import NEXT, UNKNOWN, Found, Part, Severity
from treadle.policy.shell.parse import parse

if TYPE_CHECKING:
    from tree_sitter import Node

_MOST_VALUES = 4
_MOST_CHARS = 10_000
_GIVEN: dict[str, tuple[str, ...]] = {
    "HOME": ("~",),
    "PWD": (".",),
    "OLDPWD": ("..",),
    "IFS": (" \t\n",),
    "#": ("0",),
    "SHELL": ("/bin/sh",),
    "BASH": ("/bin/bash",),
    "TMPDIR": ("/tmp",),
    "0": ("bash",),
}


class TooMuch(Exception):
    """The text is longer, deeper or more branched than is worth following."""


class Frame(msgspec.Struct, frozen=True):
    """Where a command stands: inside which programs, functions and branches."""

    wrapped_by: tuple[str, ...] = ()
    depth: int = 0
    calls: frozenset[str] = frozenset()
    """The functions whose bodies it stands in, by their keys."""
    forked: frozenset[str] = frozenset()
    """Those of them that have started another process on the way here."""
    branch: bool = False
    """It may run or not, or many times."""

    def inside(self, program: str) -> "Frame":
        return Frame((*self.wrapped_by, program), self.depth + 1, self.calls, self.forked, self.branch)

    def fork(self) -> "Frame":
        return Frame(self.wrapped_by, self.depth, self.calls, self.calls, self.branch)

    def branching(self) -> "Frame":
        return Frame(self.wrapped_by, self.depth, self.calls, self.forked, True)

    def calling(self, function: "Function") -> "Frame":
        calls = self.calls | {function.key}
        return Frame((*self.wrapped_by, function.name), self.depth + 1, calls, self.forked, True)


class Function(msgspec.Struct, frozen=True):
    name: str
    body: "Node | str"
    """A node, or the text of an alias."""
    heredocs: tuple[Heredoc, ...] = ()

    @property
    def key(self) -> str:
        """A function that is defined anew under its old name is another one."""
        return f"{self.name} {self.body if isinstance(self.body, str) else self.body.id}"


class Record:
    """What was found, and how much looking is still allowed."""

    def __init__(self, steps: int = 6_000, chars: int = 30_000) -> None:
        self.parts: list[Part] = []
        self.notes: list[Found] = []
        self.words: list[tuple[str, str]] = []
        """Program and word, for whoever looks for paths; "" for a redirection's, "=" for a variable's."""
        self.steps = steps
        self.chars = chars
        """How much may still be parsed: time goes with the square of the length where a text is no shell text."""
        self.failed = False

    def step(self, weight: int = 1) -> None:
        self.steps -= weight
        if self.steps < 0:
            raise TooMuch("it has more parts than are looked at")

    def parse(self, text: str) -> "Node":
        self.chars -= len(text)
        if len(text) > _MOST_CHARS or self.chars < 0:
            raise TooMuch("it is longer than is looked at")
        return parse(text)

    def note(self, severity: Severity, reason: str) -> None:
        self.notes.append(Found(severity, reason))


class State:
    """The shell's memory. A subshell gets a copy."""

    def __init__(self) -> None:
        self.variables: dict[str, tuple[str, ...]] = {}
        self.functions: dict[str, Function] = {}
        self.references: dict[str, str] = {}
        """Variables that are other names for variables (declare -n)."""
        self.files: dict[str, str] = {}
        self.cwd = "."

    def copy(self) -> "State":
        other = State()
        other.variables = dict(self.variables)
        other.functions = dict(self.functions)
        other.references = dict(self.references)
        other.files = self.files  # files are shared by all processes
        other.cwd = self.cwd
        return other

    def value(self, name: str) -> tuple[str, ...]:
        name, bracket, index = name.partition("[")
        if name == "*":
            return tuple(value.replace(NEXT, " ") for value in self.value("@"))
        name = self.references.get(name, name)
        if name in self.variables:
            values = self.variables[name]
            if name == "@" or not (bracket or any(NEXT in v for v in values)):
                return values
            return _element(values, index[:-1])
        if name.isdigit() and name != "0":
            return (UNKNOWN,) if "@" not in self.variables else _element(self.variables["@"], str(int(name) - 1))
        return _GIVEN.get(name, (UNKNOWN,))

    def assign(self, name: str, values: tuple[str, ...], *, branch: bool) -> None:
        name = name.partition("[")[0]
        old = self.variables.get(name, ()) if branch else ()
        merged = tuple(dict.fromkeys((*values, *old)))
        self.variables[name] = merged if len(merged) <= _MOST_VALUES else (*merged[: _MOST_VALUES - 1], UNKNOWN)


def _element(values: tuple[str, ...], index: str) -> tuple[str, ...]:
    if index == "*":
        return tuple(value.replace(NEXT, " ") for value in values)
    if index == "@":
        return values
    if not index or not index.isdigit():
        return values if index else tuple(value.split(NEXT)[0] for value in values)
    if UNKNOWN in values:
        return (UNKNOWN,)
    at = int(index)
    return tuple(parts[at] if at < len(parts := value.split(NEXT)) else "" for value in values)
