"""A real server on loopback in this process, with a scripted model and a real store; and a client for it."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

from treadle import Agent, ScriptedModel
from treadle.adapters.models.scripted import Step
from treadle.frontends.server.admission import Admission
from treadle.frontends.server.running import Running, bind, format_address
from treadle.frontends.server.service import Limits, Service
from treadle.frontends.server.tokens import Tokens
from treadle.ports.model import Model
from treadle.ports.store import Store
from treadle.ports.toolset import Tool
from treadle.protocol.options import ChatOptions

WAIT_S = 60.0
WEATHER = {
    "name": "weather",
    "description": "Tells the weather.",
    "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}},
}


class Answer:
    """A response, read."""

    def __init__(self, status: int, headers: Any, data: bytes) -> None:
        self.status = status
        self.headers = headers
        self.data = data

    @property
    def json(self) -> Any:
        return json.loads(self.data)

    @property
    def code(self) -> str:
        code: str = self.json["error"]["code"]
        assert self.json["error"]["message"].strip()
        return code


class Client:
    """One user."""

    def __init__(self, session: aiohttp.ClientSession, address: str, token: str) -> None:
        self.session = session
        self.address = address
        self.token = token
        self.headers = {"authorization": f"Bearer {token}"} if token else {}

    async def __call__(
        self, method: str, path: str, body: Any = None, *, headers: dict[str, str] | None = None, data: Any = None
    ) -> Answer:
        async with self.session.request(
            method,
            self.address + path,
            json=body if data is None else None,
            data=data,
            headers=self.headers | (headers or {}),
        ) as response:
            return Answer(response.status, response.headers, await response.read())

    async def create(self, content: str = "", **options: Any) -> str:
        reply = await self("POST", "/api/chats", {"content": content, **options})
        assert reply.status == 201, reply.data
        return str(reply.json["id"])

    async def events(
        self, chat: str, *, after_seq: int | None = None, follow: bool = True, query: str = ""
    ) -> AsyncIterator[dict[str, Any]]:
        """The stream of a chat, as it comes."""
        headers = self.headers | ({"last-event-id": str(after_seq)} if after_seq is not None else {})
        address = f"{self.address}/api/chats/{chat}/events?follow={'true' if follow else 'false'}{query}"
        async with self.session.get(address, headers=headers) as response:
            assert response.status == 200, await response.text()
            async for event in sse(response.content):
                yield event

    async def until(self, chat: str, kind: str, *, after_seq: int | None = None) -> list[dict[str, Any]]:
        """Everything up to the first event of this type."""
        events: list[dict[str, Any]] = []
        async for event in self.events(chat, after_seq=after_seq):
            events.append(event)
            if event["type"] == kind:
                return events
        raise AssertionError(f"no {kind} in {[event['type'] for event in events]}")

    async def log(self, chat: str) -> list[dict[str, Any]]:
        events: list[dict[str, Any]] = (await self("GET", f"/api/chats/{chat}/log?limit=500")).json["events"]
        return events


async def sse(content: aiohttp.StreamReader) -> AsyncIterator[dict[str, Any]]:
    """Events of a stream; the id of one that has one must be its seq."""
    number = ""
    async for raw in content:
        line = raw.decode().rstrip("\n")
        if line.startswith("id: "):
            number = line.removeprefix("id: ")
        elif line.startswith("data: "):
            event = json.loads(line.removeprefix("data: "))
            assert number == str(event.get("seq", event.get("changed", "")))
            yield event
            number = ""


async def eventually(fact: Callable[[], bool]) -> None:
    """Wait for a condition that no event reports."""
    async with asyncio.timeout(WAIT_S):
        for _ in iter(fact, True):
            await asyncio.sleep(0.005)


def select_recorded_events(events: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    return [event for event in events if not event.get("ephemeral")]


class Server:
    """A server on its own store, or several on one."""

    def __init__(self, running: Running, address: str, tokens: Tokens, session: aiohttp.ClientSession) -> None:
        self.running = running
        self.service = running.service
        self.agent = running.service.agent
        self.address = address
        self.tokens = tokens
        self.session = session
        self.local = self.user("local")

    def user(self, name: str) -> Client:
        return Client(self.session, self.address, self.tokens.add(name)[1])

    @property
    def anonymous_client(self) -> Client:
        return Client(self.session, self.address, "")


@asynccontextmanager
async def serving(
    store: Store,
    home: Path,
    steps: Iterable[Step] | Model,
    *tools: Tool,
    works: bool = True,
    builtin: bool = False,
    options: ChatOptions | None = None,
    limits: Limits | None = None,
    admission: Admission | None = None,
    hosts: tuple[str, ...] = (),
    buffer: int = 0,
    env: Mapping[str, str] | None = None,
) -> AsyncIterator[Server]:
    """With `env` the models are those that it names, not the steps."""
    model = steps if hasattr(steps, "stream") else ScriptedModel(steps, follow="entries")  # type: ignore[arg-type]
    chat_options = options or ChatOptions(model="scripted:test", interactive=True, summarize=False, verify=False)
    one = model if env is None else None  # type: ignore[assignment]
    agent = Agent(
        store, model=one, env=env, tools=tools, builtin=builtin, options=chat_options, home=home, retry_base_s=0.0
    )
    tokens = Tokens(home / "tokens.json")
    service = Service(agent, tokens, admission or Admission(chat_options), works=works, limits=limits, hosts=hosts)
    listening = bind("127.0.0.1", 0)
    if buffer:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, buffer)
    address = format_address(listening)
    running = Running(service, listening)
    await running.start()
    timeout = aiohttp.ClientTimeout(total=WAIT_S)
    connector = aiohttp.TCPConnector(limit=0)
    try:
        async with aiohttp.ClientSession(timeout=timeout, connector=connector, read_bufsize=2**22) as session:
            yield Server(running, address, tokens, session)
    finally:
        if not service.draining.is_set():
            running.end()
        await running.wait()
        await agent.close()
