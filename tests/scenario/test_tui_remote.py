"""The app on the chats of a server: search over all of them, pictures of the clipboard, a fork from a message."""

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from textual.widgets import Input, OptionList, Static

from tests.scenario.http_kit import serving
from tests.scenario.test_tui_app import say, shown, until
from treadle.models.scripted import Say
from treadle.protocol.events import UserMessage
from treadle.server.running import address_of, bind
from treadle.stores.sqlite import SqliteStore
from treadle.tui.app import Start, TreadleApp
from treadle.tui.launch import make_app
from treadle.tui.picker import Picker
from treadle.tui.remote import Remote

PICTURE = b"\x89PNG\r\n\x1a\n" + bytes(40)


@asynccontextmanager
async def app_on_server(folder: Path, steps: Iterable[Any]) -> AsyncIterator[tuple[TreadleApp, Remote]]:
    async with serving(SqliteStore(folder / "treadle.db"), folder, steps) as server:
        remote = Remote(server.address, server.local.token, {})

        async def connect() -> Remote:
            return remote

        yield make_app(connect, Start(str(folder), "scripted:x"), home=folder), remote
        await remote.close()


async def test_chats_are_found_by_what_was_said_in_them(tmp_path: Path) -> None:  # U-04
    async with app_on_server(tmp_path, [Say("The heron is grey.")]) as (app, remote):
        first = await remote.create(model="scripted:x")
        await first.send("Which bird?")
        second = await remote.create(model="scripted:x")
        await second.change(title="Nothing of it")
        async with app.run_test(size=(120, 34)) as pilot:
            await until(pilot, lambda: app.conduct is not None)
            await say(pilot, "/chats")
            await until(pilot, lambda: isinstance(app.screen, Picker))
            await until(pilot, lambda: app.screen.query_one("#rows", OptionList).option_count == 2)
            app.screen.query_one("#query", Input).value = "GREY heron"
            rows = app.screen.query_one("#rows", OptionList)
            await until(pilot, lambda: rows.option_count == 1 and "heron" in str(rows.get_option_at_index(0).prompt))
            await until(pilot, lambda: "The heron is grey." in _preview(app))
            app.screen.query_one("#query", Input).value = "nothing of it"
            await until(pilot, lambda: rows.option_count == 1 and "of it" in str(rows.get_option_at_index(0).prompt))
            await pilot.press("ctrl+x")
            await until(pilot, lambda: "nothing here" in str(rows.get_option_at_index(0).prompt))
            assert [row.id for row in await remote.chats(archived=True)] == [second.id]
            app.screen.query_one("#query", Input).value = "heron"
            await until(pilot, lambda: "heron" in str(rows.get_option_at_index(0).prompt))
            await pilot.press("enter")
            await until(pilot, lambda: app.link is not None and app.link.id == first.id)
            await until(pilot, lambda: "The heron is grey." in shown(app))
            app.leave()


def _preview(app: TreadleApp) -> str:
    shown = app.screen.query_one("#shown", Static)
    return "\n".join(shown.render_line(y).text for y in range(shown.size.height))


async def test_a_server_that_is_away_is_told_for_as_long_as_it_is(tmp_path: Path) -> None:
    with bind("127.0.0.1", 0) as listening:
        address = address_of(listening)
    remote = Remote(address, "none", {})

    async def connect() -> Remote:
        return remote

    app = make_app(connect, Start(str(tmp_path), "scripted:x", chat="c_1"))
    async with app.run_test(size=(100, 30)) as pilot:
        await until(pilot, lambda: f"{address} cannot be reached" in str(app._written["#status"]))
        app.leave()
    await remote.close()


async def test_a_picture_of_the_clipboard_goes_to_the_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "picture").write_bytes(PICTURE)
    program = tmp_path / "bin" / "wl-paste"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\ncat '{tmp_path}/picture'\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
    monkeypatch.setenv("WAYLAND_DISPLAY", "x")
    server = app_on_server(tmp_path, [Say("A picture.")])
    async with server as (app, _), app.run_test(size=(100, 30)) as pilot:
        await until(pilot, lambda: app.conduct is not None)
        await pilot.press("ctrl+v")
        await until(pilot, lambda: "[image #1: from the clipboard]" in app.composer.text)
        app.composer.insert("What is it?")
        await pilot.press("enter")
        await until(pilot, lambda: "A picture." in shown(app))
        assert app.link is not None
        log = [envelope async for envelope in _log(app)]
        app.leave()
    (said,) = [event for event in log if isinstance(event, UserMessage)]
    assert [image.media_type for image in said.images] == ["image/png"]


async def _log(app: TreadleApp) -> AsyncIterator[object]:
    assert app.link is not None
    async for batch in app.link.news():
        for envelope in batch:
            yield envelope.data
            if envelope.seq >= app.conversation.seq:
                return


async def test_a_fork_from_before_a_message(tmp_path: Path) -> None:  # D-07
    """Of a chat without a project, too: it has no files that could go back."""
    server = app_on_server(tmp_path, [Say("One."), Say("Two.")])
    async with server as (app, remote), app.run_test(size=(100, 30)) as pilot:
        await say(pilot, "First.")
        await until(pilot, lambda: "One." in shown(app) and not app.conversation.view.busy)
        await say(pilot, "Second.")
        await until(pilot, lambda: "Two." in shown(app) and not app.conversation.view.busy)
        assert app.link is not None
        before = app.link.id
        await pilot.press("escape", "escape")
        await until(pilot, lambda: isinstance(app.screen, Picker) and app.screen.chosen() is not None)
        await pilot.press("ctrl+f")
        await until(pilot, lambda: app.link is not None and app.link.id != before)
        await until(pilot, lambda: "One." in shown(app))
        assert "Two." not in shown(app)
        assert app.composer.text == "Second."
        assert len(await remote.chats()) == 2
        app.leave()
