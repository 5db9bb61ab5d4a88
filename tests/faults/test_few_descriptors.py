"""Fault 13: a user who may have few open files. Commands run all the same, and their shell carries over (T-14)."""

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.scenario.command_line import CommandLine

pytestmark = pytest.mark.thorough(one_of=8)

CALLS = """
[[turn]]
call = [{ name = "run_command", args = { command = "mkdir sub; cd sub; export WORD=carried; echo one" } }]
[[turn]]
call = [{ name = "run_command", args = { command = "echo $WORD; basename $PWD; echo x > made" } }]
[[turn]]
text = "Done."
"""


@pytest.mark.thorough(one_of=8)
@pytest.mark.parametrize("most", [40, 64, 128])
@pytest.mark.parametrize("view", ["true", "false"])
def test_commands_run_with_few_descriptors(tmp_path: Path, most: int, view: str) -> None:
    cli = CommandLine(tmp_path)
    words = ["run", "Go.", "--model", cli.script(CALLS), "--json", "--auto-approve-commands"]
    line = f"ulimit -n {most} && exec {shlex.join([sys.executable, '-m', 'treadle', *words])}"
    env = cli.environment | {"TREADLE_COMMAND_VIEW": view}
    ran = subprocess.run(["/bin/sh", "-c", line], cwd=cli.project, env=env, capture_output=True, text=True, timeout=60)
    assert ran.returncode == 0, ran.stderr
    assert '"carried\\nsub' in ran.stdout, ran.stdout
    assert (cli.project / "sub/made").read_text() == "x\n"
