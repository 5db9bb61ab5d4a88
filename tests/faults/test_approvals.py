"""An approval and the death of processes: wherever one dies, the approved call runs once, and nothing else runs (S-08,
faults 1 and 6)."""

import signal
from pathlib import Path

import pytest

from tests.faults.chance import some
from tests.scenario.command_line import CommandLine

pytestmark = pytest.mark.thorough(one_of=8)

SCRIPT = (
    '[[turn]]\ncall = [{ name = "write_file", args = { path = "AGENTS.md", content = "hello\\n" } }]\n'
    '[[turn]]\ntext = "All done."\n'
)
POINTS = [
    "append.before:permission.requested",
    "append.after:permission.requested",
    "append.before:permission.completed",
    "append.after:permission.completed",
    "append.before:tool.execution_start",
    "append.after:tool.execution_start",
    "tool.before:write_file",
    "tool.write_after",
    "append.before:tool.execution_complete",
    "append.after:tool.execution_complete",
]


@pytest.fixture
def cli(tmp_path: Path) -> CommandLine:
    return CommandLine(tmp_path)


@pytest.mark.parametrize("point", some(POINTS, 2, "approvals"))
def test_killed_at_any_point_of_an_approval(cli: CommandLine, point: str) -> None:
    model = cli.script(SCRIPT)
    env = {"TREADLE_FAULTS": f"kill@{point}"}
    file = cli.project / "AGENTS.md"
    run_result = cli("run", "Work.", "--model", model, "--interactive", "--json", env=env)
    if run_result.code == -signal.SIGKILL:
        assert not file.exists()
        assert cli("resume", "last", "--json").types[-1] == "session.action_required"
    assert not file.exists()
    approve_result = cli("approve", "last", "--json", env=env)
    if approve_result.code == -signal.SIGKILL:
        resumed = cli("resume", "last", "--json")
        waits = bool(cli("pending", "--json").out)
        assert resumed.code == (56 if waits else 0)
        if waits:  # the answer was not recorded, so it was never given
            assert not file.exists()
            assert cli("approve", "last").code == 0
    assert file.read_text() == "hello\n"
    log = cli("export", "last")
    assert len(log.of("tool.execution_complete")) == 1
    assert log.of("tool.execution_complete")[0]["success"]
    assert [data["decision"] for data in log.of("permission.completed")] == ["allow"]
    assert log.types[-1] == "session.run_end"
