"""Servers of the transport HTTP+SSE, which came before streamable HTTP (E-01)."""

import asyncio
import socket
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.lazily import lazily
from tests.scenario.kit import of
from tests.scenario.mcp_servers.kit import Kit, collect_events, results
from treadle.adapters.models.scripted import Call, Say
from treadle.protocol import events as e

pytestmark = pytest.mark.thorough(one_of=8)

uvicorn, mcpserver = lazily("uvicorn"), lazily("mcp.server.mcpserver")


@pytest.fixture
async def address(kit: Kit) -> AsyncIterator[str]:
    server = mcpserver.MCPServer("old")

    @server.tool()  # type: ignore[untyped-decorator]
    async def greet() -> str:
        """Say hello."""
        return "hello"

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    app: Any = server.sse_app()

    async def also_elsewhere(connection: Any, receive: Any, send: Any) -> None:
        if connection.get("path") == "/events":
            connection = {**connection, "path": "/sse", "raw_path": b"/sse"}
        await app(connection, receive, send)

    serving = uvicorn.Server(uvicorn.Config(also_elsewhere, port=port, log_level="critical"))
    task = asyncio.create_task(serving.serve())
    async with asyncio.timeout(60):
        while not serving.started:  # noqa: ASYNC110 - it tells nobody
            await asyncio.sleep(0.02)
    yield f"http://127.0.0.1:{port}"
    for agent in kit.agents:
        await agent.close()
    kit.agents.clear()
    serving.should_exit = serving.force_exit = True
    await asyncio.gather(task, return_exceptions=True)


@pytest.mark.parametrize("server", [{"url": "/sse"}, {"url": "/events", "type": "sse"}])
async def test_its_tools_are_called(kit: Kit, address: str, server: dict[str, str]) -> None:
    declared = {"old": {**server, "url": address + server["url"]}}
    events = await collect_events(kit.chat(kit.agent([Call("old__greet"), Say("Done.")], declared)).send("Go."))
    assert [result.result or result.error for result in results(events)] == ["hello"]


async def test_an_address_of_the_older_transport_says_how_to_declare_it(kit: Kit, address: str) -> None:
    declared = {"old": {"url": f"{address}/events"}}
    events = await collect_events(kit.chat(kit.agent([Say("No.")], declared)).send("Go."))
    (notice,) = [notice.text for notice in of(events, e.ModelNotice) if notice.kind == "mcp"]
    assert notice == (
        "The MCP server old did not start: its address speaks the older transport HTTP+SSE: declare it with "
        '"type": "sse"'
    )
