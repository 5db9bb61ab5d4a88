"""A worker is killed around a command, as people run it: `treadle run`, `kill -9`, `treadle resume`. The command's real
output and exit code are the result, and it ran once (fault 2; D-02)."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.faults.chance import some
from tests.forked import ENVIRONMENT, Forked
from tests.homes import seed
from treadle.testing.fake_openai import FakeOpenAI, Reply

pytestmark = pytest.mark.thorough(one_of=8)

GATED = "echo ran >> counter; echo before; until [ -e go ]; do sleep 0.02; done; echo after; exit 3"
DONE = Reply(calls=[("task_complete", {"summary": "Done."})])
"""How a run in mode autopilot ends."""
POINTS = [
    "tool.before:run_command",
    "command.before_claim",
    "command.before_start",
    "tool.command_started",
    "tool.command_ended",
    "command.collected",
    "tool.after:run_command",
    "append.before:tool.execution_complete",
]


class Treadle:
    """The command line in a folder of its own, against a provider that plays a script."""

    def __init__(self, folder: Path, fake: FakeOpenAI) -> None:
        self.folder = folder
        self.root = folder / "root"
        self.root.mkdir()
        self._environment = ENVIRONMENT | {
            "HOME": str(folder),
            "TREADLE_HOME": str(seed(folder / "home")),
            "OPENAI_BASE_URL": fake.base_url,
            "OPENAI_API_KEY": "none",
            "TREADLE_COMMAND_VIEW": "false",  # the tests look at changes while commands run; test_views has the others
        }

    def start(self, *arguments: str, faults: str = "") -> "subprocess.Popen[bytes]":
        command = [sys.executable, "-m", "treadle", *arguments]
        environment = self._environment | {"TREADLE_FAULTS": faults}
        return Forked(command, env=environment, stdout=subprocess.PIPE, cwd=self.root)

    def run(self, faults: str = "", mode: str = "ask") -> "subprocess.Popen[bytes]":
        flags = (
            "--json",
            "--auto-approve-commands",
            "--model",
            "openai:fake",
            "--root",
            str(self.root),
            "--mode",
            mode,
        )
        return self.start("run", *flags, "Do it.", faults=faults)

    def resume(self, faults: str = "") -> tuple[int, list[dict[str, Any]]]:
        return self.end(self.start("resume", "--json", "last", faults=faults))

    def end(self, process: "subprocess.Popen[bytes]") -> tuple[int, list[dict[str, Any]]]:
        out, _ = process.communicate(timeout=60)
        return process.returncode, [msgspec.json.decode(line) for line in out.splitlines()]

    def log(self) -> list[dict[str, Any]]:
        code, events = self.end(self.start("export", "last"))
        assert code == 0
        return events

    @property
    def counter(self) -> Path:
        return self.root / "counter"

    def go(self) -> None:
        (self.root / "go").touch()


def results(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [event["data"] for event in events if event["type"] == "tool.execution_complete"]


def until(fact: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not fact():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.fixture
def treadle(tmp_path: Path) -> Iterator[Treadle]:
    with FakeOpenAI([Reply(calls=[("run_command", {"command": GATED})]), Reply(text="That was it.")]) as fake:
        new_treadle = Treadle(tmp_path, fake)
        yield new_treadle
        new_treadle.go()  # the command ends, even if the test failed


def test_killed_while_the_command_runs(treadle: Treadle) -> None:
    worker = treadle.run()
    until(treadle.counter.exists)
    worker.kill()
    assert treadle.end(worker)[0] == -signal.SIGKILL
    treadle.go()
    code, events = treadle.resume()
    assert code == 0
    (result,) = results(events)
    assert result["error"].startswith("before\nafter\n[changed in the project]\nA counter +1\n")
    assert result["result_summary"].startswith("exit 3, 2 lines")
    assert treadle.counter.read_text() == "ran\n"


@pytest.mark.parametrize("point", some(POINTS, 2, "commands"))
def test_killed_at_a_point_and_again_at_the_same(treadle: Treadle, point: str) -> None:
    if point not in POINTS[:4]:
        treadle.go()
    assert treadle.end(treadle.run(f"kill@{point}"))[0] == -signal.SIGKILL
    treadle.go()
    assert treadle.resume(f"kill@{point}")[0] == -signal.SIGKILL
    code, _ = treadle.resume()
    assert code == 0
    (result,) = results(treadle.log())
    assert result["synthetic"] == ""
    assert result["error"].startswith("before\nafter\n[changed in the project]\nA counter +1\n")
    assert result["error"].endswith("\n[exit 3]")
    assert treadle.counter.read_text() == "ran\n"


def test_a_stop_that_comes_while_nobody_drives_the_chat_ends_the_command(treadle: Treadle) -> None:  # L-07
    worker = treadle.run()
    until(treadle.counter.exists)
    worker.kill()
    treadle.end(worker)
    treadle.end(treadle.start("stop", "last"))
    until(lambda: not commands_of(treadle))
    (result,) = results(treadle.log())
    assert result["synthetic"] == "interrupted"


def commands_of(treadle: Treadle) -> list[str]:
    """The processes that work in this project."""
    command_names = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if os.readlink(entry / "cwd") == str(treadle.root) and os.getpid() != int(entry.name):
                    command_names.append(entry.name)
            except OSError:
                continue
    return command_names


def end_supervisor(treadle: Treadle, call: str = "1.0") -> None:
    (owner,) = treadle.folder.glob(f"home/commands/*/{call}/owner")
    os.kill(int(owner.read_text().split()[0]), signal.SIGKILL)


def assert_told_and_undoable(treadle: Treadle) -> None:
    """The changes of a lost command are in the log, nothing of its sandbox is in the project, and all can be undone."""
    changes = [event["data"] for event in treadle.log() if event["type"] == "workspace.files_changed"]
    assert {file["path"] for event in changes for file in event["files"]} == {"counter"}
    assert sorted(os.listdir(treadle.root)) == ["counter"]
    assert treadle.counter.read_text() == "ran\n"
    code, _ = treadle.end(treadle.start("undo", "last", "counter", "--json"))
    assert code == 0
    assert os.listdir(treadle.root) == []


def test_a_supervisor_that_is_killed_too_leaves_an_unknown_that_is_not_repeated(treadle: Treadle) -> None:  # D-02, W-10
    worker = treadle.run()
    until(treadle.counter.exists)
    worker.kill()
    treadle.end(worker)
    end_supervisor(treadle)
    code, events = treadle.resume()
    assert code == 0
    (result,) = results(events)
    assert result["synthetic"] == "unknown"
    until(lambda: not commands_of(treadle))
    assert_told_and_undoable(treadle)


def test_a_supervisor_that_is_killed_before_the_eyes_of_its_worker(treadle: Treadle) -> None:  # W-10
    worker = treadle.run()
    until(treadle.counter.exists)
    end_supervisor(treadle)
    code, events = treadle.end(worker)
    assert code == 0
    (result,) = results(events)
    assert "supervisor was killed" in result["error"]
    assert_told_and_undoable(treadle)


@pytest.mark.thorough(one_of=8)
@pytest.mark.parametrize("call", [("check_command", {"handle": "1.0"}), ("run_command", {"command": "true"})])
def test_a_background_process_whose_supervisor_is_killed_leaves_nothing_of_its_sandbox(
    tmp_path: Path, call: tuple[str, dict[str, Any]]
) -> None:  # W-10
    server = "echo ran >> counter; until [ -e go ]; do sleep 0.02; done"
    script = [Reply(calls=[("run_command", {"command": server, "background": True})]), Reply(calls=[call])]
    with FakeOpenAI([*script, Reply(calls=[("check_command", {"handle": "1.0"})]), DONE]) as fake:
        treadle = Treadle(tmp_path, fake)
        worker = treadle.run("kill@append.after:tool.execution_complete", mode="autopilot")
        assert treadle.end(worker)[0] == -signal.SIGKILL
        until(treadle.counter.exists)
        end_supervisor(treadle)
        code, _ = treadle.resume()
    assert code == 0
    assert_told_and_undoable(treadle)


@pytest.mark.parametrize("point", ["tool.command_started", "tool.after:run_command"])
def test_a_background_process_outlives_its_worker(tmp_path: Path, point: str) -> None:  # T-05
    server = "echo ran >> counter; echo up; until [ -e go ]; do sleep 0.02; done; echo bye"
    script = [
        Reply(calls=[("run_command", {"command": server, "background": True})]),
        Reply(calls=[("check_command", {"handle": "1.0"})]),
        Reply(calls=[("stop_command", {"handle": "1.0"})]),
        DONE,
    ]
    with FakeOpenAI(script) as fake:
        treadle = Treadle(tmp_path, fake)
        assert treadle.end(treadle.run(f"kill@{point}", mode="autopilot"))[0] == -signal.SIGKILL
        until(treadle.counter.exists)
        code, events = treadle.resume()
    assert code == 0
    start_result, _, stopped, *_ = results(events)
    assert '[handle "1.0", running' in start_result["result"]
    assert stopped["result"].endswith("[stopped]")
    assert treadle.counter.read_text() == "ran\n"
    until(lambda: not commands_of(treadle))


def test_the_shell_and_whole_outputs_survive_a_restart(tmp_path: Path) -> None:  # T-11, T-14
    script = [
        Reply(calls=[("run_command", {"command": "mkdir sub; cd sub; export WHO=you; seq 1000"})]),
        Reply(calls=[("run_command", {"command": "pwd; echo $WHO"})]),
        Reply(calls=[("read_output", {"handle": "1.0", "start_line": 500, "end_line": 500})]),
        Reply(text="Done."),
    ]
    with FakeOpenAI(script) as fake:
        treadle = Treadle(tmp_path, fake)
        assert treadle.end(treadle.run("kill@append.after:tool.execution_complete"))[0] == -signal.SIGKILL
        code, events = treadle.resume()
    assert code == 0
    here, line = results(events)[-2:]
    assert here["result"] == f"{treadle.root}/sub\nyou\n[exit 0]"
    assert line["result"].startswith("[lines 500 to 500 of 1,000]\n500\n")
