"""Salvage saves the readable content of a damaged file into another, for every kind of damage (D-06, fault 14)."""

import asyncio
import random
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.unit.adapters.stores.sqlite.conftest import text
from treadle.adapters.stores.sqlite import SqliteStore
from treadle.adapters.stores.sqlite.salvage import make_salvaged_path, salvage
from treadle.base.types import ChatId
from treadle.protocol import wire
from treadle.protocol.events import RecordLost
from treadle.testing.store_contract.helpers import make_summary, record

CHATS = [ChatId(f"c_{number:016d}") for number in range(30)]
HEAD = 12
PAGE = 4096


FILLINGS = {seq: "".join(random.Random(seq).choices("abcdef", k=10 ** (seq % 5))) for seq in range(1, HEAD + 1)}
"""Some fit into a page, some take several."""


def body(chat: ChatId, seq: int) -> bytes:
    return text(f"{chat} {seq} {FILLINGS.get(seq, '')}")


BODIES = {body(chat, seq) for chat in CHATS for seq in FILLINGS}


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("whole") / "treadle.db"

    async def fill() -> None:
        store = SqliteStore(path)
        for chat in CHATS:
            records = [record(seq, body(chat, seq)) for seq in range(1, HEAD + 1)]
            await store.create(make_summary(chat, HEAD, owner="ada"), records)
        await store.search_text(["words"])  # its index is a cache, which is left behind
        await store.close()

    asyncio.run(fill())
    return path


@pytest.fixture
def path(database: Path, tmp_path: Path) -> Path:
    shutil.copytree(database.parent, tmp_path / "home")
    return tmp_path / "home" / "treadle.db"


def strike(path: Path, kind: str, chance: random.Random) -> None:
    size = path.stat().st_size
    with open(path, "r+b") as file:
        match kind:
            case "head":
                file.write(chance.randbytes(100))
            case "first page":
                file.write(chance.randbytes(PAGE))
            case "pages":
                for _ in range(3):
                    file.seek(PAGE * chance.randrange(1, size // PAGE))
                    file.write(chance.randbytes(PAGE))
            case "bytes":
                for _ in range(200):
                    file.seek(chance.randrange(PAGE, size))
                    file.write(chance.randbytes(1))
            case "zeros":
                file.seek(chance.randrange(PAGE, size - 2 * PAGE))
                file.write(bytes(2 * PAGE))
            case "end":
                file.truncate(chance.randrange(PAGE, size))


async def salvage_store(path: Path) -> SqliteStore:
    """The salvaged database, put right."""
    store = SqliteStore(salvage(path).path)
    await store.check(repair=True)
    return store


@pytest.mark.parametrize("kind", ["head", "first page", "pages", "bytes", "zeros", "end"])
@pytest.mark.parametrize("seed", [1, 3])
async def test_whatever_is_struck_what_is_saved_is_true(path: Path, kind: str, seed: int) -> None:
    strike(path, kind, random.Random(f"{kind}{seed}"))
    old_bytes = await asyncio.to_thread(path.read_bytes)
    store = await salvage_store(path)
    assert await asyncio.to_thread(path.read_bytes) == old_bytes
    assert list(await store.check()) == []
    intact_count = 0
    for listed in await store.list():
        for log_record in await store.read(listed.summary.chat):
            if isinstance(wire.decode(listed.summary.chat, log_record).data, RecordLost):
                continue
            assert log_record.body in BODIES
            intact_count += 1
    await store.close()
    if kind in ("head", "first page"):
        assert intact_count == len(CHATS) * HEAD
    elif kind in ("pages", "zeros"):
        assert intact_count > len(CHATS) * HEAD / 2


async def test_a_lost_header_loses_nothing(path: Path) -> None:
    strike(path, "first page", random.Random(1))
    store = await salvage_store(path)
    assert {listed.summary for listed in await store.list()} == {
        make_summary(chat, HEAD, owner="ada") for chat in CHATS
    }
    assert [log_record.body for log_record in await store.read(CHATS[0])] == [
        body(CHATS[0], seq) for seq in range(1, HEAD + 1)
    ]
    await store.close()


def torn(log: Path) -> None:
    with log.open("ab") as file:
        file.write(b"half a frame that no commit ever followed")


async def test_what_only_the_write_ahead_log_has_is_saved(path: Path) -> None:
    """A crash leaves it behind; a commit in it was acknowledged."""
    new = ChatId("c_new")
    with closing(sqlite3.connect(path)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT * FROM chats").fetchone()  # so that no checkpoint moves the log into the file
        store = SqliteStore(path)
        await store.create(make_summary(new, 1), [record(1, text("new"))])
        await store.close()
        copy = path.parent / "crashed" / "treadle.db"
        copy.parent.mkdir()
        for suffix in ("", "-wal"):
            shutil.copy(f"{path}{suffix}", f"{copy}{suffix}")
    await asyncio.to_thread(torn, Path(f"{copy}-wal"))
    strike(copy, "head", random.Random(2))
    salvaged_store = await salvage_store(copy)
    assert [read.body for read in await salvaged_store.read(new)] == [text("new")]
    assert len(await salvaged_store.list()) == len(CHATS) + 1
    await salvaged_store.close()


async def test_records_without_their_chat_are_a_chat_again(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("DELETE FROM chats WHERE id = ?", (CHATS[3],))
    report = salvage(path)
    assert report.nameless == ("c_salvaged4",)
    store = await salvage_store(path)
    log = await store.read(ChatId("c_salvaged4"))
    assert [log_record.body for log_record in log[:HEAD]] == [body(CHATS[3], seq) for seq in range(1, HEAD + 1)]
    assert isinstance(wire.decode(CHATS[3], log[HEAD]).data, RecordLost), "there may have been more"
    await store.close()


@pytest.mark.parametrize("data", [b"", b"no database", bytes(100_000), b"SQLite format 3\0" + bytes(200)])
def test_of_nothing_nothing_is_saved(tmp_path: Path, data: bytes) -> None:
    file = tmp_path / "treadle.db"
    file.write_bytes(data)
    assert (salvage(file).chats, salvage(file).records) == (0, 0)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["treadle.db", make_salvaged_path(file).name]


async def test_a_record_with_an_impossible_number_is_put_aside(path: Path) -> None:
    """It would have made fsck fill four billion gaps."""
    place = 1 << 32
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE events SET place = ? WHERE place = ?", (2 * place - 5, place + HEAD))
    store = SqliteStore(path)
    assert [problem.kind for problem in await store.check(repair=True)] == ["record", "head"]
    assert list(await store.check()) == []
    assert len(await store.read(CHATS[0])) == HEAD
    await store.close()
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT count(*) FROM quarantine").fetchone() == (1,)


async def test_a_deleted_chat_does_not_come_back(path: Path) -> None:
    store = SqliteStore(path)
    await store.delete([CHATS[3], CHATS[-1]])
    await store.close()
    saved = salvage(path)
    assert (saved.chats, saved.nameless) == (len(CHATS) - 2, ())
    store = SqliteStore(saved.path)
    try:
        await store.delete([CHATS[3]])  # its tombstone was saved, too
        assert sum(each.summary.deleted for each in await store.list_changes()) == 2
    finally:
        await store.close()


async def test_nothing_of_a_deleted_chat_stays_in_the_file(tmp_path: Path) -> None:
    path, word = tmp_path / "treadle.db", b"cormorantine"
    store = SqliteStore(path)
    await store.create(make_summary(CHATS[0], 1), [record(1, text("a heron"))])
    await store.create(make_summary(CHATS[1], 1, title=word.decode()), [record(1, text(word.decode()))])
    await store.search_text(["heron"])
    await store.delete([CHATS[1]])
    await store.close()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    assert word not in path.read_bytes()
