"""Damage: never fatal to read, found by a check, mended by a repair that loses nothing (D-06, fault 14)."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.unit.adapters.stores.sqlite.conftest import text
from treadle.adapters.stores.packing import Problem
from treadle.adapters.stores.sqlite import SqliteStore
from treadle.base.types import CallKey
from treadle.errors import Damaged
from treadle.ports.store import Commit, Snapshot
from treadle.protocol import wire
from treadle.protocol.events import ExecutionComplete, RecordLost, TurnStart
from treadle.testing.store_contract.helpers import A, B, add, list_seqs, make_records, make_summary, record


def run(path: Path, sql: str, *values: object) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(path)) as connection, connection:
        return connection.execute(sql, values).fetchall()


def overwrite_pages(path: Path, first: int) -> None:
    with open(path, "r+b") as file:
        for page in range(first, file.seek(0, 2) // 4096):
            file.seek(page * 4096)
            file.write(b"\xff" * 4096)


def one(problems: list[Problem]) -> tuple[str, int, bool]:
    assert len(problems) == 1
    return problems[0].kind, problems[0].seq, problems[0].repaired


BODIES = {1: text("short"), 2: text("x" * 5000), 3: text("y" * 100_000), 4: text("end")}
PLACE = 1 << 32


@pytest.fixture
async def chat(store: SqliteStore) -> SqliteStore:
    """One record as it is, one compressed, one in a blob, and a last one."""
    await store.create(make_summary(A, 4), [record(seq, body) for seq, body in BODIES.items()])
    return store


@pytest.mark.parametrize("seq", [1, 2])
@pytest.mark.parametrize(
    "damage", ["body = x'00' || substr(body, 2)", "crc = crc + 1", "packing = 1 - packing", "body = 'text'"]
)
async def test_a_damaged_record_is_read_as_lost_and_stops_nobody(
    chat: SqliteStore, path: Path, seq: int, damage: str
) -> None:
    run(path, f"UPDATE events SET {damage} WHERE place = ?", PLACE + seq)
    log = await chat.read(A)
    assert list_seqs(log) == [1, 2, 3, 4]
    events = {record.seq: wire.decode(A, record).data for record in log}
    lost_record = events.pop(seq)
    assert isinstance(lost_record, RecordLost)
    assert lost_record.lost_type == "assistant.turn_start"
    assert [type(event) for event in events.values()] == [TurnStart] * 3
    await add(chat, A, 5)

    assert one(list(await chat.check())) == ("record", seq, False)
    assert one(list(await chat.check(repair=True))) == ("record", seq, True)
    assert list(await chat.check()) == []
    assert isinstance(wire.decode(A, (await chat.read(A))[seq - 1]).data, RecordLost)
    assert len(run(path, "SELECT place, length(body), reason FROM quarantine WHERE place = ?", PLACE + seq)) == 1
    assert [record.body for record in await chat.read(A) if record.seq in BODIES and record.seq != seq] == [
        body for number, body in BODIES.items() if number != seq
    ]


@pytest.mark.parametrize("damage", ["missing", "changed"])
async def test_a_record_whose_blob_is_lost(chat: SqliteStore, path: Path, damage: str) -> None:
    (file,) = (path.parent / "blobs").glob("??/*")
    if damage == "missing":
        file.unlink()
    else:
        file.write_bytes(b"other")
        with pytest.raises(Damaged):
            await chat.get_blob(file.name)
    assert isinstance(wire.decode(A, (await chat.read(A))[2]).data, RecordLost)
    kinds = [problem.kind for problem in await chat.check(repair=True)]
    assert kinds == (["record"] if damage == "missing" else ["record", "blob"])
    # The same bytes, put again, heal the blob.
    assert await chat.put_blob(BODIES[3]) == file.name
    assert await chat.get_blob(file.name) == BODIES[3]
    assert list(await chat.check()) == []


async def test_an_unknown_type_number(chat: SqliteStore, path: Path) -> None:
    run(path, "UPDATE events SET type = 99 WHERE place = ?", PLACE + 1)
    lost_record = wire.decode(A, (await chat.read(A))[0]).data
    assert lost_record == RecordLost("type.99", "unknown event type 'type.99'")
    assert one(list(await chat.check(repair=True))) == ("record", 1, True)


async def test_a_gap_is_filled_with_what_it_is(chat: SqliteStore, path: Path) -> None:
    run(path, "DELETE FROM events WHERE place = ?", PLACE + 2)
    assert one(list(await chat.check(repair=True))) == ("gap", 2, True)
    assert list_seqs(await chat.read(A)) == [1, 2, 3, 4]
    assert wire.decode(A, (await chat.read(A))[1]).data == RecordLost("", "the record was missing")
    assert list(await chat.check()) == []


@pytest.mark.parametrize(("head", "end"), [(2, 4), (9, 9), (4_000_000, 5)])
async def test_a_wrong_head_is_put_right(chat: SqliteStore, path: Path, head: int, end: int) -> None:
    """The numbers of records that are lost are not given again; a number that cannot be true is not believed."""
    run(path, "UPDATE chats SET head = ?", head)
    assert one(list(await chat.check())) == ("head", 4, False)
    assert await chat.read_head(A) == head
    assert one(list(await chat.check(repair=True))) == ("head", 4, True)
    assert await chat.read_head(A) == end
    lost_seqs = [record.seq for record in await chat.read(A) if isinstance(wire.decode(A, record).data, RecordLost)]
    assert lost_seqs == list(range(5, end + 1))
    await add(chat, A, end + 1)
    assert list(await chat.check()) == []


async def test_a_damaged_summary_hides_no_chat(chat: SqliteStore, path: Path) -> None:
    await chat.create(make_summary(B, 1, owner="bob"), make_records(1, 1))
    run(path, "UPDATE chats SET summary = x'00' WHERE id = ?", B)
    assert {one.summary.chat for one in await chat.list()} == {A, B}
    assert (await chat.get(B)).summary.status == "error"
    assert one(list(await chat.check(repair=True))) == ("summary", 0, True)
    assert (await chat.get(B)).summary == make_summary(B, 1, owner="bob")


@pytest.mark.parametrize("column", ["head", "wake_ms", "updated_ms", "owner", "status"])
async def test_values_that_cannot_be_are_damage_and_no_crash(chat: SqliteStore, path: Path, column: str) -> None:
    """SQLite keeps anything in any column; fsck compared text with a number."""
    run(path, f"UPDATE chats SET {column} = 'x', summary = x'00'")
    assert "summary" in {problem.kind for problem in await chat.check(repair=True)}
    assert list(await chat.check()) == []
    assert (await chat.get(A)).summary.head == 4


async def test_a_summary_of_another_chat_is_damage(chat: SqliteStore, path: Path) -> None:
    run(path, "UPDATE chats SET summary = CAST(replace(CAST(summary AS TEXT), ?, 'c_other') AS BLOB)", A)
    assert one(list(await chat.check(repair=True))) == ("summary", 0, True)
    assert (await chat.get(A)).summary.chat == A


async def test_records_of_no_chat_are_told_and_kept(chat: SqliteStore, path: Path) -> None:
    run(path, "DELETE FROM chats")
    problems = await chat.check(repair=True)
    assert [problem.kind for problem in problems] == ["orphan"]
    assert run(path, "SELECT count(*) FROM events") == [(4,)]


async def test_outputs_that_are_not_there_are_told(chat: SqliteStore) -> None:
    present = await chat.put_blob(b"output")
    for seq, digest in ((5, present), (6, "0" * 64)):
        event = ExecutionComplete(CallKey("1.0"), success=True, output=digest)
        encoded = wire.encode(wire.Envelope(seq, A, 1, event))
        await chat.append(Commit(A, [encoded], make_summary(A, seq), durable=False))
    assert one(list(await chat.check(repair=True))) == ("blob", 6, False)


async def test_a_damaged_snapshot_is_no_snapshot(chat: SqliteStore, path: Path) -> None:
    await chat.save_snapshot(A, Snapshot(4, b"state" * 100))
    run(path, "UPDATE snapshots SET body = x'0102'")
    assert await chat.load_snapshot(A) is None


async def test_a_damaged_page_is_a_clear_error(path: Path) -> None:
    """Fault 14: page corrupt."""
    store = SqliteStore(path)
    await store.create(make_summary(A, 200), [record(seq, text(f"{seq}" * 100)) for seq in range(1, 201)])
    await store.close()
    overwrite_pages(path, 8)
    broken = SqliteStore(path)
    with pytest.raises(Damaged, match="treadle fsck"):
        await broken.read(A)
    assert any(problem.kind == "database" for problem in await broken.check())
    await broken.close()
