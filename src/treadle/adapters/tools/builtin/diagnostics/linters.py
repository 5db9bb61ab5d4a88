"""The findings of tools about a file: which tools there are, for which files, how each is asked without touching the
project, and how its output is read (ValueError if the output is not the tool's at all). Finding and running them is the
business of `running`.

A tool that gets the file by its standard input sees exactly what the workspace read. `executes` says that asking it may
run code of the project (configuration that is a program, build scripts, an interpreter of the project), or show files
outside that the project names (an include): then it is only ever run in a sandbox (S-01, S-09)."""

import re
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal

import msgspec

from treadle.ports.workspace import escape_name
from treadle.protocol.content import Value

Severity = Literal["error", "warning", "info"]
MAX_SHOWN = 100
ORDER: dict[Severity, int] = {"error": 0, "warning": 1, "info": 2}
_LONGEST = 400


class Diagnostic(Value, frozen=True):
    """Lines and columns count from 1; 0 is the file as a whole."""

    path: str
    line: int
    column: int
    severity: Severity
    message: str
    source: str
    code: str = ""

    @property
    def text(self) -> str:
        place = ":".join(str(part) for part in (escape_name(self.path), self.line, self.column) if part)
        code = f" {self.code}" if self.code else ""
        message = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in " ".join(self.message.split()))
        message = message if len(message) <= _LONGEST else f"{message[: _LONGEST - 1]}…"
        return f"{place}: {self.severity}{code}: {message} [{self.source}]"


def sort_diagnostics(diagnostics: Iterable[Diagnostic]) -> list[Diagnostic]:
    """Each once, by file and place; of two tools that say the same about a place, both are heard."""
    return sorted(
        set(diagnostics), key=lambda each: (each.path, each.line, each.column, ORDER[each.severity], each.message)
    )


def count(diagnostics: Sequence[Diagnostic]) -> str:
    errors = sum(each.severity == "error" for each in diagnostics)
    warning_count = len(diagnostics) - errors
    parts = [f"{errors} {'error' if errors == 1 else 'errors'}"] if errors or not warning_count else []
    parts += [f"{warning_count} {'warning' if warning_count == 1 else 'warnings'}"] if warning_count else []
    return ", ".join(parts)


Parse = Callable[[str, str, str], list[Diagnostic]]  # (path of the file, standard output, standard error)


class OtherLanguage(Exception):
    """The file is written in a language that the tool does not read; the message completes "the tool …"."""


class Target(msgspec.Struct, frozen=True):
    root: str
    path: str  # Relative to the root
    data: bytes
    folder: str = ""  # where its project begins (tsconfig.json, Cargo.toml, go.mod), below the root

    @property
    def absolute(self) -> str:
        return f"{self.root.rstrip('/')}/{self.path}"


class Linter(msgspec.Struct, frozen=True):
    name: str
    arguments: Callable[[Target], list[str]]
    parse: Parse
    quick: bool = False  # at once, and right about a file alone: good enough to hold up a completion
    stdin: bool = True
    executes: bool = False  # its answer depends on more than file and configuration: asked each time
    configs: tuple[str, ...] = ()  # Files at the root that change its answer
    marker: str = ""  # It needs a project: the file that makes one
    fine: tuple[int, ...] = (0, 1)  # Exit codes with which it has done its work
    env: tuple[tuple[str, str], ...] = ()
    program: str = ""  # If its name is another one
    suits: Callable[[Target], bool] = lambda _target: True

    @property
    def command(self) -> str:
        return self.program or self.name


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


# -- reading their output: lines that do not look as documented are ignored, never guessed at -------------------------
def _parse_json(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except msgspec.MsgspecError as error:
        raise ValueError(f"its output is no JSON: {error}") from error


def _parse_severity(word: str) -> Severity:
    return "error" if word in ("error", "fatal") else "warning" if word in ("warning", "warn") else "info"


def _parse_place(match: re.Match[str]) -> tuple[int, int]:
    return int(match["line"]), int(match["column"] or 0)


_Row = tuple[int, int, Severity, str]


def _make_json_parser(source: str, items: Callable[[Any], Iterable[Any]], read: Callable[[Any], _Row]) -> Parse:
    """For a tool that prints JSON: `items` are its findings, `read` gives line, column, severity and code of one."""

    def parse(path: str, output: str, _errors: str) -> list[Diagnostic]:
        rows = [(read(each), each["message"]) for each in items(_parse_json(output))]
        return [Diagnostic(path, *row[:3], message, source, row[3]) for row, message in rows]

    return parse


def _read_ruff(finding: dict[str, Any]) -> _Row:
    code, place = finding.get("code") or "invalid-syntax", finding.get("location") or {}
    severity: Severity = "error" if _RUFF_ERRORS.match(code) else "warning"
    return place.get("row", 0), place.get("column", 0), severity, "" if code == "invalid-syntax" else code


def _read_pyright(finding: dict[str, Any]) -> _Row:
    start, severity = finding.get("range", {}).get("start", {}), _parse_severity(finding.get("severity", "error"))
    return start.get("line", -1) + 1, start.get("character", -1) + 1, severity, finding.get("rule", "")


def _read_eslint(finding: dict[str, Any]) -> _Row:
    severity: Severity = "error" if finding.get("severity") == 2 else "warning"
    return finding.get("line") or 0, finding.get("column") or 0, severity, finding.get("ruleId") or ""


def _read_shellcheck(finding: dict[str, Any]) -> _Row:
    severity = _parse_severity(finding.get("level", "warning"))
    return finding.get("line", 0), finding.get("column", 0), severity, f"SC{finding['code']}"


def _parse_check(path: str, output: str, _errors: str) -> list[Diagnostic]:
    """Of our own little parser for Python: one JSON object, or nothing."""
    one = _parse_json(output) if output.strip() else None
    return [Diagnostic(path, one["line"] or 0, one["column"] or 0, "error", one["message"], "python")] if one else []


def _make_compiler_parser(source: str) -> Parse:
    """`file:line:column: severity: message [code]`, as gcc, clang and many others print it."""

    def parse(path: str, output: str, errors: str) -> list[Diagnostic]:
        diagnostics = []
        for place in filter(None, map(_PLACE.match, (output + "\n" + errors).splitlines())):
            kind, _, text = place["rest"].partition(": ")
            if kind not in ("error", "fatal error", "warning") or not text:
                continue
            # Where headers lie is the business of the project's build, which is not known here.
            missing = kind == "fatal error" and "No such file" in text
            severity: Severity = "warning" if kind == "warning" or missing else "error"
            message, code = (text[: match.start()], match["code"]) if (match := _CODE.search(text)) else (text, "")
            file_path = path if place["file"] == "<stdin>" or path.endswith(place["file"]) else place["file"]
            diagnostics.append(Diagnostic(file_path, *_parse_place(place), severity, message, source, code))
        return diagnostics

    return parse


def _make_place_parser(source: str, severity: Severity = "error") -> Parse:
    """`file:line:column: message`, without a word for how bad it is: gofmt, go vet."""

    def parse(path: str, output: str, errors: str) -> list[Diagnostic]:
        diagnostics = []
        for line in (output + "\n" + errors).splitlines():
            bare = line.removeprefix("vet: ").removeprefix("<standard input>:").strip()
            if line.startswith("<standard input>:"):
                bare = "<stdin>:" + line.removeprefix("<standard input>:")
            if (place := _PLACE.match(bare)) is not None:
                diagnostics.append(Diagnostic(path, *_parse_place(place), severity, place["rest"].strip(), source))
        return diagnostics

    return parse


def _parse_tsc(path: str, output: str, _errors: str) -> list[Diagnostic]:
    diagnostics = []
    for match in filter(None, map(_TSC.match, output.splitlines())):
        file = match["file"].replace("\\", "/")
        file_path = path if path.endswith(file) or file.endswith(path) else file
        severity = _parse_severity(match["kind"])
        diagnostics.append(
            Diagnostic(file_path, *_parse_place(match), severity, match["text"], "tsc", match["code"] or "")
        )
    return diagnostics


def _parse_node(path: str, _output: str, errors: str) -> list[Diagnostic]:
    match = _NODE.search(errors)
    if match is None:
        return []
    if "Unexpected token '<'" in match["text"]:
        raise OtherLanguage("does not read JSX")
    return [Diagnostic(path, int(match["line"]), len(match["mark"]) + 1, "error", match["text"], "node")]


def _parse_bash(path: str, _output: str, errors: str) -> list[Diagnostic]:
    matches = filter(None, map(_BASH.match, errors.splitlines()))
    return [Diagnostic(path, int(match["line"] or 0), 0, "error", match["text"], "bash") for match in matches]


def _parse_rustfmt(path: str, _output: str, errors: str) -> list[Diagnostic]:
    return [
        Diagnostic(
            path, *_parse_place(match), _parse_severity(match["kind"]), match["text"], "rustfmt", match["code"] or ""
        )
        for match in _RUSTFMT.finditer(errors)
    ]


def _parse_cargo(path: str, output: str, _errors: str) -> list[Diagnostic]:
    diagnostics = []
    for entry in (_parse_json(line) for line in output.splitlines() if line.startswith("{")):
        message = entry.get("message") if entry.get("reason") == "compiler-message" else None
        if not isinstance(message, dict) or message.get("level") not in ("error", "warning"):
            continue
        span = next((span for span in message.get("spans", ()) if span.get("is_primary")), None)
        if span is not None:
            file_path = path if path.endswith(span["file_name"]) else span["file_name"]
            code = (message.get("code") or {}).get("code", "")
            at = (span.get("line_start", 0), span.get("column_start", 0))
            severity = _parse_severity(message["level"])
            diagnostics.append(Diagnostic(file_path, *at, severity, message["message"], "cargo", code))
    return diagnostics


# -- how each is asked ------------------------------------------------------------------------------------------------
_PARSE = """
import ast, json, sys
try:
    ast.parse(sys.stdin.buffer.read(), sys.argv[1])
except SyntaxError as e:
    print(json.dumps({"line": e.lineno, "column": e.offset, "message": e.msg}))
except (ValueError, RecursionError, MemoryError) as e:
    print(json.dumps({"line": 0, "column": 0, "message": str(e) or type(e).__name__}))
"""
_MODULE = re.compile(rb"^\s*(?:import\b[^(]|export\b)", re.M)


def _build_node_arguments(target: Target) -> list[str]:
    module = target.path.endswith(".mjs") or (not target.path.endswith(".cjs") and _MODULE.search(target.data))
    return [*(["--input-type=module"] if module else []), "--check", "-"]


def _make_compiler(name: str, language: str) -> Linter:
    def build_arguments(target: Target) -> list[str]:
        folder = target.absolute.rpartition("/")[0]
        options = ["-fsyntax-only", "-Wall", "-fno-diagnostics-show-caret", "-fdiagnostics-color=never"]
        return [*options, "-x", language, "-iquote", folder, "-I", f"{target.root}/include", "-"]

    return Linter(name, build_arguments, _make_compiler_parser(name), quick=True, executes=True)


_RUFF_OPTIONS = ("check", "--no-cache", "--no-fix", "--output-format=json", "--stdin-filename")
RUFF = Linter(
    "ruff",
    lambda target: [*_RUFF_OPTIONS, target.absolute, "-"],
    _make_json_parser("ruff", iter, _read_ruff),
    quick=True,
    configs=("pyproject.toml", "ruff.toml", ".ruff.toml"),
)
PARSE = Linter(
    "python", lambda target: ["-I", "-S", "-c", _PARSE, target.path], _parse_check, quick=True, program=sys.executable
)
BASEDPYRIGHT, PYRIGHT = (
    Linter(
        name,
        lambda target: ["--outputjson", target.absolute],
        _make_json_parser(name, lambda report: report.get("generalDiagnostics", ()), _read_pyright),
        stdin=False,
        executes=True,
    )
    for name in ("basedpyright", "pyright")
)
NODE = Linter("node", _build_node_arguments, _parse_node, quick=True)
ESLINT = Linter(
    "eslint",
    lambda target: ["--format=json", "--stdin", "--stdin-filename", target.absolute],
    _make_json_parser(
        "eslint", lambda files: (each for file in files for each in file.get("messages", ())), _read_eslint
    ),
    executes=True,
)
TSC = Linter(
    "tsc",
    lambda target: ["--noEmit", "--pretty", "false", "-p", f"{target.root}/{target.folder}"],
    _parse_tsc,
    stdin=False,
    executes=True,
    marker="tsconfig.json",
    fine=(0, 1, 2),
)
GCC, GXX = _make_compiler("gcc", "c"), _make_compiler("g++", "c++")
CLANG, CLANGXX = _make_compiler("clang", "c"), _make_compiler("clang++", "c++")
GOFMT = Linter("gofmt", lambda _target: ["-e", "-l"], _make_place_parser("gofmt"), quick=True, fine=(0, 1, 2))
GO_VET = Linter(
    "go vet",
    lambda target: ["vet", f"./{target.path.rpartition('/')[0] or '.'}"],
    _make_place_parser("go vet", "warning"),
    stdin=False,
    executes=True,
    marker="go.mod",
    program="go",
    env=(("GOCACHE", "/tmp/go-cache"), ("GOFLAGS", "-mod=readonly"), ("GOPROXY", "off")),
)
RUSTFMT = Linter("rustfmt", lambda _target: ["--emit", "stdout"], _parse_rustfmt, quick=True)
_CARGO_OPTIONS = ("check", "--offline", "--quiet", "--message-format=json")
CARGO = Linter(
    "cargo",
    lambda target: [*_CARGO_OPTIONS, "--manifest-path", f"{target.root}/{target.folder}/Cargo.toml"],
    _parse_cargo,
    stdin=False,
    executes=True,
    marker="Cargo.toml",
    fine=(0, 101),
    env=(("CARGO_TARGET_DIR", "/tmp/cargo-target"),),
)
BASH = Linter(
    "bash",
    lambda _target: ["-n"],
    _parse_bash,
    quick=True,
    fine=(0, 1, 2),
    suits=lambda target: not target.data.startswith(b"#!") or b"sh" in target.data.partition(b"\n")[0],
)
SHELLCHECK = Linter(
    "shellcheck",
    lambda _target: ["--format=json1", "-"],
    _make_json_parser("shellcheck", lambda report: report.get("comments", ()), _read_shellcheck),
)

Group = tuple[Linter, ...]  # Tools of which the first that can be had is asked

GROUPS: dict[str, tuple[Group, ...]] = {
    **dict.fromkeys(("py", "pyi"), ((RUFF, PARSE), (BASEDPYRIGHT, PYRIGHT))),
    **dict.fromkeys(("js", "mjs", "cjs"), ((NODE,), (TSC,), (ESLINT,))),
    **dict.fromkeys(("ts", "tsx", "mts", "cts", "jsx"), ((TSC,), (ESLINT,))),
    **dict.fromkeys(("c", "h"), ((CLANG, GCC),)),
    **dict.fromkeys(("cc", "cpp", "cxx", "hpp", "hh"), ((CLANGXX, GXX),)),
    "go": ((GOFMT,), (GO_VET,)),
    "rs": ((RUSTFMT,), (CARGO,)),
    **dict.fromkeys(("sh", "bash"), ((BASH,), (SHELLCHECK,))),
}  # by the ending of a file's name
