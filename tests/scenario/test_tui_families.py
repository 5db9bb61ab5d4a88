"""The app and chats that a chat began: a sub-agent's questions appear in the parent's view, here and on a server."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest

from tests.scenario.family import ByTask, project
from tests.scenario.http_kit import serving
from tests.scenario.test_tui_app import app_on, read_transcript, say, until
from treadle import Agent
from treadle.adapters.models.scripted import Call, Say
from treadle.adapters.stores.sqlite import SqliteStore
from treadle.frontends.tui.app import Start, TreadleApp
from treadle.frontends.tui.launch import make_app
from treadle.frontends.tui.remote import Remote
from treadle.ports.model import ModelRequest
from treadle.protocol.content import UserEntry
from treadle.protocol.deltas import Delta
from treadle.protocol.options import ChatOptions

pytestmark = pytest.mark.thorough(one_of=8)

SCRIPTS = {
    "Do it": [Call("delegate", tasks=[{"task": "Child a"}, {"task": "Child b"}]), Say("All is done.")],
    "Child a": [Call("write_file", path=".env", content="X=1\n"), Say("Wrote it.")],
    "Child b": [Call("ask_user", question="Which one?", options=["this", "that"]), Say("Chosen.")],
}


@asynccontextmanager
async def here(root: Path, home: Path) -> AsyncIterator[TreadleApp]:
    async with Agent(SqliteStore(home / "treadle.db"), model=ByTask(SCRIPTS), home=home) as agent:
        yield app_on(agent, root)


@asynccontextmanager
async def on_a_server(root: Path, home: Path) -> AsyncIterator[TreadleApp]:
    options = ChatOptions(model="scripted:test", interactive=True, summarize=False, verify=False)
    store = SqliteStore(home / "treadle.db")
    async with serving(store, home, ByTask(SCRIPTS), builtin=True, options=options) as server:
        remote = Remote(server.address, server.local.token, {"root": str(root)})

        async def connect() -> Remote:
            return remote

        yield make_app(connect, Start(str(root), "scripted:x"))
        await remote.close()


@pytest.mark.parametrize("place", [here, on_a_server])
async def test_what_sub_agents_ask_is_answered_in_the_view_of_the_parent(  # L-23, S-08
    tmp_path: Path, place: Callable[[Path, Path], AbstractAsyncContextManager[TreadleApp]]
) -> None:
    root = project(tmp_path)
    (tmp_path / "home").mkdir()
    async with place(root, tmp_path / "home") as app, app.run_test(size=(120, 34)) as pilot:
        await say(pilot, "Do it")
        kinds = set()
        for _ in range(2):
            await until(pilot, lambda: app.card.asked is not None and app.card.armed)
            assert app.card.asked is not None
            assert app.card.asked.chat
            assert app.link is not None
            assert app.card.asked.chat != app.link.id
            key = app.card.asked.key
            kinds.add(app.card.asked.action.kind)
            await pilot.press("y" if app.card.asked.action.kind == "permission" else "2")
            await until(pilot, lambda key=key: app.card.asked is None or app.card.asked.key != key)
        assert kinds == {"permission", "user_input"}
        await until(pilot, lambda: "All is done." in read_transcript(app) and not app.conversation.view.busy)
        assert app.connection is not None
        rows = {row.title: row.parent for row in await app.connection.list_chat_rows()}
        assert rows["Child a"] == rows["Child b"] == app.link.id
        app.leave()
    assert (root / ".env").read_text() == "X=1\n"


async def test_a_question_is_not_replaced_by_another_one_before_it_is_answered(tmp_path: Path) -> None:  # L-23, S-08
    """The child that asks later comes first in the list."""
    root, gate = project(tmp_path), asyncio.Event()

    class GatedModel(ByTask):
        async def stream(self, request: ModelRequest) -> AsyncIterator[Sequence[Delta]]:
            if any(isinstance(entry, UserEntry) and entry.text.startswith("Child a") for entry in request.entries):
                await gate.wait()
            async for deltas in super().stream(request):
                yield deltas

    async with Agent(model=GatedModel(SCRIPTS), home=tmp_path) as agent:
        app = app_on(agent, root)
        async with app.run_test(size=(120, 34)) as pilot:
            await say(pilot, "Do it")
            await until(pilot, lambda: app.card.action is not None and app.card.action.kind == "user_input")
            gate.set()
            await until(pilot, lambda: app.card._others == 1)
            assert app.card.action is not None
            assert app.card.action.kind == "user_input"
            await until(pilot, lambda: app.card.armed)
            await pilot.press("2")
            await until(pilot, lambda: app.card.action is not None and app.card.action.kind == "permission")
            await until(pilot, lambda: app.card.armed)
            await pilot.press("y")
            await until(pilot, lambda: "All is done." in read_transcript(app))
            app.leave()


async def test_a_draft_outlives_an_answer_to_a_sub_agent(tmp_path: Path) -> None:  # U-04, L-23
    root = project(tmp_path)
    (tmp_path / "home").mkdir()
    async with here(root, tmp_path / "home") as app, app.run_test(size=(120, 34)) as pilot:
        await say(pilot, "Do it")
        await until(pilot, lambda: app.card.asked is not None and app.card.asked.action.kind == "permission")
        assert app.card.asked is not None
        key = app.card.asked.key
        app.composer.insert("half a message")
        await pilot.press("tab")
        await until(pilot, lambda: app.card.armed and not app.composer.text)
        await pilot.press("f", "enter")
        await until(pilot, lambda: app.controller is not None and app.controller.describe_purpose())
        await say(pilot, "Not this file.")
        await until(pilot, lambda: app.card.asked is None or app.card.asked.key != key)
        await until(pilot, lambda: app.composer.text == "half a message")
        app.leave()
