"""A lease that runs out while its step runs, and messages that come while a lease is given back: the chat is driven by
one hold at a time, keeps its lease, and no message is left without a worker (D-03, fault 4)."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.unit.engine.test_worker import until, until_ended
from treadle import Agent, ScriptedModel, tool
from treadle.adapters.models.scripted import Call, Say
from treadle.adapters.stores.memory import MemoryStore
from treadle.adapters.stores.sqlite import SqliteStore
from treadle.base.types import ChatId, SystemClock
from treadle.engine.pool import WorkerPool
from treadle.errors import StoreBusy, StoreError
from treadle.ports.model import ModelInfo, ModelRequest
from treadle.ports.store import Commit, Lease, Snapshot
from treadle.protocol.commands import ChangeOptions, Send
from treadle.protocol.deltas import Delta
from treadle.protocol.events import ExecutionStart, RunEnd, TurnRetry
from treadle.testing.checker import check

LEASE_S = 2.0


class GatedModel:
    """Answers when its gate is open; counts calls, and how many are under way."""

    def __init__(self) -> None:
        self._model = ScriptedModel([Say("Done.")])
        self.calls = self.inside = self.most = 0
        self.open = asyncio.Event()

    @property
    def info(self) -> ModelInfo:
        return self._model.info

    async def stream(self, request: ModelRequest) -> AsyncIterator[Sequence[Delta]]:
        self.calls += 1
        self.inside += 1
        self.most = max(self.most, self.inside)
        try:
            await self.open.wait()
            async for deltas in ScriptedModel([Say("Done.")]).stream(request):
                yield deltas
        finally:
            self.inside -= 1

    async def close(self) -> None:
        await self._model.close()


class AwayStore(MemoryStore):
    """A store whose renewals can fail for a while."""

    away = False

    async def renew(self, leases: Sequence[Lease]) -> Sequence[Lease]:
        if self.away:
            raise StoreError("the server is away")
        return await super().renew(leases)


async def test_a_worker_that_claims_its_own_chat_again_keeps_the_new_lease() -> None:
    """The store is away for longer than a lease while the model is asked. The same worker takes the chat up again, ends
    the old step, and renews the new lease for as long as the next model call takes: no call is paid for in vain."""
    store, model = AwayStore(lease_s=LEASE_S), GatedModel()
    async with Agent(store, model=model, builtin=False, renew_s=LEASE_S / 20, retry_base_s=0.0) as agent:
        pool = WorkerPool(agent.worker, poll_s=0.02)
        pool.start()
        chat = await agent.chat()
        await chat.send("go")
        await until(lambda: model.inside)
        store.away = True
        await until(lambda: model.calls == 2)
        store.away = False
        await asyncio.sleep(LEASE_S * 2.5)
        assert (model.calls, model.inside, model.most) == (2, 1, 1)
        assert agent.worker.is_holding(chat.id)
        model.open.set()
        await until_ended(agent, chat.id)
        events = [each.data for each in await chat.events()]
        assert [type(each).__name__ for each in events].count("RunEnd") == 1
        assert len([each for each in events if isinstance(each, TurnRetry)]) == 1
        await until(lambda: not agent.worker.is_holding(chat.id) and agent.worker.load == 0)
        assert await check(store, chat.id) == []
        await pool.drain()


async def test_a_message_beyond_the_room_is_driven_without_a_pool() -> None:
    """The library: no pool claims what waits, so the worker takes it up itself when there is room."""
    store, model = MemoryStore(), GatedModel()
    async with Agent(store, model=model, builtin=False, concurrency=1) as agent:
        first, second, third = await agent.chat(), await agent.chat(), await agent.chat()
        for chat in (first, second, third):
            await chat.send("go")
        await until(lambda: model.inside == 1)
        model.open.set()
        for chat in (first, second, third):
            await until_ended(agent, chat.id)
        assert model.most == 1


class SlowEnd:
    """A store that stands still between the end of a run and what follows it."""

    def __init__(self, store: Any) -> None:
        self.store = store
        self.reached, self.go_on = asyncio.Event(), asyncio.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store, name)

    async def save_snapshot(self, chat: ChatId, snapshot: Snapshot) -> None:
        self.reached.set()
        await self.go_on.wait()
        await self.store.save_snapshot(chat, snapshot)

    async def release(self, lease: Lease) -> None:
        self.reached.set()
        await self.go_on.wait()
        await self.store.release(lease)


async def test_a_message_during_the_snapshot_is_driven_although_leases_are_renewed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The lease went back with the last append; a renewal that does not find it must not end the hold for good."""
    monkeypatch.setattr("treadle.engine.log.SNAPSHOT_EVERY", 1)
    store, model = SlowEnd(MemoryStore()), GatedModel()
    model.open.set()
    async with Agent(store, model=model, builtin=False, renew_s=0.3) as agent:
        chat = await agent.chat()
        await chat.send("one")
        await store.reached.wait()
        await chat.send("two")
        await asyncio.sleep(0.7)  # the next renewal comes before the snapshot is written
        store.go_on.set()
        async with asyncio.timeout(20):
            head = 0
            while [type(each.data) for each in await chat.events()].count(RunEnd) < 2:
                head = await store.wait(chat.id, head, 1.0)


@pytest.mark.parametrize("store_kind", ["memory", "sqlite"])
async def test_a_message_to_a_chat_that_is_being_released_is_driven(store_kind: str, tmp_path: Path) -> None:
    """Another process has claimed the chat and found nothing to do; before it gives the lease back, this one appends a
    message and finds the chat held. The holder looks again."""
    shared_store = MemoryStore() if store_kind == "memory" else SqliteStore(tmp_path / "t.db")
    store, model = SlowEnd(shared_store), GatedModel()
    model.open.set()
    async with (
        Agent(store, model=model, builtin=False) as holder,
        Agent(shared_store, model=model, builtin=False) as second_agent,
    ):
        chat = await second_agent.chat()
        holding = asyncio.create_task(holder.worker.drive(chat.id))
        await store.reached.wait()
        await second_agent.chat(chat.id).send("go")
        while (drive := second_agent.worker._driving.get(chat.id)) is not None:
            await drive  # it finds the chat held, also at its second look
            await asyncio.sleep(0)
        assert model.calls == 0
        store.go_on.set()
        await holding
        await until_ended(second_agent, chat.id)
    await shared_store.close()


async def test_a_chat_that_was_busy_a_moment_ago_is_looked_at_again() -> None:
    """The claim finds it held; by the time this worker looks, it is free and has something to do."""

    class JustReleased(MemoryStore):
        held_lease: Lease | None = None

        async def claim(self, worker: str, chat: ChatId | None = None, *, now_ms: int = 0) -> Lease | None:
            try:
                return await super().claim(worker, chat, now_ms=now_ms)
            finally:
                if self.held_lease is not None:
                    await super().release(self.held_lease)

    store, model = JustReleased(), GatedModel()
    model.open.set()
    async with Agent(store, model=model, builtin=False) as agent:
        chat = await agent.chat()
        store.held_lease = await store.claim("somebody", chat.id)
        await agent.deps.log.execute(chat.id, Send("go"))
        agent.worker.start(chat.id)
        await until_ended(agent, chat.id)
        await chat.command(ChangeOptions({"labels": ["done"]}))


class RefusingStore(MemoryStore):
    """A store that is busy for writes under a lease, while it is told so."""

    refusals = 0  # so many more
    releases = False  # True if it refuses those, too

    async def append(self, commit: Commit) -> None:
        if self.refusals and commit.lease is not None and commit.records[0].type == ExecutionStart.TYPE:
            self.refusals -= 1
            raise StoreBusy("the store is busy")
        await super().append(commit)

    async def release(self, lease: Lease) -> None:
        if self.releases:
            raise StoreBusy("the store is busy")
        await super().release(lease)


@tool(name="look", read_only=True)
def look() -> str:
    """Look."""
    return "seen"


class StoppedClock(SystemClock):
    """The clock of a process that is stopped for a minute before each look at it, and then goes on."""

    minutes = 0

    def monotonic(self) -> float:
        self.minutes += 1
        return super().monotonic() + self.minutes * 60.0


@pytest.mark.parametrize("clock", [SystemClock, StoppedClock])
async def test_a_run_outlives_a_moment_in_which_the_store_is_busy(clock: type[SystemClock]) -> None:
    """Also if it has worked, or was stopped, for longer than a renewal takes: without a pool no other worker looks for
    it."""
    store = RefusingStore()
    store.refusals = 1
    model = ScriptedModel([[Call("look")], Say("Done.")])
    async with Agent(store, model=model, tools=[look], builtin=False, renew_s=0.001, clock=clock()) as agent:  # type: ignore[list-item]
        chat = await agent.chat()
        await chat.send("go")
        await until_ended(agent, chat.id)
    assert store.refusals == 0


async def test_a_chat_that_could_not_be_released_is_driven_again() -> None:
    """Its lease stands for a while, so that every claim finds it held: it is given back as soon as the store allows."""
    store = RefusingStore()
    store.refusals, store.releases = 1_000, True
    model = ScriptedModel([[Call("look")], Say("Done.")])
    async with Agent(store, model=model, tools=[look], builtin=False, renew_s=0.001) as agent:  # type: ignore[list-item]
        chat = await agent.chat()
        await chat.send("go")
        with contextlib.suppress(StoreBusy):
            await agent.worker.start(chat.id)
        assert (await store.get(chat.id)).leased
        store.refusals, store.releases = 0, False
        await until_ended(agent, chat.id)
        assert await check(store, chat.id) == []
