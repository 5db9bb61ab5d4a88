"""Which modules start programs, and that git of a project is run by one of them only: read off the sources (S-09,
S-19). A new place is listed here with the program it runs and why that is no stranger's outside of a sandbox."""

import ast
from pathlib import Path
from typing import NamedTuple

import pytest

import treadle

SOURCES = Path(treadle.__file__).parent

STARTERS = {
    "run_blocking", "run_program", "start_blocking", "start_program", "Program", "Launch", "Popen",
    "check_output", "check_call", "getoutput",
    "create_subprocess_exec", "create_subprocess_shell", "subprocess_exec", "subprocess_shell",
    "posix_spawn", "posix_spawnp", "execv", "execve", "execvp", "execvpe", "execl", "execle", "execlp", "execlpe",
    "spawnv", "spawnve", "spawnvp", "spawnvpe", "spawnl", "spawnle", "spawnlp", "spawnlpe", "system", "popen",
}  # fmt: skip

PLACES = {
    "base.subprocesses": "the one way to run a program to its end",
    "adapters.sandbox": "the sandbox itself: what it confines, its supervisors, its trials",
    "adapters.workspace.git": "git, confined",
    "adapters.workspace.history.walk": "find of the machine, never of the project, with fixed arguments, no settings",
    "adapters.workspace.search.search": "the search program of the machine, without settings of a project",
    "adapters.tools.hooks": "the user's own hooks; those of a project only trusted and confined",
    "adapters.tools.builtin.diagnostics.running": (
        "linters: confined, or of the machine and such as execute nothing; language servers, confined"
    ),
    "adapters.models.command_line": "programs that the user named as models",
    "adapters.models.gemini.vertex": "the user's own gcloud",
    "adapters.models.copilot": "the user's own gh",
    "adapters.models.local": "the model of this machine",
    "frontends.cli.commands.demo": "Treadle itself, in a project of its own making",
    "library.evaluation.attempts": "git of a repository that the user names to evaluate, without hooks and fetches",
    "adapters.mcp.transport": "MCP servers: the user's own; of a project only trusted and, by default, confined",
    "frontends.server.render_process": "Treadle itself: the process that renders texts",
    "frontends.tui.commands": "Treadle itself, for /doctor",
    "frontends.tui.desktop": "the user's own editor, and the user's own program for the clipboard",
    "library.worlds.home": "Treadle itself, the holder of a world; and what a person runs in a world",
}
GIT = {
    "adapters.workspace.git": "confined",
    "adapters.sandbox.places": "asks for the user's own settings, apart from any project",
    "frontends.cli.commands.doctor": "only looks whether there is one",
    "library.evaluation.attempts": "a repository that the user names, without hooks, helpers and fetches",
}


class SourceFindings(NamedTuple):
    """Modules that start programs, and those that name git."""

    starting: set[str]
    naming_git: set[str]


@pytest.fixture(scope="module")
def source_findings() -> SourceFindings:
    """Read off all sources, once: that takes seconds."""
    findings = SourceFindings(set(), set())
    for file in sorted(SOURCES.rglob("*.py")):
        name = ".".join(file.relative_to(SOURCES).with_suffix("").parts)
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and starts(node):
                findings.starting.add(name)
            if names_git(node):
                findings.naming_git.add(name)
    return findings


def starts(call: ast.Call) -> bool:
    match call.func:
        case ast.Attribute(value=ast.Name(id="subprocess")):
            return True
        case ast.Attribute(attr=name) | ast.Name(id=name):
            return name in STARTERS
    return False


def names_git(node: ast.AST) -> bool:
    """`git` as the first word of a line, or as a program that is looked for."""
    match node:
        case ast.List(elts=[ast.Constant(value=str(first)), *_]) | ast.Tuple(elts=[ast.Constant(value=str(first)), *_]):
            return first.rpartition("/")[2] == "git" and isinstance(node, ast.List)
        case ast.BoolOp(values=values):
            return any(isinstance(each, ast.Constant) and each.value == "git" for each in values)
        case ast.Call(
            func=ast.Attribute(attr="which") | ast.Name(id="which"), args=[ast.Constant(value=str(first)), *_]
        ):
            return first == "git"
        case ast.Call(args=[ast.Constant(value=str(first)), *_]):
            return starts(node) and first.split()[:1] == ["git"]
    return False


def within(name: str, places: dict[str, str]) -> bool:
    return any(name == place or name.startswith(f"{place}.") for place in places)


@pytest.mark.thorough(one_of=8)
def test_programs_are_started_in_known_places_only(source_findings: SourceFindings) -> None:
    assert sorted(name for name in source_findings.starting if not within(name, PLACES)) == []
    stale_places = [
        place for place in PLACES if not any(within(name, {place: ""}) for name in source_findings.starting)
    ]
    assert stale_places == [], "nothing is started there any more: take it out of the list"


def test_git_is_run_by_one_module_only(source_findings: SourceFindings) -> None:
    assert sorted(source_findings.naming_git - GIT.keys()) == []
    assert sorted(GIT.keys() - source_findings.naming_git) == []


def test_a_new_place_would_be_seen() -> None:
    for line in (
        'subprocess.run(["git", "status"])',
        'await asyncio.create_subprocess_exec("git", "diff")',
        'run_blocking(Launch(["/usr/bin/git", "log"], {}), keep, 1.0)',
        'os.system("git status")',
        'program = shutil.which("git")',
        'program = found or "git"',
    ):
        tree = ast.parse(f"async def f():\n    {line}")
        assert any(names_git(node) for node in ast.walk(tree)), line
