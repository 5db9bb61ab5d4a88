"""A store whose answers come late or are lost: a worker that has lost a chat touches nothing of it, nothing is recorded
twice, no call is counted that nobody made, and no acknowledged message waits for ever (D-01, D-02, D-03, faults 4 and
14)."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.faults.lease_kit import NotedModel, agent_on, at_rest, problems_of
from tests.scenario.kit import of
from treadle import Agent, ChatOptions, ScriptedModel, tool
from treadle.adapters.models.scripted import Call, Say
from treadle.adapters.stores.sqlite import SqliteStore
from treadle.base.types import ChatId
from treadle.engine.pool import WorkerPool
from treadle.errors import StoreBusy
from treadle.library.commands import execute_commands
from treadle.ports.model import ModelRequest
from treadle.ports.store import Commit, Lease, Listed, Store
from treadle.ports.toolset import Invocation, Outcome, PlainTool, Settlement
from treadle.protocol import events as e
from treadle.protocol import wire
from treadle.protocol.commands import Compact, Send
from treadle.protocol.deltas import Delta
from treadle.protocol.tools import ToolSpec
from treadle.testing.checker import check

LEASE_S = 0.6


class BadConnection:
    """A store whose answers are late or lost."""

    def __init__(self, store: SqliteStore) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


class LateRead(BadConnection):
    """The first read of a log is begun, or answered, when the test says so. Until then no lease can be extended."""

    def __init__(self, store: SqliteStore, *, begun_late: bool) -> None:
        super().__init__(store)
        self._begun_late = begun_late
        self.asked, self.released = asyncio.Event(), asyncio.Event()

    async def read(self, chat: ChatId, after_seq: int = 0, limit: int = 0) -> list[wire.Record]:
        records = await self._store.read(chat, after_seq, limit)
        if self.released.is_set():
            return records
        self.asked.set()
        await self.released.wait()
        return await self._store.read(chat, after_seq, limit) if self._begun_late else records

    async def renew(self, leases: Sequence[Lease]) -> Sequence[Lease]:
        if self.released.is_set():
            return await self._store.renew(leases)
        raise StoreBusy("the store is busy")


class LosesAnswers(BadConnection):
    """The answers to the first commits with such records are lost. If `late`, such a commit comes with the next one."""

    def __init__(self, store: SqliteStore, *types: str, late: bool = False) -> None:
        super().__init__(store)
        self._types = [*types]
        self._late = late
        self._pending: Commit | None = None

    async def append(self, commit: Commit) -> None:
        if (pending := self._pending) is not None:
            self._pending = None
            await self._store.append(pending)
        is_lost = bool(self._types) and any(record.type == self._types[0] for record in commit.records)
        if is_lost and self._late:
            self._pending = commit
        else:
            await self._store.append(commit)
        if is_lost:
            del self._types[0]
            raise StoreBusy("the answer was lost")


class LosesOneAnswer(BadConnection):
    """The store of a worker: the answer to its first message is lost, and no look at the log succeeds for a while."""

    def __init__(self, store: SqliteStore) -> None:
        super().__init__(store)
        self.lost, self.readable = asyncio.Event(), asyncio.Event()

    async def append(self, commit: Commit) -> None:
        await self._store.append(commit)
        if not self.lost.is_set() and any(record.type == e.AssistantMessage.TYPE for record in commit.records):
            self.lost.set()
            raise StoreBusy("the answer was lost")

    async def renew(self, leases: Sequence[Lease]) -> Sequence[Lease]:
        if self.lost.is_set():
            raise StoreBusy("the store is busy")
        return await self._store.renew(leases)

    async def read(self, chat: ChatId, after_seq: int = 0, limit: int = 0) -> list[wire.Record]:
        if self.lost.is_set():
            await self.readable.wait()
        return await self._store.read(chat, after_seq, limit)


class LosesGrant(BadConnection):
    """The answer to the first grant of a lease is lost: to a claim, or to a command that takes the lease with it."""

    is_lost = False

    def _lose(self) -> None:
        if not self.is_lost:
            self.is_lost = True
            raise StoreBusy("the answer was lost")

    async def claim(self, worker: str, chat: ChatId | None = None, *, now_ms: int) -> Lease | None:
        lease = await self._store.claim(worker, chat, now_ms=now_ms)
        self._lose()
        return lease

    async def append(self, commit: Commit) -> None:
        await self._store.append(commit)
        if commit.take is not None:
            self._lose()


class NeverRenews(BadConnection):
    """Extends no lease."""

    async def renew(self, leases: Sequence[Lease]) -> Sequence[Lease]:
        raise StoreBusy("the store is busy")


class BusyForTurns(BadConnection):
    """Does not record that a turn begins."""

    def __init__(self, store: SqliteStore) -> None:
        super().__init__(store)
        self.asked = asyncio.Event()

    async def append(self, commit: Commit) -> None:
        if any(record.type == e.TurnStart.TYPE for record in commit.records):
            self.asked.set()
            raise StoreBusy("the store is busy")
        await self._store.append(commit)


class BusyAtFirstLook(BadConnection):
    """Refuses the first look at the line of a chat that another worker holds."""

    is_struck = False

    async def get(self, chat: ChatId) -> Listed:
        listed = await self._store.get(chat)
        if listed.leased and not self.is_struck:
            self.is_struck = True
            raise StoreBusy("the store is busy")
        return listed


class Purposes:
    """A model that notes the purpose of each call."""

    def __init__(self) -> None:
        self._model = ScriptedModel([Say("Short.")] * 5)
        self.info = self._model.info
        self.calls: list[str] = []

    async def stream(self, request: ModelRequest) -> AsyncIterator[Sequence[Delta]]:
        self.calls.append(request.purpose)
        async for deltas in self._model.stream(request):
            yield deltas

    async def close(self) -> None:
        await self._model.close()


class Slow(PlainTool):
    """Notes which worker runs, settles or stops it."""

    spec = ToolSpec("slow", "Take a while.", {"type": "object", "properties": {}})

    def __init__(self, worker: str, settlement: Settlement, notes: list[str]) -> None:
        self._worker = worker
        self._settlement = settlement
        self._notes = notes
        self.running = asyncio.Event()

    async def prepare(self, invocation: Invocation) -> dict[str, Any] | None:
        return None

    async def run(self, invocation: Invocation) -> Outcome:
        self._notes.append(f"{self._worker} begins")
        self.running.set()
        await asyncio.sleep(1.5)
        self._notes.append(f"{self._worker} ends")
        return Outcome("did it")

    async def settle(self, invocation: Invocation) -> Settlement:
        self._notes.append(f"{self._worker} settles")
        return self._settlement

    async def stop(self, invocation: Invocation) -> None:
        self._notes.append(f"{self._worker} stops")


def worker_on(store: Any, model: Any, *tools: Any, **settings: Any) -> Agent:
    return Agent(
        store, model=model, tools=tools, renew_s=LEASE_S / 3, instructions=False, **{"builtin": False} | settings
    )


@asynccontextmanager
async def late_worker(late: LateRead, first: Agent, second: Agent, chat: ChatId) -> AsyncIterator[None]:
    """The first worker claims the chat and reads it late. Its lease runs out, and the second one has the chat within
    the block; behind it the first one gets its answer."""
    driving = first.worker.start(chat)
    pool = WorkerPool(second.worker, poll_s=0.05)
    async with asyncio.timeout(60):
        await late.asked.wait()
        pool.start()
        yield
        late.released.set()
        await asyncio.wait([driving])
        assert await at_rest(second.deps.store, [chat], 30.0) == []


async def find(store: Store, chat: ChatId, is_wanted: Callable[[e.Event], bool]) -> None:
    """Wait until the log has such an event."""
    head = 0
    while not any(is_wanted(wire.decode(chat, record).data) for record in await store.read(chat)):
        head = await store.wait(chat, head, 1.0)


async def test_a_worker_whose_answer_was_lost_for_longer_than_its_lease_asks_no_model(tmp_path: Path) -> None:
    """Another worker has the chat by then, and its turn is open: only that one calls the model (D-03, fault 4)."""
    stores = [SqliteStore(tmp_path / "t.db", lease_s=lease_s) for lease_s in (LEASE_S, 30.0)]
    losing = LosesOneAnswer(stores[0])
    models = [NotedModel(tmp_path, 0.0), NotedModel(tmp_path, 3.0)]
    first, second = (
        agent_on(store, tmp_path, LEASE_S, model) for store, model in zip((losing, stores[1]), models, strict=True)
    )
    chat = ChatId("c_1")
    await first.deps.log.create(chat, e.SessionCreated(ChatOptions(system_prompt=chat)))
    await first.deps.log.execute(chat, Send("go"))
    driving = first.worker.start(chat)
    pool = WorkerPool(second.worker, poll_s=0.05)
    async with asyncio.timeout(60):
        await losing.lost.wait()
        pool.start()
        while not models[1].inside[chat]:  # noqa: ASYNC110 - a counter sets no event
            await asyncio.sleep(0.01)
        losing.readable.set()
        await driving
        assert models[1].inside[chat], "the other worker ended its call before the first one looked at the log"
        assert await at_rest(stores[1], [chat], 30.0) == []
    assert await problems_of(stores[1], tmp_path, [chat]) == []
    for agent in (first, second):
        await agent.close()


@pytest.mark.parametrize("settlement", ["run_again", "unknown"])
async def test_a_late_worker_settles_no_call_of_the_next(tmp_path: Path, settlement: Settlement) -> None:
    stores = [SqliteStore(tmp_path / "t.db", lease_s=lease_s) for lease_s in (LEASE_S, 30.0)]
    late, steps, notes = LateRead(stores[0], begun_late=True), [Call("slow"), Say("Done.")], list[str]()
    first = worker_on(late, ScriptedModel(steps), Slow("first", settlement, notes))
    slow = Slow("second", settlement, notes)
    second = worker_on(stores[1], ScriptedModel(steps), slow)
    chat = ChatId("c_1")
    await second.deps.log.create(chat, e.SessionCreated(ChatOptions()))
    await second.deps.log.execute(chat, Send("go"))
    async with first, second, late_worker(late, first, second, chat):
        await slow.running.wait()
    # A worker that withdraws may stop the call again when its end is in the log, where that does nothing.
    assert [note for note in notes if note != "first stops"] == ["second begins", "second ends"]
    assert notes.index("second ends") == 1


async def test_a_model_call_ends_when_the_log_shows_a_newer_lease(tmp_path: Path) -> None:
    """It is paid for, and its answer would be refused. The worker hears of the loss only from the log."""
    stores = [SqliteStore(tmp_path / "t.db", lease_s=lease_s) for lease_s in (LEASE_S, 30.0)]
    models = [NotedModel(tmp_path, 600.0), NotedModel(tmp_path, 5.0)]
    first = agent_on(NeverRenews(stores[0]), tmp_path, LEASE_S, models[0])
    chat = ChatId("c_1")
    async with first, agent_on(stores[1], tmp_path, 30.0, models[1]) as second:
        await second.deps.log.create(chat, e.SessionCreated(ChatOptions(system_prompt=chat)))
        await second.deps.log.execute(chat, Send("go"))
        driving = first.worker.start(chat)
        async with asyncio.timeout(60):
            await find(stores[1], chat, lambda event: isinstance(event, e.TurnStart))
            WorkerPool(second.worker, poll_s=0.05).start()
            await asyncio.wait([driving])
            assert (models[0].inside[chat], models[1].inside[chat]) == (0, 1)
            models[1].takes_s = 0.0
            assert await at_rest(stores[1], [chat], 30.0) == []
        assert await problems_of(stores[1], tmp_path, [chat]) == []


async def test_a_late_worker_kills_no_command_of_the_next(tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    stores = [SqliteStore(tmp_path / "t.db", lease_s=lease_s) for lease_s in (LEASE_S, 30.0)]
    late = LateRead(stores[0], begun_late=False)
    steps = [Call("run_command", command="touch began; sleep 3; echo finished"), Say("Done.")]
    settings = {"builtin": True, "home": tmp_path / "home"}
    first, second = (worker_on(store, ScriptedModel(steps), **settings) for store in (late, stores[1]))
    chat = second.chat(root=str(tmp_path / "root"), auto_approve_commands=True)
    await chat.open()
    await second.deps.log.execute(chat.id, Send("go"))
    async with first, second:
        async with late_worker(late, first, second, chat.id):
            await find(stores[1], chat.id, lambda event: isinstance(event, e.TrialStart | e.ExecutionStart))
            await asyncio.sleep(0.5)
        (completion,) = of(await chat.events(), e.ExecutionComplete)
    assert completion.success, completion.error
    assert "finished" in completion.result


async def test_a_late_worker_compacts_nothing(tmp_path: Path) -> None:
    stores = [SqliteStore(tmp_path / "t.db", lease_s=lease_s) for lease_s in (LEASE_S, 30.0, 30.0)]
    async with worker_on(stores[2], ScriptedModel([Say("Fine. " * 400)] * 3)) as agent:
        chat = await agent.chat()
        for text in ("one", "two", "three"):
            await chat.ask(text)
        assert await at_rest(stores[2], [chat.id], 30.0) == []
        await agent.deps.log.execute(chat.id, Compact())
        late, models = LateRead(stores[0], begun_late=False), [Purposes(), Purposes()]
        first, second = worker_on(late, models[0]), worker_on(stores[1], models[1])
        async with first, second, late_worker(late, first, second, chat.id):
            await find(stores[1], chat.id, lambda event: isinstance(event, e.CompactionComplete))
        assert (models[0].calls, models[1].calls) == ([], ["compaction"])
        assert len(of(await chat.events(), e.ModelCall)) == 1


@pytest.mark.parametrize("kind", [e.AssistantMessage, e.ExecutionComplete])
async def test_a_commit_that_becomes_visible_late_is_not_repeated(tmp_path: Path, kind: type[e.Event]) -> None:
    """As in PostgreSQL, when the connection is lost while the statement is still under way."""
    ran = 0

    @tool
    async def effect() -> str:
        """Do something once."""
        nonlocal ran
        ran += 1
        return "did it"

    store = LosesAnswers(SqliteStore(tmp_path / "t.db"), kind.TYPE, late=True)
    async with worker_on(store, ScriptedModel([Call("effect"), Say("Done.")]), effect) as agent:
        chat = await agent.chat()
        assert (await chat.ask("go")).text == "Done."
        events = await chat.events()
        assert (len(of(events, e.AssistantMessage)), len(of(events, e.ExecutionComplete)), ran) == (2, 1, 1)
        assert await check(agent.deps.store, chat.id) == []


async def test_lost_answers_of_decisions_cost_nothing(tmp_path: Path) -> None:
    """No call is counted twice, because none was made before the record of its beginning was known."""
    plain = SqliteStore(tmp_path / "t.db")
    agent = agent_on(LosesAnswers(plain, e.TurnStart.TYPE), tmp_path, 30.0, NotedModel(tmp_path, 0.0))
    chat = ChatId("c_1")
    await agent.deps.log.create(chat, e.SessionCreated(ChatOptions(system_prompt=chat)))
    await agent.deps.log.execute(chat, Send("go"))
    async with asyncio.timeout(60):
        await agent.worker.start(chat)
        assert await at_rest(plain, [chat], 30.0) == []
    assert await problems_of(plain, tmp_path, [chat]) == []
    assert of([wire.decode(chat, each) for each in await plain.read(chat)], e.TurnRetry) == []
    await agent.close()


@pytest.mark.parametrize("taken", [False, True])
async def test_a_message_is_answered_though_nobody_heard_of_the_grant(tmp_path: Path, taken: bool) -> None:
    """Without a pool: the lease is this worker's own, and runs out before anybody can use it."""
    store = LosesGrant(SqliteStore(tmp_path / "t.db", lease_s=LEASE_S))
    async with worker_on(store, ScriptedModel([Say("Done.")] * 2)) as agent:
        chat = agent.chat()
        await chat.open()
        if taken:
            with pytest.raises(StoreBusy):
                await execute_commands(chat._home, chat.id, [Send("go", queue_id="q_1")])
            await execute_commands(chat._home, chat.id, [Send("go on", queue_id="q_2")])
        else:
            await agent.deps.log.execute(chat.id, Send("go"))
            agent.worker.start(chat.id)
        async with asyncio.timeout(30):
            await find(agent.deps.store, chat.id, lambda event: isinstance(event, e.RunEnd))
            assert await at_rest(agent.deps.store, [chat.id], 30.0) == []


async def test_a_last_commit_that_becomes_visible_late_ends_the_run(tmp_path: Path) -> None:
    """It gave the lease back, too: the second try finds the lease gone, and not only another head."""
    store = LosesAnswers(SqliteStore(tmp_path / "t.db"), e.RunEnd.TYPE, late=True)
    async with worker_on(store, ScriptedModel([Say("Done.")] * 2)) as agent:
        chat = await agent.chat()
        assert [(await chat.ask(text)).text for text in ("one", "two")] == ["Done.", "Done."]
        assert len(of(await chat.events(), e.AssistantMessage)) == 2
        assert await check(agent.deps.store, chat.id) == []


async def test_a_drain_waits_for_no_decision_at_a_busy_store(tmp_path: Path) -> None:
    """It would wait for a whole lease, and then begin a model call."""
    store, model = BusyForTurns(SqliteStore(tmp_path / "t.db")), Purposes()
    async with Agent(store, model=model, builtin=False, instructions=False) as agent:  # type: ignore[arg-type]
        chat = agent.chat()
        await chat.open()
        await agent.deps.log.execute(chat.id, Send("go"))
        agent.worker.start(chat.id)
        async with asyncio.timeout(15):
            await store.asked.wait()
            await agent.worker.drain(30.0)
        assert model.calls == []


async def test_a_chat_is_looked_at_again_though_the_first_look_fails(tmp_path: Path) -> None:
    """The message finds the chat held by a worker that has died, and then the store is busy."""
    store = BusyAtFirstLook(SqliteStore(tmp_path / "t.db", lease_s=LEASE_S))
    async with worker_on(store, ScriptedModel([Say("Done.")])) as agent:
        chat = agent.chat()
        await chat.open()
        assert await store._store.claim("another worker", chat.id, now_ms=agent.deps.clock.now_ms()) is not None
        await agent.deps.log.execute(chat.id, Send("go"))
        agent.worker.start(chat.id)
        async with asyncio.timeout(30):
            await find(agent.deps.store, chat.id, lambda event: isinstance(event, e.RunEnd))
        assert store.is_struck
