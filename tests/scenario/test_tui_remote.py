"""The app on the chats of a server: search over all of them, pictures of the clipboard, a fork from a message."""

import sys
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from textual.widgets import Input, OptionList, Static

from tests.scenario.http_kit import serving
from tests.scenario.mcp_servers.kit import ODD
from tests.scenario.test_tui_app import read_transcript, say, until
from treadle.adapters.models.scripted import Say
from treadle.adapters.stores.sqlite import SqliteStore
from treadle.frontends.server.running import bind, format_address
from treadle.frontends.tui.app import Start, TreadleApp
from treadle.frontends.tui.launch import make_app
from treadle.frontends.tui.remote import Remote
from treadle.frontends.tui.screens import Picker
from treadle.protocol.events import UserMessage

pytestmark = pytest.mark.thorough(one_of=8)

PICTURE = b"\x89PNG\r\n\x1a\n" + bytes(40)


@asynccontextmanager
async def app_on_server(
    folder: Path, steps: Iterable[Any], **mcp: dict[str, Any]
) -> AsyncIterator[tuple[TreadleApp, Remote]]:
    async with serving(SqliteStore(folder / "treadle.db"), folder, steps) as server:
        for name, declared in mcp.items():
            server.agent.mcp.add(name, declared)
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
            await until(pilot, lambda: app.controller is not None)
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
            assert [row.id for row in await remote.list_chat_rows(archived=True)] == [second.id]
            app.screen.query_one("#query", Input).value = "heron"
            await until(pilot, lambda: "heron" in str(rows.get_option_at_index(0).prompt))
            await pilot.press("enter")
            await until(pilot, lambda: app.link is not None and app.link.id == first.id)
            await until(pilot, lambda: "The heron is grey." in read_transcript(app))
            app.leave()


def _preview(app: TreadleApp) -> str:
    preview = app.screen.query_one("#shown", Static)
    return "\n".join(preview.render_line(y).text for y in range(preview.size.height))


async def test_a_server_that_is_away_is_told_for_as_long_as_it_is(tmp_path: Path) -> None:
    with bind("127.0.0.1", 0) as listening:
        address = format_address(listening)
    remote = Remote(address, "none", {})

    async def connect() -> Remote:
        return remote

    app = make_app(connect, Start(str(tmp_path), "scripted:x", chat="c_1"))
    async with app.run_test(size=(100, 30)) as pilot:
        await until(pilot, lambda: f"{address} cannot be reached" in str(app._written["#status"]))
        app.leave()
    await remote.close()


async def test_what_is_written_here_is_completed_by_the_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # U-06, T-10
    """A picture of the clipboard, and prompts and resources of the server's MCP servers."""
    (tmp_path / "picture").write_bytes(PICTURE)
    program = tmp_path / "bin" / "wl-paste"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\ncat '{tmp_path}/picture'\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
    monkeypatch.setenv("WAYLAND_DISPLAY", "x")
    odd = {"command": sys.executable, "args": ["-S", ODD, str(tmp_path / "notes")]}
    server = app_on_server(tmp_path, [Say("A picture."), Say("Tidied.")], odd=odd)
    async with server as (app, _), app.run_test(size=(100, 30)) as pilot:
        await until(pilot, lambda: app.controller is not None)
        await pilot.press("ctrl+v")
        await until(pilot, lambda: "[image #1: from the clipboard]" in app.composer.text)
        app.composer.insert("What is it?")
        await pilot.press("enter")
        await until(pilot, lambda: "A picture." in read_transcript(app))
        app.composer.insert("See @")
        offers = app.query_one("#offers", OptionList)
        await until(pilot, lambda: offers.display and "odd:notes://all" in _rows(offers))
        app.composer.insert("odd:notes://d")
        await until(pilot, lambda: _rows(offers) == ["odd:notes://days/"])
        await pilot.press("tab")
        assert app.composer.text == "See @odd:notes://days/"
        app.composer.put("/")
        await until(pilot, lambda: offers.display and any("how [what] Tidy up." in row for row in _rows(offers)))
        app.composer.insert("odd")
        await until(pilot, lambda: len(_rows(offers)) == 1)
        await pilot.press("tab")
        app.composer.insert("well")
        await pilot.press("enter")
        await until(
            pilot, lambda: "Tidy all well: some notes" in read_transcript(app) and "Tidied." in read_transcript(app)
        )
        log = [envelope async for envelope in _log(app)]
        app.leave()
    message, _ = [event for event in log if isinstance(event, UserMessage)]
    assert [image.media_type for image in message.images] == ["image/png"]


def _rows(option_list: OptionList) -> list[str]:
    return [str(option_list.get_option_at_index(place).prompt) for place in range(option_list.option_count)]


async def _log(app: TreadleApp) -> AsyncIterator[object]:
    assert app.link is not None
    async for batch in app.link.stream_events():
        for envelope in batch:
            yield envelope.data
            if envelope.seq >= app.conversation.seq:
                return


async def test_a_fork_from_before_a_message(tmp_path: Path) -> None:  # D-07
    """Of a chat without a project, too: it has no files that could go back."""
    server = app_on_server(tmp_path, [Say("One."), Say("Two.")])
    async with server as (app, remote), app.run_test(size=(100, 30)) as pilot:
        await say(pilot, "First.")
        await until(pilot, lambda: "One." in read_transcript(app) and not app.conversation.view.busy)
        await say(pilot, "Second.")
        await until(pilot, lambda: "Two." in read_transcript(app) and not app.conversation.view.busy)
        assert app.link is not None
        old_chat_id = app.link.id
        await say(pilot, "/rewind")
        await until(pilot, lambda: isinstance(app.screen, Picker) and app.screen.get_highlighted() is not None)
        await pilot.press("ctrl+f")
        await until(pilot, lambda: app.link is not None and app.link.id != old_chat_id)
        await until(pilot, lambda: "One." in read_transcript(app))
        assert "Two." not in read_transcript(app)
        assert app.composer.text == "Second."
        assert len(await remote.list_chat_rows()) == 2
        app.leave()


async def test_a_chat_is_deleted_by_the_second_press(tmp_path: Path) -> None:  # U-04, A-06
    async with app_on_server(tmp_path, [Say("Hello.")]) as (app, remote):
        first_chat, second_chat = [await remote.create(model="scripted:x", title=title) for title in ("Stays", "Goes")]
        async with app.run_test(size=(120, 34)) as pilot:
            await until(pilot, lambda: app.controller is not None)
            await say(pilot, "/chats")
            await until(pilot, lambda: isinstance(app.screen, Picker))
            rows = app.screen.query_one("#rows", OptionList)
            await until(pilot, lambda: rows.option_count == 2)
            await pilot.press("ctrl+d")
            assert len(await remote.list_chat_rows()) == 2
            await pilot.press("down", "ctrl+d", "up")  # asked about another: that is no confirmation
            await pilot.press("ctrl+d")
            assert len(await remote.list_chat_rows()) == 2
            await pilot.press("ctrl+d")
            await until(pilot, lambda: rows.option_count == 1)
            assert [row.id for row in await remote.list_chat_rows()] == [first_chat.id]
            assert second_chat.id != first_chat.id
            app.leave()
