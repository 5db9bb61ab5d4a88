"""Many workers, many chats, long chats: order of changes, hints, clocks, and costs that do not grow (A-07, faults 15
and 18). Costs are pages that the server touches, which no load on the machine changes."""

import asyncio
import random
import time
import tracemalloc

import asyncpg  # type: ignore[import-untyped]
import msgspec
import pytest

from tests.faults.chance import SEED
from treadle.adapters.stores.postgres import PostgresStore
from treadle.adapters.stores.postgres import store as module
from treadle.adapters.stores.postgres.queries import READ, make_summary_columns, pack
from treadle.base.types import ChatId
from treadle.errors import ChatBusy
from treadle.testing.store_contract.helpers import (
    A,
    B,
    add,
    begin,
    claim_lease,
    list_seqs,
    make_records,
    make_summary,
    record,
)

LONG = 100_000
APPEND = (
    "SELECT treadle_append($1, $2, $3::treadle_packed[], $4, true, NULL, NULL, NULL, NULL, false, NULL, 0, 0, false, "
    "0, NULL, false)"
)


async def append_behind(connection: asyncpg.Connection, chat: ChatId, seq: int) -> None:
    """Append from a session that gives no hint."""
    await connection.execute(APPEND, chat, seq, [pack(record(seq))], make_summary_columns(make_summary(chat, seq)))


async def pages(connection: asyncpg.Connection, query: str, *values: object) -> int:
    """Return how many pages the server looks at for this once it knows the statement; its changes are taken back."""
    for _ in range(2):
        transaction = connection.transaction()
        await transaction.start()
        try:
            explanation = await connection.fetchval(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {query}", *values)
        finally:
            await transaction.rollback()
    plan = msgspec.json.decode(explanation)[0]["Plan"]
    return int(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"])


async def test_changes_are_seen_in_the_order_of_their_numbers(
    store: PostgresStore, connection: asyncpg.Connection
) -> None:
    """A-07: a commit with a lower number may come later; a reader that has seen the higher one must not miss it."""
    await begin(store, A)
    await begin(store, B)
    start = (await store.get(B)).change_number
    assert await store.wait_any(start - 1, 20) == start
    async with connection.transaction():
        await append_behind(connection, A, 2)
        await add(store, B, 2)
        assert (await store.get(B)).change_number > start
        assert list(await store.list_changes(after_change=start)) == []
        assert await store.wait_any(start, 0) == start
    change_number = start
    changed_chats: list[ChatId] = []
    async with asyncio.timeout(60):
        while len(changed_chats) < 2:
            change_number = await store.wait_any(change_number, 20)
            changed_chats += [one.summary.chat for one in await store.list_changes(after_change=start)][
                len(changed_chats) :
            ]
    assert changed_chats == [A, B]


@pytest.mark.parametrize("location", ["another database", "another table", "a subtransaction"])
async def test_changes_do_not_wait_for_transactions_of_others(
    store: PostgresStore, postgres: str, postgres_database: str, location: str
) -> None:
    """A-07: a write transaction that stays open, anywhere in the cluster, holds up no feed."""
    await begin(store, A)
    start = (await store.get(A)).change_number
    connection = await asyncpg.connect(postgres_database if location == "another database" else postgres)
    try:
        await connection.execute("CREATE TABLE others (n integer)")
        async with connection.transaction():
            await connection.execute("INSERT INTO others VALUES (1)")
            if location == "a subtransaction":
                await connection.execute("SAVEPOINT s")
                await connection.execute("INSERT INTO others VALUES (2)")
            await add(store, A, 2)
            async with asyncio.timeout(60):
                assert await store.wait_any(start, 60) > start
            assert [one.summary.chat for one in await store.list_changes(after_change=start)] == [A]
    finally:
        await connection.close()


@pytest.mark.thorough(one_of=8)
async def test_no_change_is_missed_by_a_reader_that_follows(
    store: PostgresStore, postgres: str, postgres_database: str
) -> None:
    """A-07: writers whose transactions end in any order, transactions of others between them, and one who follows."""
    chats = [ChatId(f"c_{number}") for number in range(6)]
    for chat in chats:
        await begin(store, chat)
    chance = random.Random(SEED)
    print(f"TEST_SEED={SEED}")
    over = asyncio.Event()

    async def write(chat: ChatId) -> None:
        connection = await asyncpg.connect(postgres)
        try:
            for seq in range(2, 32):
                async with connection.transaction():
                    await append_behind(connection, chat, seq)
                    await asyncio.sleep(chance.random() * 0.02)
        finally:
            await connection.close()

    async def disturb() -> None:
        connection = await asyncpg.connect(postgres_database)
        try:
            await connection.execute("CREATE TABLE others (n integer)")
            while not over.is_set():
                async with connection.transaction():
                    await connection.execute("INSERT INTO others VALUES (1)")
                    await asyncio.sleep(chance.random() * 0.05)
        finally:
            await connection.close()

    async def follow() -> dict[ChatId, int]:
        """By chat: the head of the last change that was seen. Every chat's last change must be among them."""
        last_change, heads = 0, dict.fromkeys(chats, 0)
        while True:
            is_over = over.is_set()
            for one in await store.list_changes(after_change=last_change, limit=2):
                assert one.change_number > last_change
                last_change = one.change_number
                heads[one.summary.chat] = one.summary.head
            if is_over and not await store.list_changes(after_change=last_change):
                return heads
            await asyncio.sleep(0)

    following, disturbing = asyncio.create_task(follow()), asyncio.create_task(disturb())
    await asyncio.gather(*map(write, chats))
    over.set()
    await disturbing
    assert await following == dict.fromkeys(chats, 31)


async def test_a_hint_is_quicker_than_the_poll(postgres: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Law 8: many appends, few messages; and none of them is needed."""
    monkeypatch.setattr(module, "POLL_S", 3600)
    writer, reader = PostgresStore(postgres), PostgresStore(postgres)
    await begin(writer, A)
    async with asyncio.timeout(60):
        head = 1
        while head < 5:
            waiting = asyncio.create_task(reader.wait(A, head, 60))
            await asyncio.sleep(0)
            while not waiting.done():  # the reader may not listen yet
                head += 1
                await add(writer, A, head)
                await asyncio.wait([waiting], timeout=0.5)
            assert await waiting <= head
    await reader.close()
    await writer.close()


async def test_what_came_without_a_hint_is_found_by_polling(
    store: PostgresStore, connection: asyncpg.Connection
) -> None:
    await begin(store, A)
    change_number = (await store.get(A)).change_number
    waiting = asyncio.create_task(store.wait(A, 1, 60))
    following = asyncio.create_task(store.wait_any(change_number, 60))
    await asyncio.sleep(0.05)
    await append_behind(connection, A, 2)
    assert await waiting == 2
    assert await following > change_number


async def test_leases_go_by_the_clock_of_the_database(
    postgres: str, store: PostgresStore, connection: asyncpg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fault 15: a worker's clock is hours off, either way; no worker takes a lease early or keeps one for ever."""
    await begin(store, A, runnable=True)
    await claim_lease(store, "w1")
    real = time.time
    for hours in (10, -10):
        monkeypatch.setattr(time, "time", lambda hours=hours: real() + hours * 3600)
        monkeypatch.setattr(time, "time_ns", lambda hours=hours: int((real() + hours * 3600) * 1e9))
        other_store = PostgresStore(postgres)
        assert await other_store.claim("w2", now_ms=int(time.time() * 1000)) is None
        with pytest.raises(ChatBusy):
            await other_store.claim("w2", A)
        await other_store.close()
    until = await connection.fetchval("SELECT lease_until - extract(epoch FROM clock_timestamp()) * 1000 FROM chats")
    assert 0 < until <= 30_000
    await connection.execute("UPDATE chats SET lease_until = lease_until - 31000")
    assert (await claim_lease(store, "w2")).epoch == 2


async def test_many_machines_share_without_overlap(postgres: str) -> None:
    """FOR UPDATE SKIP LOCKED: every chat once, and no claim waits for another."""
    stores = [PostgresStore(postgres, connections=3) for _ in range(4)]
    chats = [ChatId(f"c_{number:02d}") for number in range(24)]
    for number, chat in enumerate(chats):
        await begin(stores[0], chat, runnable=True, owner=f"o{number % 5}")
    leases = await asyncio.gather(*(store.claim(f"w{n}") for store in stores for n in range(8)))
    claims = sorted(lease.chat for lease in leases if lease)
    while len(claims) < len(chats):  # a claim that met only chats that others were just taking may come back empty
        lease = await stores[0].claim("late")
        assert lease is not None
        claims = sorted([*claims, lease.chat])
    assert claims == chats
    for store in stores:
        await store.close()


@pytest.mark.thorough(one_of=8)
async def test_a_chat_of_100k_events(store: PostgresStore, connection: asyncpg.Connection) -> None:
    """Fault 18: an append and a read of the tail cost what they cost in a new chat."""
    await store.create(make_summary(A, 1), make_records(1, 1))
    await store.create(make_summary(B, 1), make_records(1, 1))
    number = await connection.fetchval("SELECT no FROM chats WHERE id = $1", A)
    packed = pack(record(1))
    await connection.copy_records_to_table(
        "events",
        columns=["chat_no", "seq", "time_ms", "type", "version", "epoch", "packing", "crc", "body"],
        records=[(number, seq, *packed[1:]) for seq in range(2, LONG + 1)],
    )
    await connection.execute("UPDATE chats SET head = $1 WHERE no = $2", LONG, number)
    assert list_seqs(await store.read(A, after_seq=LONG - 20)) == list(range(LONG - 19, LONG + 1))
    for seq in range(2, 22):
        await add(store, B, seq)
    await add(store, A, LONG + 1)
    cost = {
        chat: (
            await pages(
                connection, APPEND, chat, head + 1, [pack(record(head + 1))], make_summary_columns(make_summary(chat))
            ),
            await pages(connection, READ, chat, head - 10, None),
        )
        for chat, head in ((A, LONG + 1), (B, 21))
    }
    for long, short in zip(cost[A], cost[B], strict=True):
        assert long <= short + 10, cost


async def test_a_claim_does_not_look_at_every_chat(store: PostgresStore, connection: asyncpg.Connection) -> None:
    """5,000 idle chats, 5,000 that wait for a worker, 5,000 that wait for their time: the owners decide the cost."""
    await begin(store, A, runnable=True, owner="ann", updated_ms=1)
    copied = ", ".join(
        column
        for (column,) in await connection.fetch(
            "SELECT column_name FROM information_schema.columns WHERE table_name = 'chats' "
            "AND column_name NOT IN ('no', 'id', 'owner', 'runnable', 'wake_ms', 'updated_ms')"
        )
    )
    for kind, runnable, wake_ms in (("idle", False, 0), ("ready", True, 0), ("asleep", False, 10_000)):
        await connection.execute(
            f"INSERT INTO chats (id, owner, runnable, wake_ms, updated_ms, {copied}) "
            f"SELECT $1 || n, 'o' || n % 3, $2, $3, 100 + n, {copied} FROM chats, generate_series(1, 5000) AS n "
            "WHERE id = $4",
            kind, runnable, wake_ms, A,
        )  # fmt: skip
    await connection.execute("ANALYZE chats")
    cost = await pages(connection, "SELECT * FROM treadle_claim('w', NULL, 5000, 30000, NULL)")
    assert cost < 150
    assert (await claim_lease(store, "w", now_ms=5_000)).chat == A


@pytest.mark.thorough(one_of=8)
async def test_a_large_blob_passes_in_parts(store: PostgresStore) -> None:
    """T-11: 40 MB of output, of which never more than a few are held."""
    await begin(store, A)
    piece = bytes(range(256)) * 1024
    tracemalloc.start()
    try:
        digest = await store.put_blob_parts(piece for _ in range(160))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 12_000_000
    assert await store.get_blob(digest) == piece * 160
