"""`python -m bench.long_chats [--quick]`: a chat of 100,000 events opened and shown, its changes looked at, the same
chat imported, and 10,000 chats listed, by the command line and by HTTP, beside what Python needs to start and what
SQLite needs to read the same rows. The median of several runs by the clock; beside it, of a program, its CPU."""

import argparse
import asyncio
import hashlib
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from urllib.request import Request, urlopen

from bench.processes import environment, run_command
from bench.report import Row, align
from bench.startup import TREADLE
from treadle import ChatOptions
from treadle.adapters.stores.sqlite import SqliteStore
from treadle.base.types import CallKey, ChatId, make_call_key
from treadle.chat import snapshot
from treadle.chat.fold import fold
from treadle.chat.state import ChatState, build_summary
from treadle.ports.store import Commit, Snapshot
from treadle.protocol import events as e
from treadle.protocol import wire
from treadle.protocol.content import ToolRequest, Usage
from treadle.protocol.events import Envelope, Event
from treadle.protocol.files import DiffStat, FileState, make_file_change
from treadle.protocol.views import ChatSummary
from treadle.protocol.wire import Record

CHAT = ChatId("c_long")
BATCH = 2_000
EDITED = 500
"""Files that a chat with a project changes again and again."""
COMPACT_EVERY = 60
"""Rounds between two compactions: a long chat has been shortened for the model many times."""


def story(length: int, root: str = "") -> Iterator[Event]:
    """A conversation of at least so many events: questions, reads, answers, and a compaction now and then. With a
    project, every run also changes a file of it."""
    yield e.SessionCreated(ChatOptions(summarize=False, context_window=100_000, root=root))
    files: dict[str, FileState] = {}
    written, turn, entries = 1, 0, 0
    while written < length:
        question = e.UserMessage(f"What about file {turn}?")
        turn += 1
        call = make_call_key(turn, 0)
        look = ToolRequest(call, "read_file", f'{{"path": "{turn}.txt"}}', f"call_{turn}")
        usage = Usage(1_000 + turn % 100, 50)
        round_: list[Event] = [
            question,
            *([e.CheckpointCreated(written + 1)] if root else []),
            e.TurnStart(turn),
            e.AssistantMessage(turn, "Let me look.", (), (look,), False, usage, "tool_calls"),
            e.ExecutionStart(call, "read_file", {"path": f"{turn}.txt"}, f"{turn}.txt"),
            e.ExecutionComplete(call, True, result=f"line {turn}\n" * 20, result_summary="20 lines"),
            *([_edit(files, turn, call)] if root else []),
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


def _edit(files: dict[str, FileState], turn: int, call: CallKey) -> Event:
    path = f"src/{turn % EDITED}.py"
    after = FileState("file", 0o644, hashlib.sha256(str(turn).encode()).hexdigest(), turn)
    before, files[path] = files.get(path), after
    return e.FilesChanged((make_file_change(path, before, after, DiffStat(1, 0)),), call)


async def write(path: Path, length: int, root: str = "") -> ChatState:
    """Put the story into a store, as fast as its records can be made; no snapshot is kept."""
    store = SqliteStore(path)
    state = ChatState(chat=CHAT)
    records: list[Record] = []
    try:
        for seq, event in enumerate(story(length, root), 1):
            envelope = Envelope(seq, CHAT, 1_700_000_000_000 + seq, event, 0)
            state = fold(state, envelope)
            records.append(wire.encode(envelope))
            if seq == 1:
                await store.create(build_summary(state), records)
                records = []
            elif len(records) == BATCH:
                await store.append(Commit(CHAT, records, build_summary(state), durable=False))
                records = []
        await store.append(Commit(CHAT, records, build_summary(state), durable=True))
    finally:
        await store.close()
    return state


async def many(path: Path, length: int, chats: int, root: str = "") -> None:
    """A long chat with a snapshot, and many short ones."""
    state = await write(path, length, root)
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
        project = Path(name) / "project"
        project.mkdir()
        asyncio.run(many(Path(name) / "treadle.db", length, chats, str(project)))
        print(align(table(Path(name), repeats)))
    return 0


def table(home: Path, repeats: int) -> list[Row]:
    def spend(*command: str) -> tuple[float, float]:
        """Seconds by the clock, and of CPU."""
        runs = [run_command(list(command), home, {"TREADLE_HOME": str(home)}) for _ in range(repeats + 1)]
        return statistics.median(run.wall_s for run in runs[1:]), statistics.median(run.cpu_s for run in runs[1:])

    database, events = str(home / "treadle.db"), "SELECT body FROM events"
    start, _ = spend(sys.executable, "-c", "pass")
    rows: list[Row] = [("", "ms", "its CPU, ms", "Python starts, ms", "SQLite reads the rows, ms")]

    def add(name: str, words: Sequence[str], query: str) -> None:
        figures = *spend(*TREADLE, *words), start, spend(sys.executable, "-c", READ, database, query)[0]
        rows.append((name, *(f"{seconds * 1e3:.0f}" for seconds in figures)))

    add("list the chats", ("chats",), "SELECT summary FROM chats")
    add("show the long chat", ("show", CHAT), events)
    add("show all of it", ("show", CHAT, "--all"), events)
    add("what its last run changed", ("diff", CHAT), events)
    add("what all of it changed", ("diff", CHAT, "--all"), events)
    add("review its last run", ("review", CHAT), events)
    rows.append(("its changes by HTTP", f"{_ask_changes(home, repeats) * 1e3:.0f}", "", "", ""))
    exported = home / "long.jsonl"
    with exported.open("wb") as file:
        subprocess.run([*TREADLE, "export", CHAT], env=_environment(home), stdout=file, check=True)
    words = [*TREADLE, "import", str(exported), "--new-id", "--json"]
    imported = subprocess.run(words, env=_environment(home), stdout=subprocess.PIPE, check=True)
    copy = json.loads(imported.stdout)["chat"]
    for command in ("show", "resume", "diff", "review"):
        add(f"{command} it after an import", (command, copy), events)
    return rows


def _environment(home: Path) -> dict[str, str]:
    return environment({"TREADLE_HOME": str(home)})


def _ask_changes(home: Path, repeats: int) -> float:
    """Seconds that `GET /api/chats/ID/changes` takes."""
    command = [*TREADLE, "serve", "--port", "0", "--no-worker", "--allow-root", str(home)]
    with subprocess.Popen(
        command, env=_environment(home), text=True, cwd=home, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as server:
        assert server.stdout is not None
        try:
            address, _, token = server.stdout.readline().split()[1].partition("/#token=")
            wanted = Request(f"{address}/api/chats/{CHAT}/changes", headers={"authorization": f"Bearer {token}"})
            return statistics.median([_ask(wanted) for _ in range(repeats + 1)][1:])
        finally:
            server.kill()


def _ask(wanted: Request) -> float:
    begun = time.perf_counter()
    with urlopen(wanted, timeout=120) as answer:
        answer.read()
    return time.perf_counter() - begun


if __name__ == "__main__":
    sys.exit(main())
