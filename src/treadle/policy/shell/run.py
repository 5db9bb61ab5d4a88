"""One simple command: which program it is, what its words mean, and whom it runs; and what is kept of all of them."""

import re
from typing import TYPE_CHECKING, Protocol

import msgspec

from treadle.policy.shell.idioms import ruin
from treadle.policy.shell.model import (
    UNKNOWN,
    Found,
    Meaning,
    Part,
    Run,
    Script,
    Severity,
    ShellCall,
    names,
    shown,
    worst,
)
from treadle.policy.shell.parse import parse
from treadle.policy.shell.places import HOME, reading, resolve, writing
from treadle.policy.shell.programs import is_known, judge, plain_name
from treadle.policy.shell.settings import is_secret, setting

if TYPE_CHECKING:
    from tree_sitter import Node

_MOST_CHARS = 10_000
_PATTERN = re.compile(r"[*?]|\[.+\]")
_KEYWORDS = names("! { } if then elif else fi for while until do done case esac in select function")
_ASSIGNED = re.compile(r"([A-Za-z_]\w*)=(.*)", re.S)
_EVALUATES = "the shell evaluates one of its words once more, and may run commands by it"


class TooMuch(Exception):
    """The text is longer, deeper or more branched than is worth following."""


class Scope(msgspec.Struct, frozen=True):
    """Where a command stands: inside which programs and which function, and how deep."""

    wrapped_by: tuple[str, ...] = ()
    depth: int = 0
    function: str = ""
    forked: bool = False
    """It runs in a process of its own, as seen from the function that it stands in."""
    captured: bool = False
    """What it prints becomes a word of another command."""

    def inside(self, program: str) -> "Scope":
        return msgspec.structs.replace(self, wrapped_by=(*self.wrapped_by, program), depth=self.depth + 1)

    def fork(self, *, captured: bool = False) -> "Scope":
        return msgspec.structs.replace(self, forked=True, captured=self.captured or captured)

    def defining(self, function: str) -> "Scope":
        return msgspec.structs.replace(self.inside(function), depth=self.depth, function=function, forked=False)


class ShellMemory:
    """The memory of a shell: its directory and the names of its functions. A subshell gets a copy."""

    def __init__(self, cwd: str = ".", functions: frozenset[str] = frozenset()) -> None:
        self.cwd = cwd
        self.functions = functions

    def copy(self) -> "ShellMemory":
        return ShellMemory(self.cwd, self.functions)


class Record:
    """What was found, and how much looking is still allowed."""

    def __init__(self) -> None:
        self.parts: list[Part] = []
        self.notes: list[Found] = []
        self.words: list[tuple[str, str]] = []
        """Program and word, for whoever looks for paths; "" for a redirection's, "=" for a variable's."""
        self.calls: set[tuple[str, str, bool]] = set()
        """Function, what it calls, and whether in a process of its own."""
        self.steps = 6_000
        self.chars = 30_000
        """How much may still be parsed: time goes with the square of the length where a text is no shell text."""
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
        self.notes.append(Found(severity, reason))

    def fail(self, reason: str) -> None:
        self.failed = True
        self.note("high", reason)

    def fork_bomb(self) -> str:
        """The function that starts itself again in a process of its own. Empty if none does."""
        return next((caller for caller, called, forked in self.calls if forked and self._reaches(called, caller)), "")

    def _reaches(self, start: str, goal: str) -> bool:
        seen = {start}
        while more := {called for caller, called, _ in self.calls if caller in seen} - seen:
            seen |= more
        return goal in seen and bool(goal)


class Simple(msgspec.Struct, frozen=True):
    """A simple command as it was read."""

    argv: tuple[str, ...] = ()
    assigned: tuple[tuple[str, str], ...] = ()
    writes: tuple[str, ...] = ()
    stdin: str | None = None
    evaluated: tuple[str, ...] = ()
    """Its texts that the shell evaluates once more."""
    text: str = ""


class Texts(Protocol):
    """Who reads texts: commands hold texts, and texts hold commands."""

    def nested(self, text: str, shell: ShellMemory, scope: Scope, stdin: str | None) -> None: ...


class Runner:
    def __init__(self, record: Record, texts: Texts) -> None:
        self.record = record
        self.texts = texts

    def command(self, simple: Simple, shell: ShellMemory, scope: Scope) -> None:
        self.record.step(4)
        while simple.argv and scope.wrapped_by and (match := _ASSIGNED.fullmatch(simple.argv[0])):
            assigned = (*simple.assigned, (match[1], match[2]))
            simple = msgspec.structs.replace(simple, argv=simple.argv[1:], assigned=assigned)
        if simple.argv and simple.argv[0] in _KEYWORDS:  # the grammar took a keyword for a program, as in `! ! ls`
            if simple.argv[0] != "!":
                self.record.fail("a part of it cannot be read as shell text")
            self.command(msgspec.structs.replace(simple, argv=simple.argv[1:]), shell, scope)
            return
        meanings: list[Meaning] = [found for name, value in simple.assigned for found in setting(name, value)]
        meanings += [found for place in simple.writes if (found := writing(place, shell.cwd))]
        for text in simple.evaluated:
            meanings += [Found("medium", _EVALUATES), *ruin(text)]
        if simple.argv:
            self.record.calls.add((scope.function, simple.argv[0], scope.forked))
            meanings += self._program(simple, shell)
        self._part(simple, [each for each in meanings if isinstance(each, Found)], scope)
        for meaning in meanings:
            self._hand_on(meaning, simple, shell, scope)

    def _program(self, simple: Simple, shell: ShellMemory) -> list[Meaning]:
        name, args = simple.argv[0], simple.argv[1:]
        if UNKNOWN in name or (_PATTERN.search(name) and name not in ("[", "[[")):
            return self._unnamed(simple, shell)
        if name in shell.functions:
            return []
        base, usual = plain_name(name)
        if base in ("cd", "pushd"):
            shell.cwd = _moved(args, shell.cwd)
        call = ShellCall(base, args, shell.cwd, simple.stdin)
        if usual:
            return [*judge(call)]
        strange = Found("medium", f"{shown(name)} is a program of its own place, whatever its name", unseen=True)
        return [strange, *(judge(call) if is_known(base) else ruin(call.line))]

    def _unnamed(self, simple: Simple, shell: ShellMemory) -> list[Meaning]:
        """The name is not literal: it may be nothing, and the next word the program; or it may be rm."""
        name, rest = simple.argv[0].replace(UNKNOWN, ""), simple.argv[1:]
        found: list[Meaning] = [Found("high", "which program runs is not known before it does", unseen=True)]
        found += ruin(" ".join(simple.argv))
        as_rm = judge(ShellCall("rm", rest, shell.cwd))
        found += [each for each in as_rm if isinstance(each, Found) and each.severity == "critical"]
        if not _PATTERN.search(name):
            found.append(Run((name, *rest) if name else rest))
        return found

    def _part(self, simple: Simple, found: list[Found], scope: Scope) -> None:
        name, usual = plain_name(simple.argv[0]) if simple.argv else ("", True)
        program = name if usual else simple.argv[0]
        words = "".join((*simple.argv, *simple.writes, *(value for _, value in simple.assigned)))
        self.record.parts.append(
            Part(
                program=shown(program),
                words=tuple([shown(word) for word in simple.argv]),
                unknown=bool(simple.evaluated) or UNKNOWN in words,
                wrapped_by=scope.wrapped_by,
                writes=tuple([shown(place) for place in simple.writes]),
                assigns=tuple([variable for variable, _ in simple.assigned]),
                severity=worst([each.severity for each in found]),
                reasons=tuple(dict.fromkeys([each.reason for each in found if each.severity != "none"])),
                network=any([each.network for each in found]),
                text=simple.text,
            )
        )
        self.record.unseen |= any([each.unseen for each in found])
        self.record.words += [("=", value) for _, value in simple.assigned]
        self.record.words += [("" if scope.captured else program, word) for word in simple.argv[1:]]
        self.record.words += [("", place) for place in simple.writes]

    def _hand_on(self, meaning: Meaning, simple: Simple, shell: ShellMemory, scope: Scope) -> None:
        if isinstance(meaning, Run) and meaning.argv:
            there = shell if meaning.cwd is None else ShellMemory(resolve(meaning.cwd, shell.cwd), shell.functions)
            self.command(Simple(meaning.argv, stdin=meaning.stdin), there, scope.inside(shown(simple.argv[0])))
        elif isinstance(meaning, Script) and meaning.text.strip(UNKNOWN + " \n\t"):
            there = shell if simple.argv[0] in ("eval", "trap") else shell.copy()
            stdin = None if meaning.text == simple.stdin else simple.stdin
            self.texts.nested(meaning.text, there, scope.inside(shown(simple.argv[0])), stdin)

    # ---- what the walk reports

    def redefined(self, name: str) -> None:
        if is_known(name):
            self.record.note("high", f"gives the name {shown(name)} another meaning")

    def looked_up(self, name: str) -> None:
        if is_secret(name):
            self.record.note("high", f"uses the secret in ${name}")

    def read_from(self, place: str, shell: ShellMemory) -> None:
        self.record.words.append(("", place))
        if found := reading(place, shell.cwd):
            self.record.notes.append(found)


def _moved(args: tuple[str, ...], cwd: str) -> str:
    """The directory after a `cd`."""
    rest = [word for word in args if word == "-" or not word.startswith("-")]
    path = resolve(UNKNOWN if rest[:1] == ["-"] else rest[0] if rest else "~", cwd)
    return "~" + path[len(HOME) :] if path.startswith(HOME) else path
