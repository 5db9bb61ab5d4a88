"""A person at a terminal is asked there: approvals as cards, questions, and who gets to see the project (S-07, S-08,
S-10). A pseudo-terminal stands in for it."""

import json
import os
import pty
import select
import shlex
import signal
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import pytest

from tests.forked import Forked
from tests.scenario.command_line import CommandLine
from treadle.protocol.events import ModelNotice
from treadle.sync import Agent

pytestmark = pytest.mark.thorough(one_of=8)

MAKE = '[[turn]]\ncall = [{ name = "run_command", args = { command = "make count" } }]\n'
ASK = '[[turn]]\ncall = [{ name = "ask_user", args = { question = "Which?", options = ["red", "blue"] } }]\n'
DONE = '[[turn]]\ntext = "All done."\n'
PATIENCE_S = 60


class Person:
    """Sees the terminal and types."""

    def __init__(self, cli: CommandLine, arguments: tuple[str, ...], env: Mapping[str, str], shell: str) -> None:
        self._fd, follower = pty.openpty()
        self.process = Forked(
            ["sh", "-c", shell] if shell else cli.words(*arguments),
            cwd=cli.project,
            env=cli.environment | {"TERM": "dumb"} | dict(env),
            stdin=follower,
            stdout=follower,
            stderr=follower,
            terminal=True,
        )
        os.close(follower)
        self.seen = ""

    def sees(self, text: str) -> None:
        until = time.monotonic() + PATIENCE_S
        while text not in self.seen:
            ready, _, _ = select.select([self._fd], [], [], max(0.0, until - time.monotonic()))
            assert ready, f"never shown: {text}\n{self.seen}"
            self.seen += self._read() or f"\n[closed before {text!r} was shown]"
            assert "[closed before" not in self.seen, self.seen

    def types(self, text: str) -> None:
        self.seen = ""
        os.write(self._fd, f"{text}\n".encode())

    def presses(self, key: bytes) -> None:
        os.write(self._fd, key)

    def leaves(self) -> int:
        while piece := self._read():
            self.seen += piece
        return self.process.wait(PATIENCE_S)

    def _read(self) -> str:
        try:
            return os.read(self._fd, 65_536).decode()
        except OSError:  # how Linux says that the other side is closed
            return ""

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self._fd)


@contextmanager
def person(
    cli: CommandLine, *arguments: str, env: Mapping[str, str] | None = None, shell: str = ""
) -> Iterator[Person]:
    scripted_person = Person(cli, arguments, env or {}, shell)
    try:
        yield scripted_person
    finally:
        scripted_person.close()


def prepare_run(cli: CommandLine, script: str) -> tuple[str, ...]:
    (cli.project / "Makefile").write_text(".PHONY: count\ncount:\n\t@echo x >> count\n")
    return ("run", "Work.", "--model", cli.script(script), "--mode", "confirm")


def count(cli: CommandLine) -> int:
    path = cli.project / "count"
    return path.read_text().count("x") if path.exists() else 0


def test_a_card_and_a_yes(cli: CommandLine) -> None:
    with person(cli, *prepare_run(cli, MAKE + DONE)) as one:
        one.sees("[n]o")
        for words in ("command: make count", "severity: medium", "asked because:", "rule 1 would allow: `make count`"):
            assert words in one.seen
        assert count(cli) == 0
        one.types("what?")
        one.sees("[y]es")  # asked again
        one.types("y")
        one.sees("All done.")
        assert one.leaves() == 0
    assert count(cli) == 1
    assert cli("rules", "--json").out == ""


def test_a_key_from_before_the_card_approves_nothing(cli: CommandLine) -> None:
    slow = MAKE.replace("[[turn]]", "[[turn]]\nwait_s = 5")
    with person(cli, *prepare_run(cli, slow + DONE)) as one:
        one.sees("chat c_")
        one.presses(b"yy")
        one.sees("[n]o")
        one.presses(b"n")  # one key each, and no Enter
        one.sees("why not?")
        one.types("")
        assert one.leaves() == 0
    assert count(cli) == 0


def test_escape_stops_the_run(cli: CommandLine) -> None:  # L-07
    sleep = MAKE.replace("make count", "echo begun; sleep 600")
    arguments = prepare_run(cli, sleep + DONE)[:-1]
    with person(cli, *arguments, "ask", env={"TERM": "xterm"}) as one:
        one.sees("begun")
        one.presses(b"\x1b")
        assert one.leaves() == 130
        assert "interrupted" in one.seen


@pytest.mark.thorough(one_of=8)
def test_with_a_pipe_as_input_the_terminal_is_asked(cli: CommandLine) -> None:
    arguments = shlex.join([sys.executable, "-m", "treadle", *prepare_run(cli, MAKE + DONE)])
    with person(cli, shell=f"echo context | {arguments}") as one:
        one.sees("[n]o")
        one.presses(b"y")
        one.sees("All done.")
        assert one.leaves() == 0
    assert count(cli) == 1
    assert "context" in cli("export", "last").of("user.message")[0]["content"]


def test_no_with_a_reason(cli: CommandLine) -> None:
    with person(cli, *prepare_run(cli, MAKE + DONE)) as one:
        one.sees("[n]o")
        one.types("n")
        one.sees("why not?")
        one.types("Use tox.")
        assert one.leaves() == 0
    assert count(cli) == 0
    assert "Use tox." in cli("export", "last").of("tool.execution_complete")[0]["error"]


def test_another_command_instead(cli: CommandLine) -> None:
    with person(cli, *prepare_run(cli, MAKE + DONE)) as one:
        one.sees("[e]dit")
        one.types("e")
        one.sees("run instead: make count")  # the requested command, to be edited
        one.types("\x15echo xx >> count")
        assert one.leaves() == 0
    assert count(cli) == 2


def test_always_in_this_project(cli: CommandLine) -> None:  # S-07
    with person(cli, *prepare_run(cli, MAKE + MAKE + DONE)) as one:
        one.sees("this [p]roject")
        one.types("p")
        one.sees("All done.")
        assert one.leaves() == 0
    assert count(cli) == 2
    assert json.loads(cli("rules", "--json").out)["scope"] == "project"


@pytest.mark.parametrize("answer", ["blue", "2"])
def test_a_question_of_the_model(cli: CommandLine, answer: str) -> None:  # T-07
    with person(cli, *prepare_run(cli, ASK + DONE)) as one:
        one.sees("1 red")
        one.sees("a number, or your own words")
        one.types(answer)
        assert one.leaves() == 0
    assert cli("export", "last").of("user_input.completed")[0]["answer"] == "blue"


@pytest.mark.thorough(one_of=8)
def test_leaving_leaves_the_question_open(cli: CommandLine) -> None:  # S-08
    for key, code in ((b"\x04", 56), (None, -9)):
        with person(cli, *prepare_run(cli, MAKE + DONE)) as one:
            one.sees("[n]o")
            if key is None:
                one.process.kill()
            else:
                one.presses(key)
            assert one.leaves() == code
        (pending,) = cli("pending", "--json").lines
        assert cli("approve", pending["id"]).code == 0
    assert count(cli) == 2


@pytest.mark.thorough(one_of=8)
def test_answered_elsewhere_while_the_card_is_shown(cli: CommandLine) -> None:  # S-08, fault 6
    for answer, ran in (("--deny", 0), (None, 1)):
        with person(cli, *prepare_run(cli, MAKE + DONE)) as one:
            one.sees("[n]o")
            assert cli("approve", "last", *([answer] if answer else [])).code == 0
            one.sees("answered elsewhere")
            one.sees("All done.")  # without any typed input
            assert one.leaves() == 0
        assert count(cli) == ran


def test_an_answer_that_comes_too_late_is_a_notice(cli: CommandLine) -> None:  # S-08, fault 6
    with person(cli, *prepare_run(cli, MAKE + DONE)) as one:
        one.sees("[n]o")
        one.process.send_signal(signal.SIGSTOP)  # it sees nothing of what happens meanwhile
        one.types("y")
        assert cli("approve", "last", "--deny").code == 0
        one.process.send_signal(signal.SIGCONT)
        one.sees("answered elsewhere")
        assert one.leaves() == 0
        assert one.seen.count("All done.") == 1
    assert count(cli) == 0


def test_a_question_answered_elsewhere(cli: CommandLine) -> None:  # S-08
    with person(cli, *prepare_run(cli, ASK + DONE)) as one:
        one.sees("a number, or your own words")
        assert cli("resume", "last", "--answer", "blue", "--json").code == 0
        one.sees("answered elsewhere")
        one.sees("All done.")
        assert one.leaves() == 0


def test_a_resumed_chat_asks_again(cli: CommandLine) -> None:  # S-08
    with person(cli, *prepare_run(cli, MAKE + DONE)) as one:
        one.sees("[n]o")
        one.process.kill()
        one.leaves()
    with person(cli, "resume", "last") as one:
        one.sees("[n]o")
        assert "command: make count" in one.seen
        one.types("y")
        one.sees("All done.")
        assert one.leaves() == 0
    assert count(cli) == 1


def test_headless_on_a_terminal_asks_nothing(cli: CommandLine) -> None:
    with person(cli, *prepare_run(cli, MAKE + DONE), "--headless") as one:
        one.sees("All done.")
        assert one.leaves() == 57
    assert count(cli) == 0


# -- consent (S-10) ---------------------------------------------------------------------------------------------------


def program(cli: CommandLine) -> dict[str, str]:
    """A program is the model, and Treadle cannot know where it sends the text."""
    path = cli.folder / "talker"
    path.write_text(f"#!{sys.executable}\nopen({str(cli.folder / 'asked')!r}, 'a').write('x')\nprint('Hello.')\n")
    path.chmod(0o755)
    return {"TREADLE_COMMAND_TALKER": str(path)}


RUN = ("run", "Hi.", "--model", "command:talker")


def test_told_once_and_recorded(cli: CommandLine) -> None:
    first = cli(*RUN, "--json", env=program(cli))
    second = cli(*RUN, "--json", env=program(cli))
    assert (first.code, second.code) == (0, 0)
    assert first.err.count("are sent to the program behind command:talker") == 1
    assert second.err == ""
    notices = [[data["kind"] for data in result.of("model.notice")] for result in (first, second)]
    assert notices == [["consent", "rung"], ["rung"]]


def test_a_setting_accepts_beforehand(cli: CommandLine) -> None:
    run_result = cli(*RUN, "--json", env=program(cli) | {"TREADLE_CONSENT": "command\nxai"})
    assert (run_result.code, run_result.err) == (0, "")
    assert [data["kind"] for data in run_result.of("model.notice")] == ["rung"]


def test_a_person_is_asked_and_nothing_is_sent_before(cli: CommandLine) -> None:
    with person(cli, *RUN, env=program(cli)) as one:
        one.sees("Go on?")
        one.types("n")
        assert one.leaves() == 1
        assert "nothing was sent" in one.seen
    assert not (cli.folder / "asked").exists()
    assert cli("chats", "--json").out == ""
    with person(cli, *RUN, env=program(cli)) as one:
        one.sees("Go on?")
        one.types("y")
        one.sees("Hello.")
        assert one.leaves() == 0
    with person(cli, *RUN, env=program(cli)) as one:
        one.sees("Hello.")
        assert one.leaves() == 0
        assert "Go on?" not in one.seen


def test_the_library_is_told_by_its_warnings(cli: CommandLine) -> None:
    with Agent(env=program(cli), home=cli.home) as agent:
        chat = agent.chat(model="command:talker").open()
        agent.chat(model="command:talker")
        assert [warning for warning in agent.warnings if "are sent to" in warning] == agent.warnings
        assert len(agent.warnings) == 1
        assert [event.data.kind for event in chat.events() if isinstance(event.data, ModelNotice)] == ["consent"]
    with Agent(env=program(cli), home=cli.home, accepted=["command"]) as agent:
        assert agent.chat(model="command:talker").open().events()[-1].type == "session.created"
        assert agent.warnings == []


@pytest.mark.parametrize("depth", [1, 2])
def test_what_a_sub_agent_asks_is_asked_here(cli: CommandLine, depth: int) -> None:  # L-23, S-08
    (cli.home / "agents").mkdir()
    write = '[[turn]]\ncall = [{ name = "write_file", args = { path = ".env", content = "X=1" } }]\n'
    child = cli.script(write + DONE, "child.toml")
    (cli.home / "agents" / "writer.md").write_text(f"---\nname: writer\nmodel: {child}\n---\nWrite.\n")
    tasks = '[{ task = "Write it", agent = "AGENT" }]'
    delegates = f'[[turn]]\ncall = [{{ name = "delegate", args = {{ tasks = {tasks} }} }}]\n{DONE}'
    middle = cli.script(delegates.replace("AGENT", "writer"), "middle.toml")
    (cli.home / "agents" / "middle.md").write_text(f"---\nname: middle\nmodel: {middle}\n---\nShare.\n")
    parent = cli.script(delegates.replace("AGENT", "writer" if depth == 1 else "middle"))
    with person(cli, "run", "Go.", "--model", parent) as someone:
        someone.sees("asks:")
        someone.sees("[y]es")
        someone.types("y")
        someone.sees("committed")
        assert someone.leaves() == 0
    assert (cli.project / ".env").read_text() == "X=1"
