"""Shared by the scenarios of the loop: agents on a given store with a scripted model, and short ways to see what
happened. The public surface only: Agent, chats, events."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from typing import Any

from tests.homes import shared_home
from treadle import Agent, Chat, Envelope, tool
from treadle.adapters.models.scripted import ScriptedModel, Step
from treadle.library.command_stream import CommandStream
from treadle.library.replay import replay
from treadle.ports.model import Model, ModelInfo, ModelRequest
from treadle.ports.store import Store
from treadle.ports.toolset import Tool
from treadle.protocol import events as e
from treadle.protocol.content import Entry, ResultsEntry
from treadle.protocol.deltas import Delta


class Recording:
    """A model that lets another one answer and keeps every request."""

    def __init__(self, model: ScriptedModel) -> None:
        self.model = model
        self.requests: list[ModelRequest] = []
        self.entries: list[list[Entry]] = []

    @property
    def info(self) -> ModelInfo:
        return self.model.info

    async def stream(self, request: ModelRequest) -> AsyncIterator[Sequence[Delta]]:
        self.requests.append(request)
        self.entries.append(list(request.entries))
        async for deltas in self.model.stream(request):
            yield deltas

    async def close(self) -> None:
        await self.model.close()

    def turns(self) -> list[list[Entry]]:
        """The conversations that were sent for turns."""
        return [
            entries for entries, request in zip(self.entries, self.requests, strict=True) if request.purpose == "turn"
        ]


class Stage:
    """Agents on one store. `agent()` again is a restart: nothing but the store is kept."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._agents: list[Agent] = []
        self.replayed = True
        """If true, its chats are driven again at the end. Where commands race with effects, the order in the log does
        not tell what the worker knew when it acted."""

    def agent(self, steps: Iterable[Step] | Model, *tools: Tool, builtin: bool = False, **settings: Any) -> Agent:
        model = steps if hasattr(steps, "stream") else ScriptedModel(steps)  # type: ignore[arg-type]
        settings = {"retry_base_s": 0.0, "home": shared_home()} | settings  # an `env` of a test may name no home
        new_agent = Agent(self.store, model=model, tools=tools, builtin=builtin, **settings)  # type: ignore[arg-type]
        self._agents.append(new_agent)
        return new_agent

    async def kill(self) -> None:
        """Every worker dies; its work is in the store or nowhere."""
        while self._agents:
            await self._agents.pop().worker.close()

    async def close(self) -> None:
        """The chats of every scenario can be driven again from their logs (D-07)."""
        try:
            await self.kill()
            for listed in await self.store.list() if self.replayed else ():
                result = await replay(self.store, listed.summary.chat)
                assert result.divergence is None, result.divergence.text
        finally:  # a connection that stays open would fail a later test
            await self.store.close()


async def play(following: CommandStream) -> list[Envelope]:
    """Everything that a front end sees."""
    return [envelope async for envelope in following]


async def until(following: CommandStream, condition: Callable[[e.Event], bool]) -> list[Envelope]:
    """Everything up to the first wanted event; then the reader leaves, which stops nothing."""
    envelopes: list[Envelope] = []
    async for envelope in following:
        envelopes.append(envelope)
        if condition(envelope.data):
            return envelopes
    raise AssertionError(f"never came: {types(envelopes)}")


def types(envelopes: Iterable[Envelope], *, live: bool = False) -> list[str]:
    return [envelope.type for envelope in envelopes if live or not envelope.ephemeral]


def of(envelopes: Iterable[Envelope], kind: type[Any]) -> list[Any]:
    """The events of one type."""
    return [envelope.data for envelope in envelopes if isinstance(envelope.data, kind)]


def list_idle_reasons(envelopes: Iterable[Envelope]) -> list[str]:
    """The reasons of all ends that were seen live."""
    return [idle.reason for idle in of(envelopes, e.SessionIdle)]


async def results(chat: Chat) -> list[str]:
    """The results that the model saw, in order."""
    state = await chat.state()
    return [result.text for entry in state.history if isinstance(entry, ResultsEntry) for result in entry.results]


class Gate:
    """A tool call that can be waited for, and that waits until it is let go."""

    def __init__(self) -> None:
        self.entered = asyncio.Event()
        self.open = asyncio.Event()
        self.left = 0

    async def pass_through(self) -> str:
        self.entered.set()
        try:
            await self.open.wait()
        finally:
            self.left += 1
        return "passed"


@tool(read_only=True)
async def look(n: int = 0) -> str:
    """Look at something."""
    return f"seen {n}"


@tool
async def change(n: int = 0) -> str:
    """Change something."""
    return f"changed {n}"


@tool
async def fail(text: str = "boom") -> str:
    """Fail."""
    raise RuntimeError(text)
