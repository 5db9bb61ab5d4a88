"""Input of the command line: standard input as context, flags that contradict each other, names
that do not exist, aliases and profiles (U-07)."""

import io
import signal
import subprocess
import sys
from collections.abc import Callable

import pytest

from tests.scenario.command_line import CommandLine, CommandResult, end, until
from treadle.frontends.cli.group import invoke

pytestmark = pytest.mark.thorough(one_of=8)

Here = Callable[..., CommandResult]
HELLO = '[[turn]]\ntext = "Hello."\n'


@pytest.fixture
def here(cli: CommandLine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Here:
    """The command line in this process: for what needs no process of its own."""
    monkeypatch.chdir(cli.project)
    for name, value in cli.environment.items():
        if name != "PYTHONPATH":
            monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO()))  # nothing is piped in

    def run(*arguments: str) -> CommandResult:
        code = invoke([*arguments])
        output = capsys.readouterr()
        return CommandResult(code, output.out, output.err)

    return run


def read_last_message(cli: CommandLine) -> str:
    return str(cli("export", "last").of("user.message")[-1]["content"])


def test_standard_input_is_context(cli: CommandLine) -> None:
    model = cli.script(HELLO)
    assert cli("run", "Review this.", "--model", model, input="+one\n").code == 0
    assert read_last_message(cli) == "Review this.\n\n<standard_input>\n+one\n</standard_input>"
    assert cli("chats", "--json").lines[0]["title"] == "Review this."
    cli("run", "Review this.", "--model", model, "--no-stdin", input="+one\n")
    assert read_last_message(cli) == "Review this."
    cli("run", "--model", model, input="Do it.\n")  # without a task it is the task
    assert read_last_message(cli) == "Do it.\n"


@pytest.mark.parametrize(
    ("piped_text", "words"),
    [("x" * 400_001, "longer than 400,000 bytes"), ("a\0b", "no text"), (b"\xff".decode("latin-1"), "")],
)
def test_what_is_no_context_is_refused_before_anything_is_sent(cli: CommandLine, piped_text: str, words: str) -> None:
    run_result = cli("run", "Review.", "--model", cli.script(HELLO), input=piped_text)
    if words:
        assert (run_result.code, words in run_result.err) == (2, True)
        assert cli("chats", "--json").out == ""
    else:
        assert run_result.code == 0  # any letter is one


def test_piped_text_without_a_command_is_a_task(cli: CommandLine) -> None:  # U-08
    run_result = cli("--model", cli.script(HELLO), input="Hi.\n")
    assert (run_result.code, "Hello." in run_result.out) == (0, True), run_result.err
    run_result = cli("--model", cli.script(HELLO), "Say hello, please.")
    assert (run_result.code, "Hello." in run_result.out) == (0, True), run_result.err
    assert cli("--continue", input="Hi.\n").code == 2
    assert cli().code == 2


def test_without_a_task(cli: CommandLine) -> None:
    assert cli("run", "--model", cli.script(HELLO)).code == 2
    assert cli("run", "--no-stdin", "--model", cli.script(HELLO), input="Hi.").code == 2


@pytest.mark.parametrize(
    "flags",
    [
        ("--mode", "read-only", "--auto-approve-commands"),
        ("--mode", "read-only", "--git-branch"),
        ("--headless", "--on-limit", "ask"),
        ("--tool-calls", "plain", "--tools", "read_file"),
        ("--tool-calls", "plain", "--completion", "tool"),
    ],
)
def test_flags_that_contradict_each_other(cli: CommandLine, here: Here, flags: tuple[str, ...]) -> None:
    run_result = here("run", "Hi.", "--model", cli.script(HELLO), *flags)
    assert (run_result.code, "exclude each other" in run_result.err) == (2, True)


def test_names_that_do_not_exist(cli: CommandLine, here: Here) -> None:
    tools = here("run", "Hi.", "--model", cli.script(HELLO), "--tools", "read_fil")
    assert tools.code == 2
    assert "did you mean 'read_file'" in tools.err
    assert "write_file" in tools.err  # the list
    assert "did you mean 'chats'" in here("chatz").err
    assert here("chatz").code == 2
    chat = here("run", "Hi.", "--model", cli.script(HELLO), "--json").events[0]["chat"]
    similar_id = f"{chat[:-1]}{'a' if chat[-1] != 'a' else 'b'}"
    assert f"did you mean {chat!r}" in here("show", similar_id).err


def test_aliases_and_profiles(cli: CommandLine, here: Here) -> None:  # E-06
    model = cli.script(HELLO)
    file = cli.home / "config.toml"
    file.write_text(
        f'max_turns = 7\n[aliases]\nfast = "{model}"\n'
        '[profiles.look]\nmodel = "fast"\nmode = "read-only"\nmax_turns = 3\n[profiles.wrong]\nmod = "ask"\n'
    )
    assert here("run", "Hi.", "--model", "fast").code == 0
    assert here("run", "Hi.", "--profile", "look", "--max-turns", "4").code == 0
    options = here("show", "last", "--json").lines[0]["options"]
    assert (options["model"], options["mode"], options["max_turns"]) == (model, "read-only", 4)
    settings = cli("config", "--json", env={"TREADLE_PROFILE": "look"}).lines[0]["settings"]
    assert settings["max_turns"] == {"value": 3, "source": "environment TREADLE_PROFILE (profile look)"}
    unknown = here("run", "Hi.", "--profile", "lok")
    assert (unknown.code, "did you mean 'look'" in unknown.err) == (2, True)
    assert "no setting; did you mean 'mode'" in here("run", "Hi.", "--profile", "wrong").err
    assert here("fork", "last", "--model", "fast", "--json").lines[0]["seq"] > 0


def test_chats_by_project_and_words(cli: CommandLine, here: Here) -> None:
    model = cli.script(HELLO)
    other_project = cli.folder / "other"
    other_project.mkdir()
    first = here("run", "Paint it red.", "--model", model, "--json").events[0]["chat"]
    second = here("run", "Paint it blue.", "--model", model, "--root", str(other_project), "--json").events[0]["chat"]

    def find_chats(*flags: str) -> list[str]:
        return [line.split()[0] for line in here("chats", *flags).out.splitlines()]

    assert find_chats() == [second, first]
    assert find_chats("--limit", "1") == [second]
    assert find_chats("--search", "RED") == [first]
    assert find_chats("--project") == [first]
    assert find_chats("--project", str(other_project)) == [second]
    assert " other " in here("chats").out
    assert "no such chat" in here("chats", "--search", "green").err


def test_the_copy_is_the_latest(cli: CommandLine, here: Here) -> None:  # D-07
    model = cli.script(HELLO)
    first = here("run", "One.", "--model", model, "--json").events[0]["chat"]
    here("run", "Two.", "--model", model)
    copy = here("fork", first).out.strip()
    assert here("show", "last", "--json").lines[0]["chat"] == copy


SLEEP = '[[turn]]\ncall = [{ name = "run_command", args = { command = "touch begun; sleep 600" } }]\n'
DIRECT = {"TREADLE_COMMAND_VIEW": "false", "TREADLE_AUTO_APPROVE_COMMANDS": "true"}


def watcher(cli: CommandLine) -> "subprocess.Popen[str]":
    """A process that follows the chat and hears signals."""
    process = cli.start("resume", "last", env=DIRECT)
    assert process.stderr is not None
    assert any("Ctrl-C leaves" in line for line in process.stderr)
    return process


def test_who_watches_leaves_by_ctrl_c_and_stops_by_stop(cli: CommandLine) -> None:  # L-07, W-03
    owner = cli.start("run", "Sleep.", "--model", cli.script(SLEEP + HELLO), "--json", env=DIRECT)
    until(owner, "tool.execution_start")
    process = watcher(cli)
    process.send_signal(signal.SIGINT)
    watch_result = end(process)
    assert (watch_result.code, "goes on elsewhere" in watch_result.err) == (130, True)
    assert owner.poll() is None
    stopped = cli("stop", "last")
    assert (stopped.code, "interrupted" in stopped.err) == (0, True)
    assert end(owner).of("session.idle") == [{"reason": "interrupted", "why": ""}]
    assert cli("stop", "last").code == 1


def test_who_drives_a_resumed_chat_leaves_it_unfinished(cli: CommandLine) -> None:  # D-01
    owner = cli.start("run", "Sleep.", "--model", cli.script(SLEEP + HELLO), "--json", env=DIRECT)
    until(owner, "tool.execution_start")
    owner.kill()
    end(owner)
    process = watcher(cli)
    while not cli("chats", "--json").lines[0]["leased"]:
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    resume_result = end(process)
    assert (resume_result.code, "nothing works on chat" in resume_result.err) == (130, True)
    assert cli("export", "last").of("session.interrupted") == []
    assert cli("stop", "last", "--json").lines[0]["reason"] == "interrupted"
