"""One simple command: which program it is, what that does by its rules, and whom it runs in turn."""

import fnmatch
import re
from collections.abc import Sequence
from typing import Protocol

from treadle.policy.shell.builtins import Builtins, subscripts
from treadle.policy.shell.interpreters import judge_code
from treadle.policy.shell.model import (
    NEXT,
    UNKNOWN,
    Code,
    Effect,
    Effects,
    Found,
    Part,
    Run,
    Script,
    ShellCall,
    names,
    shown,
    worst,
)
from treadle.policy.shell.output import output
from treadle.policy.shell.places import reading, resolve, writing
from treadle.policy.shell.programs import is_known, judge, plain_name
from treadle.policy.shell.settings import is_secret, setting
from treadle.policy.shell.state import Frame, Function, Record, State

Assigned = Sequence[tuple[str, tuple[str, ...]]]
_PATTERN = re.compile(r"[*?]|\[.+\]")
_SUSPECTS = (
    "rm",
    "dd",
    "sh",
    "bash",
    "shred",
    "sudo",
    "chmod",
    "chown",
    "mv",
    "find",
    "python3",
    "curl",
    "mkfs.ext4",
    "env",
)
_TRANSPARENT = names(
    "env sudo doas eval bash sh zsh dash command builtin exec nohup nice timeout time stdbuf setsid xargs"
)
"""Programs that print what those print whom they run, and nothing else."""
_KEYWORDS = names("! { } if then elif else fi for while until do done case esac in select function")


class Texts(Protocol):
    """Who follows texts: commands hold texts, and texts hold commands."""

    def nested(self, text: str, state: State, frame: Frame, stdin: str | None) -> str:
        """Another shell's text, in that state; returns what it prints."""
        ...

    def inlined(
        self, function: Function, arguments: tuple[str, ...], state: State, frame: Frame, stdin: str | None
    ) -> str: ...

    def apart(self, text: str) -> Record:
        """A text by itself, with little patience."""
        ...


class Runner:
    def __init__(self, record: Record, texts: Texts) -> None:
        self.record = record
        self.texts = texts
        self.builtins = Builtins(self)

    def command(
        self,
        argv: tuple[str, ...],
        assigned: Assigned,
        writes: tuple[str, ...],
        stdin: str | None,
        state: State,
        frame: Frame,
    ) -> str:
        """Judges one reading of a simple command; returns what it would print."""
        if not argv:
            for name, values in assigned:
                state.assign(name, values, branch=frame.branch)
                self.assigned(name, values, state, frame)
            if writes:
                self.bare(writes, state, frame)
            return ""
        effects: list[Effect] = []
        for name, values in assigned:
            for value in values:
                effects += setting(name, value)
                self.record.words.append(("=", value))
        effects += [found for place in writes if (found := writing(place, state.cwd))]
        names = tuple(name for name, _ in assigned)
        return self._run(argv, frame, state, stdin, effects, writes, names)

    def _run(
        self,
        argv: tuple[str, ...],
        frame: Frame,
        state: State,
        stdin: str | None,
        effects: list[Effect] | None = None,
        writes: tuple[str, ...] = (),
        assigns: tuple[str, ...] = (),
    ) -> str:
        self.record.step(4)
        effects = effects if effects is not None else []
        while argv and frame.wrapped_by and (match := re.match(r"([A-Za-z_]\w*)=(.*)", argv[0], re.S)):
            effects += setting(match[1], match[2])
            assigns, argv = (*assigns, match[1]), argv[1:]
        if not argv:
            self._part("", (), frame, effects, writes, assigns, state, stdin)
            return ""
        name = argv[0]
        if name in _KEYWORDS:  # the grammar took a keyword for a program, as in `! ! ls`
            if name != "!":
                self.record.note("high", "a part of it cannot be read as shell text")
            return self._run(argv[1:], frame, state, stdin, effects, writes, assigns)
        if UNKNOWN in name or (_PATTERN.search(name) and name not in ("[", "[[")):
            return self._unnamed(argv, frame, state, stdin, effects, writes, assigns)
        if name in state.functions:
            self._part(name, argv, frame, effects, writes, assigns, state, stdin)
            return self._call(name, argv[1:], frame, state, stdin)
        base, usual = plain_name(name)
        if not usual:
            effects.append(Found("medium", f"{shown(name)} is a program of its own place, whatever its name"))
        call = ShellCall(base, argv[1:], state.cwd, stdin, state.files)
        effects += self.builtins.follow(call, state, frame)
        effects += judge(call) if usual or is_known(base) else ()
        held = state.files.get(resolve(name, state.cwd)) if "/" in name else None
        if held is not None:
            effects += self._made(held, argv[1:])
        inner = self._part(base if usual else name, argv, frame, effects, writes, assigns, state, stdin)
        if inner is None:
            return output(call)
        return inner if base in _TRANSPARENT else inner + UNKNOWN

    def _made(self, text: str, arguments: tuple[str, ...]) -> Effects:
        if UNKNOWN in text:
            yield Found("high", "runs what the same command has just made or fetched, which nobody has seen")
        yield Script(text, arguments)

    def _unnamed(
        self,
        argv: tuple[str, ...],
        frame: Frame,
        state: State,
        stdin: str | None,
        effects: list[Effect],
        writes: tuple[str, ...],
        assigns: tuple[str, ...],
    ) -> str:
        """The name depends on what the text does not say: it may be nothing, and the next word the program."""
        effects.append(Found("high", "which program runs is not known before it does"))
        self._part(argv[0], argv, frame, effects, writes, assigns, state, stdin)
        name = argv[0].replace(UNKNOWN, "")
        rest = argv[1:]
        inner = frame.inside(shown(argv[0]))
        if frame.depth > 6:
            return UNKNOWN
        if _PATTERN.search(name):
            for suspect in _SUSPECTS:
                if fnmatch.fnmatchcase(suspect, name.rsplit("/", 1)[-1]):
                    self._run((suspect, *rest), inner, state, stdin)
        elif name:
            self._run((name, *rest), inner, state, stdin)
        elif rest:
            self._run(rest, inner, state, stdin)
        return UNKNOWN

    def _call(self, name: str, arguments: tuple[str, ...], frame: Frame, state: State, stdin: str | None) -> str:
        function = state.functions[name]
        if function.key in frame.calls:
            if function.key in frame.forked:
                self.record.note("critical", f"{shown(name)} starts itself again and again: a fork bomb")
            return UNKNOWN
        return self.texts.inlined(function, arguments, state, frame.calling(function), stdin)

    def _part(
        self,
        name: str,
        argv: tuple[str, ...],
        frame: Frame,
        effects: list[Effect],
        writes: tuple[str, ...],
        assigns: tuple[str, ...],
        state: State,
        stdin: str | None,
    ) -> str | None:
        """Records it, then judges whom it runs; returns what those print, None if there are none."""
        found = [effect for effect in effects if isinstance(effect, Found)]
        later = [effect for effect in effects if not isinstance(effect, Found)]
        for effect in later:
            if isinstance(effect, Code):
                for inner in judge_code(effect, state.cwd):
                    if isinstance(inner, Found):
                        found.append(inner)
                    elif isinstance(inner, Script):
                        found += self._text_in_code(inner.text)
        certain = not any(UNKNOWN in word for word in (*argv, *writes))
        self.record.parts.append(
            Part(
                program=shown(name),
                words=tuple(shown(word) for word in argv),
                certain=certain,
                wrapped_by=frame.wrapped_by,
                writes=tuple(shown(place) for place in writes),
                assigns=assigns,
                severity=worst(each.severity for each in found),
                reasons=tuple(dict.fromkeys(each.reason for each in found if each.severity != "none")),
            )
        )
        self.record.words += [(name, word) for word in argv[1:]]
        self.record.words += [("", place) for place in writes]
        printed = [self._hand_on(effect, name, frame, state, stdin) for effect in later if not isinstance(effect, Code)]
        return "".join(printed) if printed else None

    def _hand_on(self, effect: Effect, name: str, frame: Frame, state: State, stdin: str | None) -> str:
        inner = frame.inside(shown(name))
        if isinstance(effect, Run) and effect.argv:
            there = state
            if effect.cwd is not None:
                there = state.copy()
                there.cwd = resolve(effect.cwd, state.cwd)
            return self._run(effect.argv, inner, there, effect.stdin)
        if isinstance(effect, Script) and effect.text.strip(UNKNOWN + " \n\t"):
            keeps = name in ("eval", "source", ".", "trap")
            there = state if keeps else state.copy()
            if effect.arguments:
                there.variables["@"] = (NEXT.join(effect.arguments[0 if keeps else 1 :]),)
            given = None if effect.text == stdin else stdin
            return self.texts.nested(effect.text.replace(NEXT, " "), there, inner, given)
        if isinstance(effect, Script) and UNKNOWN in effect.text:
            self.record.note("high", "runs a text that is not known before it does")
            return UNKNOWN
        return ""

    def _text_in_code(self, text: str) -> list[Found]:
        """Texts in code of another language are often no commands: only what is dangerous counts."""
        if len(text) > 2_000 or not re.search(r"[A-Za-z:{]", text):
            return []
        record = self.texts.apart(text)
        found = [*record.notes, *(Found(part.severity, reason) for part in record.parts for reason in part.reasons)]
        return [each for each in found if each.severity == "critical" or (each.severity == "high" and record.parts)]

    # ---- what the walk reports

    def bare(self, writes: tuple[str, ...], state: State, frame: Frame) -> None:
        """Redirections without a program, or of a whole group."""
        if not writes:
            return
        effects: list[Effect] = [found for place in writes if (found := writing(place, state.cwd))]
        self._part("", (), frame, effects, writes, (), state, None)

    def assigned(self, name: str, values: tuple[str, ...], state: State, frame: Frame) -> None:
        effects: list[Effect] = [effect for value in values for effect in setting(name, value)]
        effects += [effect for value in values for effect in subscripts(value)]
        self.record.words += [("=", value) for value in values]
        self._part("", (), frame, effects, (), (name,), state, None)

    def redefined(self, name: str) -> None:
        if is_known(name):
            self.record.note("high", f"gives the name {shown(name)} another meaning")

    def tested(self, text: str, state: State, frame: Frame) -> None:
        for effect in subscripts(text):
            self._hand_on(effect, "[[", frame, state, None)

    def looked_up(self, name: str, state: State) -> None:
        if is_secret(name) and name not in state.variables:
            self.record.note("high", f"uses the secret in ${name}")

    def keep_file(self, text: str, state: State) -> str:
        """A process substitution is a file that holds what its commands print."""
        path = f"/dev/fd/{63 - len([name for name in state.files if name.startswith('/dev/fd/')])}"
        state.files[path] = text
        return path

    def read_from(self, places: tuple[str, ...], state: State) -> None:
        for place in places:
            self.record.words.append(("", place))
            if found := reading(place, state.cwd):
                self.record.notes.append(found)
