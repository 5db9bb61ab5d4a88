"""get_diagnostics with the tools that are really here (T-06)."""

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.unit.adapters.tools.builtin.diagnostics.kit import bwrap, program, tool
from tests.unit.adapters.tools.conftest import Call
from treadle.errors import ToolError
from treadle.ports.toolset import Outcome
from treadle.testing.checker import Canary

REAL = [
    ("a.py", "import os\nprint(y)\n", "ruff", "a.py:2:7: error F821: Undefined name `y` [ruff]"),
    ("a.py", "import os\nprint(y)\n", "ruff", "a.py:1:8: warning F401: `os` imported but unused [ruff]"),
    ("a.c", "int main(void) { return x; }\n", "gcc", "a.c:1:25: error"),
    ("a.cpp", "int main() { retrun 1; }\n", "g++", "a.cpp:1:14: error"),
    ("a.js", "let x = ;\n", "node", "a.js:1:9: error: SyntaxError: Unexpected token ';' [node]"),
    ("a.mjs", "import a from 'b';\nlet x = ;\n", "node", "a.mjs:2:9: error"),
    ("a.sh", "if true; then\n  echo\n", "bash", "a.sh:3: error: syntax error"),
    ("a.sh", 'echo "a\n', "bash", "a.sh:1: error: unexpected EOF"),
    ("a.rs", "fn main() { let x = ; }\n", "rustfmt", "a.rs:1:21: error: expected expression, found `;` [rustfmt]"),
    ("a.json", '{"a": 1,}\n', "", "a.json:1:"),
    ("a.toml", "a = 1\nb = \n", "", "a.toml:2:5: error: Invalid value [toml]"),
    ("a.json", b'{"a": "\xff"}', "", "a.json:1: error"),
]


def need(name: str) -> None:
    """Skip where the program is missing, or there without what it runs: rustfmt may be a proxy of rustup."""
    if name in ("", "ruff"):
        return
    path = shutil.which(name)
    if path is None or subprocess.run([path, "--version"], cwd="/", capture_output=True, check=False).returncode:
        pytest.skip(f"no {name} here that works")


def is_confined(needs: str) -> bool:
    """Compilers are asked in a sandbox only."""
    if needs not in ("gcc", "g++"):
        return False
    if not bwrap():
        pytest.skip("bubblewrap does not work here")
    return True


@pytest.mark.parametrize(("name", "text", "needs", "expected"), REAL)
async def test_what_real_tools_say(
    project: Path, call: Call, name: str, text: str | bytes, needs: str, expected: str
) -> None:
    need(needs)
    (project / name).write_bytes(text.encode() if isinstance(text, str) else text)
    canary = Canary(project)
    outcome = await tool(sandbox=is_confined(needs)).run(call(path=name))
    assert expected in outcome.text
    assert outcome.success  # that there are errors is an answer, not a failure
    assert canary.find_problems() == []  # nothing was written: no cache, no output


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.py", "x = 1\n"),
        ("a.js", "let x = 1;\n"),
        ("a.js", "const App = () => <p>hello</p>;\n"),  # not JavaScript, and not for node to judge
        ("a.mjs", "export const x = 1;\n"),
        ("a.sh", "echo hello\n"),
        ("a.json", "{}\n"),
        ("tsconfig.json", "{ // a comment\n}\n"),
        ("a.c", "int f(void) { return 1; }\n"),
    ],
)
async def test_nothing_is_said_about_good_files(project: Path, call: Call, name: str, text: str) -> None:
    (project / name).write_text(text)
    outcome = await tool().run(call(path=name))
    assert "error" not in outcome.text.replace("No errors", "")


async def test_a_header_that_is_not_found_is_no_error(project: Path, call: Call) -> None:
    need("gcc")
    (project / "a.c").write_text('#include "elsewhere.h"\nint main(void) { return 0; }\n')
    assert (
        "a.c:1:10: warning: elsewhere.h: No such file"
        in (await tool(sandbox=is_confined("gcc")).run(call(path="a.c"))).text
    )


async def test_headers_beside_the_file_are_found(project: Path, call: Call) -> None:
    need("gcc")
    (project / "src").mkdir()
    (project / "src/b.h").write_text("int b(void);\n")
    (project / "src/a.c").write_text('#include "b.h"\nint main(void) { return b(); }\n')
    assert (await tool(sandbox=is_confined("gcc")).run(call(path="src/a.c"))).text.startswith("No errors")


async def test_an_include_shows_nothing_of_outside_without_a_sandbox(
    project: Path, call: Call, tmp_path: Path
) -> None:  # S-01
    need("gcc")
    (tmp_path / "key").write_text("BEGIN-SECRET-KEY\n")
    (project / "a.c").write_text(f'#include "{tmp_path}/key"\n')
    outcome = await tool().run(call(path="a.c"))
    assert "SECRET" not in outcome.text
    assert "Not asked without a sandbox" in outcome.text


async def test_a_tool_is_not_looked_up_by_what_the_project_says(project: Path, call: Call, tmp_path: Path) -> None:
    """S-09: shims (of rustup, asdf …) run the program that a file of the working directory or above it names."""
    shim = tmp_path / "bin/shellcheck"
    shim.parent.mkdir()
    shim.write_text('#!/bin/sh\n[ -f ./shim.conf ] && exec "$(cat ./shim.conf)"\necho \'{"comments": []}\'\n')
    shim.chmod(0o755)
    evil = project / "evil"
    evil.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    evil.chmod(0o755)
    (project / "shim.conf").write_text(str(evil))
    (project / "a.sh").write_text("echo hello\n")
    outcome = await tool(f"{shim.parent}:/usr/bin:/bin").run(call(path="a.sh"))
    assert "shellcheck" in outcome.text
    assert not (tmp_path / "ran").exists()


async def test_python_is_parsed_where_there_is_no_linter(project: Path, call: Call, tmp_path: Path) -> None:
    (project / "a.py").write_text("def f(:\n")
    outcome = await _without_ruff(project, call, tmp_path)
    assert "a.py:1:7: error: invalid syntax [python]" in outcome.text


async def _without_ruff(project: Path, call: Call, tmp_path: Path) -> Outcome:
    from treadle.adapters.tools.builtin.diagnostics import linters, running
    from treadle.adapters.workspace.root import Root

    around = running.LinterContext(Root(str(project)), {"PATH": str(tmp_path)})
    target = linters.Target(str(project), "a.py", (project / "a.py").read_bytes())
    report = await running.Asking().ask((linters.PARSE,), target, around)
    return Outcome("\n".join(each.text for each in report.diagnostics))


async def test_several_files_at_once(project: Path, call: Call) -> None:
    (project / "a.json").write_text("{")
    (project / "b.json").write_text("[")
    (project / "c.xyz").write_text("?")
    outcome = await tool().run(call(paths=["b.json", "a.json", "c.xyz"]))
    assert outcome.text.splitlines()[0] == "2 errors"
    assert outcome.text.index("a.json") < outcome.text.index("b.json")
    assert "No tool is known or installed for: c.xyz." in outcome.text


async def test_a_check_fails_on_errors_and_only_on_errors(project: Path, call: Call) -> None:  # L-16
    (project / "a.json").write_text("{")
    strict = {"quick": True, "strict": True}
    assert not (await tool().run(call(paths=["a.json"], **strict))).success
    (project / "a.json").write_text("{}")
    assert (await tool().run(call(paths=["a.json", "gone.json"], **strict))).success


async def test_a_list_that_never_ends_is_cut(project: Path, call: Call) -> None:
    (project / "a.py").write_text("".join(f"print(x{n})\n" for n in range(300)))
    outcome = await tool().run(call(path="a.py"))
    assert "300 errors" in outcome.text
    assert "[200 more]" in outcome.text
    assert len(outcome.text.splitlines()) < 110


@pytest.mark.parametrize("path", ["../outside.py", "/etc/passwd", "none.py", "folder", "fifo.py"])
async def test_only_files_of_the_project_are_looked_at(project: Path, call: Call, path: str) -> None:  # S-01
    import os

    (project.parent / "outside.py").write_text("print(secret)\n")
    (project / "folder").mkdir()
    os.mkfifo(project / "fifo.py")
    with pytest.raises(ToolError):
        await tool().run(call(path=path))


async def test_a_link_that_leads_out_is_not_followed(project: Path, call: Call) -> None:
    (project.parent / "outside.py").write_text("print(secret)\n")
    (project / "a.py").symlink_to("../outside.py")
    with pytest.raises(ToolError):
        await tool().run(call(path="a.py"))


async def test_no_path_is_an_explaining_error(call: Call) -> None:
    with pytest.raises(ToolError, match="Name a file"):
        await tool().run(call())


async def test_names_with_control_characters_are_shown_as_escapes(project: Path, call: Call) -> None:  # S-12
    (project / "a\x1b[31m.json").write_text("{")
    outcome = await tool().run(call(path="a\x1b[31m.json"))
    assert "\x1b" not in outcome.text
    assert r"a\x1b[31m.json:1:2: error" in outcome.text


# -- whose tool it is -------------------------------------------------------------------------------------------------

RUFF = """
print(json.dumps([{"code": "X1", "message": "seen by " + sys.argv[0], "location": {"row": 1, "column": 1}}]))
"""


async def test_a_tool_of_the_project_is_not_run_without_a_sandbox(project: Path, call: Call, tmp_path: Path) -> None:
    """S-09: every program in the repository is its code, wherever the search path leads."""
    project_tool = program(project / ".venv/bin", "shellcheck", "open('ran', 'w')\n")
    (project / "a.sh").write_text("echo\n")
    outcome = await tool(f"{project_tool.parent}:/usr/bin:/bin").run(call(path="a.sh"))
    assert not (project / "ran").exists()
    assert "Not installed: shellcheck." in outcome.text


async def test_a_link_into_the_project_is_the_project(project: Path, call: Call, tmp_path: Path) -> None:
    project_tool = program(project / "bin", "shellcheck", "open('ran', 'w')\n")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/shellcheck").symlink_to(project_tool)
    (project / "a.sh").write_text("echo\n")
    await tool(f"{tmp_path}/bin:/usr/bin:/bin").run(call(path="a.sh"))
    assert not (project / "ran").exists()


@pytest.mark.skipif(not bwrap(), reason="bubblewrap does not work here")
async def test_a_tool_of_the_project_is_preferred_in_a_sandbox(project: Path, call: Call) -> None:
    program(project / ".venv/bin", "ruff", RUFF)
    (project / "a.py").write_text("x = 1\n")
    outcome = await tool(sandbox=True).run(call(path="a.py"))
    assert f"seen by {project}/.venv/bin/ruff" in outcome.text
    assert outcome.sandbox.startswith("bubblewrap")


@pytest.mark.skipif(not bwrap(), reason="bubblewrap does not work here")
async def test_a_tool_in_the_sandbox_cannot_write_to_the_project(project: Path, call: Call) -> None:
    body = "try:\n    open('touched', 'w')\nexcept OSError as error:\n    print(json.dumps({'comments': [{'code': 1,"
    body += " 'message': 'refused', 'level': 'error'}]}))\n"
    program(project / ".venv/bin", "shellcheck", body)
    (project / "a.sh").write_text("echo\n")
    outcome = await tool(sandbox=True).run(call(path="a.sh"))
    assert "error SC1: refused [shellcheck]" in outcome.text
    assert not (project / "touched").exists()


async def test_no_secret_reaches_a_tool(project: Path, call: Call, tmp_path: Path) -> None:  # M-13
    body = "print(json.dumps({'comments': [{'code': 1, 'message': str(sorted(os.environ))}]}))\n"
    program(tmp_path / "bin", "shellcheck", body)
    (project / "a.sh").write_text("echo\n")
    outcome = await tool(f"{tmp_path}/bin:/usr/bin:/bin").run(call(path="a.sh"))
    assert "PATH" in outcome.text
    assert "SECRET_KEY" not in outcome.text


# -- remembering ------------------------------------------------------------------------------------------------------

COUNTED = "open(%r, 'a').write('x')\nprint(json.dumps({'comments': []}))\n"


async def test_the_same_bytes_are_looked_at_once(project: Path, call: Call, tmp_path: Path) -> None:
    counter = tmp_path / "counter"
    program(tmp_path / "bin", "shellcheck", COUNTED % str(counter))
    checker = tool(f"{tmp_path}/bin:/usr/bin:/bin")
    (project / "a.sh").write_text("echo 1\n")
    for _ in range(3):
        await checker.run(call(path="a.sh"))
    assert counter.read_text() == "x"
    (project / "a.sh").write_text("echo 2\n")
    await checker.run(call(path="a.sh"))
    assert counter.read_text() == "xx"
    program(tmp_path / "bin", "shellcheck", COUNTED % str(counter) + "# another version\n")
    await checker.run(call(path="a.sh"))
    assert counter.read_text() == "xxx"


async def test_a_changed_configuration_is_noticed(project: Path, call: Call) -> None:
    (project / "a.py").write_text("import os\n")
    checker = tool()
    assert "F401" in (await checker.run(call(path="a.py"))).text
    (project / "ruff.toml").write_text('[lint]\nignore = ["F401"]\n')
    assert "F401" not in (await checker.run(call(path="a.py"))).text
