"""A seeded random run: many chats in one SQLite file, two worker processes at a time, killed at random points, and
people who stop, steer and queue in between, until all chats are idle; then the checker over each of them.
TEST_SEED repeats a run, as far as the machine's own timing lets it."""

import asyncio
import contextlib
import random
import re
import signal
import time
from pathlib import Path

import pytest

from tests.faults.chance import SEED
from tests.faults.driver import IDLE, MARK
from tests.faults.harness import Case, eventually
from treadle import Agent, ChatOptions, DynamicTool, ScriptedModel
from treadle.adapters.stores.sqlite import SqliteStore
from treadle.base.types import ChatId, JsonObject
from treadle.errors import Refused
from treadle.protocol import wire
from treadle.protocol.commands import Interrupt, Rename, Send
from treadle.protocol.events import SessionCreated
from treadle.testing.checker import check, check_effects, check_processes, check_seen
from treadle.testing.fake_openai import FakeOpenAI, Reply
from treadle.testing.histories import check_messages

pytestmark = pytest.mark.thorough(one_of=8)

SEEDS = [SEED, SEED + 1]
CHATS = 8
TIME_S = 8.0
LEASE = {"lease_s": 0.4, "renew_s": 0.1}


def script(request: JsonObject) -> Reply:
    """Chat number n does the same as the others, in an order of its own."""
    messages = request["messages"]
    number = int(re.findall(r"\d+", next(m["content"] for m in messages if m["role"] == "user"))[0])
    step_index = sum(message["role"] == "assistant" for message in messages)
    steps = [
        Reply(text="Look.", calls=[("read_file", {"path": "notes.txt"}), ("list_directory", {})]),
        Reply(calls=[("run_command", {"command": f"echo command {number} >> counter"})]),
        Reply(calls=[("write_file", {"path": f"out/{number}.txt", "content": f"{number}\n"})]),
        Reply(text="Ship.", calls=[("deploy", {"target": str(number)}), ("lookup", {"what": "it"})], chunk_size=3),
        Reply(calls=[("ask_user", {"question": "Sure?"})]),
    ]
    random.Random(number).shuffle(steps)
    return steps[step_index] if step_index < len(steps) else Reply(text=f"Done {number}.")


def strike(dice: random.Random) -> str:
    """Mostly kills, after a number of points that lets the chats get on a little."""
    action = dice.choices(["kill@*#{}", "raise@*#{}", "delay@*#{}=0.6"], [90, 5, 5])[0]
    return action.format(dice.randrange(1, 70))


async def begin(case: Case) -> None:
    """Write the chats down, without driving them."""
    lookup = DynamicTool("lookup", "Look something up.")
    options = ChatOptions(root=str(case.root), interactive=True, auto_approve_commands=True, dynamic_tools=(lookup,))
    async with Agent(SqliteStore(case.folder / "chats.db", lease_s=LEASE["lease_s"]), model=ScriptedModel([])) as agent:
        for number in range(CHATS):
            chat = ChatId(f"c_{number}")
            await agent.deps.log.create(chat, SessionCreated(options))
            await agent.deps.log.execute(chat, Send(f"Do the work {number}."))


async def meddle(case: Case, dice: random.Random) -> None:
    """The actions of people between two deaths of a worker."""
    chat = ChatId(f"c_{dice.randrange(CHATS)}")
    command = dice.choice(
        [
            Interrupt(),
            Send("And this.", "steering", queue_id=f"q_{dice.random()}"),
            Send("And then this.", queue_id=f"q_{dice.random()}"),
            Rename("Another title"),
        ]
    )
    async with Agent(SqliteStore(case.folder / "chats.db", lease_s=LEASE["lease_s"]), model=ScriptedModel([])) as agent:
        with contextlib.suppress(Refused):
            await agent.deps.log.execute(chat, command)


@pytest.mark.parametrize("seed", SEEDS, ids=lambda seed: f"seed{SEEDS.index(seed)}")
def test_random_kills_over_many_chats(seed: int, tmp_path: Path) -> None:
    print(f"TEST_SEED={seed}")
    dice = random.Random(seed)
    with FakeOpenAI(script) as fake:
        case = Case(tmp_path, fake, crowd=True, **LEASE)
        asyncio.run(begin(case))
        until = time.monotonic() + TIME_S
        kills = rounds = 0
        while time.monotonic() < until:
            pids = [case.start(faults=strike(dice) if rounds else f"kill@*#{dice.randrange(1, 30)}") for _ in "ab"]
            codes = [case.end(pid) for pid in pids]
            kills += codes.count(-signal.SIGKILL)
            rounds += 1
            asyncio.run(meddle(case, dice))
            if codes == [IDLE, IDLE]:
                break
        assert kills > 0
        case.finish()
        print(f"{kills} kills in {rounds} rounds")
        problems = asyncio.run(look(case))
        assert not problems, "\n".join([f"TEST_SEED={seed}", *problems, case.errors()])


async def look(case: Case) -> list[str]:
    problems = check_effects(case.counter) + case.canary.find_problems()
    problems += eventually(lambda: check_processes(f"{MARK}={case.mark}"))
    for request in case.fake.requests:
        problems += check_messages(request["messages"])
    store = SqliteStore(case.folder / "chats.db", lease_s=LEASE["lease_s"])
    try:
        for listed in await store.list():
            chat = listed.summary.chat
            chat_problems = await check(store, chat)
            log = [wire.decode(chat, record) for record in await store.read(chat)]
            for path in case.folder.glob(f"seen.{chat}.*"):
                lines = path.read_bytes().splitlines()
                chat_problems += check_seen(lines, log[: case._last(lines)])
            problems += [f"{chat}: {problem}" for problem in chat_problems]
    finally:
        await store.close()
    return problems
