"""Screens over the app, without the app of Treadle."""

import gc

from textual.app import App

from treadle.frontends.presentation.rich_text import Text
from treadle.frontends.tui.screens import Entry, Picker


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
