"""Signing in to a server that asks for it (OAuth): once in a browser, then by stored tokens that only their owner can
read; without them a notice says how to sign in (E-01)."""

import asyncio
import json
import os
import socket
import stat
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.lazily import Lazy, lazily
from tests.scenario.kit import of
from tests.scenario.mcp_servers.kit import Kit, collect_events, results
from treadle.adapters.models.scripted import Call, Say
from treadle.errors import ToolError
from treadle.protocol import events as e

pytestmark = pytest.mark.thorough(one_of=8)

door, auth = Lazy("tests.scenario.mcp_servers.door"), lazily("mcp.shared.auth")

SIGN_IN = "The MCP server door did not start: it asks you to sign in: treadle mcp login door"


async def browse(address: str) -> None:
    """Act as a person: open the page, and follow the redirect back."""
    import httpx2

    async with httpx2.AsyncClient(follow_redirects=True) as client:
        assert (await client.get(address)).status_code == 200


@asynccontextmanager
async def guarded_server(kit: Kit, keeper: Any = None, **options: Any) -> AsyncIterator[str]:
    """The address of a server that runs for as long as the context."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    serving = door.make_guarded_server(port, keeper, **options)
    task = asyncio.create_task(serving.serve())
    try:
        async with asyncio.timeout(60):
            while not serving.started:  # noqa: ASYNC110 - no event reports it
                await asyncio.sleep(0.02)
            yield f"http://127.0.0.1:{port}/mcp"
    finally:
        for agent in kit.agents:
            await agent.close()
        kit.agents.clear()
        serving.should_exit = serving.force_exit = True
        await asyncio.gather(task, return_exceptions=True)


def notices(events: list[Any]) -> list[str]:
    return [notice.text for notice in of(events, e.ModelNotice) if notice.kind == "mcp"]


def registered_keeper(port: int) -> Any:
    """Knows one client, and registers none."""
    keeper = door.Doorkeeper()
    keeper.clients["treadle-id"] = auth.OAuthClientInformationFull(
        client_id="treadle-id",
        client_secret="the-client-secret",
        redirect_uris=[f"http://127.0.0.1:{port}/callback"],
        token_endpoint_auth_method="client_secret_basic",
    )
    return keeper


@pytest.mark.thorough(one_of=8)
async def test_a_sign_in_is_asked_for_made_once_and_kept(kit: Kit) -> None:
    async with guarded_server(kit) as url:
        declared = {"door": {"url": url}}
        events = await collect_events(kit.chat(kit.agent([Call("door__secret"), Say("No.")], declared)).send("Go."))
        assert notices(events) == [SIGN_IN]
        assert "treadle mcp login door" in results(events)[0].error
        agent = kit.agent([Call("door__secret"), Say("Done.")], declared)
        assert await agent.mcp.login("door", browse, str(kit.root))
        events = await collect_events(kit.chat(agent).send("Go."))
        assert results(events)[0].result == "the secret"
    tokens_file = kit.home / "mcp-tokens.json"
    assert door.SECRET in tokens_file.read_text()
    assert stat.S_IMODE(tokens_file.stat().st_mode) == 0o600
    assert not any(door.SECRET.encode() in file.read_bytes() for file in files(kit.folder) if file != tokens_file)


async def test_a_client_of_the_settings_signs_in_where_none_is_registered(kit: Kit) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    oauth = {"clientId": "treadle-id", "clientSecret": "${DOOR_SECRET}", "callbackPort": port}
    async with guarded_server(kit, registered_keeper(port)) as url:
        unknown = kit.agent([Say("No.")], {"door": {"url": url}})
        with pytest.raises(ToolError, match="--client-id"):
            await unknown.mcp.login("door", browse, str(kit.root))
        environment = {**os.environ, "DOOR_SECRET": "the-client-secret"}
        declared = {"door": {"url": url, "oauth": oauth}}
        agent = kit.agent([Call("door__secret"), Say("Done.")], declared, env=environment)
        assert await agent.mcp.login("door", browse, str(kit.root))
        events = await collect_events(kit.chat(agent).send("Go."))
        assert results(events)[0].result == "the secret"
    assert "the-client-secret" not in (kit.home / "mcp-tokens.json").read_text()


async def test_a_new_process_refreshes_an_expired_token(kit: Kit) -> None:
    keeper = door.Doorkeeper()
    async with guarded_server(kit, keeper) as url:
        declared = {"door": {"url": url}}
        assert await kit.agent([], declared).mcp.login("door", browse, str(kit.root))
        tokens_file = kit.home / "mcp-tokens.json"
        book = json.loads(tokens_file.read_text())
        book["servers"][url]["tokens"]["expires_at"] = 1.0
        tokens_file.write_text(json.dumps(book))
        keeper.valid.clear()
        events = await collect_events(kit.chat(kit.agent([Call("door__secret"), Say("Done.")], declared)).send("Go."))
        assert notices(events) == []
        assert results(events)[0].result == "the secret"
    assert keeper.grants == ["code", "refresh"]


@pytest.mark.thorough(one_of=8)
async def test_a_call_that_needs_more_scopes_says_so_and_the_next_sign_in_asks_for_them(kit: Kit) -> None:
    keeper = door.Doorkeeper()
    async with guarded_server(kit, keeper, call_scope="files:write") as url:
        declared = {"door": {"url": url, "scope": "files:read"}}
        calls = [Call("door__secret"), Say("No."), Call("door__secret"), Say("Done.")]
        agent = kit.agent(calls, declared)
        assert await agent.mcp.login("door", browse, str(kit.root))
        chat = kit.chat(agent)
        (refused,) = results(await collect_events(chat.send("Go.")))
        assert not refused.success
        assert "sign in for more permissions (files:write): treadle mcp login door" in str(refused.error)
        # as another process does it: this one notices the new tokens
        assert await kit.agent([], declared).mcp.login("door", browse, str(kit.root))
        assert list(keeper.valid.values()) == [["files:read", "files:write"]]
        assert results(await collect_events(chat.send("Again.")))[0].result == "the secret"


@pytest.mark.thorough(one_of=8)
async def test_the_browser_may_block_while_the_page_comes_back(kit: Kit) -> None:
    """`treadle mcp login` with a browser that returns only when it is closed."""
    browser = kit.folder / "browser"
    fetch = "import sys, urllib.request; urllib.request.urlopen(sys.argv[1], timeout=120).read()"
    browser.write_text(f"#!/bin/sh\nexec {sys.executable} -c '{fetch}' \"$1\"\n")
    browser.chmod(0o755)
    async with guarded_server(kit) as url:
        (kit.home / "mcp.json").write_text(json.dumps({"mcpServers": {"door": {"url": url}}}))
        env = {**os.environ, "TREADLE_HOME": str(kit.home), "BROWSER": str(browser), "DISPLAY": ""}
        command = [sys.executable, "-m", "treadle", "mcp", "login", "door"]
        process = await asyncio.create_subprocess_exec(
            *command, cwd=kit.root, env=env, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
        )
        try:
            async with asyncio.timeout(100):
                output, errors = await process.communicate()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        assert (process.returncode, output.decode()) == (0, "signed in to door\n"), errors.decode()


def files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]
