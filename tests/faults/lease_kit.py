"""Shared parts of the random runs of workers: a model that notes each call, a tool whose effect may happen once, and
the sums that must come out. A process of its own drives chats with them:

    python -m tests.faults.lease_kit STORE FOLDER LEASE_S
"""

import asyncio
import re
import sys
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from treadle import Agent
from treadle.adapters.models.scripted import Call, Say, ScriptedModel
from treadle.adapters.stores.postgres import PostgresStore
from treadle.adapters.stores.sqlite import SqliteStore
from treadle.base.types import ChatId
from treadle.chat.fold import fold_all
from treadle.chat.state import ChatState, compute_status
from treadle.engine.pool import WorkerPool
from treadle.ports.model import ModelInfo, ModelRequest
from treadle.ports.store import Store
from treadle.ports.toolset import Invocation, Outcome, PlainTool, Settlement
from treadle.protocol import events as e
from treadle.protocol import wire
from treadle.protocol.content import Usage
from treadle.protocol.deltas import Delta
from treadle.protocol.tools import ToolSpec
from treadle.testing.checker import check, check_effects

STEPS = [step for n in range(200) for step in (Call("effect", n=n), Say(f"Done {n}."))]


def store_at(address: str, lease_s: float) -> Store:
    if address.startswith("postgresql:"):
        return PostgresStore(address, lease_s=lease_s)
    return SqliteStore(Path(address), lease_s=lease_s)


class NotedModel:
    """Plays the script, takes a moment for it, and writes a line for every call that it was asked for."""

    def __init__(self, folder: Path, takes_s: float) -> None:
        self._model = ScriptedModel(STEPS)
        self._file = folder / "calls"
        self.takes_s = takes_s
        self.inside: Counter[str] = Counter()
        self.most = 0
        """How many calls of one chat were under way at once in this process."""

    @property
    def info(self) -> ModelInfo:
        return self._model.info

    async def stream(self, request: ModelRequest) -> AsyncIterator[Sequence[Delta]]:
        match = re.search(r"\bc_\d+\b", request.system)
        assert match is not None
        chat = match[0]
        _append_line(self._file, chat)
        self.inside[chat] += 1
        self.most = max(self.most, self.inside[chat])
        try:
            await asyncio.sleep(self.takes_s)
            async for deltas in self._model.stream(request):
                yield deltas
        finally:
            self.inside[chat] -= 1

    async def close(self) -> None:
        await self._model.close()


class Effect(PlainTool):
    """Leaves one line for its call. No check can tell afterwards whether it did, so that it is never repeated."""

    spec = ToolSpec(
        "effect",
        "Leave one line.",
        {"type": "object", "properties": {"n": {"type": "integer"}}},
    )

    def __init__(self, folder: Path, takes_s: float) -> None:
        self._file = folder / "effects"
        self._takes_s = takes_s

    async def prepare(self, invocation: Invocation) -> dict[str, Any] | None:
        return None

    async def run(self, invocation: Invocation) -> Outcome:
        _append_line(self._file, f"{invocation.chat} {invocation.call}")
        await asyncio.sleep(self._takes_s)
        return Outcome(f"did {invocation.arguments['n']}")

    async def settle(self, invocation: Invocation) -> Settlement:
        return "unknown"


def _append_line(path: Path, line: str) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.write(f"{line}\n")


def agent_on(store: Any, folder: Path, lease_s: float, model: NotedModel | None = None, takes_s: float = 0.03) -> Agent:
    """Its chats are named in their system prompts, so that the model knows which one asks."""
    return Agent(
        store,
        model=model or NotedModel(folder, takes_s),
        tools=[Effect(folder, takes_s)],
        builtin=False,
        renew_s=lease_s / 3,
        retry_base_s=0.0,
        instructions=False,
    )


async def at_rest(store: Store, chats: Sequence[ChatId], timeout_s: float) -> list[str]:
    """Wait until every chat is; else which ones are not, and how they stand."""
    waiting: list[str] = []
    with suppress(TimeoutError):
        async with asyncio.timeout(timeout_s):
            while True:
                listed = [await store.get(chat) for chat in chats]
                waiting = [
                    f"{each.summary.chat} is left {each.summary.status}, leased: {each.leased}"
                    for each in listed
                    if each.summary.runnable or each.leased
                ]
                if not waiting:
                    return []
                await asyncio.sleep(0.05)
    return waiting


async def lost_since(store: Store, chats: Sequence[ChatId], since_ms: int) -> dict[ChatId, int]:
    """By chat: how many model calls were given up since then, because their worker had lost the chat."""
    counts: dict[ChatId, int] = {}
    for chat in chats:
        log = [wire.decode(chat, record) for record in await store.read(chat)]
        retries = [each for each in log if isinstance(each.data, e.TurnRetry) and each.time_ms > since_ms]
        counts[chat] = len(retries)
    return counts


async def problems_of(store: Store, folder: Path, chats: Sequence[ChatId]) -> list[str]:
    """The logs that are not whole, the effects that happened twice, and the costs that were not recorded."""
    problems = check_effects(folder / "effects")
    calls = Counter((folder / "calls").read_text().split()) if (folder / "calls").exists() else Counter()
    for chat in chats:
        problems += [f"{chat}: {problem}" for problem in await check(store, chat)]
        log = [wire.decode(chat, record) for record in await store.read(chat)]
        state = fold_all(ChatState(chat=chat), log)
        if compute_status(state) not in ("idle", "error"):
            problems.append(f"{chat} is {compute_status(state)}")
        recorded = sum(isinstance(each.data, e.AssistantMessage | e.TurnRetry) for each in log)
        recorded += _cut_off(log)
        if calls[chat] > recorded:
            problems.append(f"{chat}: {calls[chat]} calls of the model were made, {recorded} are recorded")
        spent = sum((_usage(each.data) for each in log), Usage())
        if spent.tokens != state.totals.usage.tokens:
            problems.append(f"{chat}: {state.totals.usage.tokens} tokens are counted, {spent.tokens} are recorded")
    return problems


def _usage(event: e.Event) -> Usage:
    """The usage that an event records. The end of a turn repeats the usage of its message."""
    if isinstance(event, e.AssistantMessage | e.TurnRetry | e.ModelCall):
        return event.usage or Usage()
    return Usage()


def _cut_off(log: Sequence[Any]) -> int:
    """Turns that ended without a message: an interrupt came before the first word."""
    answered_turns = {each.data.turn for each in log if isinstance(each.data, e.AssistantMessage)}
    return sum(isinstance(each.data, e.TurnEnd) and each.data.turn not in answered_turns for each in log)


async def _drive_for_ever(address: str, folder: Path, lease_s: float) -> None:
    async with agent_on(store_at(address, lease_s), folder, lease_s) as agent:
        pool = WorkerPool(agent.worker, poll_s=0.05)
        pool.start()
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(_drive_for_ever(sys.argv[1], Path(sys.argv[2]), float(sys.argv[3])))
