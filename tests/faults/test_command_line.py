"""The promise as people meet it: `treadle run` is killed, `treadle resume` goes on (fault 1; U-01)."""

import signal
import sys
from pathlib import Path

import msgspec
import pytest

from tests import forked
from tests.faults.chance import some
from tests.faults.scenarios import APPEND
from tests.homes import seed
from treadle.testing.fake_openai import FakeOpenAI, Reply

pytestmark = pytest.mark.thorough(one_of=8)

SCRIPT = [
    Reply(text="Look.", calls=[("read_file", {"path": "notes.txt"}), ("list_directory", {"path": "."})]),
    Reply(calls=[("write_file", {"path": "new.txt", "content": "fresh\n"})]),
    Reply(text="Run.", calls=[("run_command", {"command": APPEND})]),
    Reply(text="All done."),
]
POINTS = [
    "append.after:user.message",
    "model.first_delta",
    "append.before:assistant.message#2",
    "transaction.ready",
    "tool.after:write_file",
    "tool.command_ended",
    "store.after_commit#9",
]


class Shell:
    def __init__(self, folder: Path, fake: FakeOpenAI) -> None:
        self.folder = folder
        self.root = folder / "root"
        self.root.mkdir()
        (self.root / "notes.txt").write_text("one\n")
        self.environment = forked.ENVIRONMENT | {
            "HOME": str(folder),
            "TREADLE_HOME": str(seed(folder / "home")),
            "OPENAI_BASE_URL": fake.base_url,
            "OPENAI_API_KEY": "none",
        }

    def __call__(self, *arguments: str, faults: str = "") -> tuple[int, list[dict]]:
        command = [sys.executable, "-m", "treadle", *arguments]
        environment = self.environment | {"TREADLE_FAULTS": faults}
        result = forked.run(command, env=environment, cwd=self.root, timeout=60)
        assert not result.stderr, result.stderr
        return result.returncode, [msgspec.json.decode(line) for line in result.stdout.splitlines()]


@pytest.mark.parametrize("point", some(POINTS, 2, "command line"))
def test_killed_it_resumes(point: str, tmp_path: Path) -> None:
    with FakeOpenAI(SCRIPT) as fake:
        treadle = Shell(tmp_path, fake)
        run = (
            "run",
            "--json",
            "--auto-approve-commands",
            "--model",
            "openai:fake",
            "--root",
            str(treadle.root),
            "Do it.",
        )
        code, first_events = treadle(*run, faults=f"kill@{point}")
        assert code == -signal.SIGKILL
        _, (chat,) = treadle("chats", "--json")
        code, later_events = treadle("resume", "--json", chat.get("id") or chat["chat"])
        assert code == 0
        assert later_events[-1]["type"] == "session.idle"
        code, log = treadle("export", chat.get("id") or chat["chat"])
        assert code == 0
        seqs = [event["seq"] for event in log if event.get("seq")]
        assert seqs == list(range(1, len(seqs) + 1))
        # The events that were shown live, before and after, are in the log, each once and in order (D-04).
        live_seqs = [event["seq"] for event in [*first_events, *later_events] if "seq" in event]
        assert live_seqs == sorted(set(live_seqs))
        types = [event["type"] for event in log]
        assert types.count("session.run_end") == 1
        assert types.count("assistant.turn_start") == len(SCRIPT)
        assert types.count("tool.execution_start") == types.count("tool.execution_complete") == 4
        assert (treadle.root / "new.txt").read_text() == "fresh\n"
        counter = tmp_path / "root" / "counter"
        assert not counter.exists() or counter.read_text() == "ran\n"
