"""Notices about the confinement of commands (V-04, S-03): once for each change, and only if it matters.
A tool that only reads does not count as having written (L-16); the options of a chat are shown (E-06)."""

from pathlib import Path

import pytest

from tests.scenario.command_line import CommandLine
from tests.scenario.kit import Stage, of, play
from treadle import tool
from treadle.adapters.models.scripted import Call, Say
from treadle.protocol import commands as c
from treadle.protocol import events as e

COMMAND = Call("run_command", command="echo hello")


async def test_a_lower_level_is_said_once_and_again_when_it_changed(stage: Stage, tmp_path: Path) -> None:
    steps = [COMMAND, COMMAND, Say("Done."), COMMAND, Say("Done."), COMMAND, Say("Done.")]
    agent = stage.agent(steps, builtin=True)
    chat = agent.chat(root=str(tmp_path), sandbox="none", auto_approve_commands=True)
    [notice] = of(await play(chat.send("Go.")), e.SandboxNotice)
    assert (notice.level, notice.view, notice.lowered) == ("none", False, True)
    assert "without a sandbox (the setting sandbox is none)" in notice.text
    await chat.command(c.ChangeOptions({"sandbox": "auto", "command_view": False}))
    [second_notice] = of(await play(chat.send("Go.")), e.SandboxNotice)
    assert "the setting command_view is off" in second_notice.text
    await chat.command(c.ChangeOptions({"command_view": True}))
    for again in of(await play(chat.send("Go.")), e.SandboxNotice):
        assert again.text != second_notice.text


async def test_the_best_needs_no_word(stage: Stage, tmp_path: Path) -> None:
    chat = stage.agent([COMMAND, Say("Done.")], builtin=True).chat(root=str(tmp_path), auto_approve_commands=True)
    events = await play(chat.send("Go."))
    [completion] = of(events, e.ExecutionComplete)
    if completion.effect != "view" or not completion.sandbox.startswith("bubblewrap"):
        pytest.skip("bubblewrap with views does not work here")
    assert of(events, e.SandboxNotice) == []


@tool(read_only=True)
def look_up(word: str) -> str:
    """Look a word up."""
    return f"{word} is a word"


async def test_a_tool_that_only_reads_has_not_written(stage: Stage, tmp_path: Path) -> None:  # L-16
    steps = [Call("look_up", word="bug"), Say("Fixed."), Say("Nothing needed to be changed.")]
    chat = stage.agent(steps, look_up, builtin=True).chat(root=str(tmp_path))
    events = await play(chat.send("Fix the bug in engine.py."))
    assert [message.source for message in of(events, e.UserMessage)] == ["person", "check"]


def test_the_options_of_a_chat_are_shown(tmp_path: Path) -> None:  # E-06
    cli = CommandLine(tmp_path)
    model = cli.script('[[turn]]\ntext = "Hello."\n')
    assert cli("run", "Hi.", "--model", model, "--max-turns", "7").code == 0
    [config] = cli("config", "--chat", "last", "--json", env={"TREADLE_NETWORK": "true"}).lines
    options = config["options"]
    assert options["max_turns"] == {"value": 7, "source": f"chat {config['chat']}"}
    assert options["network"] == {"value": False, "source": f"chat {config['chat']}"}
    assert options["mode"] == {"value": "ask", "source": "default"}
    assert "max_turns" in cli("config", "--chat", "last").out
