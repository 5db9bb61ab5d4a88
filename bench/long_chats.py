"""`python -m bench.long_chats [--quick]`: a chat of 100,000 events opened and shown, and 10,000 chats listed, by the
command line, beside what Python needs to start and what SQLite needs to read the same rows. The median of several runs
by the clock."""

import argparse
import asyncio
import statistics
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from bench.processes import run_command
from bench.report import Row, align
from bench.startup import TREADLE
from treadle import ChatOptions
from treadle.chat import snapshot
from treadle.chat.fold import fold
from treadle.chat.state import ChatState, summary
from treadle.ports.store import Commit, Snapshot
from treadle.protocol import events as e
from treadle.protocol import wire
from treadle.protocol.content import ToolRequest, Usage
from treadle.protocol.events import Envelope, Event
from treadle.protocol.views import ChatSummary
from treadle.protocol.wire import Record
from treadle.stores.sqlite import SqliteStore
from treadle.types import ChatId, call_key

CHAT = ChatId("c_long")
BATCH = 2_000
COMPACT_EVERY = 60
"""Rounds between two compactions: a long chat has been shortened for the model many times."""


def story(length: int) -> Iterator[Event]:
    """A conversation of at least so many events: questions, reads, answers, and a compaction now and then."""
    yield e.SessionCreated(ChatOptions(summarize=False, context_window=100_000))
    written, turn, entries = 1, 0, 0
    while written < length:
        question = e.UserMessage(f"What about file {turn}?")
        turn += 1
        call = call_key(turn, 0)
        look = ToolRequest(call, "read_file", f'{{"path": "{turn}.txt"}}', f"call_{turn}")
        usage = Usage(1_000 + turn % 100, 50)
        round_: list[Event] = [
            question,
            e.TurnStart(turn),
            e.AssistantMessage(turn, "Let me look.", (), (look,), False, usage, "tool_calls"),
            e.ExecutionStart(call, "read_file", {"path": f"{turn}.txt"}, f"{turn}.txt"),
            e.ExecutionComplete(call, True, result=f"line {turn}\n" * 20, result_summary="20 lines"),
            e.TurnEnd(turn, usage, "tool_calls"),
            e.TurnStart(turn + 1),
            e.AssistantMessage(turn + 1, f"File {turn} is fine.", usage=usage),
            e.TurnEnd(turn + 1, usage),
            e.RunEnd("done"),
        ]
        turn += 1
        entries += 4
        if turn // 2 % COMPACT_EVERY == 0:
            round_ += [e.CompactionStart("threshold"), e.CompactionComplete("threshold", upto=entries, summary="Fine.")]
        yield from round_
        written += len(round_)


async def write(path: Path, length: int) -> ChatState:
    """Put the story into a store, as fast as its records can be made; no snapshot is kept."""
    store = SqliteStore(path)
    state = ChatState(chat=CHAT)
    records: list[Record] = []
    try:
        for seq, event in enumerate(story(length), 1):
            envelope = Envelope(seq, CHAT, 1_700_000_000_000 + seq, event, 0)
            state = fold(state, envelope)
            records.append(wire.encode(envelope))
            if seq == 1:
                await store.create(summary(state), records)
                records = []
            elif len(records) == BATCH:
                await store.append(Commit(CHAT, records, summary(state), durable=False))
                records = []
        await store.append(Commit(CHAT, records, summary(state), durable=True))
    finally:
        await store.close()
    return state


async def many(path: Path, length: int, chats: int) -> None:
    """A long chat with a snapshot, and many short ones."""
    state = await write(path, length)
    store = SqliteStore(path)
    await store.save_snapshot(CHAT, Snapshot(state.head, snapshot.encode(state)))
    for number in range(chats):
        chat = ChatId(f"c_{number:05d}")
        first = wire.encode(Envelope(1, chat, number, e.SessionCreated(ChatOptions()), 0))
        await store.create(ChatSummary(chat, head=1, updated_ms=number), [first])
    await store.close()


READ = """
import sqlite3, sys
db = sqlite3.connect(sys.argv[1])
print(sum(len(row[0]) for row in db.execute(sys.argv[2])))
"""


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.long_chats", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a smoke run: a short chat, few chats")
    quick = parser.parse_args(arguments).quick
    length, chats, repeats = (1_000, 50, 1) if quick else (100_000, 10_000, 7)
    with tempfile.TemporaryDirectory(prefix="treadle-bench-") as name:
        asyncio.run(many(Path(name) / "treadle.db", length, chats))
        print(align(table(Path(name), repeats)))
    return 0


def table(home: Path, repeats: int) -> list[Row]:
    def wall(*command: str) -> float:
        runs = [run_command(list(command), home, {"TREADLE_HOME": str(home)}) for _ in range(repeats + 1)]
        return statistics.median(run.wall_s for run in runs[1:])

    database = str(home / "treadle.db")
    start = wall(sys.executable, "-c", "pass")
    ways = {
        "show the long chat": (("show", CHAT), "SELECT body FROM events"),
        "show all of it": (("show", CHAT, "--all"), "SELECT body FROM events"),
        "list the chats": (("chats",), "SELECT summary FROM chats"),
    }
    rows: list[Row] = [("", "ms", "Python starts, ms", "SQLite reads the rows, ms")]
    for name, (words, rest) in ways.items():
        figures = wall(*TREADLE, *words), start, wall(sys.executable, "-c", READ, database, rest)
        rows.append((name, *(f"{seconds * 1e3:.0f}" for seconds in figures)))
    return rows


if __name__ == "__main__":
    sys.exit(main())
