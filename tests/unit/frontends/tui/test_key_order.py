"""Keys take effect in the order in which they were typed, also when many come together or something is slow."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, nullcontext
from typing import Any

import pytest
from textual.app import App, ComposeResult
from textual.containers import Vertical
from textual.events import Key
from textual.widget import Widget
from textual.widgets import OptionList

from tests.unit.frontends.tui.recorded import Worked, ended_log, short_log
from treadle.frontends.presentation.rich_text import Text
from treadle.frontends.tui import desktop
from treadle.frontends.tui.app import Start, TreadleApp
from treadle.frontends.tui.command_context import Purpose
from treadle.frontends.tui.composer import Composer, History
from treadle.frontends.tui.connection import Outcome
from treadle.frontends.tui.launch import make_app
from treadle.frontends.tui.screens import Confirm, Entry, LineInput, Picker, Reading, TextPrompt
from treadle.protocol import events as e

PATIENCE_S = 10.0


class Page(App[None]):
    """An app with one widget, some levels deep."""

    def __init__(self, widget: Widget | None = None) -> None:
        super().__init__()
        self._widget = widget or Vertical()

    def compose(self) -> ComposeResult:
        with Vertical(), Vertical():
            yield self._widget


def type_keys(app: App[Any], *keys: str) -> None:
    """All at once, as a terminal on a slow line delivers them."""
    for key in keys:
        character = {"enter": "\r", "backspace": "\x7f", "escape": "\x1b"}.get(key, key if len(key) == 1 else None)
        app.post_message(Key(key, character))


async def wait_for(fact: Callable[[], object]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not fact():  # noqa: ASYNC110 - the screen sets no event
            await asyncio.sleep(0.01)


def has_rows(app: App[Any], count: int) -> bool:
    """True if a list with so many entries is on top and takes keys."""
    lists = app.screen.query("#rows").results(OptionList)
    return app.screen.focused is not None and [each.option_count for each in lists] == [count]


async def yield_often() -> None:
    """Let the keys that do not wait for anything take effect."""
    for _ in range(100):
        await asyncio.sleep(0)


EDITS = [
    (["ctrl+u", *"new"], "new"),
    ([*"ab", "backspace", *"c"], "oldac"),
    ([*"ab", "left", *"c"], "oldacb"),
    (["home", *"x", "end", *"y", "ctrl+w", *"z"], "z"),
    ([*"one", "left", "left", "delete", *"x", "home", *"y"], "yoldoxe"),
]


@pytest.mark.parametrize(("keys", "expected"), EDITS)
@pytest.mark.parametrize("kind", [Composer, LineInput])
async def test_keys_that_come_together_edit_in_their_order(kind: type[Any], keys: list[str], expected: str) -> None:
    composer = Composer(History(None))
    page = Page(composer)
    async with page.run_test() as pilot:
        composer.focus()
        if kind is LineInput:
            await page.push_screen(TextPrompt("Key?"))
        await pilot.pause()
        type_keys(page, *"old", *keys)
        await pilot.pause()
        assert (composer.text if kind is Composer else page.screen.query_one(LineInput).value) == expected


async def test_a_message_is_sent_as_corrected() -> None:
    messages: list[str] = []

    composer = Composer(History(None), lambda message: messages.append(message.text))
    page = Page(composer)
    async with page.run_test() as pilot:
        composer.focus()
        type_keys(page, *"rm", "backspace", "backspace", *"ls", "enter", *"next")
        await pilot.pause()
        assert (messages, composer.text) == (["ls"], "next")


async def test_a_prompt_returns_the_line_as_corrected() -> None:
    page, answers = Page(), list[str | None]()
    async with page.run_test() as pilot:
        page.push_screen(TextPrompt("Key?"), answers.append)
        await pilot.pause()
        type_keys(page, *"abx", "backspace", *"c", "enter")
        await pilot.pause()
        assert answers == ["abc"]


class Names:
    """A list of names. A query in `slow` is answered, and an action in `slow` ends, when `gate` is set."""

    def __init__(self, names: str = "alpha beta gamma", *slow: str) -> None:
        self.names, self.slow, self.gate = names.split(), slow, asyncio.Event()
        self.begun: list[str] = []
        self.ended: list[str] = []
        self.results: list[object] = []

    async def _wait(self, work: str) -> None:
        self.begun.append(work)
        if work in self.slow:
            await self.gate.wait()
        self.ended.append(work)

    async def find(self, query: str) -> list[Entry[str]]:
        await self._wait(query)
        return [Entry(Text(name), name) for name in self.names if query in name]

    async def act(self, key: str, name: str) -> str | None:
        await self._wait(f"{key} {name}")
        return None if key == "ctrl+f" else "done"

    async def open(self, page: Page, keys: str = "", *, searches: bool = True) -> Picker[str]:
        picker = Picker("Names", self.find, keys=dict.fromkeys(keys.split(), "act"), act=self.act, searches=searches)
        page.push_screen(picker, self.results.append)
        await wait_for(lambda: has_rows(page, len(self.names)))
        return picker

    @property
    def actions(self) -> list[str]:
        return [work for work in self.ended if " " in work]


CHOICES: dict[str, tuple[list[str], str]] = {
    "words": ([*"beh", "backspace", "enter"], "beta"),
    "Enter twice": (["enter", "enter"], "alpha"),
    "words and Enter twice": ([*"be", "enter", "enter"], "beta"),
    "text behind Enter": ([*"be", "enter", *"zz"], "beta"),
    "Down behind Enter": (["enter", "down"], "alpha"),
    "words and Down": ([*"m", "down", "enter"], "gamma"),
}


@pytest.mark.parametrize(("keys", "name"), CHOICES.values(), ids=CHOICES)
async def test_a_list_returns_the_entry_that_was_chosen_by_these_keys(keys: list[str], name: str) -> None:
    """The list of the words is read only behind the keys."""
    page, names = Page(), Names("alpha beta mu gamma", "be", "m")
    async with page.run_test() as pilot:
        await names.open(page)
        type_keys(page, *keys)
        await yield_often()
        names.gate.set()
        await wait_for(lambda: len(page.screen_stack) == 1)
        await pilot.pause()
        assert names.results == [name]


async def test_an_action_is_for_the_entry_of_the_words_before_its_key() -> None:
    page, names = Page(), Names("alpha gamma", "a")
    async with page.run_test():
        picker = await names.open(page, "ctrl+d")
        type_keys(page, "a", "ctrl+d", "m")
        await yield_often()
        names.gate.set()
        await wait_for(lambda: names.actions and picker.query_one(LineInput).value == "am")
        assert names.actions == ["ctrl+d alpha"]


@pytest.mark.parametrize(("keys", "action"), [(("down", "u"), "u beta"), (("u", "down"), "u alpha")])
async def test_a_list_without_a_search_takes_moves_and_letters_in_order(keys: Sequence[str], action: str) -> None:
    page, names = Page(), Names()
    async with page.run_test():
        await names.open(page, "u", searches=False)
        type_keys(page, *keys)
        await wait_for(lambda: names.actions)
        assert names.actions == [action]


@pytest.mark.parametrize("key", ["ctrl+d", "ctrl+f"])
async def test_a_list_can_be_left_while_its_action_is_slow(key: str) -> None:
    page, names = Page(), Names("alpha beta", "ctrl+d alpha", "ctrl+f alpha")
    async with page.run_test() as pilot:
        await names.open(page, "ctrl+d ctrl+f")
        type_keys(page, key)
        await wait_for(lambda: f"{key} alpha" in names.begun)
        type_keys(page, "down")  # waits for the action
        await yield_often()
        type_keys(page, "escape")
        await wait_for(lambda: len(page.screen_stack) == 1)
        names.gate.set()
        await wait_for(lambda: names.actions)
        await pilot.pause()
        assert names.results == [None]


async def test_a_list_can_be_left_while_it_is_read() -> None:
    page, names = Page(), Names("alpha beta", "be")
    async with page.run_test():
        await names.open(page)
        type_keys(page, *"be", "enter")
        await wait_for(lambda: "be" in names.begun)
        type_keys(page, "escape")
        await wait_for(lambda: names.results)
        assert names.results == [None]


async def test_a_list_shows_the_entries_of_the_last_words() -> None:
    """Also if an earlier search, for which Enter waited, takes longer."""
    page, names = Page(), Names("alpha gamma", "be")
    async with page.run_test() as pilot:
        picker = await names.open(page)
        type_keys(page, *"be", "enter")
        await wait_for(lambda: "be" in names.begun)
        type_keys(page, "backspace", "backspace")
        await yield_often()
        names.gate.set()
        await wait_for(lambda: not picker.query_one(LineInput).value)
        await wait_for(lambda: not [worker for worker in page.workers if worker.node is picker and worker.is_running])
        await pilot.pause()
        assert [str(option.prompt) for option in picker.query_one(OptionList).options] == ["alpha", "gamma"]


OVER: dict[str, tuple[Callable[[], Any], list[str], object]] = {
    "prompt, Enter twice": (lambda: TextPrompt("Key?"), [*"abc", "enter", "enter"], "abc"),
    "prompt, Enter and Esc": (lambda: TextPrompt("Key?"), [*"abc", "enter", "escape"], "abc"),
    "prompt, Esc twice": (lambda: TextPrompt("Key?"), ["escape", "escape"], None),
    "question, Esc twice": (lambda: Confirm("Sure?"), ["escape", "escape"], None),
    "question, y and Esc": (lambda: Confirm("Sure?"), ["y", "escape"], True),
    "text, u and Esc": (lambda: Reading("A", Text("b"), {"u": "undo"}), ["u", "escape"], "u"),
    "text, u twice": (lambda: Reading("A", Text("b"), {"u": "undo"}), ["u", "u"], "u"),
}


@pytest.mark.parametrize(("make_screen", "keys", "result"), OVER.values(), ids=OVER)
async def test_a_screen_is_left_once(make_screen: Callable[[], Any], keys: list[str], result: object) -> None:
    """The screen below it stays, and a further key is no key of it."""
    page, names, results = Page(), Names(), list[object]()
    async with page.run_test() as pilot:
        picker = await names.open(page, "u")
        screen = make_screen()
        await page.push_screen(screen, results.append)
        await pilot.pause()
        type_keys(page, *keys)
        await wait_for(lambda: results)
        await pilot.pause()
        assert (results, page.screen, names.results, names.actions) == ([result], picker, [], [])


class Chat(Worked):
    """Notes what it is asked to do. A stop, and what is named in `slow`, ends when `gate` is set."""

    def __init__(self, log: list[e.Event], *slow: str) -> None:
        super().__init__(log)
        self.slow, self.gate = slow, asyncio.Event()
        self.calls: list[object] = []

    async def _note(self, name: str, *arguments: object) -> None:
        self.calls.append((name, *arguments))
        if name in self.slow:
            await self.gate.wait()

    async def send(self, text: str, *_more: Any) -> None:
        await self._note("send", text)

    async def change(self, **changes: Any) -> None:
        await self._note("change", changes)

    async def interrupt(self) -> None:
        await self._note("interrupt")

    async def undo(self, paths: Sequence[str], hunks: Any, **_more: Any) -> Outcome:
        await self._note("undo", paths, hunks)
        return Outcome(files=1)


@asynccontextmanager
async def run_app(chat: Any) -> AsyncIterator[TreadleApp]:
    async def connect() -> Any:
        return chat

    app = make_app(connect, Start("/home/me/project", "m:x", chat="c_1"))
    async with app.run_test(size=(120, 40)):
        await wait_for(lambda: app.controller is not None and app.link is not None and app.conversation.blocks)
        await wait_for(lambda: app.focused is app.composer)
        yield app


async def test_ctrl_c_clears_the_text_before_it() -> None:
    chat = Chat(ended_log())
    async with run_app(chat) as app:
        type_keys(app, *"rm", "ctrl+c", *"ls", "enter")
        await wait_for(lambda: chat.calls)
        assert chat.calls == [("send", "ls")]


async def test_the_editor_gets_the_text_before_its_key(monkeypatch: pytest.MonkeyPatch) -> None:
    texts: list[str] = []
    monkeypatch.setattr(desktop, "edit_text", lambda text: texts.append(text) or "edited")
    async with run_app(Chat(ended_log())) as app:
        monkeypatch.setattr(app, "suspend", nullcontext)
        type_keys(app, *"abc", "ctrl+g", *"d")
        await wait_for(lambda: app.composer.text.endswith("d"))
        assert (texts, app.composer.text) == (["abc"], "editedd")


async def test_esc_behind_enter_does_not_change_the_purpose_of_a_text() -> None:
    chat = Chat(ended_log())
    async with run_app(chat) as app:
        controller: Any = app.controller
        controller.ask_for(Purpose("rename", "the title: Enter keeps it"))
        type_keys(app, *"new", "enter", "escape")
        await wait_for(lambda: chat.calls)
        assert chat.calls == [("change", {"title": "new"})]


async def test_ctrl_d_behind_enter_leaves_when_the_message_is_sent() -> None:
    chat = Chat(ended_log(), "send")
    async with run_app(chat) as app:
        type_keys(app, *"ls", "enter", "ctrl+d")
        await wait_for(lambda: chat.calls)
        assert app.return_value is None
        chat.gate.set()
        await wait_for(lambda: app.return_value is not None)
        assert chat.calls == [("send", "ls")]


async def test_ctrl_d_does_not_leave_behind_a_list_that_a_command_opened() -> None:
    async with run_app(Chat(ended_log())) as app:
        app.composer.put("/theme")
        type_keys(app, "enter", "ctrl+d")
        await wait_for(lambda: isinstance(app.screen, Picker) and app.screen.focused is not None)
        type_keys(app, "escape")
        await wait_for(lambda: not [worker for worker in app.workers if worker.group == "sending"])
        await yield_often()
        assert app.return_value is None


async def test_ctrl_d_leaves_when_nothing_is_sent() -> None:
    async with run_app(Chat(ended_log())) as app:
        type_keys(app, "ctrl+d")
        await wait_for(lambda: app.return_value is not None)


async def test_keys_of_the_conversation_have_no_effect_below_a_list(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[object] = []
    async with run_app(Chat(ended_log())) as app:
        for action in ("scroll", "do", "unfold", "side", "end"):
            monkeypatch.setattr(app, f"action_{action}", lambda *arguments: calls.append(arguments))
        picker = Picker("Names", lambda _query: [Entry(str(number), number) for number in range(100)])
        await app.push_screen(picker)
        await wait_for(lambda: has_rows(app, 100))
        rows = picker.query_one(OptionList)
        type_keys(app, "pagedown")
        await wait_for(lambda: rows.highlighted)
        type_keys(app, "pageup", "ctrl+o", "ctrl+b", "ctrl+end", "shift+tab", "escape")
        await wait_for(lambda: len(app.screen_stack) == 1)
        assert calls == []


async def test_a_review_undoes_the_hunk_to_which_the_person_moved() -> None:
    chat = Chat(ended_log())
    async with run_app(chat) as app:
        type_keys(app, "f2")
        await wait_for(lambda: has_rows(app, 4))
        type_keys(app, "down", "u")
        await wait_for(lambda: chat.calls)
        assert chat.calls == [("undo", (), {"a.py": (1,)})]


async def test_a_review_shows_one_diff_when_enter_is_pressed_twice() -> None:
    async with run_app(Chat(ended_log())) as app:
        type_keys(app, "f2")
        await wait_for(lambda: has_rows(app, 4))
        type_keys(app, "enter", "enter")
        await wait_for(lambda: isinstance(app.screen, Reading) and app.screen.focused is not None)
        type_keys(app, "escape")
        await wait_for(lambda: not isinstance(app.screen, Reading))
        assert len(app.screen_stack) == 2


@pytest.mark.parametrize("key", ["escape", "ctrl+c"])
async def test_keys_take_effect_while_a_stop_is_slow(key: str) -> None:
    chat = Chat(short_log(), "interrupt")
    async with run_app(chat) as app:
        type_keys(app, key)
        await wait_for(lambda: chat.calls == [("interrupt",)])
        type_keys(app, *"abc")
        await wait_for(lambda: app.composer.text == "abc")
        type_keys(app, "ctrl+c", "ctrl+c")
        await wait_for(lambda: app.return_value is not None)
