"""README and the first guide are run as they are written: every shell block, in an empty home, with one key (U-10)."""

import os
import re
import stat
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from treadle.base.types import JsonObject
from treadle.testing.fake_anthropic import FakeAnthropic
from treadle.testing.fake_model import Reply

pytestmark = pytest.mark.thorough

ROOT = Path(__file__).parents[2]
PATIENCE_S = 300
STUBS = ("pipx", "uv")
"""Installers: the programs that they would install are here already."""
APP = """\
import os, pty, sys
child, screen = pty.fork()
if not child:
    os.environ["TERM"] = "xterm-256color"
    os.execv(sys.executable, [sys.executable, "-m", "treadle", *sys.argv[1:]])
shown, pressed = b"", 0
while True:
    try:
        shown += os.read(screen, 65536)
    except OSError:
        break
    if b"using anthropic:" in shown if not pressed else b"again" in shown:
        os.write(screen, b"\\x03")
        pressed, shown = pressed + 1, b""
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
"""The app in a terminal: it names its model and the reason, and ends at the second Ctrl-C."""


def shell_blocks(page: str) -> str:
    return "\n".join(re.findall(r"```sh\n(.*?)```", (ROOT / page).read_text(encoding="utf-8"), flags=re.S))


def reply(request: JsonObject) -> Reply:
    """Writes a file for every message of a person, and says so."""
    messages = request["messages"]
    assert isinstance(messages, list)
    content = messages[-1]["content"]
    has_result = not isinstance(content, str) and any(part["type"] == "tool_result" for part in content)
    arguments = {"path": "tests/test_footer.py", "content": f"# {len(messages)}\n"}
    return Reply(text="Here it is.") if has_result else Reply(calls=[("write_file", arguments)])


def program(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """An empty home, a project under git with a change, and the programs that the pages call."""
    for name in ("bin", "user", "my-project"):
        (tmp_path / name).mkdir()
    project = tmp_path / "my-project"
    (project / "footer.txt").write_text("one\n")
    (project / "Makefile").write_text("test:\n\t@true\nclean:\n\t@true\n")
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@example.org", "-C", str(project)]
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "first"]):
        subprocess.run([*git, *words], check=True)
    (project / "footer.txt").write_text("two\n")
    (tmp_path / "app.py").write_text(APP)
    python = f'"{sys.executable}"'
    app = f'[ $# -gt 0 ] || exec {python} "{tmp_path}/app.py"\n'
    program(tmp_path / "bin" / "treadle", f'#!/bin/sh\n{app}exec {python} -m treadle "$@"\n')
    for name in STUBS:
        program(tmp_path / "bin" / name, "#!/bin/sh\nexit 0\n")
    return tmp_path


def run(place: Path, script: str, cwd: Path) -> str:
    env = {
        "PATH": f"{place / 'bin'}:{os.environ['PATH']}",
        "HOME": str(place / "user"),
        "PYTHONPATH": str(ROOT / "src"),
        "LANG": "C.UTF-8",
    }
    with FakeAnthropic(reply) as fake:
        process = subprocess.run(
            ["bash", "-e", "-o", "pipefail", "-c", script],
            cwd=cwd,
            env={**env, "ANTHROPIC_BASE_URL": fake.base_url},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=PATIENCE_S,
        )
    assert process.returncode == 0, process.stdout
    return process.stdout


def without(script: str, words: Sequence[str]) -> str:
    return "\n".join(line for line in script.splitlines() if not line.startswith(tuple(words)))


def test_readme(place: Path) -> None:
    """Only `make` is left out: those lines are for a checkout, and set it up anew."""
    printed = run(place, without(shell_blocks("README.md"), ["make "]), place / "my-project")
    assert "using anthropic:claude-opus-5-5 (ANTHROPIC_API_KEY is the only key that is set)" in printed
    assert "Here it is." in printed
    assert "undone: 1 file" in printed


def test_getting_started(place: Path) -> None:
    printed = run(place, shell_blocks("docs/guide/getting-started.md"), place)
    assert "check make test … passed" in printed
    assert "undone: 1 file" in printed
    assert "redone:" in printed
    assert "nothing in the project was changed" in printed
