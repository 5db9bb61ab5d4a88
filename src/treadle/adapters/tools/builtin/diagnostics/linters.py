"""Which tools there are, for which files, and how each is asked without touching the project. Data only: finding and
running them is the business of `finding` and `running`.

A tool that gets the file by its standard input sees exactly what the workspace read. `executes` says that asking it may
run code of the project (configuration that is a program, build scripts, an interpreter of the project), or show files
outside that the project names (an include): then it is only ever run in a sandbox (S-01, S-09)."""

import re
import sys
from collections.abc import Callable

import msgspec

from treadle.adapters.tools.builtin.diagnostics import parsing
from treadle.adapters.tools.builtin.diagnostics.parsing import Parse


class Target(msgspec.Struct, frozen=True):
    """The file that is asked about."""

    root: str
    path: str
    """Relative to the root."""
    data: bytes
    folder: str = ""
    """Where the project that it belongs to begins (tsconfig.json, Cargo.toml, go.mod), relative to the root."""

    @property
    def absolute(self) -> str:
        return f"{self.root.rstrip('/')}/{self.path}"


class Linter(msgspec.Struct, frozen=True):
    name: str
    arguments: Callable[[Target], list[str]]
    parse: Parse
    quick: bool = False
    """True if it answers at once and is right about a file alone: good enough to hold up a completion."""
    stdin: bool = True
    executes: bool = False
    """Then its answer depends on more than the file and its configuration, and is asked for each time."""
    configs: tuple[str, ...] = ()
    """Files at the root that change its answer."""
    marker: str = ""
    """It needs a project: the file that makes one."""
    fine: tuple[int, ...] = (0, 1)
    """Exit codes with which it has done its work."""
    env: tuple[tuple[str, str], ...] = ()
    program: str = ""
    """If its name is another one."""
    suits: Callable[[Target], bool] = lambda _target: True

    @property
    def command(self) -> str:
        return self.program or self.name


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
_RUFF_CONFIGS = ("pyproject.toml", "ruff.toml", ".ruff.toml")


def _node_arguments(target: Target) -> list[str]:
    module = target.path.endswith(".mjs") or (not target.path.endswith(".cjs") and _MODULE.search(target.data))
    return [*(["--input-type=module"] if module else []), "--check", "-"]


def _compiler(name: str, language: str) -> Linter:
    def arguments(target: Target) -> list[str]:
        folder = target.absolute.rpartition("/")[0]
        options = ["-fsyntax-only", "-Wall", "-fno-diagnostics-show-caret", "-fdiagnostics-color=never"]
        return [*options, "-x", language, "-iquote", folder, "-I", f"{target.root}/include", "-"]

    return Linter(name, arguments, parsing.compiler(name), quick=True, executes=True)


def _ruff(target: Target) -> list[str]:
    return ["check", "--no-cache", "--no-fix", "--output-format=json", "--stdin-filename", target.absolute, "-"]


def _shell(name: bytes) -> Callable[[Target], bool]:
    return lambda target: not target.data.startswith(b"#!") or name in target.data.partition(b"\n")[0]


RUFF = Linter("ruff", _ruff, parsing.ruff, quick=True, configs=_RUFF_CONFIGS)
PARSE = Linter(
    "python",
    lambda target: ["-I", "-S", "-c", _PARSE, target.path],
    parsing.parse_check,
    quick=True,
    program=sys.executable,
)
PYRIGHT = Linter(
    "pyright",
    lambda target: ["--outputjson", target.absolute],
    parsing.pyright,
    stdin=False,
    executes=True,
)
BASEDPYRIGHT = msgspec.structs.replace(PYRIGHT, name="basedpyright", parse=parsing.basedpyright)
NODE = Linter("node", _node_arguments, parsing.node, quick=True)
ESLINT = Linter(
    "eslint",
    lambda target: ["--format=json", "--stdin", "--stdin-filename", target.absolute],
    parsing.eslint,
    executes=True,
)
TSC = Linter(
    "tsc",
    lambda target: ["--noEmit", "--pretty", "false", "-p", f"{target.root}/{target.folder}"],
    parsing.tsc,
    stdin=False,
    executes=True,
    marker="tsconfig.json",
    fine=(0, 1, 2),
)
GCC, GXX = _compiler("gcc", "c"), _compiler("g++", "c++")
CLANG, CLANGXX = _compiler("clang", "c"), _compiler("clang++", "c++")
GOFMT = Linter("gofmt", lambda _target: ["-e", "-l"], parsing.places("gofmt"), quick=True, fine=(0, 1, 2))
GO_VET = Linter(
    "go vet",
    lambda target: ["vet", f"./{target.path.rpartition('/')[0] or '.'}"],
    parsing.places("go vet", "warning"),
    stdin=False,
    executes=True,
    marker="go.mod",
    program="go",
    env=(("GOCACHE", "/tmp/go-cache"), ("GOFLAGS", "-mod=readonly"), ("GOPROXY", "off")),
)
RUSTFMT = Linter("rustfmt", lambda _target: ["--emit", "stdout"], parsing.rustfmt, quick=True)
CARGO = Linter(
    "cargo",
    lambda target: [
        "check",
        "--offline",
        "--quiet",
        "--message-format=json",
        "--manifest-path",
        f"{target.root}/{target.folder}/Cargo.toml",
    ],
    parsing.cargo,
    stdin=False,
    executes=True,
    marker="Cargo.toml",
    fine=(0, 101),
    env=(("CARGO_TARGET_DIR", "/tmp/cargo-target"),),
)
BASH = Linter("bash", lambda _target: ["-n"], parsing.bash, quick=True, fine=(0, 1, 2), suits=_shell(b"sh"))
SHELLCHECK = Linter("shellcheck", lambda _target: ["--format=json1", "-"], parsing.shellcheck)

Group = tuple[Linter, ...]
"""Tools of which the first that can be had is asked."""

_PYTHON: tuple[Group, ...] = ((RUFF, PARSE), (BASEDPYRIGHT, PYRIGHT))
_SCRIPT: tuple[Group, ...] = ((NODE,), (TSC,), (ESLINT,))
_TYPED: tuple[Group, ...] = ((TSC,), (ESLINT,))
_C: tuple[Group, ...] = ((CLANG, GCC),)
_CPP: tuple[Group, ...] = ((CLANGXX, GXX),)
GROUPS: dict[str, tuple[Group, ...]] = {
    **dict.fromkeys(("py", "pyi"), _PYTHON),
    **dict.fromkeys(("js", "mjs", "cjs"), _SCRIPT),
    **dict.fromkeys(("ts", "tsx", "mts", "cts", "jsx"), _TYPED),
    **dict.fromkeys(("c", "h"), _C),
    **dict.fromkeys(("cc", "cpp", "cxx", "hpp", "hh"), _CPP),
    "go": ((GOFMT,), (GO_VET,)),
    "rs": ((RUSTFMT,), (CARGO,)),
    **dict.fromkeys(("sh", "bash"), ((BASH,), (SHELLCHECK,))),
}
"""By the ending of a file's name."""
