"""Treadle as an MCP client, for the client scenarios of the conformance suite: signs in when the server asks for it,
as `treadle mcp login` does, and calls every tool in a chat. The suite appends the server's address."""

import asyncio
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import httpx2

from treadle import Agent, Chat, Envelope
from treadle.adapters.models.scripted import Call, Say, ScriptedModel
from treadle.adapters.stores.sqlite import SqliteStore
from treadle.protocol.events import ActionRequired, ExecutionComplete, ModelNotice

SIGN_IN = "treadle mcp login"
ROUNDS = 4
CALLS = {
    "initialize": [],
    "tools_call": [Call("it__add_numbers", a=5, b=3)],
    "elicitation-sep1034-client-defaults": [Call("it__test_client_elicitation_defaults")],
    "sse-retry": [Call("it__test_reconnection")],
}
"""By scenario; those of sign-in have one and the same tool."""


def declaration(url: str) -> dict[str, Any]:
    """The server as a user would declare it: with the client id that the scenario names, if it names one."""
    scenario, context = os.environ["MCP_CONFORMANCE_SCENARIO"], json.loads(os.environ["MCP_CONFORMANCE_CONTEXT"])
    client = {"clientId": context.get("client_id", ""), "clientSecret": context.get("client_secret", "")}
    if scenario == "auth/basic-cimd":
        client = {"clientId": "https://conformance-test.local/client-metadata.json"}
    return {"url": url, **({"oauth": client} if client["clientId"] else {})}


async def open_page(address: str) -> None:
    """Does the work of a browser: the page sends it back to the local port at once."""
    async with httpx2.AsyncClient(follow_redirects=True) as client:
        (await client.get(address)).raise_for_status()


async def read(chat: Chat, message: str) -> list[Envelope]:
    """All events of a run; a question of the server is answered with its defaults."""
    events = [envelope async for envelope in chat.send(message)]
    while required := [each.data for each in events[-2:] if isinstance(each.data, ActionRequired)]:
        events += [envelope async for envelope in chat.answer(required[0].actions[0], "accept")]
    return events


async def main(url: str) -> int:
    os.environ.setdefault("MCP_CONFORMANCE_CONTEXT", "{}")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for part in ("home", "project"):
            (folder / part).mkdir()
        calls = CALLS.get(os.environ["MCP_CONFORMANCE_SCENARIO"], [Call("it__test-tool")])
        for _ in range(ROUNDS):
            model = ScriptedModel([*calls, Say("Done.")])
            store = SqliteStore(folder / "treadle.db")
            async with Agent(store, model=model, home=folder / "home", mcp={"it": declaration(url)}) as agent:
                chat = agent.chat(root=folder / "project", mode="autopilot", interactive=True, max_continuations=0)
                events = await read(chat, "Go.")
                texts = [each.data.text for each in events if isinstance(each.data, ModelNotice)]
                results = [each.data for each in events if isinstance(each.data, ExecutionComplete)]
                texts += [result.error or result.result or "" for result in results]
                print("\n".join(texts), file=sys.stderr)
                if not any(SIGN_IN in text for text in texts):
                    return 0 if len(results) == len(calls) and all(result.success for result in results) else 1
                await agent.mcp.login("it", open_page, str(folder / "project"))
    return 1


if __name__ == "__main__":
    sys.exit(asyncio.run(main(sys.argv[-1])))
