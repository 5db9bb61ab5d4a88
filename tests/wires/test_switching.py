"""Chats that switch between all wires in random order (M-10, D-07): each request stays valid on every wire, sealed
thinking goes back to its own model alone, another process makes the same request, and the log replays identically. The
answers are those of the cases of all servers."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

import pytest

from tests.scenario.kit import play
from tests.unit.adapters.models.test_reasoning_effort import greeting
from tests.wires.case import Case, Reply, all_cases, encode_reply, reach
from treadle import Agent, tool
from treadle.adapters.models.registry import ModelRegistry
from treadle.adapters.stores.sqlite import SqliteStore
from treadle.library.replay import replay
from treadle.library.transfer import fork_chat
from treadle.protocol import commands as c
from treadle.testing.fake_http import FakeResponse, Headers, ThreadedServer, make_json_answer
from treadle.testing.histories import check_history, check_requests

SEEDS = range(40 if os.environ.get("TEST_SOAK") else 4)
MESSAGES = 12
ANSWERS = [
    (model, case)
    for model, case in all_cases()
    if case.answer is not None and case.events and not (case.replies or case.effort or case.cut)
]


@tool
async def list_files() -> str:
    """List files."""
    return "a.txt"


@tool
async def read_file(path: str = "a.txt") -> str:
    """Read a file."""
    return f"content of {path}"


class OneServer:
    """Stands for all servers: gives the replies that are due, and keeps what was asked."""

    def __init__(self) -> None:
        self.due: list[tuple[str, Reply]] = []
        self.last = ""
        self.requests: list[bytes] = []

    def __call__(self, method: str, path: str, _headers: Headers, body: bytes) -> FakeResponse:
        if method == "GET" or path.endswith("/api/show"):
            return make_json_answer(404, {"error": "unknown"})
        self.requests.append(body)
        model, reply = self.due.pop(0) if self.due else (self.last, greeting(self.last))
        self.last = model
        return encode_reply(reply, lines=model.startswith("ollama:"))


@contextmanager
def every_server() -> Iterator[tuple[OneServer, dict[str, str]]]:
    served = OneServer()
    with ThreadedServer(served) as server:
        env: dict[str, str] = {}
        for model in {model for model, _ in ANSWERS}:
            env |= reach(model, f"{server.url}/v1")
        yield served, env


def open_agent(home: Path, env: dict[str, str]) -> Agent:
    """As a process of its own would: nothing but the store is kept."""
    store = SqliteStore(home / "treadle.db")
    models = ModelRegistry(env)
    return Agent(
        store, models=models, tools=(list_files, read_file), builtin=False, env=env, home=home, retry_base_s=0.0
    )


def choose_cases(chance: Random) -> list[tuple[str, Case]]:
    """Every wire at least once, in any order."""
    by_wire: dict[str, list[tuple[str, Case]]] = {}
    for model, case in ANSWERS:
        by_wire.setdefault(model.partition(":")[0], []).append((model, case))
    picks = [chance.choice(cases) for cases in by_wire.values()]
    picks += [chance.choice(ANSWERS) for _ in range(max(0, MESSAGES - len(picks)))]
    chance.shuffle(picks)
    return picks


@pytest.mark.thorough(one_of=8)
@pytest.mark.parametrize("seed", SEEDS)
async def test_chats_that_switch_between_all_wires(seed: int, tmp_path: Path) -> None:
    chance = Random(seed)
    with every_server() as (served, env):
        agent = open_agent(tmp_path, env)
        chat = agent.chat(model=ANSWERS[0][0], max_turns=6, summarize=False, verify=False, rung="native")
        for model, case in choose_cases(chance):
            await chat.command(c.ChangeOptions({"model": model}))
            served.due = [(model, reply) for reply in case.all_replies]
            await play(chat.send(f"Try {case.name}."))
            history = [*(await chat.state()).history]
            assert check_history(history) == [], case.name
            assert check_requests(history) == [], case.name
            if chance.random() < 0.3:  # another process goes on
                await agent.close()
                agent = open_agent(tmp_path, env)
                chat = agent.chat(chat.id)
        await agent.close()
        bodies = []
        for model in dict.fromkeys(model for model, _ in ANSWERS):
            # The same conversation, from two processes that know nothing of each other.
            for _ in range(2):
                agent = open_agent(tmp_path, env)
                copy = await fork_chat(
                    agent.deps.store, chat.id, await agent.deps.store.read_head(chat.id), {"model": model}
                )
                served.due, served.requests = [(model, greeting(model))], []
                await play(agent.chat(copy).send("Go on."))
                bodies.append(served.requests[0])
                await agent.close()
            assert bodies[-1] == bodies[-2], model
        agent = open_agent(tmp_path, env)
        result = await replay(agent.deps.store, chat.id)
        assert result.divergence is None, result.divergence.text
        await agent.close()
