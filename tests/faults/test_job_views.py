"""A worker is killed, alone or with the supervisor, while the changes of a background command are committed: what was
committed is there once and recorded once, and the rest has not happened (W-10, D-02; faults 2, 31, 41)."""

import signal
from pathlib import Path
from typing import Any

import pytest

from tests.faults.test_commands import Treadle, end_supervisor, results, until
from tests.unit.adapters.tools.builtin.command.viewing import sandbox_with_views
from treadle.testing.fake_openai import FakeOpenAI, Reply

pytestmark = pytest.mark.thorough(one_of=12)

TICKS = "while :; do echo tick; sleep 0.05; done"
RUNS = f"echo 1 > one; {TICKS}"
COMMIT_POINTS = [
    "tool.before:check_command",
    "transaction.ready",
    "transaction.put",
    "transaction.synced",
    "tool.after:check_command",
    "append.before:tool.execution_complete#2",
    "append.after:tool.execution_complete#2",
]
NEXT_RUN_POINTS = ["job.before_commit", "transaction.ready", "transaction.put", "job.committed"]


class ViewTreadle(Treadle):
    """Commands run on views."""

    def __init__(self, folder: Path, fake: FakeOpenAI) -> None:
        super().__init__(folder, fake)
        sandbox_with_views()
        self._environment["TREADLE_COMMAND_VIEW"] = "true"

    def jobs(self, *arguments: str) -> list[dict[str, Any]]:
        code, listed = self.end(self.start("jobs", "--json", *arguments))
        assert code == 0
        return listed

    def command(self, *arguments: str) -> None:
        process = self.start(*arguments)
        process.communicate(timeout=60)
        assert process.returncode == 0

    def has_ended(self) -> bool:
        return all(job["status"] != "running" for job in self.jobs("--all"))

    def list_committed_paths(self) -> list[list[str]]:
        """What the log says to have been changed, by event."""
        changes = [event["data"] for event in self.log() if event["type"] == "workspace.files_changed"]
        return [[file["path"] for file in change["files"]] for change in changes]

    def content(self) -> dict[str, str]:
        return {path.name: path.read_text() for path in sorted(self.root.iterdir())}


def begin(command: str) -> Reply:
    return Reply(calls=[("run_command", {"command": command, "background": True})])


def check(**arguments: object) -> Reply:
    return Reply(calls=[("check_command", {"handle": "1.0", "wait_s": 20, **arguments})])


@pytest.mark.parametrize("point", ["view.frozen", *COMMIT_POINTS])
def test_killed_while_a_running_job_is_committed(tmp_path: Path, point: str) -> None:
    with FakeOpenAI([begin(RUNS), check(commit=True), Reply(text="It runs.")]) as fake:
        treadle = ViewTreadle(tmp_path, fake)
        assert treadle.end(treadle.run(f"kill@{point}"))[0] == -signal.SIGKILL
        code, _ = treadle.resume()
    assert code == 0
    assert treadle.content() == {"one": "1\n"}
    treadle.command("jobs", "--stop")
    assert [job["pending"] for job in treadle.jobs("--all")] == [0]
    assert treadle.list_committed_paths() == [["one"]]


@pytest.mark.parametrize("point", COMMIT_POINTS)
def test_killed_while_an_ended_job_is_committed(tmp_path: Path, point: str) -> None:
    with FakeOpenAI([begin("sleep 1; echo 1 > one"), check(), Reply(text="It ran.")]) as fake:
        treadle = ViewTreadle(tmp_path, fake)
        assert treadle.end(treadle.run(f"kill@{point}"))[0] == -signal.SIGKILL
        code, _ = treadle.resume()
    assert code == 0
    assert treadle.content() == {"one": "1\n"}
    assert treadle.list_committed_paths() == [["one"]]
    assert [job["pending"] for job in treadle.jobs("--all")] == [0]
    treadle.command("undo", "last", "--yes")
    assert treadle.content() == {}


@pytest.mark.parametrize("point", NEXT_RUN_POINTS)
def test_killed_while_the_next_run_commits_what_a_job_left(tmp_path: Path, point: str) -> None:
    with FakeOpenAI([begin("sleep 1; echo 1 > one"), Reply(text="It runs."), Reply(text="Done.")]) as fake:
        treadle = ViewTreadle(tmp_path, fake)
        assert treadle.end(treadle.run())[0] == 0
        until(treadle.has_ended)
        assert [job["pending"] for job in treadle.jobs()] == [1]
        again = ("run", "--json", "--chat", "last", "Go on.")
        assert treadle.end(treadle.start(*again, faults=f"kill@{point}"))[0] == -signal.SIGKILL
        code, _ = treadle.resume()
    assert code == 0
    assert treadle.content() == {"one": "1\n"}
    assert treadle.list_committed_paths() == [["one"]]
    assert treadle.jobs() == []


def test_killed_while_a_job_is_stopped(tmp_path: Path) -> None:
    stop = Reply(calls=[("stop_command", {"handle": "1.0"})])
    with FakeOpenAI([begin(RUNS), check(), stop, Reply(text="Stopped.")]) as fake:
        treadle = ViewTreadle(tmp_path, fake)
        assert treadle.end(treadle.run("kill@tool.before:stop_command"))[0] == -signal.SIGKILL
        code, events = treadle.resume()
    assert code == 0
    assert "A one" in results(events)[-1]["result"]
    assert treadle.list_committed_paths() == [["one"]]


def test_with_the_supervisor_gone_only_what_was_committed_is_there(tmp_path: Path) -> None:
    command = f"echo 1 > one; {TICKS} & read -r go; echo 2 > one; echo 2 > two; sleep 1000"
    send = Reply(calls=[("send_input", {"handle": "1.0", "text": "go"})])
    last = Reply(calls=[("check_command", {"handle": "1.0"})])
    with FakeOpenAI(
        [begin(command), check(commit=True), send, Reply(text="It runs."), last, Reply(text="Lost.")]
    ) as fake:
        treadle = ViewTreadle(tmp_path, fake)
        assert treadle.end(treadle.run())[0] == 0
        until(lambda: any(path.name == "two" for path in (tmp_path / "home").rglob("view/upper/two")))
        end_supervisor(treadle)
        code, events = treadle.end(treadle.start("run", "--json", "--chat", "last", "And?"))
    assert code == 0
    assert "nothing of what it had changed" in results(events)[-1]["error"]
    assert treadle.content() == {"one": "1\n"}
    assert treadle.list_committed_paths() == [["one"]]
    assert [(job["status"], job["pending"]) for job in treadle.jobs("--all")] == [("lost", 0)]
