"""One simple command: which program it is, what its words mean, and whom it runs; and what is kept of all of them."""

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from treadle.adapters.policy.shell.idioms import ruin, setting
from treadle.adapters.policy.shell.model import (
    UNKNOWN,
    Meaning,
    NestedCommand,
    Part,
    Rating,
    Script,
    Severity,
    ShellCall,
    mask_unknown,
    names,
    worst,
)
from treadle.adapters.policy.shell.parse import parse
from treadle.adapters.policy.shell.places import HOME, reading, resolve, writing
from treadle.adapters.policy.shell.programs import is_known, judge, plain_name

if TYPE_CHECKING:
    from tree_sitter import Node

_MOST_CHARS = 10_000
_PATTERN = re.compile(r"[*?]|\[.+\]")
_KEYWORDS = names("! { } if then elif else fi for while until do done case esac in select function")
_ASSIGNED = re.compile(r"([A-Za-z_]\w*)=(.*)", re.S)


class TooMuch(Exception):
    """The text is longer, deeper or more branched than is worth following."""


class Scope(msgspec.Struct, frozen=True):
    """Where a command stands: inside which programs, and how deep."""

    wrapped_by: tuple[str, ...] = ()
    depth: int = 0
    captured: bool = False
    """True if its output becomes a word of another command."""

    def inside(self, program: str) -> "Scope":
        return msgspec.structs.replace(self, wrapped_by=(*self.wrapped_by, program), depth=self.depth + 1)


class ShellMemory(msgspec.Struct):
    """The directory of a shell. A subshell gets a copy."""

    cwd: str = "."


class Record:
    """The findings so far, and the remaining limits of the analysis."""

    def __init__(self) -> None:
        self.parts: list[Part] = []
        self.notes: list[Rating] = []
        self.words: list[tuple[str, str]] = []
        """Pairs of program ("" for a redirection, "=" for a variable) and word, for the search for paths."""
        self.variables: list[tuple[str, str]] = []
        """The variables that get a literal value, with it, in their order."""
        self.calls: dict[str, set[str]] = {}
        """The names that each function calls."""
        self.forking: set[str] = set()
        self.steps = 6_000
        self.chars = 30_000
        """The characters that may still be parsed: on text that is not shell, time grows quadratically."""
        self.failed = False
        self.unseen = False

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
        self.notes.append(Rating(severity, reason))

    def fail(self, reason: str) -> None:
        self.failed = True
        self.note("high", reason)

    def reaches(self, function: str) -> bool:
        """True if the function calls itself, directly or through functions known so far."""
        reached: set[str] = set()
        while more := {callee for name in reached or {function} for callee in self.calls.get(name, ())} - reached:
            reached |= more
        return function in reached

    def evaluated(self, text: str) -> None:
        self.unseen = True
        self.notes += [Rating("medium", "the shell evaluates a part of it, and may run commands by that"), *ruin(text)]


class Simple(msgspec.Struct, frozen=True):
    """A simple command as it was read."""

    argv: tuple[str, ...] = ()
    assigned: tuple[tuple[str, str], ...] = ()
    writes: tuple[str, ...] = ()
    stdin: str | None = None
    text: str = ""


class Runner:
    def __init__(self, record: Record, nested: Callable[[str, ShellMemory, Scope, str | None], None]) -> None:
        self.record = record
        self.nested = nested
        """Reads a text: commands hold texts, and texts hold commands."""

    def command(self, simple: Simple, shell: ShellMemory, scope: Scope) -> None:
        self.record.step(4)
        while simple.argv and scope.wrapped_by and (match := _ASSIGNED.fullmatch(simple.argv[0])):
            assigned = (*simple.assigned, (match[1], match[2]))
            simple = msgspec.structs.replace(simple, argv=simple.argv[1:], assigned=assigned)
        if simple.argv and simple.argv[0] in _KEYWORDS:  # the grammar took a keyword for a program, as in `! ! ls`
            self.record.fail("a part of it cannot be read as shell text")
            return self.command(msgspec.structs.replace(simple, argv=simple.argv[1:]), shell, scope)
        meanings: list[Meaning] = [rating for name, value in simple.assigned for rating in setting(name, value)]
        meanings += [rating for place in simple.writes if (rating := writing(place, shell.cwd))]
        if simple.argv:
            meanings += self._program(simple, shell)
        self._part(simple, [each for each in meanings if isinstance(each, Rating)], scope)
        for meaning in meanings:
            if isinstance(meaning, NestedCommand) and meaning.argv:
                there = shell if meaning.cwd is None else ShellMemory(resolve(meaning.cwd, shell.cwd))
                inner = Simple(meaning.argv, stdin=meaning.stdin)
                self.command(inner, there, scope.inside(mask_unknown(simple.argv[0])))
            elif isinstance(meaning, Script) and meaning.text.strip(UNKNOWN + " \n\t"):
                there = shell if simple.argv[0] in ("eval", "trap") else ShellMemory(shell.cwd)
                stdin = None if meaning.text == simple.stdin else simple.stdin
                self.nested(meaning.text, there, scope.inside(mask_unknown(simple.argv[0])), stdin)

    def _program(self, simple: Simple, shell: ShellMemory) -> list[Meaning]:
        name, args = simple.argv[0], simple.argv[1:]
        if UNKNOWN in name or (_PATTERN.search(name) and name not in ("[", "[[")):
            return self._unnamed(simple, shell)
        base, usual = plain_name(name)
        if base in ("cd", "pushd"):
            operands = [word for word in args if word == "-" or not word.startswith("-")]
            path = resolve(UNKNOWN if operands[:1] == ["-"] else operands[0] if operands else "~", shell.cwd)
            shell.cwd = "~" + path[len(HOME) :] if path.startswith(HOME) else path
        call = ShellCall(base, args, shell.cwd, simple.stdin)
        if usual:
            return [*judge(call)]
        reason = f"{mask_unknown(name)} is a program in another folder, despite its name"
        strange = Rating("medium", reason, unseen=True)
        return [strange, *(judge(call) if is_known(base) else ruin(call.line))]

    def _unnamed(self, simple: Simple, shell: ShellMemory) -> list[Meaning]:
        """The name is not literal: it may be nothing, and the next word the program; or it may be rm."""
        name, arguments = simple.argv[0].replace(UNKNOWN, ""), simple.argv[1:]
        reason = "which program runs is not known before it does"
        meanings: list[Meaning] = [
            Rating("high", reason, unseen=True, hides_commands=True),
            *ruin(" ".join(simple.argv)),
        ]
        as_rm = judge(ShellCall("rm", arguments, shell.cwd))
        meanings += [each for each in as_rm if isinstance(each, Rating) and each.severity == "critical"]
        if not _PATTERN.search(name):
            meanings.append(NestedCommand((name, *arguments) if name else arguments))
        return meanings

    def _part(self, simple: Simple, ratings: list[Rating], scope: Scope) -> None:
        name, usual = plain_name(simple.argv[0]) if simple.argv else ("", True)
        program = name if usual else simple.argv[0]
        words = "".join((*simple.argv, *simple.writes, *(value for _, value in simple.assigned)))
        self.record.parts.append(
            Part(
                program=mask_unknown(program),
                words=tuple([mask_unknown(word) for word in simple.argv]),
                unknown=UNKNOWN in words,
                wrapped_by=scope.wrapped_by,
                writes=tuple([mask_unknown(place) for place in simple.writes]),
                assigns=tuple([variable for variable, _ in simple.assigned]),
                severity=worst([each.severity for each in ratings]),
                reasons=tuple(dict.fromkeys([each.reason for each in ratings if each.severity != "none"])),
                network=any([each.network for each in ratings]),
                text=simple.text,
                reads_input=bool(simple.stdin),
                hides_commands=any([each.hides_commands for each in ratings]),
            )
        )
        self.record.unseen |= any([each.unseen for each in ratings])
        self.record.words += [("=", value) for _, value in simple.assigned]
        self.record.variables += [each for each in simple.assigned if UNKNOWN not in each[1]]
        self.record.words += [("" if scope.captured else program, word) for word in simple.argv[1:]]
        self.record.words += [("", place) for place in simple.writes]

    def read_from(self, place: str, shell: ShellMemory) -> None:
        self.record.words.append(("", place))
        if rating := reading(place, shell.cwd):
            self.record.notes.append(rating)
