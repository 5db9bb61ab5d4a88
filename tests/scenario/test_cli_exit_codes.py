"""The exit codes of U-01, and what signals do."""

import json
import re
import signal
import subprocess
import time
from collections.abc import Callable

import pytest

from tests.processes import running_with, unlike_any_other
from tests.scenario.command_line import NO_LOCAL_SERVER, CommandLine, end, until
from treadle.testing.fake_openai import FakeOpenAI, Reply

pytestmark = pytest.mark.thorough(one_of=8)

HELLO = '[[turn]]\ntext = "Hello."\n'
LOOK = '[[turn]]\ncall = [{ name = "list_directory", args = { path = "." } }]\n'
SLEEP = '[[turn]]\ncall = [{ name = "run_command", args = { command = "echo $$ > pid; sleep 600" } }]\n' + HELLO


def test_0_when_all_is_well(cli: CommandLine) -> None:
    assert cli("run", "Hi.", "--model", cli.script(HELLO)).code == 0


def test_1_when_the_model_fails_for_good(cli: CommandLine) -> None:
    with FakeOpenAI([Reply(status=400, error={"message": "no such model"})]) as fake:
        run_result = cli("run", "Hi.", "--model", "openai:x", "--json", env={"OPENAI_BASE_URL": fake.base_url})
    assert run_result.code == 1
    assert run_result.of("session.error")[0]["class"] == "bad_request"
    assert run_result.types[-1] == "session.idle"
    assert run_result.types.count("session.idle") == 1


def test_1_for_an_unknown_chat(cli: CommandLine) -> None:
    for arguments in (["resume", "c_nothing"], ["run", "Hi.", "--chat", "nope"], ["show", "last"], ["export", "x"]):
        result = cli(*arguments)
        assert (result.code, result.out) == (1, "")
        assert result.err.startswith("treadle: there is no chat")
        assert "Traceback" not in result.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "Hi."], "no model is set"),
        (["run", "Hi.", "--model", "openai:gpt-4.1"], "OPENAI_API_KEY"),
        (["run", "Hi.", "--model", "nobody:x"], "no provider 'nobody'"),
        (["run", "Hi.", "--model", "scripted:/does/not/exist.toml"], "cannot be read"),
        (["run", " ", "--model", "scripted:x"], "the prompt is empty"),
        (["run", "Hi.", "--root", "/does/not/exist", "--model", "openai:x"], "is no folder"),
        (["run"], "Missing argument"),
        (["run", "Hi.", "--max-turns", "0"], "--max-turns"),
        (["run", "Hi.", "--mode", "yolo"], "--mode"),
        (["run", "Hi.", "--nonsense"], "No such option"),
        (["frobnicate"], "No such command"),
        (["fork", "last@x"], "ID@SEQ"),
        (["fork", "last@" + "1" * 5_000], "ID@SEQ"),
        (["resume", "last", "--approve", "--deny"], "exclude each other"),
    ],
)
def test_2_for_wrong_usage_before_anything_is_written(cli: CommandLine, arguments: list[str], message: str) -> None:
    result = cli(*arguments, env=NO_LOCAL_SERVER)
    assert (result.code, result.out) == (2, "")
    assert message in result.err
    assert "Traceback" not in result.err
    assert not (cli.home / "treadle.db").exists()


@pytest.mark.parametrize(("rule", "last"), [("answer", "Enough."), ("error", "")])
def test_53_at_the_turn_cap(cli: CommandLine, rule: str, last: str) -> None:  # L-03
    model = cli.script(LOOK + LOOK + '[[turn]]\ntext = "Enough."\n')
    run_result = cli("run", "Look.", "--model", model, "--max-turns", "2", "--on-limit", rule, "--json")
    assert run_result.code == 53
    assert run_result.of("assistant.message")[-1]["content"] == last
    assert len(run_result.of("assistant.turn_start")) == 2 + bool(last)
    assert run_result.types[-1] == "session.idle"


def test_at_the_cap_it_says_how_to_get_more_turns(cli: CommandLine) -> None:  # L-03
    run_result = cli("run", "Look.", "--model", cli.script(LOOK + HELLO), "--max-turns", "1")
    assert run_result.code == 53
    assert "Hello." in run_result.out
    assert "--max-turns N" in run_result.err


def test_53_when_the_cap_asks_and_nobody_is_there(cli: CommandLine) -> None:
    model = cli.script(LOOK + HELLO)
    run_result = cli("run", "Look.", "--model", model, "--max-turns", "1", "--on-limit", "ask")
    assert run_result.code == 53
    assert "waits for someone" in run_result.err
    resume_result = cli("resume", "last", "--answer", "continue", "--json")
    assert resume_result.code == 0
    assert resume_result.of("assistant.message")[-1]["content"] == "Hello."


def test_55_at_the_budget(cli: CommandLine) -> None:  # L-11
    model = cli.script("[model]\nusd_per_million_input = 100.0\n" + LOOK + HELLO)
    run_result = cli("run", "Look.", "--model", model, "--budget-usd", "0.15", "--json")
    assert run_result.code == 55
    assert run_result.of("session.limit_reached")[0]["kind"] == "usd"
    assert run_result.types[-1] == "session.idle"
    (idle,) = run_result.of("session.idle")
    assert idle["why"].startswith("stopped at the budget: $0.")
    assert run_result.of("session.run_end") == [idle]


def test_the_last_line_at_the_budget_has_the_sum(cli: CommandLine) -> None:  # L-11
    model = cli.script("[model]\nusd_per_million_input = 100.0\n" + LOOK + HELLO)
    run_result = cli("run", "Look.", "--model", model, "--budget-usd", "0.15")
    assert run_result.code == 55
    assert re.search(r"^── stopped at the budget: \$0\.\d+ of \$0\.15", run_result.err, re.MULTILINE)
    again = cli("show", "last")
    assert "── stopped at the budget: $0." in again.err
    assert json.loads(cli("show", "last", "--json").out)["last_why"].startswith("stopped at the budget: $0.")


SENSITIVE = '[[turn]]\ncall = [{ name = "write_file", args = { path = ".env", content = "A=1" } }]\n'
ASK = '[[turn]]\ncall = [{ name = "ask_user", args = { question = "Which one?" } }]\n'


@pytest.mark.parametrize("script", [SENSITIVE, ASK], ids=["approval", "question"])
def test_56_when_it_waits_and_57_when_nobody_could_be_asked(cli: CommandLine, script: str) -> None:  # U-01, U-10
    model = cli.script(script + HELLO)
    waits = cli("run", "Go.", "--model", model, "--interactive")
    assert waits.code == 56
    assert "waits for someone" in waits.err
    assert cli("resume", "last").code == 56
    answers = ["--answer", "this"] if script == ASK else ["--approve"]
    assert cli("resume", "last", *answers).code == 0
    if script == SENSITIVE:  # without a person the model has no tool to ask with
        refused = cli("run", "Go.", "--model", model)
        assert refused.code == 57
        assert "Hello." in refused.out


def test_57_when_the_effect_of_a_command_is_discarded(cli: CommandLine) -> None:  # U-01, W-09
    command = '[[turn]]\ncall = [{ name = "run_command", args = { command = "echo A=1 > .env" } }]\n'
    refused = cli("run", "Go.", "--model", cli.script(command + HELLO))
    assert refused.code == 57
    assert not (cli.project / ".env").exists()
    assert cli("replay", "last").code == 0


DIRECT = {"TREADLE_COMMAND_VIEW": "false", "TREADLE_AUTO_APPROVE_COMMANDS": "true"}
"""Commands that are not tried first on a view."""


def test_130_when_interrupted_and_the_stop_is_recorded(cli: CommandLine) -> None:  # L-07, fault 22
    process = cli.start("run", "Sleep.", "--model", cli.script(SLEEP), "--json", env=DIRECT)
    early_events = until(process, "tool.execution_start")
    process.send_signal(signal.SIGINT)
    run_result = end(process)
    assert run_result.code == 130
    assert run_result.types.index("session.interrupted") < run_result.types.index("tool.execution_complete")
    assert run_result.of("session.idle") == [{"reason": "interrupted", "why": ""}]
    assert run_result.types[-1] == "session.idle"
    resumed = cli("resume", early_events[0]["chat"], "--json")
    assert (resumed.code, resumed.types) == (130, ["session.idle"])  # a stopped run is not taken for a crashed one


def test_130_when_interrupted_while_a_command_is_tried(cli: CommandLine) -> None:  # L-07, W-09
    seconds = unlike_any_other()
    process = cli.start("run", "Sleep.", "--model", cli.script(SLEEP.replace("600", seconds)), "--json")
    while not running_with(seconds):
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    run_result = end(process)
    assert run_result.code == 130
    assert run_result.of("session.idle") == [{"reason": "interrupted", "why": ""}]
    assert not running_with(seconds)
    assert not (cli.project / "pid").exists()


def test_killed_as_soon_as_the_stop_is_recorded_it_is_a_stopped_run(cli: CommandLine) -> None:  # L-07, fault 22
    env = DIRECT | {"TREADLE_FAULTS": "kill@append.after:session.interrupted"}
    process = cli.start("run", "Sleep.", "--model", cli.script(SLEEP), "--json", env=env)
    until(process, "tool.execution_start")
    process.send_signal(signal.SIGINT)
    assert end(process).code == -signal.SIGKILL
    assert cli("export", "last").types[-1] == "session.interrupted"  # nothing was torn down before it
    assert cli("resume", "last", "--json").code == 130
    log = cli("export", "last")
    assert [data["reason"] for data in log.of("session.run_end")] == ["interrupted"]
    assert [data["synthetic"] for data in log.of("tool.execution_complete")] == ["interrupted"]
    assert len(log.of("assistant.turn_start")) == 1
    assert cli("resume", "last", "--json").types == ["session.idle"]  # and so it stays


@pytest.mark.parametrize(
    "words",
    [("import", "-"), ("resume", "last", "--results", "-"), ("apply", "-"), ("run", "-", "--model", "scripted:demo")],
    ids=lambda words: words[0],
)
def test_ctrl_c_ends_the_wait_for_standard_input(cli: CommandLine, words: tuple[str, ...]) -> None:
    cli("run", "Hello.", "--model", cli.script(HELLO))
    process = subprocess.Popen(
        cli.words(*words),
        cwd=cli.project,
        env=cli.environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # also where the tests ignore it
    )
    assert process.stderr is not None
    assert "waiting for standard input" in process.stderr.readline()
    process.send_signal(signal.SIGINT)
    assert end(process).code == 130


def test_a_second_interrupt_leaves_at_once(cli: CommandLine) -> None:
    # A write that is under way is waited for, and this one takes five minutes: only the second signal ends it.
    write = '[[turn]]\ncall = [{ name = "write_file", args = { path = "a", content = "a" } }]\n'
    env = {"TREADLE_FAULTS": "delay@tool.write_after=300"}
    process = cli.start("run", "Write.", "--model", cli.script(write), "--json", env=env)
    until(process, "tool.execution_start")
    process.send_signal(signal.SIGINT)
    until(process, "session.interrupted")
    process.send_signal(signal.SIGINT)
    assert end(process).code == 130


def test_sigterm_leaves_a_run_that_can_be_resumed_at_once(cli: CommandLine) -> None:  # fault 17
    wait = "echo ran >> count; until [ -e go ]; do sleep 0.02; done; echo woken; exit 3"
    script = f'[[turn]]\ncall = [{{ name = "run_command", args = {{ command = "{wait}" }} }}]\n'
    # Write-through, so that it can be seen while it runs, and sees what comes.
    direct = {"TREADLE_COMMAND_VIEW": "false"}
    process = cli.start("run", "Sleep.", "--model", cli.script(script + HELLO), "--json", env=direct)
    until(process, "tool.execution_start")
    wait_for((cli.project / "count").exists)
    process.send_signal(signal.SIGTERM)
    run_result = end(process)
    assert run_result.code == 143
    assert "session.interrupted" not in run_result.types
    (cli.project / "go").touch()
    resumed = cli("resume", "last", "--json")
    assert resumed.code == 0
    (result,) = resumed.of("tool.execution_complete")
    assert result["synthetic"] == ""
    assert result["error"].startswith("woken\n")
    assert result["error"].endswith("\n[exit 3]")  # its real end, and it ran once (D-02)
    assert (cli.project / "count").read_text() == "ran\n"
    assert resumed.types[-1] == "session.idle"


def test_a_reader_that_leaves_ends_the_command_without_a_traceback(cli: CommandLine) -> None:
    process = cli.start("run", "Look.", "--model", cli.script(LOOK + LOOK + HELLO), "--json")
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.readline()
    process.stdout.close()
    with process.stderr:
        assert process.stderr.read() == ""
    assert process.wait() == 1
    assert cli("resume", "last").code == 0


def wait_for(fact: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not fact():
        assert time.monotonic() < deadline
        time.sleep(0.01)
