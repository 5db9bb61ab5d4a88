"""What is typed and piped into the command line: standard input as context, flags that contradict each other, names
that do not exist, aliases and profiles (U-07)."""

import io
import signal
import subprocess
import sys
from collections.abc import Callable

import pytest

from tests.scenario.command_line import CommandLine, Ended, end, until
from treadle.frontends.cli.group import invoke

Here = Callable[..., Ended]
HELLO = '[[turn]]\ntext = "Hello."\n'


@pytest.fixture
def here(cli: CommandLine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Here:
    """The command line in this process: for what needs no process of its own."""
    monkeypatch.chdir(cli.project)
    for name, value in cli.environment.items():
        if name != "PYTHONPATH":
            monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO()))  # nothing is piped in

    def run(*arguments: str) -> Ended:
        code = invoke([*arguments])
        told = capsys.readouterr()
        return Ended(code, told.out, told.err)

    return run


def said(cli: CommandLine) -> str:
    return str(cli("export", "last").of("user.message")[-1]["content"])


def test_standard_input_is_context(cli: CommandLine) -> None:
    model = cli.script(HELLO)
    assert cli("run", "Review this.", "--model", model, input="+one\n").code == 0
    assert said(cli) == "Review this.\n\n<standard_input>\n+one\n</standard_input>"
    assert cli("chats", "--json").lines[0]["title"] == "Review this."
    cli("run", "Review this.", "--model", model, "--no-stdin", input="+one\n")
    assert said(cli) == "Review this."
    cli("run", "--model", model, input="Do it.\n")  # without a task it is the task
    assert said(cli) == "Do it.\n"


@pytest.mark.parametrize(
    ("given", "words"),
    [("x" * 400_001, "longer than 400,000 bytes"), ("a\0b", "no text"), (b"\xff".decode("latin-1"), "")],
)
def test_what_is_no_context_is_refused_before_anything_is_sent(cli: CommandLine, given: str, words: str) -> None:
    ended = cli("run", "Review.", "--model", cli.script(HELLO), input=given)
    if words:
        assert (ended.code, words in ended.err) == (2, True)
        assert cli("chats", "--json").out == ""
    else:
        assert ended.code == 0  # any letter is one


def test_piped_text_without_a_command_is_a_task(cli: CommandLine) -> None:  # U-08
    ended = cli("--model", cli.script(HELLO), input="Hi.\n")
    assert (ended.code, "Hello." in ended.out) == (0, True), ended.err
    ended = cli("--model", cli.script(HELLO), "Say hello, please.")
    assert (ended.code, "Hello." in ended.out) == (0, True), ended.err
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
    ended = here("run", "Hi.", "--model", cli.script(HELLO), *flags)
    assert (ended.code, "exclude each other" in ended.err) == (2, True)


def test_names_that_do_not_exist(cli: CommandLine, here: Here) -> None:
    tools = here("run", "Hi.", "--model", cli.script(HELLO), "--tools", "read_fil")
    assert tools.code == 2
    assert "did you mean 'read_file'" in tools.err
    assert "write_file" in tools.err  # the list
    assert "did you mean 'chats'" in here("chatz").err
    assert here("chatz").code == 2
    chat = here("run", "Hi.", "--model", cli.script(HELLO), "--json").events[0]["chat"]
    near = f"{chat[:-1]}{'a' if chat[-1] != 'a' else 'b'}"
    assert f"did you mean {chat!r}" in here("show", near).err


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
    shown = cli("config", "--json", env={"TREADLE_PROFILE": "look"}).lines[0]["settings"]
    assert shown["max_turns"] == {"value": 3, "source": "environment TREADLE_PROFILE (profile look)"}
    unknown = here("run", "Hi.", "--profile", "lok")
    assert (unknown.code, "did you mean 'look'" in unknown.err) == (2, True)
    assert "no setting; did you mean 'mode'" in here("run", "Hi.", "--profile", "wrong").err
    assert here("fork", "last", "--model", "fast", "--json").lines[0]["seq"] > 0


def test_chats_by_project_and_words(cli: CommandLine, here: Here) -> None:
    model = cli.script(HELLO)
    other = cli.folder / "other"
    other.mkdir()
    first = here("run", "Paint it red.", "--model", model, "--json").events[0]["chat"]
    second = here("run", "Paint it blue.", "--model", model, "--root", str(other), "--json").events[0]["chat"]

    def found(*flags: str) -> list[str]:
        return [line.split()[0] for line in here("chats", *flags).out.splitlines()]

    assert found() == [second, first]
    assert found("--limit", "1") == [second]
    assert found("--search", "RED") == [first]
    assert found("--project") == [first]
    assert found("--project", str(other)) == [second]
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
    left = end(process)
    assert (left.code, "goes on elsewhere" in left.err) == (130, True)
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
    left = end(process)
    assert (left.code, "nothing works on chat" in left.err) == (130, True)
    assert cli("export", "last").of("session.interrupted") == []
    assert cli("stop", "last", "--json").lines[0]["reason"] == "interrupted"
