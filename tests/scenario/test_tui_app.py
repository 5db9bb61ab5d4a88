"""The app without a terminal: on a server, on its first run, with what is typed, and with a long chat."""

import asyncio
import random
import stat
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from textual import timer
from textual.events import Key, Paste
from textual.pilot import Pilot
from textual.widgets import Input, OptionList, Static

from tests.scenario.command_line import NO_LOCAL_SERVER
from tests.scenario.http_kit import serving
from tests.unit.frontends.tui.recorded import Recorded, long_log
from treadle import Agent
from treadle.adapters.models.providers import ADDRESSES, KEYS
from treadle.adapters.models.scripted import Call, Hang, Say, ScriptedModel, Turn
from treadle.adapters.stores.sqlite import SqliteStore
from treadle.base.types import ChatId
from treadle.frontends.tui import card, embedded, showing
from treadle.frontends.tui.app import AppExit, Start, TreadleApp
from treadle.frontends.tui.card import LOOK_S, QUIET_S
from treadle.frontends.tui.connection import ChatLink
from treadle.frontends.tui.embedded import Embedded
from treadle.frontends.tui.launch import make_app
from treadle.frontends.tui.model_dialog import TextPrompt
from treadle.frontends.tui.remote import Remote
from treadle.frontends.tui.screens import Confirm, Picker
from treadle.protocol.options import ChatOptions, Mode
from treadle.testing.fake_http import FakeResponse, Headers, ThreadedServer, make_json_answer

pytestmark = pytest.mark.thorough(one_of=8)

PATIENCE_S = 60.0


async def until(pilot: Pilot[AppExit], fact: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not fact():
        assert time.monotonic() < deadline, read_transcript(pilot.app)
        await pilot.pause(0.02)


def read_transcript(app: Any) -> str:
    """The conversation as it stands on the screen."""
    transcript = app.transcript
    return "\n".join(transcript.render_line(y).text.rstrip() for y in range(transcript.size.height))


def app_on(
    agent: Agent, root: Path, *, model: str = "scripted:x", prompt: str = "", mode: Mode = "confirm", world: str = ""
) -> TreadleApp:
    async def connect() -> Embedded:
        return Embedded(agent, ChatOptions(model=model, root=str(root), mode=mode, world=world), _find)

    return make_app(connect, Start(str(root), model, prompt))


async def _find(store: Any, reference: str) -> ChatId:
    return (await store.list(limit=1))[0].summary.chat if reference == "last" else ChatId(reference)


async def say(pilot: Pilot[AppExit], text: str) -> None:
    app = pilot.app
    assert isinstance(app, TreadleApp)
    await until(pilot, lambda: app.controller is not None)
    app.composer.insert(text)
    await pilot.press("enter")


def agent_with(steps: Sequence[Any], home: Path) -> Agent:
    return Agent(model=ScriptedModel(list(steps)), home=home)


async def test_a_server_is_one_more_place_for_chats(tmp_path: Path) -> None:  # U-04, A-07
    steps: list[Any] = [[Call("run_command", command="echo hi > made.txt")], Say("Made it.")]
    project = tmp_path / "project"
    project.mkdir()
    async with serving(SqliteStore(tmp_path / "treadle.db"), tmp_path, steps, builtin=True) as server:
        remote = Remote(server.address, server.local.token, {"root": str(project), "mode": "confirm"})

        async def connect() -> Remote:
            return remote

        app = make_app(connect, Start(str(project), "scripted:x"))
        async with app.run_test(size=(100, 30)) as pilot:
            await say(pilot, "Go.")
            await until(pilot, lambda: app.card.action is not None and app.card.armed)
            await pilot.press("y")
            await until(pilot, lambda: "Made it." in read_transcript(app))
            assert app.connection is not None
            assert app.connection.stays
            listed = await remote.list_chat_rows()
            assert [row.id for row in listed] == [app.link.id if app.link else ""]
            app.leave()
        await remote.close()
    assert (project / "made.txt").read_text() == "hi\n"


def rows_of(app: TreadleApp) -> str:
    """The rows of the list that is open."""
    option_lists = app.screen.query(OptionList).results(OptionList)
    return "\n".join(str(row.get_option_at_index(at).prompt) for row in option_lists for at in range(row.option_count))


def first_start(agent: Agent, root: Path, home: Path) -> TreadleApp:
    async def connect() -> Embedded:
        return Embedded(agent, ChatOptions(root=str(root)), _find)

    return make_app(connect, Start(str(root)), home=home)


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    """An environment without keys, addresses, servers, key store and GitHub CLI."""
    for name in (*KEYS, *ADDRESSES):
        monkeypatch.delenv(name, raising=False)
    for name, nowhere in NO_LOCAL_SERVER.items():
        monkeypatch.setenv(name, nowhere)
    monkeypatch.setitem(sys.modules, "keyring", None)
    monkeypatch.setenv("PATH", "/nowhere")


@pytest.mark.usefixtures("bare")
async def test_the_first_run_says_what_can_be_done_and_writes_nothing(tmp_path: Path) -> None:  # S-10, U-10
    async with Agent(home=tmp_path) as agent:
        app = first_start(agent, tmp_path, tmp_path)
        async with app.run_test(size=(100, 40)) as pilot:
            await until(pilot, lambda: "OpenAI" in rows_of(app))
            for words in ("enter a key", "enter the address of a server", "GitHub Copilot", "treadle models fetch"):
                assert words in rows_of(app)
            app.screen.query_one(Input).value = "gpt-4.1-mini"
            await until(pilot, lambda: "enter a key" not in rows_of(app))
            assert "openai:gpt-4.1-mini" in rows_of(app)
            assert "type provider:name" in rows_of(app)
            await pilot.press("escape")
            await until(pilot, lambda: not isinstance(app.screen, Picker))
            app.leave()
    assert not (tmp_path / "config.toml").exists()
    assert not (tmp_path / "access.json").exists()


@pytest.mark.usefixtures("bare")
async def test_a_model_that_is_typed_asks_for_its_key_and_a_refused_key_is_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # U-10, M-13, S-10
    good = "ghu_0123456789abcdef"

    def github(method: str, path: str, headers: Headers, body: bytes) -> FakeResponse:
        if good not in headers.get("authorization", ""):
            return make_json_answer(401, {"message": "Bad credentials"})
        if path.endswith("/token"):
            return make_json_answer(200, {"token": good, "refresh_in": 1000})
        return make_json_answer(200, {"data": [{"id": "some-model"}]})

    with ThreadedServer(github) as server:
        monkeypatch.setenv("COPILOT_GITHUB_API_URL", server.url)
        monkeypatch.setenv("COPILOT_BASE_URL", server.url)
        async with Agent(home=tmp_path) as agent:
            app = first_start(agent, tmp_path, tmp_path)
            async with app.run_test(size=(100, 40)) as pilot:
                for key, is_kept in (("ghu_wrong_wrong_wrong", False), (good, True)):
                    await until(pilot, lambda: isinstance(app.screen, Picker) and "GitHub Copilot" in rows_of(app))
                    app.screen.query_one(Input).value = "sign in"
                    await until(pilot, lambda: "try the demo" not in rows_of(app) and "OpenAI" not in rows_of(app))
                    await pilot.press("enter")
                    await until(pilot, lambda: isinstance(app.screen, TextPrompt))
                    field = app.screen.query_one(Input)
                    assert field.password
                    field.value = key
                    await pilot.press("enter")
                    await until(pilot, lambda: isinstance(app.screen, Picker))
                    assert (tmp_path / "access.json").exists() == is_kept
                app.screen.query_one(Input).value = "copilot:some-model"
                await until(pilot, lambda: "copilot:some-model (as typed)" in rows_of(app))
                await pilot.press("enter")
                await until(pilot, lambda: chosen_model(app) == "copilot:some-model")
                app.leave()
    assert stat.S_IMODE((tmp_path / "access.json").stat().st_mode) == 0o600


def chosen_model(app: TreadleApp) -> str:
    return str(app.controller.next_chat_options.get("model", "")) if app.controller is not None else ""


async def test_a_chosen_model_is_told_about_and_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bare: None
) -> None:  # S-10
    monkeypatch.setenv("OPENAI_API_KEY", "a key")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "another key")
    async with Agent(home=tmp_path) as agent:
        app = first_start(agent, tmp_path, tmp_path)
        async with app.run_test(size=(100, 30)) as pilot:
            await until(pilot, lambda: "openai:gpt-4.1-mini" in rows_of(app))
            app.screen.query_one(Input).value = "openai:gpt-4.1-mini"
            await until(pilot, lambda: "anthropic" not in rows_of(app))
            await pilot.press("enter")
            await until(pilot, lambda: isinstance(app.screen, Confirm) and "are sent to" in _read_dialog(app))
            await pilot.press("y")
            await until(pilot, lambda: chosen_model(app) == "openai:gpt-4.1-mini")
            app.leave()


def _read_dialog(app: TreadleApp) -> str:
    return " ".join(str(each.content) for each in app.screen.query(Static))


async def test_a_large_paste_is_a_chip_and_is_sent_whole(tmp_path: Path) -> None:
    async with agent_with([Say("Read it.")], tmp_path) as agent:
        app = app_on(agent, tmp_path)
        async with app.run_test(size=(100, 30)) as pilot:
            await until(pilot, lambda: app.controller is not None)
            text = "\n".join(f"line {number}" for number in range(100))
            app.composer.post_message(Paste(f"{text}\x1b[31m"))
            await until(pilot, lambda: "[pasted #1: 100 lines]" in app.composer.text)
            await pilot.press("enter")
            await until(pilot, lambda: "Read it." in read_transcript(app))
            (message,) = app.conversation.list_messages()
            assert "line 99\\x1b[31m" in message.text
            app.leave()


async def test_completion_of_commands_and_files(tmp_path: Path) -> None:
    (tmp_path / "some_module.py").write_text("x")
    async with agent_with([], tmp_path) as agent:
        app = app_on(agent, tmp_path)
        async with app.run_test(size=(100, 30)) as pilot:
            await until(pilot, lambda: app.controller is not None and app.controller.offers.files)  # type: ignore[attr-defined]
            await pilot.press("/", "c", "o", "m")
            await until(pilot, lambda: app.query_one("#offers", OptionList).option_count == 1)
            await pilot.press("tab")
            assert app.composer.text == "/compact "
            app.composer.clear_all()
            app.composer.insert("look at @mod")
            await until(pilot, lambda: app.query_one("#offers", OptionList).display)
            await pilot.press("tab")
            assert app.composer.text == "look at @some_module.py "
            app.leave()


async def test_a_command_of_ones_own_is_recorded_shown_and_undoable(tmp_path: Path) -> None:  # L-18, W-08
    (tmp_path / "project").mkdir()
    async with agent_with([Say("(the turn of the command)"), Say("I see.")], tmp_path / "home") as agent:
        app = app_on(agent, tmp_path / "project")
        async with app.run_test(size=(100, 30)) as pilot:
            await say(pilot, "!echo from the shell; echo yes > made.txt")
            await until(pilot, lambda: "from the shell" in read_transcript(app) and not app.conversation.view.busy)
            assert app.card.action is None  # in mode confirm, but who typed it has answered
            assert (tmp_path / "project" / "made.txt").read_text() == "yes\n"
            await say(pilot, "What do you say?")
            await until(pilot, lambda: "I see." in read_transcript(app))
            assert app.link is not None
            assert (await app.link.undo(everything=True)).files == 1
            app.leave()
    assert not (tmp_path / "project" / "made.txt").exists()


async def test_a_command_of_ones_own_shows_no_question_before_the_screen_has_the_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # S-05
    """On a busy machine the card would take the focus, and the next Enter would send nothing."""
    monkeypatch.setattr(showing, "FLUSH_S", 2 * QUIET_S)
    (tmp_path / "project").mkdir()
    async with agent_with([Say("(typed)"), Say("I see.")], tmp_path / "home") as agent:
        app = app_on(agent, tmp_path / "project")
        async with app.run_test(size=(100, 30)) as pilot:
            await say(pilot, "!echo yes > made.txt")
            questions: set[Any] = set()
            await until(pilot, lambda: questions.add(app.card.action) or "done · 1 turn" in read_transcript(app))
            assert questions == {None}
            await say(pilot, "What do you say?")
            await until(pilot, lambda: "I see." in read_transcript(app))
            app.leave()


async def test_enter_sends_the_message_wherever_the_focus_is(tmp_path: Path) -> None:
    async with agent_with([Say("Read it.")], tmp_path) as agent:
        app = app_on(agent, tmp_path)
        async with app.run_test(size=(100, 30)) as pilot:
            await until(pilot, lambda: app.controller is not None)
            app.composer.insert("Hello.")
            app.screen.set_focus(app.transcript)  # a click that unfolds a block
            await pilot.press("enter")
            await until(pilot, lambda: "Read it." in read_transcript(app))
            app.leave()


async def test_a_changed_message_that_is_refused_comes_back_with_its_purpose(tmp_path: Path) -> None:
    async with agent_with([Say("One."), [Hang()]], tmp_path) as agent:
        app = app_on(agent, tmp_path)
        async with app.run_test(size=(100, 30)) as pilot:
            await say(pilot, "First.")
            await until(pilot, lambda: "One." in read_transcript(app) and not app.conversation.view.busy)
            await say(pilot, "/edit")
            await until(pilot, lambda: app.composer.text == "First.")
            assert app.link is not None
            await app.link.chat.send("Another.")  # from elsewhere: the chat works now
            await until(pilot, lambda: app.conversation.view.busy)
            await pilot.press("enter")
            await until(pilot, lambda: app._notifications)
            assert app.composer.text == "First."
            assert app.controller is not None
            assert app.controller.describe_purpose().startswith("edit your last message")
            await app.link.chat.interrupt()
            app.leave()


async def test_the_same_command_of_the_model_is_asked_about(tmp_path: Path) -> None:  # S-05, S-08
    """Typing `!cmd` answers for that one call: neither a later call of the model nor a call of another chat."""
    line = "echo yes >> made.txt"
    call = [Call("run_command", command=line)]
    async with agent_with([Say("(typed)"), call, Say("Done."), Say("(typed)"), call], tmp_path / "home") as agent:
        (tmp_path / "project").mkdir()
        app = app_on(agent, tmp_path / "project")
        async with app.run_test(size=(100, 30)) as pilot:
            await say(pilot, f"!{line}")
            await until(pilot, lambda: "done · 1 turn" in read_transcript(app))
            assert (tmp_path / "project" / "made.txt").read_text() == "yes\n"
            await say(pilot, "Now you.")
            await until(pilot, lambda: app.card.action is not None and app.card.armed)
            await pilot.press("y")
            await until(pilot, lambda: "Done." in read_transcript(app) and not app.conversation.view.busy)
            await say(pilot, "/new")
            await until(pilot, lambda: app.link is None)
            await say(pilot, f"!{line}")
            await until(pilot, lambda: "done · 1 turn" in read_transcript(app))
            await say(pilot, "Now you again.")
            await until(pilot, lambda: app.card.action is not None)
            assert (tmp_path / "project" / "made.txt").read_text() == "yes\n" * 3
            app.leave()


async def test_two_messages_at_once_begin_one_chat(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # U-04, L-08
    (tmp_path / "project").mkdir()
    async with agent_with([Say("One."), Say("Two.")], tmp_path / "home") as agent:
        app = app_on(agent, tmp_path / "project")
        async with app.run_test(size=(100, 30)) as pilot:
            await until(pilot, lambda: app.controller is not None and app.connection is not None)
            assert app.connection is not None
            create = app.connection.create

            async def create_slowly(**options: Any) -> ChatLink:
                await asyncio.sleep(0.3)
                return await create(**options)

            monkeypatch.setattr(app.connection, "create", create_slowly)
            for text in ("First.", "Second."):
                app.composer.put(text)
                await app.composer._on_key(Key("enter", None))
            await until(pilot, lambda: "Two." in read_transcript(app) and not app.conversation.view.busy)
            assert read_transcript(app).index("First.") < read_transcript(app).index("Second.")
            assert len(await agent.chats()) == 1
            app.leave()


async def test_a_message_does_not_overtake_one_whose_files_are_being_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # L-08
    expand = embedded.expand_message

    async def expand_slowly(agent: Agent, options: ChatOptions, text: str) -> Any:
        if text == "First.":
            await asyncio.sleep(0.3)
        return await expand(agent, options, text)

    monkeypatch.setattr(embedded, "expand_message", expand_slowly)
    async with agent_with([Say("One."), Say("Two.")], tmp_path) as agent:
        app = app_on(agent, tmp_path)
        async with app.run_test(size=(100, 30)) as pilot:
            await until(pilot, lambda: app.controller is not None)
            for text in ("First.", "Second."):
                app.composer.put(text)
                await app.composer._on_key(Key("enter", None))
            await until(pilot, lambda: "Two." in read_transcript(app) and not app.conversation.view.busy)
            assert read_transcript(app).index("First.") < read_transcript(app).index("Second.")
            app.leave()


async def test_keys_behind_edit_are_no_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # S-08
    monkeypatch.setattr(card, "ANSWER_S", 5.0)  # on a busy machine, keys in a row are taken late
    (tmp_path / "project").mkdir()
    steps = [[Call("run_command", command="echo one > made.txt")], Say("Done.")]
    async with agent_with(steps, tmp_path / "home") as agent:
        app = app_on(agent, tmp_path / "project")
        async with app.run_test(size=(100, 30)) as pilot:
            await say(pilot, "Go.")
            await until(pilot, lambda: app.card.action is not None and app.card.armed)
            await pilot.press("e", "enter", "y")  # the last may come before the command can be edited
            await until(pilot, lambda: "echo one > made.txt" in app.composer.text)
            assert app.composer.has_focus
            assert not (tmp_path / "project" / "made.txt").exists()
            app.composer.put("echo one > made.txt")
            await asyncio.sleep(QUIET_S + 2 * LOOK_S)
            assert app.composer.has_focus, "the card takes no keys while an answer is written"
            await pilot.press("escape")
            await until(pilot, lambda: app.card.armed)
            assert app.card.has_focus
            await pilot.press("e")
            await until(pilot, lambda: app.composer.text == "echo one > made.txt")
            app.composer.put("echo two > made.txt")
            await pilot.press("enter")
            await until(pilot, lambda: "Done." in read_transcript(app) and not app.conversation.view.busy)
            app.leave()
    assert (tmp_path / "project" / "made.txt").read_text() == "two\n"


async def test_a_draft_keeps_its_chips_and_a_failed_message_its_place(tmp_path: Path) -> None:  # U-04
    (tmp_path / "project").mkdir()
    pasted = "\n".join(map(str, range(20)))
    async with agent_with([[Call("run_command", command="echo x > made.txt")], Say("ok")], tmp_path / "home") as agent:
        app = app_on(agent, tmp_path / "project")
        async with app.run_test(size=(100, 30)) as pilot:
            await say(pilot, "Go.")
            await until(pilot, lambda: app.card.action is not None and app.card.armed)
            app.post_message(Paste(pasted))
            await until(pilot, lambda: app.composer.text)
            draft = app.composer.text
            await pilot.press("tab")
            await until(pilot, lambda: app.card.armed)
            await pilot.press("f", "enter")
            await until(pilot, lambda: app.controller is not None and app.controller.describe_purpose())
            await say(pilot, "Not now.")
            await until(pilot, lambda: app.composer.text == draft)
            assert app.composer.expand_chips(draft)[0] == pasted
            draft_state, typed = app.composer.draft, "typed meanwhile"
            app.composer.clear_all()
            await app.composer._on_paste(Paste(pasted.replace("0", "zero")))
            app.composer.insert(typed)
            app.composer.give_back(draft_state)
            text, _ = app.composer.expand_chips(app.composer.text)
            assert text.startswith(pasted)
            assert text.endswith(typed)
            assert text.count("zero") == 2
            app.composer.put("one two\\")
            app.composer.move_cursor((0, 3))
            await app.composer._on_key(Key("enter", None))
            assert app.composer.text == ""  # it was sent, whole
            await until(pilot, lambda: "one two\\" in read_transcript(app))
            app.leave()


async def test_own_commands_and_custom_agents(tmp_path: Path) -> None:  # E-03
    home = tmp_path / "home"
    for name, text in (
        ("commands/tidy.md", "---\ndescription: tidy up\n---\nTidy $ARGUMENTS now."),
        ("agents/careful.md", "---\nname: careful\ndescription: looks twice\n---\nLook twice."),
    ):
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text(text)
    async with agent_with([Say("Tidied.")], home) as agent:
        app = app_on(agent, tmp_path)
        async with app.run_test(size=(100, 30)) as pilot:
            await until(pilot, lambda: app.controller is not None and app.controller.offers.own)  # type: ignore[attr-defined]
            await pilot.press("/", "t", "i")
            await until(pilot, lambda: app.query_one("#offers", OptionList).option_count == 1)
            await pilot.press("tab")
            assert app.composer.text == "/tidy "
            app.composer.clear_all()
            await say(pilot, "/agent careful")
            await until(pilot, lambda: any("works as careful" in str(each.message) for each in app._notifications))
            await say(pilot, "/tidy the shed")
            await until(pilot, lambda: "Tidied." in read_transcript(app))
            assert app.conversation.list_messages()[0].text == "Tidy the shed now."
            assert app.conversation.view.options.agent == "careful"
            app.leave()


async def test_what_is_refused_is_said_and_the_text_stays(tmp_path: Path) -> None:
    async with agent_with([], tmp_path) as agent:
        app = app_on(agent, tmp_path)
        async with app.run_test(size=(100, 30)) as pilot:
            await say(pilot, "/nope")
            await until(pilot, lambda: any("no command /nope" in str(each.message) for each in app._notifications))
            await say(pilot, "!")
            await until(pilot, lambda: any("behind the !" in str(each.message) for each in app._notifications))
            assert app.composer.text == "!"
            app.leave()


@pytest.mark.slow
async def test_a_chat_of_ten_thousand_events_opens_at_its_end_and_scrolls() -> None:
    recorded = Recorded(long_log(10_000))

    async def connect() -> Any:
        return recorded

    app = make_app(connect, Start("/", "m:x", chat="c_1"))
    async with app.run_test(size=(100, 30)) as pilot:
        await until(pilot, lambda: app.controller is not None)
        await until(pilot, lambda: app.conversation.seq >= 10_000 and "the last words" in read_transcript(app))
        line_count = len(app.transcript._lines)
        assert line_count < 200
        for _ in range(3):
            await pilot.press("pageup")
        await until(pilot, lambda: "the last words" not in read_transcript(app))
        app.transcript.scroll_to(y=0, animate=False)
        await until(pilot, lambda: "Do thing 1" in read_transcript(app))
        assert len(app.transcript._lines) < 500
        await pilot.press("ctrl+end")
        await until(pilot, lambda: "the last words" in read_transcript(app))
        app.leave()


@pytest.mark.parametrize("next_step", ["stop", "leave"])
async def test_a_stale_answer_is_a_notice_and_no_end(tmp_path: Path, next_step: str) -> None:  # S-08
    steps: list[Any] = [[Call("run_command", command="echo hi > made.txt")], Say("Then not.")]
    async with agent_with(steps, tmp_path / "home") as agent:
        (tmp_path / "project").mkdir()
        app = app_on(agent, tmp_path / "project")
        async with app.run_test(size=(100, 30)) as pilot:
            await say(pilot, "Go.")
            await until(pilot, lambda: app.card.action is not None and app.card.armed)
            assert app.link is not None
            action = app.card.action
            assert action is not None
            same_chat = agent.chat(app.link.id)
            if next_step == "stop":
                await same_chat.interrupt()
            else:
                await same_chat.deny(action, "not now")
            await app.await_guarded(_too_late(app, action))
            await until(pilot, lambda: app.card.action is None and not app.conversation.view.busy)
            app.leave()
    assert not (tmp_path / "project" / "made.txt").exists()


def _too_late(app: TreadleApp, action: Any) -> Awaitable[None]:
    from treadle.frontends.tui.card import Choice
    from treadle.frontends.tui.connection import OpenQuestion

    assert app.controller is not None
    assert app.link is not None
    return app.controller.handle_choice(Choice(OpenQuestion(action, app.link.id), "once"))


@pytest.mark.parametrize("key", ["escape", "ctrl+c"])
async def test_esc_and_ctrl_c_stop_the_run_and_a_second_ctrl_c_quits(tmp_path: Path, key: str) -> None:  # L-07, U-10
    steps: list[Any] = [[Call("run_command", command="sleep 300")], Say("Stopped.")]
    async with agent_with(steps, tmp_path / "home") as agent:
        (tmp_path / "project").mkdir()
        app = app_on(agent, tmp_path / "project", prompt="Go on.")
        async with app.run_test(size=(60, 14)) as pilot:
            await until(pilot, lambda: app.controller is not None)
            await until(pilot, lambda: app.conversation.view.activity == "running run_command")
            app.composer.insert("a draft")
            await pilot.press(key)
            await until(pilot, lambda: app.conversation.view.last_end == "interrupted")
            assert app.composer.text == "a draft"
            assert app.return_value is None
            if key == "escape":
                await pilot.press("ctrl+c")
                assert app.composer.text == ""
            app._asked_to_leave = time.monotonic()  # the first press, as if it were just now
            await pilot.press("ctrl+c")
            await until(pilot, lambda: app.return_value is not None)
    assert app.return_value == AppExit(app.link.id if app.link else "", False, False, "this process")


async def test_live_text_of_a_chat_that_another_process_runs(tmp_path: Path) -> None:  # D-04, U-04
    steps = [Turn((Say("Half of the answer is here"), Hang()))]
    store, other_store = SqliteStore(tmp_path / "treadle.db"), SqliteStore(tmp_path / "treadle.db")
    async with (
        Agent(store, model=ScriptedModel(steps), home=tmp_path, relays=True) as agent,
        Agent(other_store, model=ScriptedModel([]), home=tmp_path) as reading,
    ):
        chat = await agent.chat(root=str(tmp_path)).open()
        await chat.send("Go on.")
        app = app_on(reading, tmp_path)
        async with app.run_test(size=(100, 30)) as pilot:
            await until(pilot, lambda: app.controller is not None)
            assert app.connection is not None
            app.showing.attach(await app.connection.open(chat.id))
            await until(pilot, lambda: "Half of the answer is here" in read_transcript(app))
            assert app.conversation.view.busy
            await chat.interrupt()
            await until(pilot, lambda: app.conversation.view.last_end == "interrupted")
            app.leave()


async def test_a_machine_that_stalls_as_a_timer_begins_shows_and_answers_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # U-04
    """A timer of Textual ends at once, without its callback, if it was due before it had begun to wait."""
    chance, stalled_s = random.Random(1), 0.0

    def read_clock() -> float:
        """The machine stalls for a second before every other look at the clock."""
        nonlocal stalled_s
        stalled_s += chance.randrange(2)
        return time.monotonic() + stalled_s

    steps: list[Any] = [[Call("run_command", command="echo hi > made.txt")], Say("Made it.")]
    project = tmp_path / "project"
    project.mkdir()
    async with Agent(model=ScriptedModel(steps), home=tmp_path) as agent:
        app = app_on(agent, project)
        async with app.run_test(size=(100, 30)) as pilot:
            monkeypatch.setattr(timer, "_time", SimpleNamespace(get_time=read_clock))
            await say(pilot, "Go.")
            await until(pilot, lambda: app.card.action is not None and app.card.armed)
            await pilot.press("y")
            await until(pilot, lambda: "Made it." in read_transcript(app))
            app.leave()
    assert (project / "made.txt").exists()
