"""Clocks that jump by hours, and budgets that a restart must not renew (faults 15, 30; L-11, D-03)."""

import asyncio
import random
from pathlib import Path

import pytest

from treadle import Agent, Budget, Chat, ScriptedModel, tool
from treadle.adapters.models.openai_chat.adapter import OpenAIChat
from treadle.adapters.models.scripted import Call
from treadle.adapters.stores.memory import MemoryStore
from treadle.adapters.stores.sqlite import SqliteStore
from treadle.base.types import JsonObject, SystemClock
from treadle.errors import ChatBusy
from treadle.ports.model import ModelInfo
from treadle.protocol.events import LimitReached, RunEnd, TurnRetry
from treadle.testing.checker import check, check_seen
from treadle.testing.fake_openai import FakeOpenAI, Reply

pytestmark = pytest.mark.thorough(one_of=8)

HOUR_MS = 3_600_000


class JumpyClock(SystemClock):
    """A wall clock that is set anew, by up to a day in either direction, each time it is read."""

    def __init__(self, seed: int) -> None:
        self._dice = random.Random(seed)

    def now_ms(self) -> int:
        return super().now_ms() + self._dice.randrange(-24 * HOUR_MS, 24 * HOUR_MS)


class ShiftedClock(SystemClock):
    def __init__(self, hours: int) -> None:
        self._shift_ms = hours * HOUR_MS

    def now_ms(self) -> int:
        return super().now_ms() + self._shift_ms


@pytest.mark.parametrize("seed", range(3))
async def test_order_is_by_seq_whatever_the_clock_says(seed: int, tmp_path: Path) -> None:
    """Fault 15."""
    (tmp_path / "root").mkdir()
    turns = [[Call("list_directory", path="."), Call("write_file", path="a.txt", content="a")], "Written.", "Again."]
    store = SqliteStore(tmp_path / "chats.db")
    async with Agent(store, model=ScriptedModel(turns), clock=JumpyClock(seed)) as agent:
        chat = await agent.chat(root=str(tmp_path / "root"))
        envelopes = await chat.events()
        for text in ("Go.", "And again."):
            envelopes += [envelope async for envelope in chat.send(text)]
        log = await chat.events()
        assert sorted(event.time_ms for event in log) != [event.time_ms for event in log], "the clock did not jump"
        assert await check(store, chat.id) == []
        assert check_seen(envelopes, log) == []
        assert [event.data.reason for event in log if isinstance(event.data, RunEnd)] == ["done", "done"]
        assert (await chat.state()).totals.wall_ms >= 0


@pytest.mark.parametrize("hours", [-30, 30])
async def test_no_lease_is_stolen_by_a_clock_that_is_hours_off(hours: int, tmp_path: Path) -> None:
    """Fault 15, D-03: leases are measured by the machine's uptime, not by anybody's wall clock."""
    inside, leave = asyncio.Event(), asyncio.Event()

    @tool
    async def linger() -> str:
        """Take a while."""
        inside.set()
        await leave.wait()
        return "left"

    path = tmp_path / "chats.db"
    model = ScriptedModel([[Call("linger")], "Done."])
    async with (
        Agent(path, model=model, tools=[linger]) as agent,
        Agent(path, model=model, clock=ShiftedClock(hours)) as second_agent,
    ):
        chat = await agent.chat()
        await chat.send("Go.")
        await inside.wait()
        with pytest.raises(ChatBusy):
            await second_agent.worker.drive(chat.id)
        assert await second_agent.deps.store.claim("other", now_ms=second_agent.deps.clock.now_ms()) is None
        following = chat.resume()
        leave.set()
        news = [envelope async for envelope in following]
        assert news[-1].type == "session.idle"
        assert {event.epoch for event in await chat.events()} == {0, 1}
        assert await check(agent.deps.store, chat.id) == []


def hanging(request: JsonObject) -> Reply:
    """Begins to answer, and never ends."""
    return Reply(text="Well " * 50, chunk_size=5, every_s=30)


LIMIT = 12_000


async def asked_or_ended(fake: FakeOpenAI, chat: Chat) -> bool:
    """Wait until the provider was asked once more, or the run is over; tell whether it is."""
    request_count = len(fake.requests)
    while (await chat.state()).run is not None:
        if len(fake.requests) > request_count:
            return False
        await asyncio.sleep(0.005)
    return True


async def test_a_budget_is_not_renewed_by_restarts(tmp_path: Path) -> None:
    """Fault 30: every lost model call counts as what was reserved for it, until the budget forbids the next one."""
    path = tmp_path / "chats.db"
    id_ = ""
    restarts = 0
    with FakeOpenAI(hanging) as fake:
        while True:
            model = OpenAIChat(ModelInfo("openai", "fake"), base_url=fake.base_url)
            async with Agent(path, model=model) as agent:
                if not id_:
                    chat = await agent.chat(run_budget=Budget(tokens=LIMIT))
                    id_ = chat.id
                    await chat.send("Go.")
                else:
                    chat = await agent.chat(id_)
                    await chat.resume()
                if await asked_or_ended(fake, chat):
                    break
            restarts += 1
            assert restarts < 50, "the budget never ends"
        async with Agent(path, model=ScriptedModel([])) as agent:
            chat = await agent.chat(id_)
            log = await chat.events()
            assert await check(agent.deps.store, chat.id) == []
            reserved = max(event.data.usage.tokens for event in log if isinstance(event.data, TurnRetry))
            assert [event.data.reason for event in log if isinstance(event.data, RunEnd)] == ["budget"]
            assert any(isinstance(event.data, LimitReached) for event in log)
            spent = (await chat.state()).totals.usage.tokens
            assert LIMIT - 2 * reserved < spent <= LIMIT + reserved
            assert restarts >= 2


@pytest.mark.parametrize("kind", ["retries", "rounds", "compaction"])
async def test_a_budget_is_never_overspent_by_more_than_one_call(kind: str) -> None:
    """Fault 30, L-11: failed attempts, turns and compactions all count."""

    def answer(request: JsonObject) -> Reply:
        if not request.get("tools"):
            return Reply(text="In short: nothing.", usage=None)
        if kind == "retries":
            return Reply(text="word " * 200, chunk_size=20, cut_after=4_000)
        return Reply(text="More.", calls=[("fetch", {})], usage=None)

    count = 0

    @tool(read_only=True)
    def fetch() -> str:
        """Get some text."""
        nonlocal count
        count += 1
        return f"{count} " + "text " * 2_000

    window = 16_000 if kind == "compaction" else 1_000_000
    limit = {"compaction": 60_000, "retries": 1_200, "rounds": 40_000}[kind]
    with FakeOpenAI(answer) as fake:
        model = OpenAIChat(ModelInfo("openai", "fake", window=window), base_url=fake.base_url)
        async with Agent(MemoryStore(), model=model, tools=[fetch], builtin=False, retry_base_s=0.0001) as agent:
            chat = await agent.chat(run_budget=Budget(tokens=limit), max_turns=200, context_window=window)
            news = [envelope async for envelope in chat.send("Go.")]
            state = await chat.state()
            assert await check(agent.deps.store, chat.id) == []
            assert news[-1].data.reason == "budget"
            biggest = max(event.data.reserved.tokens for event in news if event.type == "assistant.turn_start")
            assert state.totals.usage.tokens <= limit + biggest
            assert state.totals.usage.tokens > limit / 3
            if kind == "compaction":
                assert any(event.type == "session.compaction_complete" for event in news)
            if kind == "retries":
                assert any(event.type == "assistant.turn_retry" for event in news)
