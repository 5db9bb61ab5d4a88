"""A run is killed while it changes files: diff, undo and keep say so, and how to complete it (W-02, fault 1)."""

import signal
import sys
from pathlib import Path

import pytest

from tests import forked
from tests.faults.test_command_line import Shell
from treadle.testing.fake_openai import FakeOpenAI, Reply

pytestmark = pytest.mark.thorough(one_of=8)

NAMES = ("a", "b", "c", "d")
COMMAND = Reply(calls=[("run_command", {"command": "for name in a b c d; do echo new > $name; done"})])
EDIT = Reply(calls=[("edit_file", {"path": "a", "old_str": "old", "new_str": "new"})])


def _run(shell: Shell, *arguments: str) -> tuple[int, str, str]:
    result = forked.run(
        [sys.executable, "-m", "treadle", *arguments], env=shell.environment, cwd=shell.root, timeout=60
    )
    return result.returncode, result.stdout, result.stderr


@pytest.mark.thorough(one_of=8)
@pytest.mark.parametrize(
    ("reply", "point", "changed_names"),
    [
        (COMMAND, "transaction.put#2", "ab"),
        (COMMAND, "transaction.ended", "abcd"),
        (EDIT, "tool.after:edit_file", "a"),
    ],
)
def test_changes_that_a_killed_run_began_are_told_and_can_be_completed(
    reply: Reply, point: str, changed_names: str, tmp_path: Path
) -> None:
    with FakeOpenAI([reply, Reply(text="Done.")]) as fake:
        shell = Shell(tmp_path, fake)
        for name in NAMES:
            (shell.root / name).write_text("old\n")
        run = [
            "run",
            "--json",
            "--auto-approve-commands",
            "--model",
            "openai:fake",
            "--root",
            str(shell.root),
            "Do it.",
        ]
        code, _ = shell(*run, faults=f"kill@{point}")
        assert code == -signal.SIGKILL
        assert "".join(name for name in NAMES if (shell.root / name).read_text() == "new\n") == changed_names

        for command in (["diff"], ["diff", "--json"], ["undo", "--yes"], ["undo", "--json"], ["undo", "-n"], ["keep"]):
            code, out, err = _run(shell, *command)
            assert (code, out) == (1, ""), command
            assert "was cut off in the middle of" in err
            assert "treadle stop c_" in err
            assert "nothing" not in err
        code, _, _ = _run(shell, "stop", "last")
        assert code == 0
        code, out, _ = _run(shell, "diff", "--stat")
        assert code == 0
        assert [line[:3] for line in out.splitlines()] == [
            f"M {name}" for name in NAMES[: 4 if reply is COMMAND else 1]
        ]
        code, _, _ = _run(shell, "undo", "--yes")
        assert code == 0
        assert {(shell.root / name).read_text() for name in NAMES} == {"old\n"}
