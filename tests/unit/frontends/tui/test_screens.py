"""Screens over the app and the conversation on the screen, without the app of Treadle."""

import gc
from typing import Any

import pytest
from textual.app import App, ComposeResult

from treadle.frontends.presentation.conversation import Conversation, Note
from treadle.frontends.presentation.rich_text import Text
from treadle.frontends.tui.marks import Marks
from treadle.frontends.tui.screens import Entry, Picker
from treadle.frontends.tui.transcript import Transcript


async def test_a_list_that_is_left_while_it_begins_to_load_leaves_no_work_behind() -> None:
    """A coroutine that was made and never awaited would be reported as an error here."""
    app: App[None] = App()
    async with app.run_test() as pilot:
        picker = Picker("Models", lambda _query: [Entry(Text("one"), "one")], searches=True)
        await app.push_screen(picker)
        picker.on_input_changed()  # a person types …
        picker.workers.cancel_all()  # … and leaves before the worker has begun
        picker.dismiss(None)
        await pilot.pause()
    gc.collect()


class ChatPage(App[None]):
    def compose(self) -> ComposeResult:
        yield Transcript(Marks())


async def test_the_end_is_shown_also_if_the_layout_comes_later_than_the_text(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine another widget may be refreshed first: then callbacks that wait for a refresh run before the
    layout that shows the scroll bar."""
    page = ChatPage()
    async with page.run_test(size=(80, 10)) as pilot:
        transcript, conversation = page.query_one(Transcript), Conversation()
        transcript.show(conversation)
        await pilot.pause()
        run_now: Any = lambda callback, *arguments: callback(*arguments)  # noqa: E731
        monkeypatch.setattr(transcript, "call_after_refresh", run_now)
        for number in range(30):
            conversation.add_local(Note(text=f"line {number}"))
        transcript.update_blocks()
        await pilot.pause()
        assert transcript.max_scroll_y > 10
        assert (transcript.scroll_offset.y, transcript.follows) == (transcript.max_scroll_y, True)
