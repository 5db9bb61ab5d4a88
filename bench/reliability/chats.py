"""Chats with client tools and approvals, seen through by real clients over HTTP; and what is checked of each of them
when all is over."""

import asyncio
import time
from collections import Counter
from pathlib import Path

import msgspec

from treadle.adapters.stores import open_store
from treadle.base.types import ChatId
from treadle.client import Client, Reply, ToolCall
from treadle.protocol import wire
from treadle.protocol.events import Envelope, ExecutionComplete, RunEnd, TurnRetry
from treadle.testing.checker import check, check_effects, check_seen

ROUNDS = 3


class Seen(msgspec.Struct):
    """One chat, as its client saw it."""

    chat: str
    root: Path
    reply: Reply | None = None
    events: list[Envelope] = msgspec.field(default_factory=list)
    began: int = 0
    took_s: float = 0.0


class Verdict(msgspec.Struct):
    """What was found in all chats together."""

    chats: int
    ended: Counter[str]
    problems: list[str]
    events: int
    calls_made_again: int
    unknown: int
    """Commands of which nobody could tell any more whether they had run; none of them was run again."""
    commands: int
    slowest_s: float


def script(file: Path, rounds: int = ROUNDS) -> str:
    """The model of all chats: in each round a command that needs approval and leaves a trace, and a client's tool."""
    turns = [
        "[[turn]]\nchunk = 4\ndelay_s = 0.05\n"
        f'call = [{{ name = "run_command", args = {{ command = "echo {n} >> counter" }} }}, '
        f'{{ name = "lookup", args = {{ key = "{n}" }} }}]\n'
        for n in range(rounds)
    ]
    file.write_text("\n".join([*turns, '[[turn]]\ntext = "Done."\n']))
    return f"scripted:{file}"


async def see_through(addresses: list[str], token: str, model: str, folder: Path, count: int) -> list[Seen]:
    """All chats at once, half of them at each server; a chat is followed at the one that it was not begun at."""
    clients = [Client(address, token, concurrency=50, patience_s=180) for address in addresses]
    for client in clients:
        _lookup(client, folder / "looked_up")
    try:
        return list(await asyncio.gather(*(_chat(clients, n, model, folder) for n in range(count))))
    finally:
        for client in clients:
            await client.close()


def _lookup(client: Client, file: Path) -> None:
    @client.tool
    def lookup(key: str, call: ToolCall) -> dict[str, str]:
        """Look something up."""
        with file.open("a") as traces:
            traces.write(f"{call.chat} {call.id}\n")
        return {"found": key}


async def _chat(clients: list[Client], number: int, model: str, folder: Path) -> Seen:
    root = folder / "projects" / str(number)
    root.mkdir(parents=True)
    here, there = clients[number % len(clients)], clients[(number + 1) % len(clients)]
    began = time.monotonic()
    chat = await here.chats.create(model=model, root=str(root), mode="confirm", interactive=True, action_deadline_s=0)
    seen = Seen(chat.id, root, began=(await chat.info()).head)
    seen.reply = await there.run(chat.id, "Work.", approve=lambda _action: True, show=seen.events.append)
    seen.took_s = time.monotonic() - began
    return seen


async def judge(store_address: str, seen: list[Seen], looked_up: Path) -> Verdict:
    """The checker for every chat: its log, its effects, and what its client saw."""
    found = Verdict(len(seen), Counter(), check_effects(looked_up), 0, 0, 0, 0, max(one.took_s for one in seen))
    store = open_store(store_address)
    try:
        for one in seen:
            chat = ChatId(one.chat)
            log = [wire.decode(chat, record) for record in await store.read(chat)]
            _count(found, one, log)
            problems = await check(store, chat) + check_effects(one.root / "counter") + _effects(one, log)
            problems += check_seen([*log[: one.began], *one.events], log)
            found.problems += [f"{chat}: {problem}" for problem in problems]
    finally:
        await store.close()
    return found


def _count(found: Verdict, one: Seen, log: list[Envelope]) -> None:
    found.ended[one.reply.reason if one.reply is not None else "never"] += 1
    found.events += len(log)
    found.calls_made_again += sum(isinstance(e.data, TurnRetry) for e in log)
    results = [e.data for e in log if isinstance(e.data, ExecutionComplete)]
    found.unknown += sum(result.synthetic == "unknown" for result in results)
    found.commands += len(results) // 2
    found.problems += [] if any(isinstance(e.data, RunEnd) for e in log) else [f"{one.chat} did not end"]


def _effects(one: Seen, log: list[Envelope]) -> list[str]:
    """A command that is said to have succeeded left its trace."""
    file = one.root / "counter"
    traces = len(file.read_text().splitlines()) if file.exists() else 0
    said = [e.data for e in log if isinstance(e.data, ExecutionComplete) and e.data.call.endswith(".0")]
    sure = sum(result.success for result in said)
    unsure = sum(result.synthetic == "unknown" for result in said)
    if sure <= traces <= sure + unsure:
        return []
    return [f"{sure} commands succeeded and {unsure} are unknown, but there are {traces} traces"]
