"""The commands behind the slash: each does what its line of help says, and none ends the app."""

import sys
from pathlib import Path

import pytest

from tests.scenario.mcp_servers.kit import ODD
from tests.scenario.test_tui_app import agent_with, app_on, read_transcript, say, until
from treadle import Agent
from treadle.adapters.models.scripted import Call, Hang, Say, ScriptedModel, Turn
from treadle.frontends.tui.app import TreadleApp
from treadle.frontends.tui.commands import COMMANDS
from treadle.frontends.tui.screens import Picker, Reading

pytestmark = pytest.mark.thorough(one_of=8)

LISTS = ("model", "mode", "review", "diff", "rewind", "chats", "resume", "queue", "jobs", "theme")
LISTS += ("rules", "permissions", "history", "effort")
TEXTS = {"help": "Keys and commands", "status": "Status", "cost": "Cost of this chat"}
ELSEWHERE = (
    "agent",
    "clear",
    "compact",
    "copy",
    "edit",
    "exit",
    "init",
    "doctor",
    "network",
    "paste",
    "quit",
    "redo",
    "rename",
    "undo",
    "fork",
    "new",
    "world",
)
"""Commands that the test runs one by one, and commands of other tests."""


def read_notifications(app: TreadleApp) -> str:
    return "\n".join(str(each.message) for each in app._notifications)


async def test_a_world_is_looked_at_rebased_and_committed(tmp_path: Path) -> None:  # W-12, W-13
    steps = [[Call("write_file", path="made.txt", content="made\n")], Say("The last words.")]
    (tmp_path / "project").mkdir()
    new_file = tmp_path / "project" / "made.txt"
    async with agent_with(steps, tmp_path / "home") as agent:
        app = app_on(agent, tmp_path / "project", mode="auto-edit", world="chat")
        async with app.run_test(size=(100, 30)) as pilot:
            await say(pilot, "Go.")
            await until(pilot, lambda: "last words" in read_transcript(app) and not app.conversation.view.busy)
            await say(pilot, "/world")
            await until(pilot, lambda: isinstance(app.screen, Reading))
            await pilot.press("escape")
            await until(pilot, lambda: not isinstance(app.screen, Reading))
            await say(pilot, "/world rebase")
            await until(pilot, lambda: "the world is up to date" in read_notifications(app))
            assert not new_file.exists()
            await say(pilot, "/world commit")
            await until(pilot, lambda: new_file.exists() and "committed 1 change" in read_notifications(app))
            app.leave()


async def test_the_commands_one_after_the_other(tmp_path: Path) -> None:  # U-04
    assert {*LISTS, *TEXTS, *ELSEWHERE, "export"} == set(COMMANDS)
    steps = [[Call("write_file", path="made.txt", content="made\n")], Say("The *last* words."), Say("Tidied.")]
    (tmp_path / "project").mkdir()
    new_file = tmp_path / "project" / "made.txt"
    async with agent_with(steps, tmp_path / "home") as agent:
        agent.mcp.add("odd", {"command": sys.executable, "args": ["-S", ODD, str(tmp_path / "notes")]})
        app = app_on(agent, tmp_path / "project", mode="auto-edit")
        async with app.run_test(size=(100, 30)) as pilot:
            await say(pilot, "Go.")
            await until(pilot, lambda: "last words" in read_transcript(app) and not app.conversation.view.busy)
            assert app.link is not None
            first = app.link.id
            for name in LISTS:
                await say(pilot, f"/{name}")
                await until(pilot, lambda: isinstance(app.screen, Picker))
                await pilot.press("escape")
                await until(pilot, lambda: not isinstance(app.screen, Picker))
            for name in TEXTS:
                await say(pilot, f"/{name}")
                await until(pilot, lambda: isinstance(app.screen, Reading))
                await pilot.press("escape")
                await until(pilot, lambda: not isinstance(app.screen, Reading))
            await say(pilot, "/undo")
            await until(pilot, lambda: not new_file.exists() and "undone: 1 change" in read_notifications(app))
            await say(pilot, "/redo made.txt")
            await until(pilot, new_file.exists)
            await say(pilot, "/network registries, example.org")
            await until(pilot, lambda: app.conversation.view.options.network)
            await say(pilot, "/rename A title")
            await until(pilot, lambda: app.conversation.view.title == "A title")
            await say(pilot, "/copy answer")
            await until(pilot, lambda: app.clipboard == "The *last* words.")
            await say(pilot, f"/export {tmp_path}/chat.jsonl")
            await until(pilot, (tmp_path / "chat.jsonl").exists)
            await say(pilot, "/export ~no-such-user/chat.jsonl")
            await until(pilot, lambda: "~no-such-user/chat.jsonl cannot be written" in read_notifications(app))
            await say(pilot, "/odd:tidy well")  # a prompt of an MCP server
            await until(
                pilot, lambda: "Tidy all well: some notes" in read_transcript(app) and "Tidied." in read_transcript(app)
            )
            await say(pilot, "/mode nonsense")
            await until(pilot, lambda: "there is no mode 'nonsense'" in read_notifications(app))
            await say(pilot, "/comapct")
            await until(pilot, lambda: "did you mean 'compact'" in read_notifications(app))
            for word in ("soon", "9" * 5000):
                await say(pilot, f"/fork {word}")
                await until(
                    pilot, lambda word=word: f"{word[:80]!r} is no number of an event" in read_notifications(app)
                )
            await say(pilot, "/fork")
            await until(pilot, lambda: app.link is not None and app.link.id != first)
            await say(pilot, "/new")
            await until(pilot, lambda: app.link is None and not app.conversation.blocks)
            app.leave()


async def test_a_compaction_is_shown_while_it_is_made_and_escape_stops_it(tmp_path: Path) -> None:  # U-04, L-07, L-19
    model = ScriptedModel([Say("One. " * 100), Say("Two. " * 100)], side_answers={"compaction": Turn((Hang(),))})
    async with Agent(model=model, home=tmp_path / "home") as agent:
        app = app_on(agent, tmp_path)
        async with app.run_test(size=(100, 30)) as pilot:
            for words in ("One.", "Two."):
                await say(pilot, "Go.")
                await until(pilot, lambda words=words: words in read_transcript(app) and not app.conversation.view.busy)
            await say(pilot, "/compact")
            await until(pilot, lambda: "summing up" in str(app._written["#status"]))
            await pilot.press("escape")
            await until(pilot, lambda: "summing up failed: interrupted" in read_transcript(app))
            assert (app.conversation.view.busy, app.conversation.view.stopping) == (False, False)
            app.leave()
