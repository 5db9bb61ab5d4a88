"""Chats of ten thousand and of a hundred thousand events (fault 18; D-06): they open from their tail, an append costs
what it costs in a short chat, and memory stays in proportion to the conversation."""

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from bench.long_chats import CHAT, many, write
from tests.faults.chance import SOAK
from treadle import Agent, ScriptedModel
from treadle.adapters.stores.sqlite import SqliteStore
from treadle.adapters.stores.sqlite.tables import ReadTables
from treadle.base.types import ChatId, SystemClock
from treadle.engine.hub import Hub
from treadle.engine.log import SNAPSHOT_EVERY, Log
from treadle.frontends.cli.commands import chats
from treadle.frontends.cli.group import invoke
from treadle.library.transfer import export_chat, fork_chat, import_chat
from treadle.ports.store import Listed
from treadle.protocol import wire
from treadle.protocol.commands import Rename
from treadle.protocol.wire import Record
from treadle.testing.checker import check_summary

pytestmark = pytest.mark.thorough(one_of=8)


class CountingStore(SqliteStore):
    """The real store, and how many records were read from it."""

    records_read = 0

    async def read(self, chat: ChatId, after_seq: int = 0, limit: int = 0) -> list[Record]:
        records = await super().read(chat, after_seq, limit)
        self.records_read += len(records)
        return records


async def cost_of_commands(path: Path, count: int = 30) -> float:
    """CPU seconds of one recorded command in an open chat: the best of a few tries."""
    store = SqliteStore(path)
    log = Log(store, Hub(), SystemClock())
    try:
        await log.load(CHAT)
        best = float("inf")
        for attempt in range(5):
            began = time.process_time()
            for number in range(count):
                await log.execute(CHAT, Rename(f"Title {attempt}.{number}"))
            best = min(best, time.process_time() - began)
        return best / count
    finally:
        await store.close()


OPEN = r"""
import asyncio, re, sys, time
from pathlib import Path
from treadle.chat.transcript import build_entries
from treadle.engine.hub import Hub
from treadle.engine.log import Log
from treadle.adapters.stores.sqlite import SqliteStore
from treadle.base.types import ChatId, SystemClock

def peak():
    return int(re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())[1])

async def main():
    store = SqliteStore(Path(sys.argv[1]))
    before = peak()
    began = time.process_time()
    state = await Log(store, Hub(), SystemClock()).load(ChatId(sys.argv[2]))
    request = build_entries(state)
    print(time.process_time() - began, peak() - before, state.head)
    await store.close()

asyncio.run(main())
"""


def measure_opening(path: Path) -> tuple[float, int, int]:
    """CPU seconds and KB that a fresh process needs to open the chat up to its next request; and its head."""
    result = subprocess.run([sys.executable, "-c", OPEN, str(path), CHAT], capture_output=True, text=True, check=True)
    seconds, kilobytes, head = result.stdout.split()
    return float(seconds), int(kilobytes), int(head)


@pytest.mark.thorough(one_of=8)
@pytest.mark.parametrize("length", [10_000, 100_000 if SOAK else 30_000])
async def test_a_long_chat_opens_from_its_tail_and_grows_at_the_price_of_a_short_one(
    length: int, tmp_path: Path
) -> None:
    long_, short = tmp_path / "long" / "chats.db", tmp_path / "short" / "chats.db"
    for path in (long_, short):
        path.parent.mkdir()
    state = await write(long_, length)
    await write(short, 100)
    cold_s, cold_kb, head = measure_opening(long_)
    assert head == state.head >= length

    # A worker leaves a snapshot behind; the next worker reads the tail and nothing else.
    store = CountingStore(long_)
    async with Agent(store, model=ScriptedModel(["Fine."], follow="calls")) as agent:
        answer = await agent.chat(CHAT).ask("And the last one?")
        assert answer.text == "Fine.", answer
    store = CountingStore(long_)
    async with Agent(store, model=ScriptedModel([])) as agent:
        again = await agent.chat(CHAT).state()
        assert again.head > head
        assert store.records_read < SNAPSHOT_EVERY
        assert check_summary(again, (await store.get(CHAT)).summary) == []
        assert again.history[len(state.history) - 1] == state.history[len(state.history) - 1]

    warm_s, warm_kb, _ = measure_opening(long_)
    print(f"{length}: cold {cold_s:.2f} s {cold_kb} KB, from the snapshot {warm_s:.2f} s {warm_kb} KB")
    # 0.3 KB of conversation an event here, several copies of it on the way in: in proportion, and no more.
    assert max(cold_kb, warm_kb) < 30_000 + length * 4
    assert warm_s < 1.0
    assert warm_s < cold_s

    ratio = await cost_of_commands(long_) / await cost_of_commands(short)
    assert ratio < 3.0, f"an append costs {ratio:.1f} times as much as in a short chat"


# D-06, fault 18
@pytest.mark.thorough(one_of=8)
async def test_an_imported_chat_opens_from_a_snapshot(tmp_path: Path) -> None:
    await write(tmp_path / "there.db", 3_000)
    there, here = SqliteStore(tmp_path / "there.db"), CountingStore(tmp_path / "here" / "chats.db")
    lines = [line async for line in export_chat(there, CHAT)]
    await there.close()
    copy = await import_chat(here, lines)
    forked = await fork_chat(here, copy, 2_000)
    for chat, head in ((copy, 3_000), (forked, 2_000)):
        here.records_read = 0
        assert (await Log(here, Hub(), SystemClock()).load(chat)).head >= head
        assert here.records_read < SNAPSHOT_EVERY
    await here.close()


LISTED = ("workspace.files_changed", "checkpoint.created", "session.imported")
"""Records that say what a chat changed."""


# W-03, fault 18
@pytest.mark.thorough(one_of=8)
def test_changes_of_a_long_chat_cost_what_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each record of a change is decoded once, and of the rest only the run that is reviewed."""
    monkeypatch.setenv("TREADLE_HOME", str(tmp_path))
    project = tmp_path / "project"
    project.mkdir()
    asyncio.run(many(tmp_path / "treadle.db", 6_000, 0, str(project)))
    decoded: list[str] = []
    decode = wire.decode
    monkeypatch.setattr(wire, "decode", lambda chat, record: decoded.append(record.type) or decode(chat, record))
    assert invoke(["diff", CHAT]) == 0
    assert "M src/" in capsys.readouterr().out
    changes = decoded.count("workspace.files_changed")
    assert 400 < changes < 600
    assert set(decoded) == {"workspace.files_changed", "checkpoint.created"}
    decoded.clear()
    assert invoke(["review", CHAT]) == 0
    assert "What about file" in capsys.readouterr().out
    assert len([kind for kind in decoded if kind not in ("workspace.files_changed", "checkpoint.created")]) < 50
    assert decoded.count("workspace.files_changed") <= changes + 1
    exported = tmp_path / "long.jsonl"
    assert invoke(["export", CHAT]) == 0
    exported.write_text(capsys.readouterr().out)
    assert invoke(["import", str(exported), "--new-id", "--json"]) == 0
    copy = json.loads(capsys.readouterr().out)["chat"]
    for words in (["show", copy], ["resume", copy], ["review", copy]):  # nothing has run in it here
        decoded.clear()
        assert invoke(words) == 0
        assert (
            len([kind for kind in decoded if kind not in (*LISTED, "user.message")])
            <= chats.MOST_EVENTS + SNAPSHOT_EVERY
        )
        capsys.readouterr()
    decoded.clear()
    for words in (["diff", copy, "nowhere"], ["undo", CHAT, "--to", "3"]):  # refused, by what the log says of files
        assert invoke(words) == 1
    assert set(decoded) <= {*LISTED, "user.message"}


@pytest.mark.thorough(one_of=8)
def test_showing_a_long_chat_and_listing_many_costs_what_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The work is bounded for any size of the store: records that are decoded, chats that are read."""
    monkeypatch.setenv("TREADLE_HOME", str(tmp_path))
    path = tmp_path / "treadle.db"
    asyncio.run(many(path, 6_000, 300))
    decoded: list[int] = []
    decode = wire.decode
    monkeypatch.setattr(wire, "decode", lambda chat, record: decoded.append(record.seq) or decode(chat, record))
    assert invoke(["show", CHAT]) == 0
    assert 0 < len(decoded) <= chats.MOST_EVENTS + SNAPSHOT_EVERY
    output = capsys.readouterr()
    assert "earlier events are not shown" in output.err
    assert "What about file" in output.out
    decoded.clear()
    assert invoke(["show", CHAT, "--all"]) == 0
    assert len(decoded) >= 6_000
    capsys.readouterr()

    listed: list[int] = []
    list_chats = ReadTables.list_chats
    monkeypatch.setattr(ReadTables, "list_chats", lambda *values: _count_rows(listed, list_chats(*values)))
    assert invoke(["chats"]) == 0
    output = capsys.readouterr()
    assert len(output.out.splitlines()) == chats.MOST
    assert "treadle chats --all" in output.err
    assert listed == [chats.MOST + 1]
    assert invoke(["chats", "--all"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 301


def _count_rows(counts: list[int], rows: Sequence[Listed]) -> Sequence[Listed]:
    counts.append(len(rows))
    return rows
