"""Random lives of workers: leases that lapse, stores that pause and fail, processes that stop, go on and die. No chat
is driven twice at once, none is left undriven, and the cost is that of the recorded calls (D-01, D-03, L-11, faults 4,
14 and 30). TEST_SEED repeats a choice, as far as the machine's own timing lets it."""

import asyncio
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.faults.chance import SEED, SOAK
from tests.faults.lease_kit import NotedModel, agent_on, at_rest, lost_since, problems_of, store_at
from treadle import Agent, ChatOptions
from treadle.base.types import ChatId
from treadle.engine.pool import WorkerPool
from treadle.errors import Refused, StoreBusy, StoreError
from treadle.protocol.commands import Interrupt, Rename, Send
from treadle.protocol.events import SessionCreated

pytestmark = pytest.mark.thorough(one_of=8)

LEASE_S = 0.6
TIME_S = 60.0 if SOAK else 5.0
QUIET_S = 90.0
CHATS = [ChatId(f"c_{number}") for number in range(6)]


@pytest.fixture(params=["sqlite", "postgres"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """Where the chats are kept."""
    if request.param == "postgres":
        yield request.getfixturevalue("postgres")
    else:
        yield str(tmp_path / "chats.db")


async def begin(agent: Agent) -> None:
    for chat in CHATS:
        await agent.deps.log.create(chat, SessionCreated(ChatOptions(system_prompt=chat)))


def order(dice: random.Random) -> Any:
    return dice.choices(
        [
            Send("Go on.", queue_id=f"q_{dice.random()}"),
            Send("This way.", "steering", queue_id=f"q_{dice.random()}"),
            Interrupt(),
            Rename("Another title"),
        ],
        [6, 2, 1, 1],
    )[0]


class Unsteady:
    """A store that pauses, fails before it has done what was asked, or loses the answer after it has."""

    def __init__(self, store: Any, dice: random.Random) -> None:
        self._store = store
        self._dice = dice
        self.calm = False
        self.leases_lapse = False
        """If true, no lease can be renewed."""

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._store, name)
        if name not in (
            "append",
            "claim",
            "renew",
            "release",
            "read",
            "get",
            "read_head",
            "save_snapshot",
            "load_snapshot",
        ):
            return method

        async def unsteady(*arguments: Any, **more: Any) -> Any:
            roll = 1.0 if self.calm else self._dice.random()
            if roll < 0.02 or (self.leases_lapse and name == "renew" and not self.calm):
                raise StoreBusy("the store is busy")
            if roll < 0.05:
                await asyncio.sleep(self._dice.random() * 3 * LEASE_S)
            result = await method(*arguments, **more)
            if name in ("append", "renew") and 0.05 <= roll < 0.07:
                raise StoreBusy("the answer was lost")
            return result

        return unsteady


@pytest.mark.thorough(one_of=8)
async def test_workers_on_unsteady_stores(address: str, tmp_path: Path) -> None:
    """Three workers of one process with a pool each; a person sends, steers and stops meanwhile."""
    print(f"TEST_SEED={SEED}")
    dice = random.Random(SEED)
    stores = [Unsteady(store_at(address, LEASE_S), dice) for _ in range(3)]
    models = [NotedModel(tmp_path, 0.03) for _ in stores]
    agents = [agent_on(store, tmp_path, LEASE_S, model) for store, model in zip(stores, models, strict=True)]
    person = agent_on(store_at(address, LEASE_S), tmp_path, LEASE_S)
    await begin(person)
    pools = [WorkerPool(agent.worker, poll_s=0.05) for agent in agents]
    for pool in pools:
        pool.start()
    until = time.monotonic() + TIME_S
    while time.monotonic() < until:
        with suppress(Refused, StoreError):
            await person.deps.log.execute(dice.choice(CHATS), order(dice))
        await asyncio.sleep(dice.random() * 0.2)
    # Leases lapse while the model is asked, and the same workers take the chats up again. When the store is well, each
    # of them must keep what it has, though a call takes longer than a lease.
    for store, model in zip(stores, models, strict=True):
        store.leases_lapse, model.takes_s = True, 3 * LEASE_S
    for chat in CHATS:
        with suppress(Refused, StoreError):
            await person.deps.log.execute(chat, Send("Once more.", queue_id=f"q_{dice.random()}"))
    await asyncio.sleep(2.5 * LEASE_S)
    for store in stores:
        store.calm = True
    calm_ms = person.deps.clock.now_ms()
    problems = await at_rest(person.deps.store, CHATS, QUIET_S)
    loss_counts = await lost_since(person.deps.store, CHATS, calm_ms)
    problems += [
        f"{chat} lost its worker {times} times on a calm store" for chat, times in loss_counts.items() if times > 2
    ]
    problems += await problems_of(person.deps.store, tmp_path, CHATS)
    for model in models:
        problems += [f"a worker asked the model {model.most} times at once for one chat"] if model.most > 1 else []
    for pool in pools:
        await pool.close()
    for agent in (*agents, person):
        await agent.close()
    assert not problems, "\n".join([f"TEST_SEED={SEED}", *problems])


@pytest.mark.thorough(one_of=8)
async def test_libraries_without_a_pool(address: str, tmp_path: Path) -> None:
    """Two agents send to the same chats and drive them only because they send: no pool claims the remaining chats."""
    print(f"TEST_SEED={SEED}")
    dice = random.Random(SEED)
    agents = [agent_on(store_at(address, 30.0), tmp_path, 30.0, takes_s=0.0) for _ in range(2)]
    await begin(agents[0])
    until = time.monotonic() + TIME_S

    async def send(agent: Agent) -> None:
        while time.monotonic() < until:
            with suppress(Refused):
                await agent.chat(dice.choice(CHATS)).carry_out(order(dice))
            await asyncio.sleep(dice.random() * 0.03)

    await asyncio.gather(*map(send, agents))
    problems = await at_rest(agents[0].deps.store, CHATS, QUIET_S)
    problems += await problems_of(agents[0].deps.store, tmp_path, CHATS)
    for agent in agents:
        await agent.close()
    assert not problems, "\n".join([f"TEST_SEED={SEED}", *problems])


class Worker:
    """A process that drives chats until it is killed."""

    def __init__(self, address: str, folder: Path) -> None:
        words = [sys.executable, "-m", "tests.faults.lease_kit", address, str(folder), str(LEASE_S)]
        with open(folder / "errors", "ab") as errors:
            self.process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=errors, stderr=errors)
        self.continues = 0.0
        """When it goes on, while it is stopped."""

    def stop(self, seconds: float) -> None:
        if not self.continues:
            self.process.send_signal(signal.SIGSTOP)
            self.continues = time.monotonic() + seconds

    def go_on(self, *, now: bool = False) -> None:
        if self.continues and (now or time.monotonic() >= self.continues):
            self.process.send_signal(signal.SIGCONT)
            self.continues = 0.0

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(30)


@pytest.mark.thorough(one_of=8)
def test_processes_that_stop_and_go_on(address: str, tmp_path: Path) -> None:
    """Fault 4: zombies wake up past their leases, others die in the middle; at last all of them go on."""
    print(f"TEST_SEED={SEED}")
    dice = random.Random(SEED)
    workers = [Worker(address, tmp_path) for _ in range(3)]
    try:
        problems = asyncio.run(_disturb(address, tmp_path, workers, dice))
    finally:
        for worker in workers:
            worker.kill()
    assert not problems, "\n".join([f"TEST_SEED={SEED}", *problems, (tmp_path / "errors").read_text()[-3_000:]])


async def _disturb(address: str, folder: Path, workers: list[Worker], dice: random.Random) -> list[str]:
    person = agent_on(store_at(address, LEASE_S), folder, LEASE_S)
    await begin(person)
    stops = kills = 0
    until = time.monotonic() + TIME_S + 2.0  # the processes need a moment to start
    while time.monotonic() < until:
        with suppress(Refused, StoreError):
            await person.deps.log.execute(dice.choice(CHATS), order(dice))
        worker = dice.choice(workers)
        worker.go_on()
        roll = dice.random()
        if roll < 0.15:
            worker.stop(dice.random() * 3 * LEASE_S)
            stops += 1
        elif roll < 0.17:
            kills += 1
            worker.kill()
            workers[workers.index(worker)] = Worker(address, folder)
        await asyncio.sleep(dice.random() * 0.15)
    for worker in workers:
        worker.go_on(now=True)
    problems = await at_rest(person.deps.store, CHATS, QUIET_S)
    problems += await problems_of(person.deps.store, folder, CHATS)
    await person.close()
    print(f"{stops} stops, {kills} kills")
    return problems
