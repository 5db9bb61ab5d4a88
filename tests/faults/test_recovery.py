"""Killed while it recovers from having been killed (fault 1): recovery is only another step of the log. And faults of
our own in recovery, renewal and compaction: they end in an error and idle, they never hang and never spin (L-12)."""

import asyncio
import signal
import time
from pathlib import Path

import pytest

from tests.faults.chance import some
from tests.faults.harness import Case
from tests.faults.scenarios import SCENARIOS
from tests.faults.test_every_point import check_outcome
from tests.scenario.http_kit import eventually
from treadle import Agent, Chat, ScriptedModel, tool
from treadle.adapters.models.scripted import Call, Fail
from treadle.adapters.stores.sqlite import SqliteStore
from treadle.base.types import ChatId
from treadle.engine import pool as pools
from treadle.engine.pool import WorkerPool
from treadle.errors import ChatBusy
from treadle.ports.toolset import Tool
from treadle.protocol.commands import Send
from treadle.protocol.events import Envelope, ExecutionComplete, RunEnd, SessionError, SessionIdle
from treadle.testing.checker import check
from treadle.testing.fake_openai import FakeOpenAI
from treadle.testing.faults import InjectedFault, faults

pytestmark = pytest.mark.thorough(one_of=8)

FIRST = ["tool.before:write_file", "tool.write_after", "tool.after:run_command", "model.first_delta"]
MOST = 14
"""How many points of the resumed visit are struck: recovery, and a little of what follows."""


def twice_killed(folder: Path, fake: FakeOpenAI, first: str) -> Case:
    folder.mkdir()
    case = Case(folder, fake)
    assert case.go(faults=f"kill@{first}") == -signal.SIGKILL
    return case


@pytest.mark.thorough(one_of=8)
@pytest.mark.parametrize("first", FIRST)
def test_killed_at_every_point_of_its_recovery(first: str, tmp_path: Path) -> None:
    with FakeOpenAI(SCENARIOS["work"]) as fake:
        listed = twice_killed(tmp_path / "listed", fake, first)
        listed.go(faults=f"list={tmp_path / 'points'}")
        names = (tmp_path / "points").read_text().split()[:MOST]
        if first.startswith("tool"):
            assert "recovery.settled" in names
    for number in some(range(1, len(names) + 1), 6, first):
        with FakeOpenAI(SCENARIOS["work"]) as fake:
            case = twice_killed(tmp_path / str(number), fake, first)
            assert case.go(faults=f"kill@*#{number}") == -signal.SIGKILL
            case.finish()
            check_outcome(case, "work", (0, f"{first}, then {names[number - 1]}", number))


class HoldTool:
    """A tool that waits inside, so that a worker can be caught at it."""

    def __init__(self) -> None:
        self.inside = asyncio.Event()
        self.leave = asyncio.Event()

    def tool(self) -> Tool:
        @tool
        async def hold() -> str:
            """Take a while."""
            self.inside.set()
            await self.leave.wait()
            return "left"

        return hold


async def cut_off_inside(path: Path) -> str:
    """A chat whose worker went away in the middle of a call."""
    hold_tool = HoldTool()
    async with Agent(path, model=ScriptedModel([[Call("hold")], "Done."]), tools=[hold_tool.tool()]) as agent:
        chat = await agent.chat()
        await chat.send("Go.")
        await hold_tool.inside.wait()
        return chat.id


async def follow(chat: Chat) -> list[Envelope]:
    async with asyncio.timeout(60):
        return [envelope async for envelope in chat.resume().resume_after(0)]


async def test_a_fault_of_ours_in_recovery_that_stays_leaves_an_unknown_and_the_run_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "chats.db"
    id_ = await cut_off_inside(path)
    model = ScriptedModel([[Call("hold")], "Still here."])
    async with Agent(path, model=model, tools=[HoldTool().tool()]) as agent:
        chat = agent.chat(id_)
        with faults("raise@recovery.settled#*") as struck:
            news = await follow(chat)
        assert len(struck.struck) == 2, "it was tried again and again"
        (result,) = [event.data for event in news if isinstance(event.data, ExecutionComplete)]
        assert (result.success, result.synthetic) == (False, "unknown")
        assert news[-1].data == SessionIdle("done")
        assert await check(agent.deps.store, chat.id) == []


async def test_a_fault_of_ours_beside_a_parallel_read_is_told_by_its_name(tmp_path: Path) -> None:
    """Never as a group of exceptions. If the last fault strikes the record of the run's end, the sender gets it."""
    calls = [Call("list_directory", path="."), Call("list_directory", path=".")]
    async with Agent(tmp_path / "chats.db", model=ScriptedModel([calls, "Done."])) as agent:
        chat = await agent.chat(root=str(tmp_path))
        with faults(*(f"raise@append.before:tool.execution_complete#{n}" for n in range(1, 4))) as struck:
            try:
                news = [envelope async for envelope in chat.send("Look.")]
            except InjectedFault:
                news = await follow(chat)
        assert len(struck.struck) == 3
        (error,) = [event.data for event in news if isinstance(event.data, SessionError)]
        assert error.message.startswith("InjectedFault")
        assert [event.data.reason for event in news if isinstance(event.data, RunEnd)] == ["error"]
        assert await check(agent.deps.store, chat.id) == []


async def test_a_compaction_that_always_fails_ends_the_run_instead_of_being_tried_for_ever(tmp_path: Path) -> None:
    turns = [[Call("list_directory", path=".")], [Call("read_file", path="none")], Fail("context_limit"), "Never said."]
    async with Agent(tmp_path / "chats.db", model=ScriptedModel(turns)) as agent:
        chat = await agent.chat(root=str(tmp_path))
        with faults("raise@append.before:session.model_call#*"):
            async with asyncio.timeout(60):
                news = [envelope async for envelope in chat.send("Go.")]
        assert any(event.type == "session.compaction_start" for event in news)
        assert [event.data.error_class for event in news if isinstance(event.data, SessionError)] == ["internal"]
        assert news[-1].data == SessionIdle("error")
        state = await chat.state()
        assert not state.compacting
        assert await check(agent.deps.store, chat.id) == []


async def test_a_renewal_that_fails_is_made_again(tmp_path: Path) -> None:
    """D-03: a store that refuses for a moment costs no worker its lease."""
    path = tmp_path / "chats.db"
    hold_tool = HoldTool()
    store = SqliteStore(path, lease_s=3.0)
    second_store = SqliteStore(path, lease_s=3.0)
    model = ScriptedModel([[Call("hold")], "Done."])
    async with Agent(store, model=model, tools=[hold_tool.tool()], renew_s=0.05) as agent:
        chat = await agent.chat()
        await chat.send("Go.")
        await hold_tool.inside.wait()
        with faults("raise@store.before_commit#*") as struck:
            while len(struck.struck) < 2:  # noqa: ASYNC110 (faults strike in the store's own thread)
                await asyncio.sleep(0.01)
        until = time.monotonic() + 3.3  # longer than a lease lasts without renewal
        while time.monotonic() < until:
            with pytest.raises(ChatBusy):
                await second_store.claim("other", chat.id)
            await asyncio.sleep(0.05)
        following = chat.resume()
        hold_tool.leave.set()
        news = [envelope async for envelope in following]
        assert news[-1].data == SessionIdle("done")
    await second_store.close()


async def test_a_chat_that_fails_at_once_does_not_make_a_worker_spin(tmp_path: Path) -> None:
    path = tmp_path / "chats.db"
    id_ = await cut_off_inside(path)
    async with Agent(path, model=ScriptedModel([])) as agent:
        pool = WorkerPool(agent.worker)
        with faults("raise@lease.claimed#*") as struck:
            pool.start()
            await eventually(lambda: bool(struck.struck))
            await asyncio.sleep(pools.POLL_S * 1.5)
            await pool.close()
        assert len(struck.struck) <= 3
        assert (await agent.chat(id_).state()).run is not None


async def test_a_worker_takes_up_what_another_process_wrote_into_a_chat_that_it_knows(tmp_path: Path) -> None:
    """D-01: a worker's memory of a chat is a cache. Here it remembers an idle one, which is no longer so."""
    path = tmp_path / "chats.db"
    async with (
        Agent(path, model=ScriptedModel(["One.", "Two."])) as agent,
        Agent(path, model=ScriptedModel([])) as second_agent,
    ):
        chat = agent.chat()
        await chat.ask("First.")
        await second_agent.deps.log.execute(chat.id, Send("Second."))
        pool = WorkerPool(agent.worker)
        with faults() as fault_log:
            pool.start()
            async with asyncio.timeout(60):
                while len(await chat.events()) < 11:
                    await agent.deps.store.wait(chat.id, len(await chat.events()), 1.0)
            await pool.drain()
        assert fault_log.passed.count("lease.claimed") == 1
        assert await check(agent.deps.store, chat.id) == []


async def test_a_lease_is_given_back_when_the_chat_cannot_even_be_loaded(tmp_path: Path) -> None:
    """D-03: no worker has to wait until the lease of a failed attempt is over."""
    path = tmp_path / "chats.db"
    id_ = await cut_off_inside(path)
    async with Agent(path, model=ScriptedModel([[Call("hold")], "Done."]), tools=[HoldTool().tool()]) as agent:
        with faults("raise@lease.claimed"), pytest.raises(InjectedFault):
            await agent.worker.drive(ChatId(id_))
        assert not (await agent.deps.store.get(ChatId(id_))).leased
        assert (await follow(agent.chat(id_)))[-1].data == SessionIdle("done")
