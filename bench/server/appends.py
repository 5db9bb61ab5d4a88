"""How many events a store takes, each a durable commit of its own: by one writer, and by many at once. Beside each the
plainest way to do the same with the same driver, and with as many connections."""

import asyncio
import random
import sqlite3
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import asyncpg  # type: ignore[import-untyped]
import msgspec

from bench.server.postgres import DISK, execute
from treadle.adapters.stores import open_store
from treadle.base.types import ChatId
from treadle.ports.store import Commit, Lease, Store
from treadle.protocol.events import AssistantMessage
from treadle.protocol.views import ChatSummary
from treadle.protocol.wire import Record

MANY = 64
CONNECTIONS = 10
"""As many as a process of Treadle opens."""
_WORDS = Path(__file__).read_text().split()

Write = Callable[[int, int], Awaitable[object]]
"""By number of the writer and of its event."""


class Appends(msgspec.Struct, frozen=True):
    """Events a second."""

    one: float
    many: float
    floor_one: float
    floor_many: float


def on_sqlite(seconds: float) -> Appends:
    with tempfile.TemporaryDirectory(prefix="treadle-bench-", dir=DISK) as folder:
        floor = _sqlite_floor(Path(folder) / "floor.db", seconds)
        one, many = asyncio.run(_store(str(Path(folder) / "treadle.db"), seconds))
    return Appends(one, many, floor, floor)  # a file has one writer


def on_postgres(url: str, seconds: float) -> Appends:
    floor_one, floor_many = asyncio.run(_postgres_floor(url, seconds))
    one, many = asyncio.run(_store(url, seconds))
    return Appends(one, many, floor_one, floor_many)


def _body(number: int) -> bytes:
    """An answer of a model of a hundred words, never the same."""
    text = " ".join(random.Random(number).choices(_WORDS, k=100))
    return msgspec.json.encode(AssistantMessage(turn=number, content=text))


_BODIES = [_body(number) for number in range(256)]


async def _rate(write: Write, writers: int, seconds: float) -> float:
    """Events a second of so many writers, each of which waits for one event before it writes the next."""
    written = 0
    until = time.perf_counter() + seconds

    async def writer(number: int) -> None:
        nonlocal written
        event = 0
        while time.perf_counter() < until:
            await write(number, event)
            event += 1
            written += 1

    began = time.perf_counter()
    await asyncio.gather(*(writer(number) for number in range(writers)))
    return written / (time.perf_counter() - began)


async def _store(address: str, seconds: float) -> tuple[float, float]:
    store = open_store(address)
    try:
        return await _store_rate(store, "one", 1, seconds), await _store_rate(store, "many", MANY, seconds)
    finally:
        await store.close()


async def _store_rate(store: Store, name: str, writers: int, seconds: float) -> float:
    leases: list[Lease] = []
    for number in range(writers):
        chat = ChatId(f"c_{name}{number}")
        await store.create(ChatSummary(chat, head=1), [_record(1, 0)])
        lease = await store.claim("bench", chat)
        assert lease is not None
        leases.append(lease)

    async def write(number: int, event: int) -> None:
        lease = leases[number]
        summary = ChatSummary(lease.chat, head=event + 2, status="running", runnable=True, updated_ms=event)
        await store.append(Commit(lease.chat, [_record(event + 2, lease.epoch)], summary, lease=lease, durable=True))

    return await _rate(write, writers, seconds)


def _record(seq: int, epoch: int) -> Record:
    return Record(seq, 1_700_000_000_000 + seq, AssistantMessage.TYPE, 1, epoch, _BODIES[seq % len(_BODIES)])


def _sqlite_floor(file: Path, seconds: float) -> float:
    database = sqlite3.connect(file, isolation_level=None)
    try:
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("PRAGMA synchronous = FULL")
        database.execute("CREATE TABLE log (chat INTEGER, seq INTEGER, body BLOB, PRIMARY KEY (chat, seq))")
        began, count = time.perf_counter(), 0
        while time.perf_counter() - began < seconds:
            database.execute("INSERT INTO log VALUES (1, ?, ?)", (count, _BODIES[count % len(_BODIES)]))
            count += 1
        return count / (time.perf_counter() - began)
    finally:
        database.close()


async def _postgres_floor(url: str, seconds: float) -> tuple[float, float]:
    await execute(url, "CREATE TABLE floor (chat integer, seq integer, body bytea, PRIMARY KEY (chat, seq))")
    async with asyncpg.create_pool(url, min_size=CONNECTIONS, max_size=CONNECTIONS) as pool:

        async def write(number: int, event: int) -> None:
            await pool.execute("INSERT INTO floor VALUES ($1, $2, $3)", number, event, _BODIES[event % len(_BODIES)])

        one = await _rate(write, 1, seconds)
        await pool.execute("TRUNCATE floor")
        return one, await _rate(write, MANY, seconds)
