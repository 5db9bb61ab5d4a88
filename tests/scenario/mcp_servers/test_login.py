"""Signing in to a server that asks for it (OAuth): once in a browser, then by what is kept, which nobody else may read;
without it the server is a notice that says what to do."""

import asyncio
import socket
import stat
from pathlib import Path

from tests.lazily import lazily
from tests.scenario.kit import of
from tests.scenario.mcp_servers.kit import Kit, results, seen
from treadle.models.scripted import Call, Say
from treadle.protocol import events as e

door = lazily("tests.scenario.mcp_servers.door")


async def browse(address: str) -> None:
    """What a person does: opens the page, and is sent back."""
    import httpx2

    async with httpx2.AsyncClient(follow_redirects=True) as client:
        assert (await client.get(address)).status_code == 200


async def test_a_sign_in_is_asked_for_made_once_and_kept(kit: Kit) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    serving = door.guarded(port)
    task = asyncio.create_task(serving.serve())
    declared = {"door": {"url": f"http://127.0.0.1:{port}/mcp"}}
    try:
        async with asyncio.timeout(60):
            while not serving.started:  # noqa: ASYNC110 - it tells nobody
                await asyncio.sleep(0.02)
        events = await seen(kit.chat(kit.agent([Say("No.")], declared)).send("Go."))
        told = [notice.text for notice in of(events, e.ModelNotice) if notice.kind == "mcp"]
        assert told == ["The MCP server door did not start: it asks you to sign in: treadle mcp login door"]
        agent = kit.agent([Call("door__secret"), Say("Done.")], declared)
        async with asyncio.timeout(60):
            assert await agent.mcp.login("door", browse, str(kit.root))
        events = await seen(kit.chat(agent).send("Go."))
        assert results(events)[0].result == "the secret"
    finally:
        for agent in kit.agents:
            await agent.close()
        kit.agents.clear()
        serving.should_exit = serving.force_exit = True
        await asyncio.gather(task, return_exceptions=True)
    kept = kit.home / "mcp-tokens.json"
    assert door.SECRET in kept.read_text()
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert not any(door.SECRET.encode() in file.read_bytes() for file in files(kit.folder) if file != kept)


def files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]
