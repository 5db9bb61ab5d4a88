"""Tools that are not on every machine, by stand-ins that print what is documented of them (T-06)."""

import asyncio
import json
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.unit.adapters.tools.builtin.diagnostics.kit import bwrap, program, tool
from tests.unit.adapters.tools.conftest import Call
from treadle.adapters.tools.builtin.diagnostics import running

IN_SANDBOX = pytest.mark.skipif(not bwrap(), reason="bubblewrap does not work here")

PYRIGHT = {
    "generalDiagnostics": [
        {
            "file": "a.py",
            "severity": "error",
            "message": '"x" is not defined',
            "range": {"start": {"line": 2, "character": 4}, "end": {"line": 2, "character": 5}},
            "rule": "reportUndefinedVariable",
        }
    ]
}
ESLINT = [
    {"messages": [{"ruleId": "no-undef", "severity": 2, "message": "'x' is not defined.", "line": 1, "column": 5}]}
]
TSC = "src/a.ts(3,7): error TS2322: Type 'string' is not assignable to type 'number'.\nother.ts(1,1): error TS1: No.\n"
SHELLCHECK = {"comments": [{"line": 2, "column": 6, "level": "warning", "code": 2086, "message": "Double quote it."}]}
VET = "# example\nvet: ./a.go:4:2: undeclared name: x\n./a.go:5:3: unreachable code\n"


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A loaded machine is no reason to give up."""
    monkeypatch.setattr(running, "TIMEOUT_S", 90.0)
    monkeypatch.setattr(running, "SETTLE_S", 60.0)


def says(value: object, code: int = 1) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return f"sys.stdout.write({text!r}); sys.exit({code})\n"


CASES = [
    ("pyright", says(PYRIGHT), "a.py", "", 'a.py:3:5: error reportUndefinedVariable: "x" is not defined [pyright]'),
    ("basedpyright", says(PYRIGHT), "a.py", "", '"x" is not defined [basedpyright]'),
    ("eslint", says(ESLINT), "a.js", "", "a.js:1:5: error no-undef: 'x' is not defined. [eslint]"),
    ("tsc", says(TSC, 2), "src/a.ts", "tsconfig.json", "src/a.ts:3:7: error TS2322: Type 'string' is not"),
    ("shellcheck", says(SHELLCHECK), "a.sh", "", "a.sh:2:6: warning SC2086: Double quote it. [shellcheck]"),
    (
        "go",
        f"sys.stderr.write({VET!r}); sys.exit(1)",
        "a.go",
        "go.mod",
        "a.go:4:2: warning: undeclared name: x [go vet]",
    ),
]


@IN_SANDBOX
@pytest.mark.parametrize(("name", "body", "file", "marker", "expected"), CASES, ids=[case[0] for case in CASES])
async def test_what_it_prints_is_understood(
    project: Path, call: Call, tmp_path: Path, name: str, body: str, file: str, marker: str, expected: str
) -> None:
    program(tmp_path / "bin", name, body)
    (project / file).parent.mkdir(exist_ok=True)
    (project / file).write_text("")
    if marker:
        (project / marker).write_text("{}")
    outcome = await tool(f"{tmp_path}/bin:/usr/bin:/bin", sandbox=True).run(call(path=file))
    assert expected in outcome.text


@IN_SANDBOX
async def test_cargo_is_asked_for_json(project: Path, call: Call, tmp_path: Path) -> None:
    span = {"file_name": "src/main.rs", "line_start": 3, "column_start": 9, "is_primary": True}
    error = {"level": "error", "message": "mismatched types", "code": {"code": "E0308"}, "spans": [span]}
    lines = [{"reason": "compiler-artifact"}, {"reason": "compiler-message", "message": error}]
    output = "".join(json.dumps(line) + "\n" for line in lines)
    program(tmp_path / "bin", "cargo", f"assert '--message-format=json' in sys.argv\n{says(output, 101)}")
    (project / "src").mkdir()
    (project / "src/main.rs").write_text("fn main() {}\n")
    (project / "Cargo.toml").write_text("")
    outcome = await tool(f"{tmp_path}/bin:/usr/bin:/bin", sandbox=True).run(call(path="src/main.rs"))
    assert "src/main.rs:3:9: error E0308: mismatched types [cargo]" in outcome.text


@pytest.mark.parametrize("name", ["pyright", "eslint"])
async def test_what_runs_the_projects_code_is_not_asked_without_a_sandbox(
    project: Path, call: Call, tmp_path: Path, name: str
) -> None:  # S-09
    program(tmp_path / "bin", name, f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    (project / "a.py").write_text("")
    (project / "a.js").write_text("")
    outcome = await tool(f"{tmp_path}/bin:/usr/bin:/bin").run(call(paths=["a.py", "a.js"]))
    assert f"Not asked without a sandbox, because it could run the project's code or read files outside: {name}." in (
        outcome.text
    )
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (
            "sys.stderr.write('no such option\\n'); sys.exit(64)",
            "shellcheck could not run (exit code 64): no such option.",
        ),
        ("print('hello')", "its output is no JSON"),
        ("print('[1]')", "shellcheck"),
        ("os.kill(os.getpid(), 9)", "shellcheck could not run (exit code -9)"),
    ],
)
async def test_a_tool_that_fails_is_named(project: Path, call: Call, tmp_path: Path, body: str, expected: str) -> None:
    program(tmp_path / "bin", "shellcheck", body)
    (project / "a.sh").write_text("echo\n")
    outcome = await tool(f"{tmp_path}/bin:/usr/bin:/bin").run(call(path="a.sh"))
    assert expected in outcome.text
    assert outcome.success


RUSTUP = """error: rustup could not choose a version of rustfmt to run, because no default is configured.
help: run 'rustup default stable' to download the latest stable release of Rust
"""
COULD_NOT_RUN = [
    ("rustfmt", "a.rs", "", f"sys.stderr.write({RUSTUP!r}); sys.exit(1)", "rustup could not choose a version"),
    (
        "node",
        "a.js",
        "",
        "sys.stderr.write('bwrap: execvp node: No such file\\n'); sys.exit(1)",
        "execvp node: No such",
    ),
    ("gofmt", "a.go", "", "sys.stderr.write('cannot find GOROOT\\n'); sys.exit(2)", "cannot find GOROOT"),
    ("bash", "a.sh", "", "sys.exit(1)", "bash could not run (exit code 1)"),
    ("ruff", "a.py", "", "sys.stderr.write('Traceback\\n  x\\nKeyError: 1\\n'); sys.exit(1)", "KeyError: 1"),
    ("tsc", "a.ts", "tsconfig.json", "print('error TS5023: Unknown option.'); sys.exit(1)", "TS5023: Unknown option"),
    ("cargo", "a.rs", "Cargo.toml", "sys.stderr.write('error: no lock file\\n'); sys.exit(101)", "no lock file"),
    ("go", "a.go", "go.mod", "sys.stderr.write('go: no module\\n'); sys.exit(1)", "go vet could not run"),
]


@IN_SANDBOX
@pytest.mark.parametrize(("name", "file", "marker", "body", "expected"), COULD_NOT_RUN, ids=lambda each: str(each)[:12])
async def test_a_tool_that_could_not_run_is_not_taken_for_a_clean_file(
    project: Path, call: Call, tmp_path: Path, name: str, file: str, marker: str, body: str, expected: str
) -> None:  # T-06
    program(project / ".venv/bin" if name == "ruff" else tmp_path / "bin", name, body)
    (project / file).write_text("")
    if marker:
        (project / marker).write_text("{}")
    outcome = await tool(f"{tmp_path}/bin:/bin", sandbox=True).run(call(path=file))
    assert expected in outcome.text
    assert "could not run" in outcome.text
    assert f"Asked: {name}" not in outcome.text


@IN_SANDBOX
async def test_a_check_says_which_tool_could_not_run(project: Path, call: Call, tmp_path: Path) -> None:  # T-06, L-16
    program(tmp_path / "bin", "rustfmt", f"sys.stderr.write({RUSTUP!r}); sys.exit(1)")
    (project / "a.rs").write_text("fn main() {}\n")
    checker = tool(f"{tmp_path}/bin:/bin", sandbox=True)
    outcome = await checker.run(call(paths=["a.rs"], quick=True, strict=True))
    assert outcome.success
    assert "rustfmt could not run" in outcome.text
    assert "No errors" not in outcome.text


@IN_SANDBOX
async def test_another_tool_is_asked_in_place_of_one_that_could_not_run(
    project: Path, call: Call, tmp_path: Path
) -> None:
    program(project / ".venv/bin", "ruff", "sys.exit(2)")
    (project / "a.py").write_text("def f(:\n")
    outcome = await tool(f"{tmp_path}/bin:/bin", sandbox=True).run(call(path="a.py"))
    assert "a.py:1:7: error: invalid syntax [python]" in outcome.text
    assert "ruff could not run (exit code 2)" in outcome.text


@IN_SANDBOX
async def test_a_program_that_the_sandbox_hides_could_not_run(project: Path, call: Call, tmp_path: Path) -> None:
    """The link is visible, the folder it leads to is not: as with a node that a version manager keeps."""
    real = program(tmp_path / "hidden", "node", "sys.exit(0)")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/node").symlink_to(real)
    (project / "a.js").write_text("let x = 1;\n")
    outcome = await tool(f"{tmp_path}/bin:/bin", sandbox=True).run(call(path="a.js"))
    assert "node could not run" in outcome.text
    assert "No errors" not in outcome.text


async def test_a_tool_that_hangs_is_ended_with_its_children(
    project: Path, call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pids = tmp_path / "pids"
    body = f"child = os.fork()\nopen({str(pids)!r}, 'a').write(f'{{os.getpid()}}\\n')\nimport time\ntime.sleep(600)\n"
    program(tmp_path / "bin", "shellcheck", body)
    monkeypatch.setattr(running, "TIMEOUT_S", 8.0)
    (project / "a.sh").write_text("echo\n")
    outcome = await tool(f"{tmp_path}/bin:/usr/bin:/bin").run(call(path="a.sh"))
    assert "shellcheck gave no answer in 8 seconds." in outcome.text
    assert pids.exists()
    for pid in pids.read_text().split():
        await wait_for_exit(int(pid))


async def test_leaving_ends_a_tool(project: Path, call: Call, tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    body = f"open({str(pid)!r} + '.new', 'w').write(str(os.getpid()))\nos.rename({str(pid)!r} + '.new', {str(pid)!r})\n"
    program(tmp_path / "bin", "shellcheck", body + "import time\ntime.sleep(600)\n")
    (project / "a.sh").write_text("echo\n")
    task = asyncio.create_task(tool(f"{tmp_path}/bin:/usr/bin:/bin").run(call(path="a.sh")))
    await until(pid.exists)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await wait_for_exit(int(pid.read_text()))


async def wait_for_exit(pid: int) -> None:
    """Wait until a process has ended; a zombie has."""

    def has_ended() -> bool:
        try:
            return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
        except (FileNotFoundError, ProcessLookupError):
            return True

    await until(has_ended)


async def until(fact: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not fact():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.01)


# -- language servers -------------------------------------------------------------------------------------------------

SERVER = """
def read():
    length = 0
    while (line := sys.stdin.buffer.readline()) not in (b"\\r\\n", b""):
        if line.lower().startswith(b"content-length:"):
            length = int(line[15:])
    return json.loads(sys.stdin.buffer.read(length)) if length else sys.exit(0)

def send(message):
    body = json.dumps({"jsonrpc": "2.0", **message}).encode()
    sys.stdout.buffer.write(b"Content-Length: %d\\r\\nContent-Type: x\\r\\n\\r\\n%b" % (len(body), body))
    sys.stdout.buffer.flush()

def item(text, line=0, **more):
    at = {"line": line, "character": 2}
    return {"range": {"start": at, "end": at}, "message": text, **more}
"""
PUSHES = """
while True:
    message = read()
    match message.get("method"):
        case "initialize":
            send({"id": 99, "method": "workspace/configuration", "params": {"items": [{}, {}]}})
            assert read()["result"] == [None, None]
            send({"id": message["id"], "result": {"capabilities": {}}})
        case "textDocument/didOpen":
            uri = message["params"]["textDocument"]["uri"]
            text = message["params"]["textDocument"]["text"]
            method = "textDocument/publishDiagnostics"
            send({"method": method, "params": {"uri": uri + "x", "diagnostics": [item("not this file")]}})
            send({"method": method, "params": {"uri": uri, "diagnostics": []}})
            found = [item("saw " + text.strip(), 3, severity=2, code="W1", source="stand-in"), item("bad")]
            send({"method": method, "params": {"uri": uri, "diagnostics": found}})
        case "shutdown":
            send({"id": message["id"], "result": None})
        case "exit":
            sys.exit(0)
"""
PULLS = """
while True:
    message = read()
    match message.get("method"):
        case "initialize":
            send({"id": message["id"], "result": {"capabilities": {"diagnosticProvider": {}}}})
        case "textDocument/diagnostic":
            send({"id": message["id"], "result": {"kind": "full", "items": [item("pulled", 1, severity=1)]}})
"""


@IN_SANDBOX
@pytest.mark.parametrize(
    ("body", "expected_lines"),
    [
        (PUSHES, ["a.go:4:3: warning W1: saw package a [stand-in]", "a.go:1:3: error: bad [gopls]"]),
        (PULLS, ["a.go:2:3: error: pulled [gopls]"]),
        ("sys.exit(3)\n", ["gopls could not be asked: it went away."]),
        ("print('Hello!\\n\\n'); sys.stdout.flush()\n", ["gopls could not be asked"]),
        (
            "m = read(); send({'id': m['id'], 'error': {'code': 1, 'message': 'not today'}})\n",
            ["gopls could not be asked: initialize was refused: not today."],
        ),
    ],
)
async def test_a_language_server_is_asked(
    project: Path, call: Call, tmp_path: Path, body: str, expected_lines: list[str]
) -> None:
    program(tmp_path / "bin", "gopls", SERVER + body)
    (project / "a.go").write_text("package a\n")
    outcome = await tool(f"{tmp_path}/bin:/usr/bin:/bin", sandbox=True).run(call(path="a.go"))
    for line in expected_lines:
        assert line in outcome.text


@IN_SANDBOX
async def test_a_silent_language_server_is_given_up(
    project: Path, call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(tmp_path / "bin", "gopls", "import time\ntime.sleep(600)\n")
    monkeypatch.setattr(running, "TIMEOUT_S", 1.0)
    (project / "a.go").write_text("package a\n")
    outcome = await tool(f"{tmp_path}/bin:/usr/bin:/bin", sandbox=True).run(call(path="a.go"))
    assert "gopls gave no answer in 1 seconds." in outcome.text


async def test_a_language_server_needs_a_sandbox(project: Path, call: Call, tmp_path: Path) -> None:
    program(tmp_path / "bin", "gopls", f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    (project / "a.go").write_text("package a\n")
    outcome = await tool(f"{tmp_path}/bin:{os.defpath}").run(call(path="a.go"))
    assert "Not asked without a sandbox" in outcome.text
    assert "gopls" in outcome.text
    assert not (tmp_path / "ran").exists()
