"""Large chats and small files: fault 18, and what a log may cost on disk. Ratios, no wall-clock limits."""

import json
import random
import sqlite3
import time
from contextlib import closing
from pathlib import Path

import pytest

from treadle.adapters.stores.sqlite import SqliteStore
from treadle.adapters.stores.sqlite.leases import Leases
from treadle.adapters.stores.sqlite.rows import BlobFiles
from treadle.adapters.stores.sqlite.tables import CANDIDATE, WriteTables
from treadle.base.types import make_call_key
from treadle.ports.store import Commit
from treadle.protocol import wire
from treadle.protocol.content import ToolRequest, Usage
from treadle.protocol.events import (
    AssistantMessage,
    Envelope,
    Event,
    ExecutionComplete,
    ExecutionStart,
    TurnEnd,
    TurnStart,
)
from treadle.testing.store_contract.helpers import A, B, add, make_records, make_summary

LONG = 100_000


async def _cpu_of_appends(store: SqliteStore, chat, head: int, count: int = 100) -> float:
    start_s = time.process_time()
    for seq in range(head + 1, head + 1 + count):
        await add(store, chat, seq)
    return time.process_time() - start_s


@pytest.mark.thorough(one_of=8)
async def test_a_chat_of_100k_events(store: SqliteStore) -> None:
    """Fault 18: an append and a read of the tail cost what they cost in a new chat."""
    await store.create(make_summary(A, LONG), make_records(1, LONG))
    await store.create(make_summary(B, 1), make_records(1, 1))
    short = min([await _cpu_of_appends(store, B, head) for head in (1, 101, 201)])
    long = min([await _cpu_of_appends(store, A, head) for head in (LONG, LONG + 100, LONG + 200)])
    assert long < 3 * short

    async def tail(chat, head: int) -> float:
        start_s = time.process_time()
        for _ in range(50):
            assert len(await store.read(chat, after_seq=head - 20)) == 20
        return time.process_time() - start_s

    short = min([await tail(B, 301) for _ in range(3)])
    long = min([await tail(A, LONG + 300) for _ in range(3)])
    assert long < 3 * short


def _rounds(count: int) -> list[Event]:
    """Tool rounds with the texts of a plausible session: prose that compresses like prose."""
    pick = random.Random(7)
    words = [f"{pick.choice('abcdefgh')}{pick.randrange(4000):x}" for _ in range(3000)]

    def prose(count: int) -> str:
        return " ".join(pick.choices(words, k=count))

    events: list[Event] = []
    for turn in range(1, count + 1):
        key = make_call_key(turn, 0)
        arguments = {"path": f"src/{turn}.py", "old_str": prose(15), "new_str": prose(20)}
        request = ToolRequest(key, "edit_file", json.dumps(arguments), f"call_{turn}")
        turn_result = (Usage(1000 + turn, 100), "tool_calls")
        events += [
            TurnStart(turn, "openai:gpt-5"),
            AssistantMessage(turn, prose(20), (), (request,), False, *turn_result),
            ExecutionStart(key, "edit_file", arguments, f"src/{turn}.py"),
            ExecutionComplete(key, True, prose(pick.choice([10, 40, 150, 400])), result_summary="edited"),
            TurnEnd(turn, *turn_result),
        ]
    return events


async def test_the_log_of_500_rounds_is_small(path: Path) -> None:
    store = SqliteStore(path)
    await store.create(make_summary(A, 0), [])
    events = _rounds(500)
    for first in range(0, len(events), 5):
        step = [
            wire.encode(Envelope(seq, A, 1, event)) for seq, event in enumerate(events[first : first + 5], first + 1)
        ]
        await store.append(Commit(A, step, make_summary(A, first + 5), durable=False))
    await store.close()
    messages = sum(
        len(json.dumps({"role": "assistant", "content": event.content, "tool_calls": [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in event.tool_requests
        ]}))
        if isinstance(event, AssistantMessage)
        else len(json.dumps({"role": "tool", "tool_call_id": event.call, "content": event.result}))
        for event in events
        if isinstance(event, AssistantMessage | ExecutionComplete)
    )  # fmt: skip
    size = sum(file.stat().st_size for file in path.parent.rglob("*") if file.is_file())
    assert size <= 1.5 * messages


async def test_a_claim_looks_only_at_chats_that_have_something_to_do(store: SqliteStore, path: Path) -> None:
    await store.list()
    with closing(sqlite3.connect(path)) as connection:
        WriteTables(connection, Leases(path.with_name("workers")), BlobFiles(path.with_name("blobs")))
        plan = connection.execute("EXPLAIN QUERY PLAN " + CANDIDATE, (0,)).fetchall()
    assert any("chats_ready" in row[3] for row in plan)
