"""Parsers for the output of tools. Each function takes a tool's output and returns diagnostics. Lines that do not look
as documented are ignored, never guessed at. ValueError if the output is not the tool's at all."""

import re
from collections.abc import Callable
from typing import Any

import msgspec

from treadle.adapters.tools.builtin.diagnostics.diagnostic import Diagnostic, Severity

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
    diagnostics = []
    for each in _json(output):
        code = each.get("code") or "invalid-syntax"
        place = each.get("location") or {}
        severity: Severity = "error" if _RUFF_ERRORS.match(code) else "warning"
        shown_code = "" if code == "invalid-syntax" else code
        at = (place.get("row", 0), place.get("column", 0))
        diagnostics.append(Diagnostic(path, *at, severity, each["message"], "ruff", shown_code))
    return diagnostics


def pyright(path: str, output: str, _errors: str, source: str = "pyright") -> list[Diagnostic]:
    diagnostics = []
    for each in _json(output).get("generalDiagnostics", ()):
        start = each.get("range", {}).get("start", {})
        severity = _severity(each.get("severity", "error"))
        line, column = start.get("line", -1) + 1, start.get("character", -1) + 1
        diagnostics.append(Diagnostic(path, line, column, severity, each["message"], source, each.get("rule", "")))
    return diagnostics


def basedpyright(path: str, output: str, errors: str) -> list[Diagnostic]:
    return pyright(path, output, errors, "basedpyright")


def parse_check(path: str, output: str, _errors: str) -> list[Diagnostic]:
    """Of our own little parser for Python: one JSON object, or nothing."""
    if not output.strip():
        return []
    report = _json(output)
    return [Diagnostic(path, report["line"] or 0, report["column"] or 0, "error", report["message"], "python")]


def compiler(source: str) -> Parse:
    """`file:line:column: severity: message [code]`, as gcc, clang and many others print it."""

    def parse(path: str, output: str, errors: str) -> list[Diagnostic]:
        diagnostics = []
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
            file_path = path if place["file"] in ("<stdin>", path) or path.endswith(place["file"]) else place["file"]
            diagnostics.append(
                Diagnostic(file_path, *_at(place), severity, message, source, code["code"] if code else "")
            )
        return diagnostics

    return parse


def places(source: str, severity: Severity = "error") -> Parse:
    """`file:line:column: message`, without a word for how bad it is: gofmt, go vet."""

    def parse(path: str, output: str, errors: str) -> list[Diagnostic]:
        diagnostics = []
        for line in (output + "\n" + errors).splitlines():
            place = _PLACE.match(line.removeprefix("vet: ").removeprefix("<standard input>:").strip())
            if line.startswith("<standard input>:"):
                place = _PLACE.match("<stdin>:" + line.removeprefix("<standard input>:"))
            if place is not None:
                diagnostics.append(Diagnostic(path, *_at(place), severity, place["rest"].strip(), source))
        return diagnostics

    return parse


def tsc(path: str, output: str, _errors: str) -> list[Diagnostic]:
    diagnostics = []
    for line in output.splitlines():
        match = _TSC.match(line)
        if match is not None:
            file = match["file"].replace("\\", "/")
            file_path = path if path.endswith(file) or file.endswith(path) else file
            diagnostics.append(_matched(file_path, match, "tsc"))
    return diagnostics


def _matched(path: str, match: re.Match[str], source: str) -> Diagnostic:
    return Diagnostic(path, *_at(match), _severity(match["kind"]), match["text"], source, match["code"] or "")


def _at(match: re.Match[str]) -> tuple[int, int]:
    return int(match["line"]), int(match["column"] or 0)


def eslint(path: str, output: str, _errors: str) -> list[Diagnostic]:
    diagnostics = []
    for file in _json(output):
        for each in file.get("messages", ()):
            severity: Severity = "error" if each.get("severity") == 2 else "warning"
            at = (each.get("line") or 0, each.get("column") or 0)
            diagnostics.append(Diagnostic(path, *at, severity, each["message"], "eslint", each.get("ruleId") or ""))
    return diagnostics


def node(path: str, _output: str, errors: str) -> list[Diagnostic]:
    match = _NODE.search(errors)
    if match is None:
        return []
    if "Unexpected token '<'" in match["text"]:
        raise OtherLanguage("does not read JSX")
    return [Diagnostic(path, int(match["line"]), len(match["mark"]) + 1, "error", match["text"], "node")]


def bash(path: str, _output: str, errors: str) -> list[Diagnostic]:
    matches = [match for line in errors.splitlines() if (match := _BASH.match(line))]
    return [Diagnostic(path, int(match["line"] or 0), 0, "error", match["text"], "bash") for match in matches]


def shellcheck(path: str, output: str, _errors: str) -> list[Diagnostic]:
    diagnostics = []
    for each in _json(output).get("comments", ()):
        at, severity = (each.get("line", 0), each.get("column", 0)), _severity(each.get("level", "warning"))
        diagnostics.append(Diagnostic(path, *at, severity, each["message"], "shellcheck", f"SC{each['code']}"))
    return diagnostics


def rustfmt(path: str, _output: str, errors: str) -> list[Diagnostic]:
    return [_matched(path, match, "rustfmt") for match in _RUSTFMT.finditer(errors)]


def cargo(path: str, output: str, _errors: str) -> list[Diagnostic]:
    diagnostics = []
    for line in output.splitlines():
        if not line.startswith("{"):
            continue
        entry = _json(line)
        message = entry.get("message") if entry.get("reason") == "compiler-message" else None
        if not isinstance(message, dict) or message.get("level") not in ("error", "warning"):
            continue
        span = next((span for span in message.get("spans", ()) if span.get("is_primary")), None)
        if span is None:
            continue
        file_path = path if path.endswith(span["file_name"]) else span["file_name"]
        code = (message.get("code") or {}).get("code", "")
        severity = _severity(message["level"])
        place = (span.get("line_start", 0), span.get("column_start", 0))
        diagnostics.append(Diagnostic(file_path, *place, severity, message["message"], "cargo", code))
    return diagnostics


def _severity(word: str) -> Severity:
    if word in ("error", "fatal"):
        return "error"
    return "warning" if word in ("warning", "warn") else "info"
