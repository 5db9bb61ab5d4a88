"""The choices that the app offers and refuses: images, reasoning effort, rules, copies (U-03, U-10)."""

from pathlib import Path
from typing import Any

import pytest
from textual.events import Paste
from textual.pilot import Pilot
from textual.widgets import OptionList

from tests.scenario.test_tui_app import agent_with, app_on, read_transcript, say, until
from tests.unit.frontends.tui.recorded import Recorded, ended_log
from treadle.adapters.models.scripted import Call, Say
from treadle.frontends.presentation.conversation import iterate_copies
from treadle.frontends.tui.app import AppExit, Start, TreadleApp
from treadle.frontends.tui.connection import ModelRow
from treadle.frontends.tui.launch import make_app
from treadle.frontends.tui.screens import Picker
from treadle.protocol.permissions import Rule

pytestmark = pytest.mark.thorough(one_of=8)


class Models(Recorded):
    """A chat with a model that neither sees nor reasons."""

    async def list_model_rows(self) -> list[ModelRow]:
        return [
            ModelRow("m:x", vision=False, efforts=()),
            ModelRow("m:sees", vision=True),
            ModelRow("n:y", unusable_reason="no key"),
        ]


def app_of(recorded: Any) -> TreadleApp:
    async def connect() -> Any:
        return recorded

    return make_app(connect, Start("/home/me/project", "m:x"))


def has_notification(app: TreadleApp, words: str) -> bool:
    return any(words in str(each.message) for each in app._notifications)


def rows(app: TreadleApp) -> list[str]:
    option_lists = app.screen.query("#rows").results(OptionList)
    return [str(each.get_option_at_index(at).prompt) for each in option_lists for at in range(each.option_count)]


async def test_an_image_that_the_model_cannot_see_is_refused_when_it_is_attached(tmp_path: Path) -> None:  # M-07
    picture = tmp_path / "a.png"
    picture.write_bytes(b"\x89PNG\r\n\x1a\n")
    app = app_of(Models(ended_log()))
    async with app.run_test(size=(100, 30)) as pilot:
        await until(pilot, lambda: app.controller is not None)
        app.post_message(Paste(str(picture)))
        await until(
            pilot, lambda: has_notification(app, "m:x cannot see images") and has_notification(app, "these can: m:sees")
        )
        assert app.composer.text == ""
        assert app.controller is not None
        app.controller.next_chat_options["model"] = "m:sees"
        app.post_message(Paste(str(picture)))
        await until(pilot, lambda: "[image #1: a.png]" in app.composer.text)
        app.leave()


async def test_the_effort_is_chosen_and_shown_before_and_in_a_chat(tmp_path: Path) -> None:  # M-16
    async with agent_with([Say("Done.")], tmp_path / "home") as agent:
        app = app_on(agent, tmp_path)
        async with app.run_test(size=(120, 30)) as pilot:
            await say(pilot, "/effort high")
            await until(pilot, lambda: app.showing.options.reasoning_effort == "high")
            await say(pilot, "Go.")
            await until(pilot, lambda: "Done." in read_transcript(app))
            assert app.conversation.view.options.reasoning_effort == "high"
            await until(pilot, lambda: "(high)" in app._written["#footer"][0])
            await say(pilot, "/effort huge")
            await until(pilot, lambda: has_notification(app, "there is no effort 'huge'"))
            app.leave()


async def test_a_model_without_reasoning_effort_says_so() -> None:  # M-16
    app = app_of(Models(ended_log()))
    async with app.run_test(size=(100, 30)) as pilot:
        await say(pilot, "/effort")
        await until(pilot, lambda: has_notification(app, "m:x has no levels of reasoning effort"))
        app.leave()


async def choose(pilot: Pilot[AppExit], app: TreadleApp, *keys: str) -> None:
    await until(pilot, lambda: isinstance(app.screen, Picker) and rows(app))
    await pilot.press(*keys)


async def test_rules_are_listed_and_revoked(tmp_path: Path) -> None:  # S-07
    (tmp_path / "project").mkdir()
    async with agent_with([Say("Done.")], tmp_path / "home") as agent:
        agent.rules.add(Rule("allow", "run_command", "make *", "user"))
        app = app_on(agent, tmp_path / "project")
        async with app.run_test(size=(140, 30)) as pilot:
            await say(pilot, "Go.")
            await until(pilot, lambda: "Done." in read_transcript(app))
            assert app.link is not None
            await app.link.change(rules=[{"effect": "deny", "tool": "run_command", "pattern": "curl *", "id": "r_1"}])
            await say(pilot, "/permissions")
            await until(pilot, lambda: isinstance(app.screen, Picker) and len(rows(app)) == 2)
            assert "make *" in rows(app)[0]
            assert "everywhere" in rows(app)[0]
            assert "never used" in rows(app)[0]
            assert "curl *" in rows(app)[1]
            await pilot.press("r")
            await until(pilot, lambda: len(rows(app)) == 1)
            await pilot.press("r")
            await until(pilot, lambda: rows(app) == ["nothing here"])
            app.leave()
        assert not agent.rules.list_rules()


async def test_copy_offers_answer_code_command_and_diff(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clipboard, program = tmp_path / "clipboard", tmp_path / "wl-copy"
    program.write_text(f"#!/bin/sh\ncat > {clipboard}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setenv("WAYLAND_DISPLAY", "wayland-0")
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "a.py").write_text("x = 1\n")
    edit = Call("edit_file", path="a.py", old_str="1", new_str="2")
    steps = [[edit], [Call("run_command", command="echo hi")], Say("Look:\n\n```sh\nmake all\n```\n")]
    async with agent_with(steps, tmp_path / "home") as agent:
        app = app_on(agent, tmp_path / "project", mode="autopilot")
        async with app.run_test(size=(100, 30)) as pilot:
            await say(pilot, "Go.")
            await until(pilot, lambda: "Look:" in read_transcript(app) and not app.conversation.view.busy)
            kinds = [kind for kind, _ in iterate_copies(app.conversation.blocks)]
            assert kinds == ["answer", "code", "command", "diff"]
            await say(pilot, "/copy")
            await choose(pilot, app, "down", "enter")
            await until(pilot, lambda: clipboard.exists() and clipboard.read_text() == "make all")
            assert app.clipboard == "make all"
            app.leave()
