"""Workers come and go: requests of other processes are met, and a lease never outlives its worker (D-01, D-03)."""

import asyncio

import pytest

from tests.scenario.kit import Gate, Stage, change, list_idle_reasons, of, play, results
from treadle import tool
from treadle.adapters.models.scripted import Call, Say
from treadle.engine import tenure
from treadle.engine.pool import WorkerPool
from treadle.protocol import commands as c
from treadle.protocol import events as e


async def test_a_worker_takes_up_what_another_process_asked_for(stage: Stage) -> None:
    """It knows the chat from before, as an idle one: its knowledge is old."""
    first, second = stage.agent([Say("one"), Say("two")]), stage.agent([])
    chat = first.chat()
    await chat.ask("one")
    await second.deps.log.execute(chat.id, c.Send("two"))
    pool = WorkerPool(first.worker)
    pool.start()
    head = await stage.store.read_head(chat.id)
    while len(of(await second.chat(chat.id).events(), e.RunEnd)) < 2:
        head = await stage.store.wait(chat.id, head, 5)
    await pool.drain()
    assert of(await chat.events(), e.AssistantMessage)[-1].content == "two"


async def test_a_message_right_after_another_command_is_answered(stage: Stage) -> None:
    """The lease comes with the message while the drive of the command before it, which has nothing to do, ends."""
    chat = stage.agent([Say("Done.")] * 12).chat()
    await chat.open()
    for moment in range(12):
        await chat.command(c.Rename(f"at {moment}"))
        for _ in range(moment):
            await asyncio.sleep(0)
        head = (await chat.carry_out(c.Send("go"))).head
        async with asyncio.timeout(60):
            while len(of(await chat.events(), e.RunEnd)) <= moment:
                head = await stage.store.wait(chat.id, head, 5)


async def test_a_worker_that_is_stopped_at_any_await_holds_no_lease(stage: Stage) -> None:
    """Closing a worker gives its leases back at any point of its work; the next one can begin at once."""
    steps = [Call("change", n=1), Say("Done.")]
    chat = stage.agent(steps, change).chat()
    await chat.open()
    for moment in range(40):
        await chat.command(c.Rename(f"at {moment}"))
        for _ in range(moment):
            await asyncio.sleep(0)
        await stage.kill()
        assert not (await stage.store.get(chat.id)).leased, f"after {moment} turns of the event loop"
        chat = stage.agent(steps, change).chat(chat.id)
    assert list_idle_reasons(await play(chat.send("go"))) == ["done"]


@pytest.mark.thorough(one_of=8)
async def test_a_run_cut_at_any_await_goes_on_and_does_nothing_twice(stage: Stage) -> None:  # fault 1
    effects: list[str] = []

    @tool
    async def once(n: int) -> str:
        """Leave a trace."""
        effects.append(f"{chat.id} {n}")
        await asyncio.sleep(0)
        return f"did {n}"

    steps = [Call("once", n=1), [Call("once", n=2), Call("once", n=3)], Say("Done.")]
    for moment in range(0, 120, 3):
        chat = stage.agent(steps, once).chat()
        await chat.send("go")
        for _ in range(moment):
            await asyncio.sleep(0)
        await stage.kill()
        chat = stage.agent(steps, once).chat(chat.id)
        events = await play(chat.resume(after_seq=0))
        assert list_idle_reasons(events)[-1:] == ["done"], f"after {moment} turns of the event loop"
        assert len(await results(chat)) == 3
    assert len(effects) == len(set(effects))


@pytest.mark.parametrize("read_only", [True, False])
async def test_nothing_takes_effect_after_a_stop(
    stage: Stage, read_only: bool, monkeypatch: pytest.MonkeyPatch
) -> None:  # L-07
    """The stop comes in while a quick call runs: its outcome is recorded, and the calls behind it are not begun."""
    monkeypatch.setattr(tenure, "UNWATCHED_S", 600.0)  # quick also where the store is slow
    gate = Gate()
    began: list[int] = []

    @tool
    async def effect(n: int) -> str:
        """Must not happen."""
        began.append(n)
        return "too late"

    @tool(read_only=read_only)
    async def quick(n: int) -> str:
        """Be stopped meanwhile, without noticing."""
        began.append(n)
        await chat.interrupt()
        return "quick"

    wait = tool(name="wait")(gate.pass_through)
    agent = stage.agent([[Call("quick", n=1), Call("effect", n=2), Call("wait")]], quick, effect, wait)
    chat = agent.chat()
    assert list_idle_reasons(await play(chat.send("go"))) == ["interrupted"]
    await agent.worker.start(chat.id)  # until the worker is really done with it
    assert began == [1]
    log = await chat.events()
    assert [completion.synthetic for completion in of(log, e.ExecutionComplete)] == ["", "interrupted", "interrupted"]
    assert isinstance(log[-1].data, e.RunEnd)


async def test_a_stop_between_two_parallel_reads_leaves_each_with_one_result(stage: Stage) -> None:  # L-06, L-07
    @tool(read_only=True)
    async def quick() -> str:
        """Is done, and stops the run."""
        await chat.interrupt()
        return "quick"

    @tool(read_only=True)
    async def slower() -> str:
        """Is done a little later."""
        for _ in range(20):
            await asyncio.sleep(0)
        return "slower"

    agent = stage.agent([[Call("quick"), Call("slower")]], quick, slower)
    chat = agent.chat()
    assert list_idle_reasons(await play(chat.send("go"))) == ["interrupted"]
    await agent.worker.start(chat.id)
    log = await chat.events()
    assert sorted(completion.call for completion in of(log, e.ExecutionComplete)) == ["1.0", "1.1"]
    assert isinstance(log[-1].data, e.RunEnd)
