"""Jobs from the command line: a run's end names what it leaves, and `treadle jobs` lists, reads, talks to and stops it
(S-14, S-12, T-05)."""

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.scenario.command_line import CommandLine, CommandResult
from treadle.protocol.content import Value

pytestmark = pytest.mark.thorough(one_of=8)

SERVE = "printf 'up \\\\033]0;evil\\\\007\\\\n'; while read -r line; do echo \\\"got $line\\\"; done"
RUN = f"""
[[turn]]
call = [{{ name = "run_command", args = {{ command = "{SERVE}", background = true }} }}]
[[turn]]
text = "It runs."
"""


class Serving(Value, frozen=True):
    chat: str
    end: str


@pytest.fixture
def cli(tmp_path: Path) -> Iterator[CommandLine]:
    command_line = CommandLine(tmp_path)
    yield command_line
    assert command_line("jobs", "--stop").code == 0


def serve(cli: CommandLine) -> Serving:
    run_result = cli("run", "Serve.", "--model", cli.script(RUN), "--auto-approve-commands")
    assert run_result.code == 0, run_result.err
    [chat] = {job["chat"] for job in jobs(cli)} - getattr(cli, "known", set())
    return Serving(chat, run_result.err)


def jobs(cli: CommandLine, *words: str) -> list[dict[str, object]]:
    jobs_result = cli("jobs", "--json", *words)
    assert jobs_result.code == 0, jobs_result.err
    return [json.loads(line) for line in jobs_result.out.splitlines()]


def tail(cli: CommandLine, handle: str, expected_text: str) -> CommandResult:
    for _ in range(100):
        tail_result = cli("jobs", "--tail", handle)
        if expected_text in tail_result.out:
            return tail_result
        time.sleep(0.05)
    raise AssertionError(tail_result)


@pytest.mark.thorough(one_of=8)
def test_a_run_leaves_a_job_which_is_read_talked_to_and_stopped(cli: CommandLine) -> None:
    run = serve(cli)
    assert "in the background: 1.0 printf" in run.end
    assert f"stop: treadle jobs {run.chat} --stop" in run.end
    [listed] = cli("jobs").out.splitlines()
    assert run.chat in listed
    assert "running" in listed
    assert "\x1b" not in tail(cli, "1.0", "up").out
    assert cli("jobs", "--input", "1.0", "hello").code == 0
    assert "got hello\n" in tail(cli, f"{run.chat}:1.0", "got hello").out
    [stopped] = jobs(cli, run.chat, "--stop", "1.0")
    assert (stopped["status"], stopped["job"]) == ("stopped", "1.0")
    assert jobs(cli) == []
    [over] = jobs(cli, "--all")
    assert over["status"] == "stopped"
    assert "no background command runs" in cli("jobs").err
    [job_end] = cli("export", run.chat).of("job.ended")
    assert (job_end["job"], job_end["by"]) == ("1.0", "person")


@pytest.mark.thorough(one_of=8)
def test_a_handle_that_two_chats_have_is_asked_for(cli: CommandLine) -> None:
    first = serve(cli)
    cli.known = {first.chat}  # type: ignore[attr-defined]
    second = serve(cli)
    unsure = cli("jobs", "--tail", "1.0")
    assert unsure.code == 2
    assert f"{first.chat}:1.0" in unsure.err
    assert cli("jobs", second.chat, "--tail", "1.0").code == 0
    assert len(jobs(cli, "--stop")) == 2
    assert jobs(cli) == []


def test_what_makes_no_sense_is_refused(cli: CommandLine) -> None:
    assert cli("jobs", "--tail", "9.9").code == 1
    assert cli("jobs", "--tail", "1.0", "--stop").code == 2
    assert cli("jobs", "--follow").code == 2
    assert cli("jobs", "nobody").code == 1


LEFT = """
[[turn]]
call = [{ name = "run_command", args = { command = "sleep 0.3; echo made > made", background = true } }]
[[turn]]
text = "It runs."
"""


def leave_changes(cli: CommandLine) -> str:
    """A chat whose run is over, with an ended job whose changes are not committed."""
    run_result = cli("run", "Serve.", "--model", cli.script(LEFT))
    assert run_result.code == 0, run_result.out + run_result.err
    for _ in range(200):
        [job] = jobs(cli, "--all")
        if job["status"] != "running":
            assert job["pending"] == 1
            return str(job["chat"])
        time.sleep(0.05)
    raise AssertionError(job)


@pytest.mark.thorough(one_of=8)
def test_what_a_job_left_is_listed_shown_and_committed_by_a_person_once(cli: CommandLine) -> None:
    # W-10, S-19
    chat = leave_changes(cli)
    [listed] = cli("jobs").out.splitlines()
    assert "exit 0, 1 uncommitted" in listed
    assert "+made" in cli("jobs", "--diff", "1.0").out
    assert not (cli.project / "made").exists()
    commit_result = cli("jobs", "--commit", "1.0")
    assert commit_result.code == 0, commit_result.err
    assert "committed 1 change" in commit_result.err
    assert (cli.project / "made").read_text() == "made\n"
    assert cli("export", chat).of("job.settled")[0]["outcome"] == "committed"
    assert "nothing is pending" in cli("jobs", "--commit", "1.0").err
    assert jobs(cli) == []
    assert cli("undo", chat, "--yes").code == 0
    assert not (cli.project / "made").exists()


def test_what_a_job_left_can_be_discarded(cli: CommandLine) -> None:
    chat = leave_changes(cli)
    [job] = jobs(cli, "--discard", "1.0")
    assert job["pending"] == 0
    assert not (cli.project / "made").exists()
    assert cli("export", chat).of("job.settled")[0]["outcome"] == "discarded"
