"""Completion in a real shell: commands, options, their values, chats (U-01)."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.scenario.command_line import CommandLine
from treadle.frontends.cli import COMMANDS

pytestmark = pytest.mark.thorough(one_of=8)


@pytest.fixture
def program(cli: CommandLine) -> str:
    """`treadle` as a program on PATH."""
    folder = cli.folder / "bin"
    folder.mkdir()
    path = folder / "treadle"
    path.write_text(f'#!/bin/sh\nexec {sys.executable} -m treadle "$@"\n')
    path.chmod(0o755)
    cli.environment["PATH"] = f"{folder}:{cli.environment['PATH']}"
    return str(path)


def complete_in_bash(cli: CommandLine, script: Path, *words: str) -> list[str]:
    """Return the words that bash offers for the last word."""
    words_of_shell = 'COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _treadle_completion "$1"'
    line = f'source {script}; {words_of_shell}; printf "%s\\n" "${{COMPREPLY[@]}}"'
    process = subprocess.run(
        ["bash", "-c", line, "bash", *words], cwd=cli.project, env=cli.environment, capture_output=True, text=True
    )
    assert process.stderr == ""
    return process.stdout.split()


@pytest.mark.thorough(one_of=8)
@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_in_bash(cli: CommandLine, program: str) -> None:
    script = cli.folder / "completion.bash"
    script.write_text(cli("completion", "bash").out)
    assert complete_in_bash(cli, script, program, "") == [*COMMANDS]
    assert complete_in_bash(cli, script, program, "re") == ["resume", "review", "redo", "replay"]
    assert complete_in_bash(cli, script, program, "run", "--mode", "auto") == ["auto-edit", "autopilot"]
    assert "--json" in complete_in_bash(cli, script, program, "chats", "--")
    assert complete_in_bash(cli, script, program, "completion", "f") == ["fish"]
    assert complete_in_bash(cli, script, program, "show", "") == ["last"]
    model = cli.script('[[turn]]\ntext = "Hello."\n')
    chats = [cli("run", f"Say {word}.", "--model", model, "--json").events[0]["chat"] for word in ("one", "two")]
    for words in (("show", "c_"), ("run", "--chat", "c_")):
        assert complete_in_bash(cli, script, program, *words) == [*reversed(chats)]
    listed = cli(env={"_TREADLE_COMPLETE": "zsh_complete", "COMP_WORDS": "treadle show c_", "COMP_CWORD": "2"})
    assert listed.out == f"plain\n{chats[1]}\nsay two.\nplain\n{chats[0]}\nsay one.\n"


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_in_other_shells_it_can_be_read(cli: CommandLine, shell: str) -> None:
    script = cli("completion", shell).out
    assert f"_TREADLE_COMPLETE={shell}_complete" in script
    if shutil.which(shell) is None:
        pytest.skip(f"needs {shell}")
    read = subprocess.run([shell, "-n"], input=script, capture_output=True, text=True)
    assert (read.returncode, read.stderr) == (0, "")


@pytest.mark.thorough(one_of=8)
@pytest.mark.skipif(shutil.which("fish") is None, reason="needs fish")
def test_in_fish(cli: CommandLine, program: str) -> None:
    def offers(line: str) -> list[str]:
        words = ["fish", "--no-config", "-c", "treadle completion fish | source; complete -C $argv", line]
        process = subprocess.run(words, cwd=cli.project, env=cli.environment, capture_output=True, text=True)
        assert process.stderr == ""
        return [row.partition("\t")[0] for row in process.stdout.splitlines()]

    assert set(offers("treadle wor")) == {"worker", "world"}
    assert set(offers("treadle run --mode auto")) == {"auto-edit", "autopilot"}
    assert "last" in offers("treadle show ")


def test_without_a_database_nothing_is_offered(cli: CommandLine) -> None:
    asked = {"_TREADLE_COMPLETE": "bash_complete", "COMP_WORDS": "treadle show c", "COMP_CWORD": "2"}
    assert cli(env={"TREADLE_HOME": "/nonexistent", **asked}).out == "\n"
    assert cli(env={"TREADLE_STORE": "postgresql://nobody@nowhere/x", **asked}).out == "\n"
    assert cli("completion", "powershell").code == 2
