"""Group commit: jobs that wait together are committed together, and no job suffers for another."""

import asyncio
import os
import random
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.adapters.stores.sqlite.conftest import text
from treadle.adapters.stores.sqlite import SqliteStore
from treadle.base import file_system
from treadle.base.types import ChatId
from treadle.errors import HeadMoved, StoreError
from treadle.ports.store import Commit, Snapshot
from treadle.testing.store_contract.helpers import A, add, begin, list_seqs, make_summary, record


class Struck(Exception):
    """The exception that a test raises at a fault point."""


@pytest.fixture
def points() -> Iterator[list[str]]:
    """The fault points in the order in which they were passed."""
    fault_points: list[str] = []
    file_system.install_fault_hook(fault_points.append)
    yield fault_points
    file_system.install_fault_hook(None)


async def test_what_waits_together_is_committed_together(store: SqliteStore, points: list[str]) -> None:
    chats = [ChatId(f"c_{n}") for n in range(100)]
    await asyncio.gather(*(begin(store, chat) for chat in chats))
    points.clear()
    await asyncio.gather(*(add(store, chat, 2) for chat in chats))
    assert 1 <= points.count("store.after_commit") <= 3
    assert points.count("store.before_commit") == points.count("store.after_commit")


async def test_a_batch_is_as_durable_as_its_most_demanding_job(path: Path) -> None:
    """The synchronous mode of SQLite: FULL when any job of the batch is durable, NORMAL otherwise."""
    store = SqliteStore(path)
    await begin(store, A)
    levels: list[int] = []
    file_system.install_fault_hook(
        lambda name: levels.append(_synchronous(store)) if name == "store.before_commit" else None
    )
    try:
        for seq, durable in ((2, False), (3, True), (4, True), (5, False)):
            await store.append(Commit(A, [record(seq)], make_summary(A, seq), durable=durable))
    finally:
        file_system.install_fault_hook(None)
    await store.close()
    assert levels == [1, 2, 2, 1]


def _synchronous(store: SqliteStore) -> int:
    connection = store._writer._connection
    assert connection is not None
    return int(connection.execute("PRAGMA synchronous").fetchone()[0])


async def test_a_transaction_that_fails_is_repeated_job_by_job(store: SqliteStore) -> None:
    chats = [ChatId(f"c_{n}") for n in range(5)]
    for chat in chats:
        await begin(store, chat)
    struck = 0

    def strike(name: str) -> None:
        nonlocal struck
        if name == "store.before_commit" and struck < 2:
            struck += 1
            raise Struck

    file_system.install_fault_hook(strike)
    try:
        first = asyncio.create_task(add(store, A, 99))  # occupies the writer while the others gather
        outcome = await asyncio.gather(*(add(store, chat, 2) for chat in chats), first, return_exceptions=True)
    finally:
        file_system.install_fault_hook(None)
    heads = [await store.read_head(chat) for chat in chats]
    assert [head == 2 for head in heads] == [error is None for error in outcome[:5]]
    assert sum(head == 2 for head in heads) >= 4
    for chat, head in zip(chats, heads, strict=True):
        await add(store, chat, head + 1)


async def test_a_fault_after_the_commit_is_not_repeated(store: SqliteStore) -> None:
    """Fault 14: the answer was lost, the record was not; a second attempt is told so."""
    await begin(store, A)

    def strike(name: str) -> None:
        if name == "store.after_commit":
            raise Struck

    file_system.install_fault_hook(strike)
    try:
        with pytest.raises(Struck):
            await add(store, A, 2)
    finally:
        file_system.install_fault_hook(None)
    with pytest.raises(HeadMoved):
        await add(store, A, 2)
    assert list_seqs(await store.read(A)) == [1, 2]


async def test_a_type_numbered_in_a_lost_transaction_is_numbered_again(store: SqliteStore) -> None:
    await store.create(make_summary(A, 0), [])

    def strike(name: str) -> None:
        if name == "store.before_commit":
            raise Struck

    file_system.install_fault_hook(strike)
    try:
        with pytest.raises(Struck):
            await add(store, A, 1)
    finally:
        file_system.install_fault_hook(None)
    await add(store, A, 1)
    assert await store.read(A) == [record(1)]


async def test_a_cancelled_append_lands_or_not_but_never_half(store: SqliteStore) -> None:
    await begin(store, A)
    task = asyncio.create_task(
        store.append(Commit(A, [record(2), record(3, text("x" * 9000))], make_summary(A, 3), durable=True))
    )
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await store.save_snapshot(A, Snapshot(1, b""))  # once this is answered, the writer has passed the append
    assert await store.read_head(A) in (1, 3)
    assert len(await store.read(A)) == await store.read_head(A)


async def test_a_lock_held_too_long_is_an_error_and_then_all_is_well(path: Path) -> None:
    """Fault 14: locked."""
    store = SqliteStore(path, busy_s=0.05)
    await begin(store, A)
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreError, match="stayed locked by another process"):
        await add(store, A, 2)
    assert await store.read_head(A) == 1  # reading goes on
    connection.execute("ROLLBACK")
    connection.close()
    await add(store, A, 2)
    await store.close()


async def test_a_full_disk_is_an_error_and_then_all_is_well(store: SqliteStore) -> None:
    """Fault 13: for the database."""
    await begin(store, A)
    connection = store._writer._connection
    assert connection is not None
    connection.execute("PRAGMA max_page_count = 30")
    big = [record(seq, _noise(seq)) for seq in range(2, 12)]
    with pytest.raises(StoreError, match="no space left"):
        await store.append(Commit(A, big, make_summary(A, 11), durable=True))
    assert list_seqs(await store.read(A)) == [1]
    await add(store, A, 2)  # a small record is still taken
    connection.execute("PRAGMA max_page_count = 100000")
    await store.append(Commit(A, [record(3, _noise(3))], make_summary(A, 3), durable=True))
    assert list_seqs(await store.read(A)) == [1, 2, 3]


def _noise(seed: int) -> bytes:
    return random.Random(seed).randbytes(30_000)


async def test_an_unusable_path_is_an_error_and_then_all_is_well(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.write_text("a file where a folder belongs")
    store = SqliteStore(folder / "treadle.db")
    for _ in range(2):
        with pytest.raises(StoreError):
            await store.list()
    folder.unlink()
    assert await store.list() == []
    await store.close()


@pytest.fixture
def text_file(path: Path) -> Iterator[Path]:
    """A file that is not to be touched, where the database should be."""
    content = b"this is certainly no database, however long one looks at it" * 100
    path.parent.mkdir()
    path.write_bytes(content)
    yield path
    assert path.read_bytes() == content


async def test_a_file_that_is_no_database(text_file: Path) -> None:
    store = SqliteStore(text_file)
    with pytest.raises(StoreError, match="damaged"):
        await store.list()
    await store.close()


async def test_opening_starts_no_thread_and_makes_no_file(path: Path) -> None:
    thread_count = threading.active_count()
    store = SqliteStore(path)
    assert threading.active_count() == thread_count
    assert not path.parent.exists()
    await store.close()
    assert not path.parent.exists()


async def test_closing_ends_every_thread(path: Path) -> None:
    thread_count = threading.active_count()
    store = SqliteStore(path)
    await begin(store, A)
    await store.read(A)
    await store.put_blob(b"x")
    await store.close()
    assert threading.active_count() == thread_count


def test_a_store_serves_one_loop_after_the_other(path: Path) -> None:
    store = SqliteStore(path)
    asyncio.run(begin(store, A))
    asyncio.run(add(store, A, 2))
    assert list_seqs(asyncio.run(store.read(A))) == [1, 2]
    asyncio.run(store.close())


def test_what_was_asked_in_a_loop_is_answered_there_though_another_came(path: Path) -> None:
    store = SqliteStore(path)
    first, second = asyncio.new_event_loop(), asyncio.new_event_loop()
    first.run_until_complete(begin(store, A))
    appending = first.create_task(add(store, A, 2))
    first.run_until_complete(asyncio.sleep(0))
    assert second.run_until_complete(store.read_head(A)) >= 1
    second.run_until_complete(asyncio.sleep(0))
    first.run_until_complete(_ask_again_and_wait(store, appending))
    first.run_until_complete(store.close())
    first.close()
    second.close()


async def _ask_again_and_wait(store: SqliteStore, appending: asyncio.Task[None]) -> None:
    assert await store.read_head(A) >= 1
    await appending
    assert list_seqs(await store.read(A)) == [1, 2]


def test_loops_in_several_threads_are_answered_also_when_one_of_them_goes(path: Path) -> None:
    store = SqliteStore(path)
    chats = [ChatId(f"c_{n}") for n in range(4)]

    async def work(place: int) -> None:
        await begin(store, chats[place])
        for seq in range(2, 30 * (place + 1)):
            await add(store, chats[place], seq)

    workers = [threading.Thread(target=asyncio.run, args=(work(place),)) for place in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    assert not any(worker.is_alive() for worker in workers), "a loop waits for an answer that never comes"
    assert [len(list_seqs(asyncio.run(store.read(chat)))) for chat in chats] == [29, 59, 89, 119]
    asyncio.run(store.close())


async def test_closing_answers_what_was_asked_and_leaves_no_descriptor_open(path: Path) -> None:
    descriptor_count = len(os.listdir("/dev/fd"))
    store = SqliteStore(path)
    await begin(store, A)
    appending = asyncio.create_task(add(store, A, 2))
    await asyncio.sleep(0)
    await store.close()
    await appending
    assert len(os.listdir("/dev/fd")) == descriptor_count
