"""Client-executed tools over HTTP (A-01 to A-05, fault 5)."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.scenario.http_kit import WEATHER, Server, serving
from treadle.adapters.models.scripted import Call, Say
from treadle.adapters.stores.sqlite import SqliteStore
from treadle.errors import InvalidInput
from treadle.ports.store import Store

pytestmark = pytest.mark.thorough(one_of=8)

STEPS = [[Call("weather", city="Oslo"), Call("weather", city="Rome")], Say("Rain and sun.")]


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    async with serving(SqliteStore(tmp_path / "treadle.db"), tmp_path, STEPS) as running_server:
        yield running_server


@pytest.fixture
async def on_each(open_shared: Callable[[], Store], tmp_path: Path) -> AsyncIterator[Server]:
    """The same on every database that processes can share."""
    async with serving(open_shared(), tmp_path, STEPS) as running_server:
        yield running_server


async def waiting(server: Server, **options: Any) -> tuple[str, list[str]]:
    """A chat that waits for two results."""
    chat = await server.local.create("How is it?", dynamic_tools=[WEATHER], **options)
    events = await server.local.until(chat, "session.action_required")
    return chat, [action["tool_call_id"] for action in events[-1]["data"]["actions"]]


def results(ids: list[str]) -> dict[str, Any]:
    return {"results": [{"tool_call_id": each, "output": {"sky": each}} for each in ids]}


async def test_a_chat_with_a_tool_of_the_client(server: Server) -> None:
    chat, ids = await waiting(server)
    view = (await server.local("GET", f"/api/chats/{chat}")).json
    assert view["status"] == "requires_action"
    assert [action["name"] for action in view["actions"]] == ["weather", "weather"]
    reply = await server.local("POST", f"/api/chats/{chat}/tool-results", results(ids))
    assert (reply.status, reply.data) == (204, b"")
    events = await server.local.until(chat, "session.idle")
    assert events[-1]["data"]["reason"] == "done"
    assert (await server.local("GET", f"/api/chats/{chat}")).json["status"] == "idle"


async def race(servers: list[Server]) -> None:
    """Fifty hand in the same results at once; one wins."""
    first = servers[0]
    chat, ids = await waiting(first)
    users = itertools.islice(itertools.cycle([server.local for server in servers]), 50)
    answers = await asyncio.gather(*(user("POST", f"/api/chats/{chat}/tool-results", results(ids)) for user in users))
    assert sorted(answer.status for answer in answers) == [204] + [409] * 49
    assert {answer.code for answer in answers if answer.status == 409} == {"not_awaiting_action"}
    await first.local.until(chat, "session.idle")
    log = await first.local.log(chat)
    calls = [event["data"]["call"] for event in log if event["type"] == "external_tool.completed"]
    assert calls == ["1.0", "1.1"]


async def test_fifty_at_once_and_one_wins(every_store: Store, tmp_path: Path) -> None:  # A-04, fault 5
    async with serving(every_store, tmp_path, STEPS) as server:
        await race([server])


@pytest.mark.thorough(one_of=8)
async def test_fifty_at_once_at_two_servers(open_shared: Callable[[], Store], tmp_path: Path) -> None:
    async with (
        serving(open_shared(), tmp_path, STEPS) as one,
        serving(open_shared(), tmp_path, STEPS) as second,
    ):
        await race([one, second])


MISMATCHES: list[tuple[Any, str]] = [
    ({"results": []}, "bad_request"),
    ({"results": [{"tool_call_id": "1.0"}]}, "results_mismatch"),
    (results(["1.0", "1.1", "1.2"]), "results_mismatch"),
    (results(["1.0", "1.1", "1.1"]), "results_mismatch"),
    (results(["1.0", "9.9"]), "results_mismatch"),
    ({"results": [{"output": 1}]}, "invalid_json"),
    ({"answers": []}, "invalid_json"),
    ([], "invalid_json"),
    ("{", "invalid_json"),
    ("", "invalid_json"),
    ('{"results": ' + "[" * 100_000, "invalid_json"),
]


async def test_what_does_not_match_is_a_400_and_changes_nothing(server: Server) -> None:
    chat, ids = await waiting(server)
    old_view = await server.local("GET", f"/api/chats/{chat}")
    kind = {"content-type": "application/json"}
    for body, code in MISMATCHES:
        raw = {"data": body.encode(), "headers": kind} if isinstance(body, str) else {"body": body}
        reply = await server.local("POST", f"/api/chats/{chat}/tool-results", **raw)
        assert (reply.status, reply.code) == (400, code), body
        assert (await server.local("GET", f"/api/chats/{chat}")).data == old_view.data
    assert (await server.local("POST", f"/api/chats/{chat}/tool-results", results(ids))).status == 204


async def test_a_chat_that_waits_for_nothing(server: Server) -> None:
    chat = await server.local.create()
    reply = await server.local("POST", f"/api/chats/{chat}/tool-results", results(["1.0"]))
    assert (reply.status, reply.code) == (409, "not_awaiting_action")


async def test_a_foreign_chat_is_like_one_that_is_not_there(server: Server) -> None:  # A-04, S-13
    chat, ids = await waiting(server)
    bob = server.user("bob")
    foreign = await bob("POST", f"/api/chats/{chat}/tool-results", results(ids))
    unknown = await bob("POST", "/api/chats/c_0000000000000000/tool-results", results(ids))
    assert (foreign.status, unknown.status) == (404, 404)
    assert foreign.data.replace(chat.encode(), b"X") == unknown.data.replace(b"c_0000000000000000", b"X")
    assert (await server.local("GET", f"/api/chats/{chat}")).json["status"] == "requires_action"


async def test_late_results(server: Server) -> None:  # A-05, fault 5
    chat, ids = await waiting(server)
    assert (await server.local("POST", f"/api/chats/{chat}/interrupt")).status == 200
    reply = await server.local("POST", f"/api/chats/{chat}/tool-results", results(ids))
    assert (reply.status, reply.code) == (409, "not_awaiting_action")
    assert (await server.local("PATCH", f"/api/chats/{chat}", {"archived": True})).status == 200
    reply = await server.local("POST", f"/api/chats/{chat}/tool-results", results(ids))
    assert (reply.status, reply.code) == (400, "archived")


async def test_the_deadline_passes_by_itself(server: Server) -> None:
    chat, _ = await waiting(server, action_deadline_s=0.05)
    events = await server.local.until(chat, "session.idle")
    synthetic = [event["data"]["synthetic"] for event in events if event["type"] == "external_tool.completed"]
    assert synthetic == ["deadline", "deadline"]


async def test_the_same_request_again_gets_the_first_answer(on_each: Server) -> None:
    chat, ids = await waiting(on_each)
    path, key = f"/api/chats/{chat}/tool-results", {"idempotency-key": "r1"}
    first = await asyncio.gather(*(on_each.local("POST", path, results(ids), headers=key) for _ in range(20)))
    assert {answer.status for answer in first} == {204}
    await on_each.local.until(chat, "session.idle")
    assert (await on_each.local("POST", path, results(ids), headers=key)).status == 204
    mismatch = await on_each.local("POST", path, results([*ids, "x"]), headers=key)
    assert (mismatch.status, mismatch.code) == (422, "idempotency_mismatch")
    log = await on_each.local.log(chat)
    assert sum(event["type"] == "external_tool.completed" for event in log) == 2


async def test_a_key_belongs_to_its_user(on_each: Server) -> None:
    key = {"idempotency-key": "k"}
    first = await on_each.local("POST", "/api/chats", {"content": "a"}, headers=key)
    again = await on_each.local("POST", "/api/chats", {"content": "a"}, headers=key)
    assert first.data == again.data
    bobs = await on_each.user("bob")("POST", "/api/chats", {"content": "a"}, headers=key)
    assert bobs.json["id"] != first.json["id"]
    assert len((await on_each.local("GET", "/api/chats")).json["chats"]) == 1


async def test_tools_that_cannot_be_declared(server: Server) -> None:
    wrong: list[tuple[Any, int, str]] = [
        ([{"name": f"t{number}"} for number in range(251)], 400, "invalid_input"),
        ([{"name": ""}], 400, "invalid_input"),
        ([{"name": "same"}, {"name": "same"}], 400, "invalid_input"),
        ([{"name": "big", "description": "x" * 262_144}], 413, "too_large"),
    ]
    for tools, status, code in wrong:
        reply = await server.local("POST", "/api/chats", {"content": "hi", "dynamic_tools": tools})
        assert (reply.status, reply.code) == (status, code)
    assert (await server.local("GET", "/api/chats")).json["chats"] == []


async def test_250_tools_fit(server: Server) -> None:
    tools = [{"name": f"t{number}"} for number in range(250)]
    assert (await server.local("POST", "/api/chats", {"dynamic_tools": tools})).status == 201


@pytest.mark.parametrize("schema", [None, "text", 7, True, [], [{"type": "object"}], {"type": "string"}, {"type": 7}])
async def test_a_schema_that_is_none_constrains_nothing(tmp_path: Path, schema: Any) -> None:
    steps = [Call("odd", anything=[1, {"x": None}]), Say("Done.")]
    async with serving(SqliteStore(tmp_path / "t.db"), tmp_path, steps) as server:
        tools = [{"name": "odd", "input_schema": schema}]
        creation = await server.local("POST", "/api/chats", {"dynamic_tools": tools, "content": "Go."})
        assert creation.status == 201, creation.data
        (warning,) = creation.json["warnings"]
        assert "odd" in warning
        assert "not checked" in warning
        chat = creation.json["id"]
        events = await server.local.until(chat, "session.action_required")
        (action,) = events[-1]["data"]["actions"]
        assert action["arguments"] == {"anything": [1, {"x": None}]}
        body = {"results": [{"tool_call_id": "1.0", "output": "ok"}]}
        assert (await server.local("POST", f"/api/chats/{chat}/tool-results", body)).status == 204
        assert (await server.local.until(chat, "session.idle"))[-1]["data"]["reason"] == "done"
        patch = await server.local("PATCH", f"/api/chats/{chat}", {"dynamic_tools": tools})
        assert (patch.status, patch.json["warnings"]) == (200, [warning])


async def test_tools_are_judged_when_a_chat_is_changed_too(server: Server) -> None:
    chat = await server.local.create()
    old_view = (await server.local("GET", f"/api/chats/{chat}")).json
    for tools in ([{"name": ""}], [{"name": "a"}, {"name": "a"}], [{"name": f"t{n}"} for n in range(251)]):
        refused = await server.local("PATCH", f"/api/chats/{chat}", {"dynamic_tools": tools})
        assert (refused.status, refused.code) == (400, "invalid_input")
        with pytest.raises(InvalidInput):
            server.agent.chat(chat, dynamic_tools=tools)
    assert (await server.local("GET", f"/api/chats/{chat}")).json == old_view


async def test_odd_tools_are_a_warning(tmp_path: Path) -> None:
    async with serving(SqliteStore(tmp_path / "t.db"), tmp_path, ["Hi."], builtin=True) as server:
        tools = [{"name": "odd", "input_schema": {"type": 7}}, {"name": "read_file"}]
        creation = await server.local("POST", "/api/chats", {"dynamic_tools": tools})
    assert creation.status == 201
    odd, collision = creation.json["warnings"]
    assert "odd" in odd
    assert "read_file" in collision
