"""Damage: never fatal to read, found by a check, mended by a repair that loses nothing (D-06)."""

import asyncpg  # type: ignore[import-untyped]
import pytest

from treadle.adapters.stores.packing import Problem
from treadle.adapters.stores.postgres import PostgresStore
from treadle.base.types import CallKey
from treadle.errors import Damaged, NotFound
from treadle.ports.store import Commit, Snapshot
from treadle.protocol import wire
from treadle.protocol.events import ExecutionComplete, RecordLost, TurnStart
from treadle.testing.store_contract.helpers import A, B, add, list_seqs, make_records, make_summary, record


def one(problems: list[Problem]) -> tuple[str, int, bool]:
    assert len(problems) == 1
    return problems[0].kind, problems[0].seq, problems[0].repaired


BODIES = [b'{"turn":1,"model":"%s"}' % (letter * count) for letter, count in ((b"a", 5), (b"b", 5000), (b"c", 100_000))]


@pytest.fixture
async def chat(store: PostgresStore) -> PostgresStore:
    """One record as it is, one compressed, one large."""
    await store.create(make_summary(A, 3), [record(seq, body) for seq, body in enumerate(BODIES, 1)])
    return store


@pytest.mark.thorough(one_of=8)
async def test_what_is_whole_is_sound(chat: PostgresStore) -> None:
    await chat.put_blob(b"x" * 3_000_000)
    assert list(await chat.check()) == []
    assert list(await chat.check(repair=True)) == []


@pytest.mark.thorough(one_of=8)
@pytest.mark.parametrize("seq", [1, 2, 3])
@pytest.mark.parametrize("damage", ["body = '\\x00' || substr(body, 2)", "crc = crc # 1", "type = 'no.such'"])
async def test_a_damaged_record_is_read_as_lost_and_stops_nobody(
    chat: PostgresStore, connection: asyncpg.Connection, seq: int, damage: str
) -> None:
    await connection.execute(f"UPDATE events SET {damage} WHERE seq = $1", seq)
    log = await chat.read(A)
    events = {record.seq: wire.decode(A, record).data for record in log}
    assert isinstance(events.pop(seq), RecordLost)
    assert [type(event) for event in events.values()] == [TurnStart, TurnStart]
    await add(chat, A, 4)
    assert one(list(await chat.check())) == ("record", seq, False)
    assert one(list(await chat.check(repair=True))) == ("record", seq, True)
    assert list(await chat.check()) == []
    assert list_seqs(await chat.read(A)) == [1, 2, 3, 4]
    assert isinstance(wire.decode(A, (await chat.read(A))[seq - 1]).data, RecordLost)
    assert await connection.fetchval("SELECT count(*) FROM quarantine WHERE seq = $1 AND length(body) > 0", seq) == 1


async def test_gaps_heads_and_summaries_are_put_right(chat: PostgresStore, connection: asyncpg.Connection) -> None:
    await chat.create(make_summary(B, 3), make_records(1, 3))
    await connection.execute("DELETE FROM events WHERE seq = 2 AND chat_no = (SELECT no FROM chats WHERE id = $1)", A)
    await connection.execute("UPDATE chats SET head = 7 WHERE id = $1", A)
    await connection.execute("UPDATE chats SET summary = '\\x7b00' WHERE id = $1", B)
    assert {one.summary.chat for one in await chat.list()} == {A, B}
    problems = [(p.kind, p.chat, p.repaired) for p in await chat.check()]
    assert problems == [("gap", A, False), ("head", A, False), ("summary", B, False)]
    assert [problem.repaired for problem in await chat.check(repair=True)] == [True] * 3
    assert list(await chat.check()) == []
    assert await chat.read_head(A) == 7
    lost_seqs = [record.seq for record in await chat.read(A) if isinstance(wire.decode(A, record).data, RecordLost)]
    assert lost_seqs == [2, 4, 5, 6, 7]
    assert (await chat.get(B)).summary == make_summary(B, 3)


async def test_a_stray_record_is_quarantined_as_in_sqlite(chat: PostgresStore, connection: asyncpg.Connection) -> None:
    """Its number once made a gap of a million records, each of which was reported and filled."""
    await connection.execute("UPDATE events SET seq = 1000000 WHERE seq = 3")
    assert [problem.kind for problem in await chat.check()] == ["record", "head"]
    repaired = await chat.check(repair=True)
    assert [(problem.kind, problem.seq, problem.repaired) for problem in repaired] == [
        ("record", 1_000_000, True),
        ("head", 2, True),
    ]
    assert list(await chat.check()) == []
    assert list_seqs(await chat.read(A)) == [1, 2, 3]
    assert await connection.fetchval("SELECT seq FROM quarantine") == 1_000_000


async def test_a_summary_of_another_chat_is_damage(chat: PostgresStore, connection: asyncpg.Connection) -> None:
    await chat.create(make_summary(B, 1), make_records(1, 1))
    await connection.execute("UPDATE chats SET summary = (SELECT summary FROM chats WHERE id = $2) WHERE id = $1", A, B)
    assert one(list(await chat.check(repair=True))) == ("summary", 0, True)
    assert (await chat.get(A)).summary.chat == A


async def test_blobs_that_are_lost_or_damaged_are_told(chat: PostgresStore, connection: asyncpg.Connection) -> None:
    digest = await chat.put_blob(b"output")
    complete = ExecutionComplete(call=CallKey("1.0"), success=True, output=digest)
    lost_event = ExecutionComplete(call=CallKey("1.1"), success=True, output="0" * 64)
    events = [
        wire.Record(4 + n, 1, event.TYPE, 1, 0, wire._encoder.encode(event))
        for n, event in enumerate((complete, lost_event))
    ]
    await chat.append(Commit(A, events, make_summary(A, 5), durable=True))
    assert one(list(await chat.check())) == ("blob", 5, False)
    await connection.execute("UPDATE blob_parts SET data = 'outpuT'")
    assert [problem.kind for problem in await chat.check()] == ["blob", "blob"]
    with pytest.raises(Damaged):
        await chat.get_blob(digest)


async def test_what_an_upload_left_behind_is_swept(chat: PostgresStore, connection: asyncpg.Connection) -> None:
    def torn():
        yield b"x" * 2_500_000
        raise RuntimeError("torn")

    with pytest.raises(RuntimeError):
        await chat.put_blob_parts(torn())
    assert await connection.fetchval("SELECT count(*) FROM blob_parts") == 2
    assert list(await chat.check(repair=True)) == [], "it may be under way"
    await connection.execute("UPDATE blob_parts SET made = now() - interval '2 days'")
    assert one(list(await chat.check())) == ("orphan", 0, False)
    assert one(list(await chat.check(repair=True))) == ("orphan", 0, True)
    assert await connection.fetchval("SELECT count(*) FROM blob_parts") == 0


async def test_records_of_no_chat_are_told_and_kept(chat: PostgresStore, connection: asyncpg.Connection) -> None:
    await connection.execute("UPDATE events SET chat_no = 999 WHERE seq = 3")
    await connection.execute("UPDATE chats SET head = 2")
    assert "1 records belong to chat number 999" in (await chat.check())[0].text
    assert [problem.repaired for problem in await chat.check(repair=True)] == [False]


async def test_a_damaged_snapshot_is_no_snapshot(chat: PostgresStore, connection: asyncpg.Connection) -> None:
    await chat.save_snapshot(A, Snapshot(3, b"x" * 100))
    await connection.execute("UPDATE snapshots SET body = 'nonsense'")
    assert await chat.load_snapshot(A) is None


async def test_a_blob_that_is_half_there_is_not_there(chat: PostgresStore) -> None:
    with pytest.raises(NotFound):
        await chat.get_blob("0" * 64)
