"""Builtins that change the shell itself: the directory, its variables and functions, and what runs later."""

import posixpath
import re
from typing import Protocol

from treadle.policy.shell.arguments import read
from treadle.policy.shell.model import NEXT, UNKNOWN, Effects, Found, Script, ShellCall
from treadle.policy.shell.output import output
from treadle.policy.shell.places import HOME, resolve
from treadle.policy.shell.state import Frame, Function, State

_SUBSCRIPT = re.compile(r"\[\s*(\$\(.*?\)|`[^`]*`)\s*\]", re.S)


class Reports(Protocol):
    def assigned(self, name: str, values: tuple[str, ...], state: State, frame: Frame) -> None: ...

    def redefined(self, name: str) -> None: ...


class Builtins:
    def __init__(self, reports: Reports) -> None:
        self.reports = reports

    def follow(self, call: ShellCall, state: State, frame: Frame) -> Effects:
        match call.name:
            case "cd" | "pushd":
                self._cd(call, state)
            case "export" | "declare" | "typeset" | "local" | "readonly":
                self._declare(call, state, frame)
            case "set":
                self._set(call, state)
            case "shift":
                self._shift(call, state)
            case "unset":
                for name in read(call.args).rest:
                    state.variables[name] = ("",)
            case "read" | "mapfile" | "readarray":
                yield from self._read(call, state, frame)
            case "printf" if call.args[:1] == ("-v",) and len(call.args) > 2:
                text = output(ShellCall("printf", call.args[2:]))
                state.assign(call.args[1], (text,), branch=frame.branch)
            case "eval":
                yield Script(" ".join(call.args))
            case "trap":
                yield from (Script(text) for text in read(call.args, until_word=True).rest[:1])
            case "alias":
                yield from self._alias(call, state)
            case "let" | "test" | "[" | "[[" | "wait":
                yield from subscripts(" ".join(call.args))
            case "hash" | "enable" | "complete" | "bind":
                yield from self._strange(call)
            case "curl" | "wget":
                self._fetched(call, state)
            case "tee" | "sponge":
                for path in read(call.args).rest:
                    state.files[resolve(path, call.cwd)] = call.stdin if call.stdin is not None else UNKNOWN
            case "cp" | "mv" | "ln" | "install":
                self._copied(call, state)

    def _cd(self, call: ShellCall, state: State) -> None:
        options = read(call.args, until_word=True)
        target = options.rest[0] if options.rest else ("~" if call.name == "cd" else "..")
        if target == "-":
            target = state.value("OLDPWD")[0]
        state.variables["OLDPWD"] = (state.cwd,)
        path = resolve(target, state.cwd)
        state.cwd = "~" + path[len(HOME) :] if path.startswith(HOME) else path

    def _declare(self, call: ShellCall, state: State, frame: Frame) -> None:
        for word in call.args:
            name, equals, value = word.partition("=")
            if equals and re.fullmatch(r"[A-Za-z_]\w*\+?", name):
                state.assign(name.rstrip("+"), (value,), branch=frame.branch)
                self.reports.assigned(name.rstrip("+"), (value,), state, frame)

    def _set(self, call: ShellCall, state: State) -> None:
        if "--" in call.args or (call.args and call.args[0][:1] not in ("-", "+")):
            words = call.args[call.args.index("--") + 1 :] if "--" in call.args else call.args
            state.variables["@"] = (NEXT.join(words),)

    def _shift(self, call: ShellCall, state: State) -> None:
        count = int(call.args[0]) if call.args and call.args[0].isdecimal() and len(call.args[0]) < 6 else 1
        state.variables["@"] = tuple(NEXT.join(v.split(NEXT)[count:]) for v in state.value("@"))

    def _read(self, call: ShellCall, state: State, frame: Frame) -> Effects:
        options = read(call.args, "d i n N p t u a" if call.name == "read" else "d n O s u C c")
        for text in options.all("C") if call.name != "read" else ():
            yield Script(text)
        text = call.stdin if call.stdin is not None else UNKNOWN
        names = (*options.all("a"), *options.rest) or ("REPLY",)
        if options.has("a") or call.name != "read":
            names = names if options.rest or call.name == "read" else ("MAPFILE",)
            words = text.split() if call.name == "read" else text.strip("\n").split("\n")
            state.assign(names[0], (NEXT.join(words),), branch=frame.branch)
            return
        line = text.strip("\n")
        separators = state.value("IFS")[0]
        words = line.split(None, len(names) - 1) if separators.isspace() else _split(line, separators, len(names))
        for at, name in enumerate(names):
            value = words[at] if at < len(words) else (UNKNOWN if UNKNOWN in text else "")
            state.assign(name, (value,), branch=True)

    def _alias(self, call: ShellCall, state: State) -> Effects:
        for word in call.args:
            name, equals, value = word.partition("=")
            if equals:
                self.reports.redefined(name)
                state.functions[name] = Function(name, value + ' "$@"')
                yield Script(value)

    def _strange(self, call: ShellCall) -> Effects:
        options = read(call.args, "p f C F x")
        if call.name == "hash" and options.all("p"):
            yield Found("high", "gives a program's name another meaning")
        if call.name == "enable" and options.has("f", "n"):
            yield Found("high", "changes which builtins the shell has")
        if call.name in ("complete", "bind"):
            for text in (*options.all("C"), *options.all("x")):
                yield Found("high", "ties a command to a key or to completion")
                yield Script(text.partition(":")[2].strip("\"' ") if call.name == "bind" else text)

    def _fetched(self, call: ShellCall, state: State) -> None:
        options = read(call.args, "o d F T H X u K b c e A x w m output O_ output-document P data header")
        names = options.all("o", "output", "output-document")
        if call.name == "wget":
            names = read(call.args, "O output-document P e i U").all("O", "output-document")
        if not names or options.has("O", "remote-name"):
            names = [*names, *(posixpath.basename(word) for word in options.rest if "/" in word)]
        for name in names:
            state.files[resolve(name, call.cwd)] = UNKNOWN

    def _copied(self, call: ShellCall, state: State) -> None:
        rest = read(call.args, "t S m o g").rest
        if len(rest) == 2:
            held = state.files.get(resolve(rest[0], call.cwd))
            target = resolve(rest[1], call.cwd)
            if held is not None:
                state.files[target] = held
            elif plain := posixpath.basename(rest[0]):
                state.files.pop(posixpath.join(target, plain), None)


def subscripts(text: str) -> Effects:
    """Arithmetic runs the substitutions in an array's subscript, even if they were quoted."""
    for match in _SUBSCRIPT.finditer(text):
        yield Script(f": {match[1]}")


def _split(text: str, separators: str, most: int) -> list[str]:
    if not separators:
        return [text]
    return re.split(f"[{re.escape(separators)}]", text, maxsplit=most - 1)
