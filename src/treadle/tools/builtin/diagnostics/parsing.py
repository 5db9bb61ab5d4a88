"""Reading what tools print. Each function takes a tool's output and gives diagnostics; what does not look as documented
is passed over, never guessed at. Raises ValueError where the output is none of the tool's at all."""

import re
from collections.abc import Callable
from typing import Any

import msgspec

from treadle.tools.builtin.diagnostics.diagnostic import Diagnostic, Severity

Parse = Callable[[str, str, str], list[Diagnostic]]
"""(the path of the file that was asked about, standard output, standard error)"""


class OtherLanguage(Exception):
    """The file is written in a language that the tool does not read; the message completes "the tool …"."""


_RUFF_ERRORS = re.compile(r"^(?:invalid-syntax|E9|F82|F70|F63|PLE)")
_PLACE = re.compile(r"^(?P<file>[^\s:][^:\n]*|<stdin>):(?P<line>\d+)(?::(?P<column>\d+))?:\s*(?P<rest>.+)$")
_CODE = re.compile(r"\s*\[(?P<code>-?[\w+=.-]+)\]$")
_TSC = re.compile(
    r"^(?P<file>[^(\n]+)\((?P<line>\d+),(?P<column>\d+)\): (?P<kind>error|warning) (?P<code>TS\d+): (?P<text>.+)$"
)
_NODE = re.compile(
    r"^\[stdin\]:(?P<line>\d+)\n(?P<source>.*)\n(?P<mark>\s*)\^.*?\n(?P<text>\w*Error: .+?)$", re.S | re.M
)
_BASH = re.compile(r"^(?:[^:\n]*bash|[^:\n]*sh): (?:line (?P<line>\d+): )?(?P<text>(?:syntax error|unexpected EOF).*)$")
_RUSTFMT = re.compile(
    r"^(?P<kind>error|warning)(?:\[(?P<code>\w+)\])?: (?P<text>.+)\n\s*--> [^:\n]+:(?P<line>\d+):(?P<column>\d+)", re.M
)


def _json(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except msgspec.MsgspecError as error:
        raise ValueError(f"its output is no JSON: {error}") from error


def ruff(path: str, output: str, _errors: str) -> list[Diagnostic]:
    found = []
    for each in _json(output):
        code = each.get("code") or "invalid-syntax"
        place = each.get("location") or {}
        severity: Severity = "error" if _RUFF_ERRORS.match(code) else "warning"
        shown = "" if code == "invalid-syntax" else code
        at = (place.get("row", 0), place.get("column", 0))
        found.append(Diagnostic(path, *at, severity, each["message"], "ruff", shown))
    return found


def pyright(path: str, output: str, _errors: str, source: str = "pyright") -> list[Diagnostic]:
    found = []
    for each in _json(output).get("generalDiagnostics", ()):
        start = each.get("range", {}).get("start", {})
        severity = _severity(each.get("severity", "error"))
        line, column = start.get("line", -1) + 1, start.get("character", -1) + 1
        found.append(Diagnostic(path, line, column, severity, each["message"], source, each.get("rule", "")))
    return found


def basedpyright(path: str, output: str, errors: str) -> list[Diagnostic]:
    return pyright(path, output, errors, "basedpyright")


def parse_check(path: str, output: str, _errors: str) -> list[Diagnostic]:
    """Of our own little parser for Python: one JSON object, or nothing."""
    if not output.strip():
        return []
    said = _json(output)
    return [Diagnostic(path, said["line"] or 0, said["column"] or 0, "error", said["message"], "python")]


def compiler(source: str) -> Parse:
    """`file:line:column: severity: message [code]`, as gcc, clang and many others print it."""

    def parse(path: str, output: str, errors: str) -> list[Diagnostic]:
        found = []
        for line in (output + "\n" + errors).splitlines():
            place = _PLACE.match(line)
            if place is None:
                continue
            kind, _, text = place["rest"].partition(": ")
            if kind == "note" or kind not in ("error", "fatal error", "warning") or not text:
                continue
            # Where headers lie is the business of the project's build, which is not known here.
            missing = kind == "fatal error" and "No such file" in text
            code = _CODE.search(text)
            severity: Severity = "warning" if kind == "warning" or missing else "error"
            message = text[: code.start()] if code else text
            where = path if place["file"] in ("<stdin>", path) or path.endswith(place["file"]) else place["file"]
            found.append(Diagnostic(where, *_at(place), severity, message, source, code["code"] if code else ""))
        return found

    return parse


def places(source: str, severity: Severity = "error") -> Parse:
    """`file:line:column: message`, without a word for how bad it is: gofmt, go vet."""

    def parse(path: str, output: str, errors: str) -> list[Diagnostic]:
        found = []
        for line in (output + "\n" + errors).splitlines():
            place = _PLACE.match(line.removeprefix("vet: ").removeprefix("<standard input>:").strip())
            if line.startswith("<standard input>:"):
                place = _PLACE.match("<stdin>:" + line.removeprefix("<standard input>:"))
            if place is not None:
                found.append(Diagnostic(path, *_at(place), severity, place["rest"].strip(), source))
        return found

    return parse


def tsc(path: str, output: str, _errors: str) -> list[Diagnostic]:
    found = []
    for line in output.splitlines():
        said = _TSC.match(line)
        if said is not None:
            file = said["file"].replace("\\", "/")
            where = path if path.endswith(file) or file.endswith(path) else file
            found.append(_matched(where, said, "tsc"))
    return found


def _matched(path: str, said: re.Match[str], source: str) -> Diagnostic:
    return Diagnostic(path, *_at(said), _severity(said["kind"]), said["text"], source, said["code"] or "")


def _at(said: re.Match[str]) -> tuple[int, int]:
    return int(said["line"]), int(said["column"] or 0)


def eslint(path: str, output: str, _errors: str) -> list[Diagnostic]:
    found = []
    for file in _json(output):
        for each in file.get("messages", ()):
            severity: Severity = "error" if each.get("severity") == 2 else "warning"
            at = (each.get("line") or 0, each.get("column") or 0)
            found.append(Diagnostic(path, *at, severity, each["message"], "eslint", each.get("ruleId") or ""))
    return found


def node(path: str, _output: str, errors: str) -> list[Diagnostic]:
    said = _NODE.search(errors)
    if said is None:
        return []
    if "Unexpected token '<'" in said["text"]:
        raise OtherLanguage("does not read JSX")
    return [Diagnostic(path, int(said["line"]), len(said["mark"]) + 1, "error", said["text"], "node")]


def bash(path: str, _output: str, errors: str) -> list[Diagnostic]:
    matches = [said for line in errors.splitlines() if (said := _BASH.match(line))]
    return [Diagnostic(path, int(said["line"] or 0), 0, "error", said["text"], "bash") for said in matches]


def shellcheck(path: str, output: str, _errors: str) -> list[Diagnostic]:
    found = []
    for each in _json(output).get("comments", ()):
        at, severity = (each.get("line", 0), each.get("column", 0)), _severity(each.get("level", "warning"))
        found.append(Diagnostic(path, *at, severity, each["message"], "shellcheck", f"SC{each['code']}"))
    return found


def rustfmt(path: str, _output: str, errors: str) -> list[Diagnostic]:
    return [_matched(path, said, "rustfmt") for said in _RUSTFMT.finditer(errors)]


def cargo(path: str, output: str, _errors: str) -> list[Diagnostic]:
    found = []
    for line in output.splitlines():
        if not line.startswith("{"):
            continue
        said = _json(line)
        message = said.get("message") if said.get("reason") == "compiler-message" else None
        if not isinstance(message, dict) or message.get("level") not in ("error", "warning"):
            continue
        span = next((span for span in message.get("spans", ()) if span.get("is_primary")), None)
        if span is None:
            continue
        where = path if path.endswith(span["file_name"]) else span["file_name"]
        code = (message.get("code") or {}).get("code", "")
        severity = _severity(message["level"])
        place = (span.get("line_start", 0), span.get("column_start", 0))
        found.append(Diagnostic(where, *place, severity, message["message"], "cargo", code))
    return found


def _severity(word: str) -> Severity:
    if word in ("error", "fatal"):
        return "error"
    return "warning" if word in ("warning", "warn") else "info"
