"""Every route that changes something: a wrong body is refused with a code and a sentence, and changes nothing (A-06).
And a stop over HTTP: the command ends with all its descendants, and the stream says idle once (L-07, L-12)."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.processes import running_with, unlike_any_other
from tests.scenario.http_kit import Server, eventually, serving
from treadle.adapters.models.scripted import Call, Say
from treadle.adapters.stores.sqlite import SqliteStore
from treadle.frontends.server.routing import Route
from treadle.frontends.server.running import ROUTES
from treadle.protocol.options import ChatOptions

pytestmark = pytest.mark.thorough(one_of=8)

WRITING = [route for route in ROUTES if route.body is not None]
NAP = unlike_any_other()


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    project = tmp_path / "project"
    project.mkdir()
    options = ChatOptions(
        model="scripted:test", interactive=True, summarize=False, verify=False, root=str(project), mode="autopilot"
    )
    steps = [Call("run_command", command=f"sleep {NAP} & sleep 1{NAP} & echo ready; wait"), Say("Not said.")]
    store = SqliteStore(tmp_path / "treadle.db")
    async with serving(store, tmp_path, steps, builtin=True, options=options) as running_server:
        yield running_server


def at(route: Route, chat: str) -> str:
    return route.path.format(chat=chat, seq=2, queued="q", action="a", job="1.0", world="world_x", rule="r")


@pytest.mark.parametrize("route", WRITING, ids=lambda route: f"{route.method} {route.path}")
async def test_a_wrong_body_is_refused_and_changes_nothing(server: Server, route: Route) -> None:
    chat = await server.local.create()
    old_state: list[Any] = [await server.local.log(chat), (await server.local("GET", "/api/chats")).json]
    wrong: list[Any] = [[], "text", 7, {"no_such_field": 1}]
    wrong += [{name: {"of": ["another", "type"]}} for name in getattr(route.body, "__struct_fields__", ())[:1]]
    for body in wrong:
        refused = await server.local(route.method, at(route, chat), body)
        assert refused.status in (400, 422), (body, refused.data)
        assert refused.code, body
    assert [await server.local.log(chat), (await server.local("GET", "/api/chats")).json] == old_state


@pytest.mark.thorough(one_of=8)
async def test_a_stop_ends_the_command_with_its_descendants_and_says_idle_once(server: Server) -> None:
    chat = await server.local.create()
    event_types: list[str] = []

    async def follow() -> None:
        async for event in server.local.events(chat):
            event_types.append(event["type"])

    reading = asyncio.create_task(follow())
    await server.local("POST", f"/api/chats/{chat}/messages", {"content": "Go."})
    await eventually(lambda: "tool.execution_output" in event_types and len(running_with(NAP)) >= 2)
    assert (await server.local("POST", f"/api/chats/{chat}/interrupt")).status == 200
    await eventually(lambda: "session.idle" in event_types)
    assert running_with(NAP) == []
    view = (await server.local("GET", f"/api/chats/{chat}")).json
    assert (view["status"], view["last_end"]) == ("idle", "interrupted")
    types = [event["type"] for event in await server.local.log(chat)]
    assert types.index("session.interrupted") < types.index("tool.execution_complete")
    again = await server.local("POST", f"/api/chats/{chat}/interrupt")
    assert (again.status, again.code) == (409, "not_running")
    await server.local("PATCH", f"/api/chats/{chat}", {"title": "Stopped"})
    await eventually(lambda: "session.title_changed" in event_types)
    assert event_types.count("session.idle") == 1
    reading.cancel()
