"""Servers that restart, exit at once, or say again and again that they have changed (E-01, fault 38)."""

import asyncio
import uuid
from typing import Any

import pytest
from aiohttp import web

from tests.scenario.mcp_servers.kit import Kit, collect_events, results
from treadle.adapters.models.scripted import Call, Say
from treadle.errors import InvalidInput

pytestmark = pytest.mark.thorough(one_of=8)


class Forgetful:
    """A server over streamable HTTP that knows its sessions until it restarts."""

    def __init__(self) -> None:
        self.sessions: set[str] = set()
        self.calls: list[str] = []

    async def answer(self, request: web.Request) -> web.Response:
        if request.method != "POST":
            return web.Response(status=405)
        message = await request.json()
        if message["method"] == "initialize":
            session = uuid.uuid4().hex
            self.sessions.add(session)
            info = {"name": "forgetful", "version": "1"}
            result = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": info}
            return _reply(message, result, {"mcp-session-id": session})
        if request.headers.get("mcp-session-id") not in self.sessions:
            return web.Response(status=404, text="Session not found")
        if "id" not in message:
            return web.Response(status=202)
        if message["method"] == "tools/list":
            return _reply(message, {"tools": [{"name": "note", "inputSchema": {"type": "object"}}]})
        if message["method"] == "tools/call":
            self.calls.append(message["params"]["arguments"]["text"])
            return _reply(message, {"content": [{"type": "text", "text": "noted"}]})
        error = {"code": -32601, "message": "no such method"}
        return web.json_response({"jsonrpc": "2.0", "id": message["id"], "error": error})


def _reply(message: dict[str, Any], result: dict[str, Any], headers: dict[str, str] | None = None) -> web.Response:
    return web.json_response({"jsonrpc": "2.0", "id": message["id"], "result": result}, headers=headers)


async def test_a_server_that_restarts_gets_a_new_session_and_the_call_once(kit: Kit) -> None:
    server, app = Forgetful(), web.Application()
    app.router.add_route("*", "/mcp", server.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    url = f"http://127.0.0.1:{runner.addresses[0][1]}/mcp"
    notes = [Call("web__note", text=text) for text in ("one", "two", "three")]
    agent = kit.agent([notes[0], Say("Done."), notes[1:], Say("Done.")], {"web": {"url": url}})
    chat = kit.chat(agent)
    assert results(await collect_events(chat.send("Go.")))[0].result == "noted"
    server.sessions.clear()
    again = results(await collect_events(chat.send("Again.")))
    assert [each.result for each in again] == ["noted", "noted"]
    assert sorted(server.calls) == ["one", "three", "two"]
    assert len(server.sessions) == 1
    await agent.close()
    await runner.cleanup()


async def test_a_program_that_exits_at_once_is_not_started_without_a_pause(kit: Kit) -> None:
    leaves = {**kit.odd, "args": [*kit.odd["args"], "leaves"]}
    agent = kit.agent([Say("Done.")], {"odd": leaves})
    await collect_events(kit.chat(agent).send("Go."))
    while not kit.note_lines:  # noqa: ASYNC110 - another process writes it
        await asyncio.sleep(0.01)
    await asyncio.sleep(2.5)  # a time in which too much would happen
    assert 1 <= len(kit.note_lines) <= 3


@pytest.mark.thorough(one_of=8)
async def test_many_notices_cost_few_listings(kit: Kit) -> None:
    agent = kit.agent([Call("odd__shout"), Call("odd__how_often"), Say("Done.")])
    shouted, listed = results(await collect_events(kit.chat(agent).send("Go.")))
    assert shouted.result == "shouted"
    assert int(listed.result) <= 4


async def test_half_a_character_reaches_no_server(kit: Kit) -> None:
    """A server's connection would end at what cannot be written: the file name in a prompt is not UTF-8."""
    kit.replayed = False
    agent, root = kit.agent([]), str(kit.root)
    with pytest.raises(InvalidInput, match="half of a character"):
        await agent.mcp.prompt("odd", "tidy", {"how": "\udcff"}, root)
    with pytest.raises(InvalidInput, match="half of a character"):
        await agent.mcp.resource("@odd:notes://\udcff", root)
    assert "quietly" in (await agent.mcp.prompt("odd", "tidy", {"how": "quietly"}, root)).text
