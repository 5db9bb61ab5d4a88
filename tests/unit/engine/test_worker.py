"""A worker that takes chats: how many, what becomes of those that fail, and what it leaves behind (A-08, D-03)."""

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tests.homes import seed
from tests.processes import running_with, unlike_any_other
from treadle import Agent, ScriptedModel, tool
from treadle.adapters.models.scripted import Call, Say
from treadle.adapters.stores.memory import MemoryStore
from treadle.base.types import ChatId
from treadle.engine import recovery
from treadle.engine.pool import WorkerPool
from treadle.errors import ChatBusy, Refused, StoreBusy
from treadle.ports.store import Commit, Lease, Listed
from treadle.protocol.commands import Send
from treadle.protocol.events import ExecutionComplete, RunEnd, TrialStart, TurnEnd, TurnStart
from treadle.protocol.tools import DynamicTool
from treadle.testing.checker import check
from treadle.testing.clock import ManualClock
from treadle.testing.faults import faults

TIMEOUT_S = 60


class Gate:
    def __init__(self) -> None:
        self.inside = 0
        self.most = 0
        self.open = asyncio.Event()

    def tool(self) -> object:
        @tool(name="wait")
        async def wait() -> str:
            """Wait."""
            self.inside += 1
            self.most = max(self.most, self.inside)
            await self.open.wait()
            self.inside -= 1
            return "waited"

        return wait


def agent_with(gate: Gate, store: MemoryStore, **settings: object) -> Agent:
    model = ScriptedModel([[Call("wait")], Say("Done.")])
    return Agent(store, model=model, tools=[gate.tool()], builtin=False, **settings)  # type: ignore[list-item, arg-type]


async def until(fact: Callable[[], object]) -> None:
    async with asyncio.timeout(TIMEOUT_S):
        while not fact():  # noqa: ASYNC110 - facts about processes come with no event
            await asyncio.sleep(0.005)


async def until_ended(agent: Agent, chat: str) -> None:
    async with asyncio.timeout(TIMEOUT_S):
        head = 0
        while not isinstance((await agent.chat(chat).events())[-1].data, RunEnd):
            head = await agent.deps.store.wait(ChatId(chat), head, 1.0)


async def drive_after_lapse(clock: ManualClock, agent: Agent, chat: str) -> None:
    """Let the lease of a chat lapse, and drive the chat with this agent. On a busy machine the holder may renew the
    lapsed lease before it is taken: then it must lapse again."""
    async with asyncio.timeout(TIMEOUT_S):
        while True:
            clock.advance(31)
            try:
                return await agent.worker.drive(ChatId(chat))
            except ChatBusy:
                await asyncio.sleep(0)


async def test_commands_bring_no_more_chats_along_than_there_is_room_for() -> None:
    """Fifty messages at once: two chats are driven, for any sender, and the rest follow as there is room."""
    gate, store = Gate(), MemoryStore()
    async with agent_with(gate, store, concurrency=2) as agent:
        pool = WorkerPool(agent.worker)
        pool.start()
        chats = [agent.chat() for _ in range(50)]
        await asyncio.gather(*(chat.open() for chat in chats))
        await asyncio.gather(*(chat.send("go") for chat in chats))
        await until(lambda: gate.inside == 2)
        statuses = [await chat.status() for chat in chats]
        assert (statuses.count("running"), statuses.count("pending")) == (2, 48)
        gate.open.set()
        for chat in chats:
            await until_ended(agent, chat.id)
            assert await check(store, chat.id) == []
        assert gate.most == 2
        await pool.drain()


async def test_a_refused_command_keeps_no_room() -> None:
    gate, store = Gate(), MemoryStore()
    gate.open.set()
    async with agent_with(gate, store, concurrency=1) as agent:
        chat = await agent.chat()
        for _ in range(3):
            with pytest.raises(Refused, match="empty"):
                await chat.send("")
        assert agent.worker.load == 0
        assert (await chat.ask("go")).text == "Done."


class SlowClaims(MemoryStore):
    """A store in which the claim of one chat waits for `open`."""

    def __init__(self) -> None:
        super().__init__()
        self.slow_chat = ""
        self.entered, self.open = asyncio.Event(), asyncio.Event()

    async def claim(self, worker: str, chat: ChatId | None = None, **moment: Any) -> Lease | None:
        if chat is not None and chat == self.slow_chat:
            self.entered.set()
            await self.open.wait()
        return await super().claim(worker, chat, **moment)


async def begin_chats(agent: Agent, number: int) -> list[ChatId]:
    """Chats with a recorded message that no worker has taken up."""
    chats = [await agent.chat() for _ in range(number)]
    for chat in chats:
        await agent.deps.log.execute(chat.id, Send("go"))
    return [chat.id for chat in chats]


async def claim_elsewhere(store: MemoryStore, chat: ChatId) -> None:
    assert await store.claim("elsewhere", chat, now_ms=store._clock.now_ms()) is not None


@pytest.mark.parametrize("driven_twice", [False, True])
async def test_a_chat_that_found_no_room_is_driven_after_the_claim_of_another_failed(driven_twice: bool) -> None:
    """A-08: no reader follows the chat. Its start is owed to the end of the claim that kept the place."""
    gate, store = Gate(), SlowClaims()
    gate.open.set()
    async with agent_with(gate, store, concurrency=1) as agent:
        busy, waiting = await begin_chats(agent, 2)
        await claim_elsewhere(store, busy)
        store.slow_chat = busy
        agent.worker.start(busy)
        await store.entered.wait()
        if driven_twice:  # the chat whose claim fails is the first that found no room
            await agent.worker.drive(busy)
        await agent.worker.start(waiting)
        store.open.set()
        await until_ended(agent, waiting)


async def test_a_chat_that_found_no_room_is_driven_after_the_next_in_line_was_busy() -> None:
    gate, store = Gate(), MemoryStore()
    async with agent_with(gate, store, concurrency=1) as agent:
        first, busy, waiting = await begin_chats(agent, 3)
        agent.worker.start(first)
        await until(lambda: gate.inside)
        for chat in (busy, waiting):
            await agent.worker.start(chat)
        await claim_elsewhere(store, busy)
        gate.open.set()
        await until_ended(agent, waiting)


@pytest.mark.parametrize("refused", [True, False])
async def test_a_chat_that_found_no_room_is_driven_after_a_command_gave_its_place_back(refused: bool) -> None:
    gate, store = Gate(), MemoryStore()
    gate.open.set()
    async with agent_with(gate, store, concurrency=1) as agent:
        (waiting,) = await begin_chats(agent, 1)
        with contextlib.suppress(Refused), agent.worker.open_take(ChatId("c_other")):
            await agent.worker.start(waiting)
            if refused:
                raise Refused("not_running", "no run is active")
        await until_ended(agent, waiting)


class LateLooks(MemoryStore):
    """A store that tells late of a chat without a lease: what it has seen is old by then."""

    def __init__(self) -> None:
        super().__init__()
        self.entered, self.open = asyncio.Event(), asyncio.Event()

    async def get(self, chat: ChatId) -> Listed:
        listed = await super().get(chat)
        if not listed.leased:
            self.entered.set()
            await self.open.wait()
        return listed


async def test_a_command_that_comes_behind_the_last_look_of_a_drive_is_driven() -> None:
    """No reader follows the chat, as in the terminal app: only the drive that ends can know of the command."""
    gate, store = Gate(), LateLooks()
    gate.open.set()
    async with agent_with(gate, store) as agent:
        chat = await agent.chat()
        agent.worker.start(chat.id)  # there is nothing to do
        await store.entered.wait()
        await agent.deps.log.execute(chat.id, Send("go"))
        agent.worker.start(chat.id)
        store.open.set()
        await until_ended(agent, chat.id)


async def test_a_chat_that_fails_keeps_no_other_waiting() -> None:
    """It is the oldest, so every claim gets it first; its holder lets the others through."""
    gate, store = Gate(), MemoryStore()
    gate.open.set()
    async with agent_with(gate, store, concurrency=1) as agent:
        broken, sound = await agent.chat(), await agent.chat()
        pool = WorkerPool(agent.worker, poll_s=0.01)
        await agent.deps.log.execute(broken.id, Send("go"))
        with faults("raise@lease.claimed#1", "raise@lease.claimed#2", "raise@lease.claimed#3") as struck:
            pool.start()
            await until(lambda: struck.struck)
            await agent.deps.log.execute(sound.id, Send("go"))
            await until_ended(agent, sound.id)
            await until_ended(agent, broken.id)
        await pool.close()


async def test_a_worker_that_drains_holds_no_lease_and_takes_none() -> None:  # fault 17
    gate, store = Gate(), MemoryStore()
    async with agent_with(gate, store) as agent, agent_with(gate, store) as second_agent:
        pool = WorkerPool(agent.worker)
        pool.start()
        chat = agent.chat()
        await chat.send("go")
        await until(lambda: gate.inside)
        draining = asyncio.create_task(pool.drain(TIMEOUT_S))
        await asyncio.sleep(0)
        late = await agent.chat()
        await late.send("go")
        gate.open.set()
        await draining
        assert [await chat.status(), await late.status()] == ["pending", "pending"]
        log = await chat.events()
        assert isinstance(log[-1].data, TurnEnd)  # the step is recorded, and no other begun
        assert len([event for event in log if isinstance(event.data, TurnStart)]) == 1
        successor = WorkerPool(second_agent.worker)
        successor.start()
        for one in (chat, late):
            await until_ended(second_agent, one.id)
            assert await check(store, one.id) == []
        await successor.drain()


async def test_a_command_whose_worker_lost_the_chat_to_another_machine_is_ended(tmp_path: Path) -> None:
    """Fault 4: the one who took over cannot collect it, says so, and the loser ends it as soon as that is recorded."""
    clock, seconds = ManualClock(), unlike_any_other()
    store = MemoryStore(clock)
    steps = [[Call("run_command", command=f"sleep {seconds}")], Say("Done.")]
    settings = {"auto_approve_commands": True, "verify": False, "root": str(tmp_path), "command_view": False}
    async with (
        Agent(store, model=ScriptedModel(steps), renew_s=0.5) as zombie,
        Agent(store, model=ScriptedModel(steps)) as second_agent,
    ):
        chat = zombie.chat(**settings)
        await chat.send("go")
        await until(lambda: running_with(seconds))
        await drive_after_lapse(clock, second_agent, chat.id)
        log = await second_agent.chat(chat.id).events()
        (result,) = [event.data for event in log if isinstance(event.data, ExecutionComplete)]
        assert result.synthetic == "unknown"
        await until(lambda: not running_with(seconds))
        assert await chat.events() == log


class UnreadableToLosers(MemoryStore):
    """A store that a worker which lost a chat cannot read, as often as `failures` says."""

    failures = 0

    async def read(self, *args: Any, **keywords: Any) -> Any:
        task = asyncio.current_task()
        if self.failures and task is not None and task.get_name().startswith("withdraw"):
            self.failures -= 1
            raise StoreBusy("the store is away")
        return await super().read(*args, **keywords)


@pytest.mark.thorough(one_of=8)
@pytest.mark.parametrize("failures", [0, 2])
async def test_a_command_ends_though_its_worker_read_of_the_end_before_it_knew_that_the_lease_was_lost(
    tmp_path: Path, failures: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fault 4: the loser watches the log for an interrupt, and so knows the other's result before it asks for its
    lease again. It may not be able to read the log for a while after that."""
    monkeypatch.setattr(recovery, "WATCH_S", 0.05)
    clock, seconds, gate = ManualClock(), unlike_any_other(), Gate()
    store = UnreadableToLosers(clock)
    store.failures = failures
    steps = [[Call("run_command", command=f"sleep {seconds}")], [Call("wait")], Say("Done.")]
    settings = {"auto_approve_commands": True, "verify": False, "root": str(tmp_path), "command_view": False}
    async with (
        Agent(store, model=ScriptedModel(steps), tools=[gate.tool()], renew_s=2) as zombie,  # type: ignore[list-item]
        Agent(store, model=ScriptedModel(steps), tools=[gate.tool()]) as second_agent,  # type: ignore[list-item]
    ):
        chat = zombie.chat(**settings)
        await chat.send("go")
        await until(lambda: running_with(seconds))
        driving = asyncio.create_task(drive_after_lapse(clock, second_agent, chat.id))
        await until(lambda: gate.inside)  # the run goes on elsewhere
        await until(lambda: not running_with(seconds))
        assert store.failures == 0
        gate.open.set()
        await driving
        assert await check(store, chat.id) == []


async def test_a_worker_that_must_leave_a_shared_store_ends_its_commands_and_says_so(tmp_path: Path) -> None:
    """Fault 17: the next worker may be on another machine and cannot collect the commands that run here."""
    seconds = unlike_any_other()
    steps = [[Call("run_command", command=f"sleep {seconds}")], Say("Done.")]
    store = MemoryStore()
    store.shared = True  # type: ignore[attr-defined]
    async with Agent(store, model=ScriptedModel(steps), home=seed(tmp_path / "home")) as agent:
        (tmp_path / "project").mkdir()
        settings = {"auto_approve_commands": True, "verify": False, "root": str(tmp_path / "project")}
        chat = agent.chat(**settings, command_view=False)
        await chat.send("go")
        await until(lambda: running_with(seconds))
        await agent.worker.drain(0.01)
        (result,) = [event.data for event in await chat.events() if isinstance(event.data, ExecutionComplete)]
        assert "was stopped" in (result.result or result.error)
        assert result.synthetic == ""
        assert not running_with(seconds)
        assert await chat.status() == "pending"


async def test_a_worker_that_must_leave_a_shared_store_ends_what_it_only_tries(tmp_path: Path) -> None:
    """Fault 17 on a view: nothing has happened yet, so nothing is recorded, and the next worker begins anew."""
    seconds = unlike_any_other()
    line = f"test -e again || sleep {seconds}; echo done > made"
    store = MemoryStore()
    store.shared = True  # type: ignore[attr-defined]
    project = tmp_path / "project"
    project.mkdir()
    settings = {"auto_approve_commands": True, "verify": False, "summarize": False, "root": str(project)}
    first, second = ScriptedModel([[Call("run_command", command=line)]]), ScriptedModel([Say("Done.")])
    async with (
        Agent(store, model=first, home=seed(tmp_path / "1")) as one,
        Agent(store, model=second, home=seed(tmp_path / "2")) as second_agent,
    ):
        chat = await one.chat(**settings)
        await chat.send("go")
        await until(lambda: running_with(seconds))
        await one.worker.drain(0.01)
        assert not running_with(seconds)
        assert not [event for event in await chat.events() if isinstance(event.data, ExecutionComplete)]
        assert await chat.status() == "pending"
        (project / "again").touch()
        await second_agent.worker.drive(ChatId(chat.id))
        log = await second_agent.chat(chat.id).events()
        (result,) = [event.data for event in log if isinstance(event.data, ExecutionComplete)]
        assert result.success
        assert (project / "made").read_text() == "done\n"


@pytest.mark.parametrize("network", [True, False])
async def test_a_trial_on_a_shared_store_is_recorded_first(tmp_path: Path, network: bool) -> None:
    """D-02: a worker on another machine must know that it ran, and whether it could reach the network."""
    seconds = unlike_any_other()
    store = MemoryStore()
    store.shared = True  # type: ignore[attr-defined]
    (tmp_path / "project").mkdir()
    steps = [[Call("run_command", command=f"sleep {seconds}")], Say("Done.")]
    async with Agent(store, model=ScriptedModel(steps), home=seed(tmp_path / "home")) as agent:
        settings = {"auto_approve_commands": True, "verify": False, "root": str(tmp_path / "project")}
        chat = agent.chat(**settings, network=network)
        await chat.send("go")
        await until(lambda: running_with(seconds))
        trials = [event.data for event in await chat.events() if isinstance(event.data, TrialStart)]
        assert [bool((trial.plan or {}).get("network")) for trial in trials] == [network]
        await chat.interrupt()
        await until(lambda: not running_with(seconds))


async def test_timers_of_deadlines_end_with_the_answer() -> None:
    """A chat that was answered has no deadline to be woken for."""
    store = MemoryStore()
    model = ScriptedModel([[Call("weather")], Say("Done.")])
    async with Agent(store, model=model, builtin=False) as agent:
        tools = [DynamicTool("weather", "Tells the weather.", {"type": "object"})]
        for _ in range(5):
            chat = await agent.chat(dynamic_tools=tools)
            assert (await chat.ask("go")).reason == "action_required"
            (action,) = await chat.actions()
            await until(lambda: len(agent.worker._waking) == 1)
            async for _ in chat.submit({action.call: "sunny"}):
                pass
            assert agent.worker._waking == {}


@pytest.mark.parametrize("act", ["interrupt", "supersede", "delete", "submit elsewhere"])
async def test_timers_of_deadlines_end_when_the_chat_waits_no_more(act: str) -> None:
    """No worker takes the chat up here, so that nothing but the timer itself would end its timer."""
    store = MemoryStore()
    model = ScriptedModel([[Call("weather")], Say("Done.")])
    async with Agent(store, model=model, builtin=False) as agent, Agent(store, model=model, builtin=False) as other:
        tools = [DynamicTool("weather", "Tells the weather.", {"type": "object"})]
        chat = await agent.chat(dynamic_tools=tools)
        assert (await chat.ask("go")).reason == "action_required"
        await until(lambda: len(agent.worker._waking) == 1)
        match act:
            case "interrupt":
                await chat.interrupt()
            case "supersede":
                await agent.deps.log.execute(chat.id, Send("Never mind.", delivery="steering"))
            case "delete":
                await chat.delete()
            case _:
                (action,) = await chat.actions()
                async for _ in other.chat(chat.id).submit({action.call: "sunny"}):
                    pass
                await agent.deps.log.load(chat.id)  # for a reader, say
        assert agent.worker._waking == {}


class CommandBetween(MemoryStore):
    """A store in which a command of another process comes while a worker looks at the line of a chat."""

    command: Callable[[], Coroutine[Any, Any, object]] | None = None

    async def get(self, chat: ChatId) -> Listed:
        if self.command is not None:
            command, self.command = self.command, None
            await command()
        return await super().get(chat)


async def test_a_command_that_comes_while_a_line_is_corrected_is_not_hidden() -> None:  # D-03
    """The correction is of an older state: it must not say that the chat has nothing to do."""
    store, model = CommandBetween(), ScriptedModel([Say("Done.")])
    async with Agent(store, model=model, builtin=False) as agent, Agent(store, model=model, builtin=False) as other:
        chat = await agent.chat()
        wrong_line = replace((await store.get(chat.id)).summary, runnable=True)
        await store.append(Commit(chat.id, (), wrong_line))
        store.command = lambda: other.deps.log.execute(chat.id, Send("go"))
        await agent.worker.drive(chat.id)
        assert [event.data.reason for event in await chat.events() if isinstance(event.data, RunEnd)] == ["done"]
        assert await check(store, chat.id) == []


async def test_recovery_runs_calls_side_by_side_that_ran_so() -> None:  # L-06, D-02
    """Three reads of a dead worker: each waits until all of them have begun."""
    store, inside, all_of = MemoryStore(), 0, asyncio.Event()
    dying = asyncio.Event()

    @tool(read_only=True)
    async def meet() -> str:
        """Wait for the others."""
        nonlocal inside
        inside += 1
        if not dying.is_set():
            await asyncio.Event().wait()
        if inside == 3:
            all_of.set()
        await all_of.wait()
        return "met"

    steps = [[Call("meet"), Call("meet"), Call("meet")], Say("Done.")]
    first = Agent(store, model=ScriptedModel(steps), tools=[meet], builtin=False)
    chat = await first.chat()
    await chat.send("go")
    await until(lambda: inside == 3)
    await first.worker.close()
    inside = 0
    dying.set()
    async with Agent(store, model=ScriptedModel(steps), tools=[meet], builtin=False) as second:
        async with asyncio.timeout(20):
            async for _ in second.chat(chat.id).resume():
                pass
        assert await check(store, chat.id) == []
        results = [e for e in await second.chat(chat.id).events() if isinstance(e.data, ExecutionComplete)]
        assert [each.data.result for each in results] == ["met"] * 3  # type: ignore[attr-defined]
