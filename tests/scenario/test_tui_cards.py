"""No typed or pasted text answers a card; the keys that it shows do (S-08, U-10)."""

import random
import string
from collections.abc import Sequence
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from textual.events import Key, Paste
from textual.pilot import Pilot
from textual.widgets import Static

from tests.scenario.test_tui_app import agent_with, app_on, say, until
from tests.unit.frontends.tui.recorded import Recorded, short_log
from treadle import Agent
from treadle.adapters.models.scripted import Call, Hang, Say
from treadle.base.types import CallKey, ChatId
from treadle.frontends.presentation.conversation import Conversation
from treadle.frontends.tui import card as cards
from treadle.frontends.tui.app import AppExit, Start, TreadleApp
from treadle.frontends.tui.card import list_choices
from treadle.frontends.tui.launch import make_app
from treadle.protocol import events as e
from treadle.protocol.content import ToolRequest
from treadle.protocol.permissions import NETWORK_TOOL, Offer, Rule

pytestmark = pytest.mark.thorough(one_of=8)

CALL = CallKey("3.0")
OFFERS = (
    Offer(Rule("allow", "run_command", "make *"), "every make command"),
    Offer(Rule("allow", "run_command", "git *"), "every git command"),
    Offer(Rule("allow", NETWORK_TOOL, "all", scope="once"), "every host"),
)


def approval(tool: str, text: str, offers: tuple[Offer, ...] = OFFERS) -> list[e.Event]:
    return [
        *short_log(),
        e.TurnStart(3, "m:x"),
        e.AssistantMessage(3, "", (), (ToolRequest(CALL, tool, "{}"),)),
        e.PermissionRequested("3.0", CALL, "high", "it changes files", f"{tool}\n  {text}", "h", offers=offers),
    ]


def question(*options: str, purpose: str = "") -> list[e.Event]:
    return [*short_log(), e.UserInputRequested("3.0", "Which one?", options, purpose=purpose)]


KINDS: dict[str, list[e.Event]] = {
    "command": approval("run_command", "command: make all"),
    "edit": approval("edit_file", "path: a.py\n\n--- a.py\n+++ a.py\n@@ -1 +1 @@\n-x\n+y", ()),
    "MCP tool": approval("weather__forecast", 'city: "Paris"'),
    "job effect": approval("read_job", "job: 2.0", ()),
    "question with options": question("the red one", "the blue one", "neither"),
    "question": question(),
    "turn cap": question("continue", "stop", purpose="turn_cap"),
    "elicitation": question("accept", "decline", "cancel", purpose="elicitation"),
}


EACH = 7
"""Sentences, and as many pastes, for each kind of card: more than 50 of either in all."""


class Asking(Recorded):
    """A chat that asks, and notes every answer."""

    def __init__(self, log: Sequence[e.Event]) -> None:
        super().__init__(log)
        self.answers: list[str] = []

    async def arguments(self, _action: Any) -> dict[str, Any]:
        return {"command": "make all"}

    async def approve(self, _action: Any, **more: Any) -> None:
        self.answers.append(f"approve {more}" if more else "approve")

    async def deny(self, _action: Any, feedback: str = "") -> None:
        self.answers.append(f"deny {feedback}".strip())

    async def answer(self, _action: Any, text: str) -> None:
        self.answers.append(f"answer {text}")


def asking_app(kind: str) -> tuple[TreadleApp, Asking]:
    recorded: Any = Asking(KINDS[kind])

    async def connect() -> Any:
        return recorded

    return make_app(connect, Start("/home/me/project", chat="c_1")), recorded


async def is_ready(pilot: Pilot[AppExit], app: TreadleApp) -> None:
    await until(pilot, lambda: app.controller is not None and app.card.action is not None)
    await until(pilot, lambda: app.card.armed or not app.card.takes_focus)


def type_at_once(app: TreadleApp, text: str) -> None:
    """As a terminal delivers it: keys in a row, without waiting for what they do."""
    for letter in text:
        app.post_message(Key({" ": "space"}.get(letter, letter), letter))


def sentences(seed: str, number: int) -> list[str]:
    """Random ones. They begin with every key that a card shows, and with any other."""
    chance = random.Random(seed)
    begins = chance.sample("yynnfewcpu123", number - 2) + chance.choices(string.ascii_letters + "0456789!/@", k=2)
    letters = string.ascii_lowercase + " ynfewcpu123.,?!'"
    return [begin + "".join(chance.choices(letters, k=chance.randint(2, 20))) for begin in begins]


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cards, "QUIET_S", 0.02)
    monkeypatch.setattr(cards, "LOOK_S", 0.02)
    monkeypatch.setattr(cards, "ANSWER_S", 5.0)  # on a busy machine, keys in a row are taken late


@pytest.mark.parametrize("kind", KINDS)
async def test_no_sentence_and_no_paste_answers(kind: str, quick: None) -> None:  # S-08, U-10
    app, recorded = asking_app(kind)
    async with app.run_test(size=(100, 40)) as pilot:
        for number, text in enumerate([*sentences(kind, EACH), *sentences(f"paste {kind}", EACH)]):
            await is_ready(pilot, app)
            if number < EACH:
                type_at_once(app, text)
            else:
                app.post_message(Paste(text))
            await until(pilot, lambda text=text: app.composer.text == text)  # type: ignore[misc]
            assert app.composer.has_focus
            assert recorded.answers == []
            app.composer.clear_all()
        app.leave()
    assert recorded.answers == []


async def test_a_key_at_the_moment_when_the_card_takes_the_focus_is_not_lost(quick: None) -> None:  # U-10
    app, recorded = asking_app("command")
    async with app.run_test(size=(100, 40)) as pilot:
        await is_ready(pilot, app)
        app.screen.set_focus(app.composer)
        await until(pilot, lambda: app.composer.has_focus and not app.card.armed)
        app.card._arm()  # the widgets learn of it later than the screen
        await app.on_event(Key("h", "h"))
        type_at_once(app, "ello")
        await until(pilot, lambda: app.composer.text == "hello")
        app.leave()
    assert recorded.answers == []


@pytest.mark.parametrize("pasted", ["y", "n", "1", "y\n", "\r"])
async def test_a_paste_of_one_key_is_text(pasted: str, quick: None) -> None:  # U-10
    app, recorded = asking_app("command")
    async with app.run_test(size=(100, 40)) as pilot:
        await is_ready(pilot, app)
        app.post_message(Paste(pasted))
        await until(pilot, lambda: app.composer.text == pasted.replace("\r", "\n"))
        app.leave()
    assert recorded.answers == []


async def test_a_shown_key_answers_when_nothing_follows_it() -> None:  # S-08
    app, recorded = asking_app("command")
    async with app.run_test(size=(100, 40)) as pilot:
        await is_ready(pilot, app)
        type_at_once(app, "y")
        await until(pilot, lambda: recorded.answers)
        app.leave()
    assert recorded.answers == ["approve"]


@pytest.mark.parametrize(("key", "answer"), [("y", "approve"), ("n", "deny"), ("w", "approve {'offer': 2, ")])
async def test_enter_makes_a_key_act_at_once(key: str, answer: str, quick: None) -> None:
    app, recorded = asking_app("command")
    async with app.run_test(size=(100, 40)) as pilot:
        await is_ready(pilot, app)
        await pilot.press(key, "enter")
        await until(pilot, lambda: recorded.answers)
        app.leave()
    assert recorded.answers[0].startswith(answer)


@pytest.mark.parametrize("key", ["c", "p", "u", "2"])
async def test_a_standing_rule_needs_a_second_key(key: str, monkeypatch: pytest.MonkeyPatch) -> None:  # S-07, U-10
    monkeypatch.setattr(cards, "ANSWER_S", 0.05)
    app, recorded = asking_app("command")
    async with app.run_test(size=(100, 40)) as pilot:
        for second in ("escape", "x", "enter"):
            await is_ready(pilot, app)
            type_at_once(app, key)
            await until(pilot, lambda: "Enter makes this rule" in card_text(app))
            assert recorded.answers == []
            await pilot.press(second)
            if second == "x":
                await until(pilot, lambda: app.composer.text == f"{key}x")
                app.composer.clear_all()
        await until(pilot, lambda: recorded.answers)
        app.leave()
    scope = {"c": "chat", "p": "project", "u": "user", "2": "chat"}[key]
    assert recorded.answers == [f"approve {{'offer': {int(key == '2')}, 'scope': '{scope}'}}"]


def card_text(app: TreadleApp) -> str:
    buffer = StringIO()
    Console(width=90, file=buffer).print(app.card.query_one(Static).content)
    return buffer.getvalue()


async def test_a_message_is_put_aside_for_the_answer_and_comes_back(quick: None) -> None:
    app, recorded = asking_app("command")
    async with app.run_test(size=(100, 40)) as pilot:
        await is_ready(pilot, app)
        type_at_once(app, "half a sentence")
        await until(pilot, lambda: "Tab puts your message aside" in card_text(app))
        await pilot.press("tab")
        await until(pilot, lambda: app.card.armed)
        assert app.composer.text == ""
        await pilot.press("f", "enter")
        await until(
            pilot, lambda: app.composer.has_focus and "why not" in str(app.query_one("#status").content.renderables[0])
        )  # type: ignore[attr-defined]
        type_at_once(app, "because")
        await pilot.press("enter")
        await until(pilot, lambda: recorded.answers == ["deny because"])
        await until(pilot, lambda: app.composer.text == "half a sentence")
        app.leave()


async def test_a_card_that_closes_as_it_takes_the_focus_leaves_it_to_the_composer(quick: None) -> None:  # U-10
    app, _ = asking_app("command")
    async with app.run_test(size=(100, 40)) as pilot:
        await until(pilot, lambda: app.controller is not None and app.card.action is not None)
        app.screen.set_focus(app.card)
        app.conversation.apply(e.Envelope(app.conversation.seq + 1, "c_1", 0, e.RunEnd("done")))  # type: ignore[arg-type]
        app.showing.draw()
        assert app.screen.focused is app.composer
        app.leave()


async def test_the_card_does_not_take_the_focus_back_by_itself(quick: None) -> None:
    app, _ = asking_app("command")
    async with app.run_test(size=(100, 40)) as pilot:
        await is_ready(pilot, app)
        await pilot.click("#composer")
        await until(pilot, lambda: not app.card.armed)
        await pilot.pause(0.2)
        assert app.composer.has_focus
        await pilot.press("tab")
        await until(pilot, lambda: app.card.armed and app.card.has_focus)
        app.leave()


def test_every_key_that_is_shown_is_distinct() -> None:
    action = e.OpenAction("1", "permission", name="run_command", offers=OFFERS)
    keys = [key for key, _ in list_choices(action)]
    assert len(keys) == len(set(keys))


def test_a_late_live_event_does_not_close_an_open_action() -> None:  # D-04
    """The log opens and closes actions. A live event that is older than the log changes neither."""
    conversation, chat = Conversation(), ChatId("c_1")

    def tell(*events: e.Event) -> None:
        for event in events:
            number = 0 if isinstance(event, e.ActionRequired) else conversation.seq + 1
            conversation.apply(e.Envelope(number, chat, 0, event))

    first = e.OpenAction("2.0", "permission", CALL, "run_command")
    tell(*KINDS["command"], e.ActionRequired((first,)), e.ActionRequired(()))
    assert [each.action for each in conversation.view.actions] == ["3.0", "2.0"]
    tell(e.PermissionCompleted("2.0", "allow"), e.ActionRequired((first,)))
    assert [each.action for each in conversation.view.actions] == ["3.0"]
    tell(e.RunEnd("interrupted"), e.ActionRequired((e.OpenAction("3.0", "permission", CALL),)))
    assert conversation.view.actions == ()


async def test_a_command_of_ones_own_runs_while_a_card_is_open(tmp_path: Path) -> None:  # L-18, U-10
    (tmp_path / "project").mkdir()
    steps = [[Call("run_command", command="echo yes > made.txt")], Say("Done.")]
    async with agent_with(steps, tmp_path / "home") as agent:
        app = app_on(agent, tmp_path / "project")
        async with app.run_test(size=(100, 40)) as pilot:
            await say(pilot, "Go.")
            await until(pilot, lambda: app.card.armed)
            type_at_once(app, "!echo own > own.txt")
            await until(pilot, lambda: app.composer.text == "!echo own > own.txt")
            await pilot.press("enter")
            await until(pilot, (tmp_path / "project" / "own.txt").exists)
            await until(pilot, lambda: app.card.armed)
            assert not (tmp_path / "project" / "made.txt").exists()
            await pilot.press("y", "enter")
            await until(pilot, lambda: not app.conversation.view.busy)
            app.leave()
    assert (tmp_path / "project" / "made.txt").exists()


@pytest.mark.parametrize("decision", ["approve", "deny"])
async def test_a_card_closes_when_its_request_is_answered_elsewhere(tmp_path: Path, decision: str) -> None:  # S-08
    (tmp_path / "project").mkdir()
    steps = [[Call("run_command", command="echo yes > made.txt")], Hang()]
    async with agent_with(steps, tmp_path / "home") as agent:
        app = app_on(agent, tmp_path / "project")
        async with app.run_test(size=(100, 40)) as pilot:
            await say(pilot, "Go.")
            await until(pilot, lambda: app.card.armed)
            await answer_elsewhere(agent, app, decision)
            await until(pilot, lambda: app.card.action is None)
            assert "answered elsewhere" in notices(app)
            await until(pilot, lambda: app.composer.has_focus)
            if decision == "approve":
                await until(pilot, (tmp_path / "project" / "made.txt").exists)
            app.leave()
    assert (tmp_path / "project" / "made.txt").exists() is (decision == "approve")


async def test_a_reason_is_not_asked_for_when_the_request_is_answered_elsewhere(tmp_path: Path) -> None:  # S-08
    (tmp_path / "project").mkdir()
    steps = [[Call("run_command", command="echo yes > made.txt")], Hang()]
    async with agent_with(steps, tmp_path / "home") as agent:
        app = app_on(agent, tmp_path / "project")
        async with app.run_test(size=(100, 40)) as pilot:
            await say(pilot, "Go.")
            await until(pilot, lambda: app.card.armed)
            await pilot.press("f", "enter")
            await until(pilot, lambda: purpose_words(app).startswith("why not?"))
            await answer_elsewhere(agent, app, "approve")
            await until(pilot, lambda: app.card.action is None)
            assert "answered elsewhere" in notices(app)
            assert purpose_words(app) == ""
            app.leave()


async def test_a_reason_with_offers_is_not_asked_for_when_the_request_is_answered_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "notes.txt").write_text("x")
    steps = [[Call("run_command", command="echo yes > made.txt")], Hang()]
    async with agent_with(steps, tmp_path / "home") as agent:
        app = app_on(agent, tmp_path / "project")
        async with app.run_test(size=(100, 40)) as pilot:
            await say(pilot, "Go.")
            await until(pilot, lambda: app.card.armed)
            await pilot.press("f", "enter")
            await until(pilot, lambda: purpose_words(app).startswith("why not?"))
            await pilot.press("@", "n")
            await until(pilot, lambda: app.query_one("#offers").display)
            await answer_elsewhere(agent, app, "approve")
            await until(pilot, lambda: app.card.action is None)
            assert purpose_words(app) == ""
            assert app.composer.text == ""
            await until(pilot, lambda: not app.query_one("#offers").display)
            app.leave()


async def answer_elsewhere(agent: Agent, app: TreadleApp, decision: str) -> None:
    """Answer the one open request of the chat, beside the app."""
    assert app.link is not None
    chat = agent.chat(app.link.id)
    (action,) = await chat.actions()
    await (chat.approve(action) if decision == "approve" else chat.deny(action))


def notices(app: TreadleApp) -> list[str]:
    return [str(each.message) for each in app._notifications]


def purpose_words(app: TreadleApp) -> str:
    assert app.controller is not None
    return app.controller.describe_purpose()
