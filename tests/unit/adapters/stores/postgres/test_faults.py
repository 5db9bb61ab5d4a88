"""The server goes away, is restarted, ends sessions; the line breaks after a commit was sent (fault 14). No append that
was acknowledged is lost, none happens twice, and what cannot be reached says so."""

import asyncio
import signal
from collections.abc import AsyncIterator, Iterator

import asyncpg  # type: ignore[import-untyped]
import pytest

from tests.postgres import Postgres
from tests.unit.adapters.stores.postgres.conftest import Line
from treadle.adapters.stores.postgres import PostgresStore
from treadle.base import file_system
from treadle.base.types import ChatId
from treadle.errors import AlreadyAnswered, ChatBusy, ChatExists, HeadMoved, LeaseLost, StoreError
from treadle.ports.store import Commit, Lease, Remembered
from treadle.testing.store_contract.helpers import A, B, add, begin, claim_lease, list_seqs, make_summary, record

CREATE, APPEND, CLAIM, REMEMBER = b"treadle_create", b"treadle_append", b"treadle_claim", b"treadle_remember"


@pytest.fixture
async def cut_store(line: Line) -> AsyncIterator[PostgresStore]:
    """A store whose line can be cut; one connection, so that the test knows which."""
    store = PostgresStore(await line.start(), connections=1)
    yield store
    await store.close()


async def test_an_append_whose_answer_never_came_happens_once(
    cut_store: PostgresStore, store: PostgresStore, line: Line
) -> None:
    await begin(cut_store, A)
    lease = await claim_lease(cut_store, "w", A)
    for seq in range(2, 6):
        line.break_at = APPEND
        await add(cut_store, A, seq, lease)
        assert line.cuts == seq - 1
        assert list_seqs(await store.read(A)) == list(range(1, seq + 1))
    await add(cut_store, A, 6, lease)


async def test_another_append_at_the_same_place_is_not_taken_for_ones_own(
    cut_store: PostgresStore, store: PostgresStore, line: Line
) -> None:
    """The line breaks after another writer was quicker: the store raises the usual error."""
    await begin(cut_store, A)
    await add(store, A, 2)
    line.break_at = APPEND
    other_record = record(2, b'{"turn":99}')
    with pytest.raises(HeadMoved):
        await cut_store.append(Commit(A, [other_record], make_summary(A, 2), durable=True))
    assert line.cuts == 1
    assert await store.read(A) == [record(1), record(2)]


async def test_an_append_that_also_releases_and_answers(
    cut_store: PostgresStore, store: PostgresStore, line: Line
) -> None:
    await begin(cut_store, A)
    lease = await claim_lease(cut_store, "w", A)
    answer = Remembered("ann", "k", "r", 204, b"", 1)
    line.break_at = APPEND
    await cut_store.append(
        Commit(
            A, [record(2)], make_summary(A, 2), lease=lease, durable=True, release=True, answer=answer, drop_deltas=True
        )
    )
    assert line.cuts == 1
    assert await store.read_head(A) == 2
    assert not (await store.get(A)).leased
    assert await store.recall("ann", "k") == answer
    with pytest.raises(LeaseLost):
        await add(cut_store, A, 3, lease)


async def test_a_summary_alone_that_also_releases(cut_store: PostgresStore, store: PostgresStore, line: Line) -> None:
    await begin(cut_store, A)
    lease = await claim_lease(cut_store, "w", A)
    line.break_at = APPEND
    await cut_store.append(Commit(A, (), make_summary(A, 1, title="new"), lease=lease, release=True))
    assert line.cuts == 1
    assert not (await store.get(A)).leased
    assert (await store.get(A)).summary.title == "new"


async def test_an_append_that_takes_the_chat(cut_store: PostgresStore, store: PostgresStore, line: Line) -> None:
    await begin(cut_store, A)
    await begin(cut_store, B)
    line.break_at = APPEND
    lease = Lease(A, 1, "w", 2)
    await cut_store.append(Commit(A, [record(2)], make_summary(A, 2), durable=True, take=lease))
    await add(cut_store, A, 3, lease)
    line.break_at = APPEND
    await cut_store.append(Commit(B, [], make_summary(B, 1, title="x"), durable=True, take=Lease(B, 1, "w", 1)))
    assert line.cuts == 2
    with pytest.raises(ChatBusy):
        await store.claim("other", A)


async def test_a_create_whose_answer_never_came(cut_store: PostgresStore, store: PostgresStore, line: Line) -> None:
    await begin(cut_store, B)
    line.break_at = CREATE
    answer = Remembered("ann", "k", "r", 201, b"", 1)
    await cut_store.create(make_summary(A, 1), [record(1)], answer=answer)
    assert line.cuts == 1
    assert await store.read(A) == [record(1)]
    assert await store.recall("ann", "k") == answer
    line.break_at = CREATE
    with pytest.raises(ChatExists):
        await cut_store.create(make_summary(A, 1), [record(1, b"another")])


async def test_a_claim_whose_answer_never_came_is_found_again(
    cut_store: PostgresStore, store: PostgresStore, line: Line
) -> None:
    await begin(store, A, runnable=True)
    await cut_store.release(await claim_lease(cut_store, "w", A))
    for claim_target in (None, A):
        line.break_at = CLAIM
        cut_count = line.cuts
        lease = await claim_lease(cut_store, "w", claim_target)
        assert line.cuts == cut_count + 1
        assert lease.chat == A
        with pytest.raises(ChatBusy):
            await store.claim("other", A)
        await cut_store.release(lease)


async def test_an_answer_whose_answer_never_came(cut_store: PostgresStore, store: PostgresStore, line: Line) -> None:
    answer = Remembered("ann", "k", "r", 204, b"", 1)
    await cut_store.remember(Remembered("ann", "before", "r", 204, b"", 1))
    line.break_at = REMEMBER
    await cut_store.remember(answer)
    assert line.cuts == 1
    with pytest.raises(AlreadyAnswered):
        await store.remember(answer)


@pytest.mark.thorough(one_of=8)
async def test_sessions_that_the_server_ends(postgres_database: str) -> None:
    store, connection = PostgresStore(postgres_database), await asyncpg.connect(postgres_database)
    await begin(store, A)
    lease = await claim_lease(store, "w", A)
    head = 1

    async def write() -> None:
        nonlocal head
        for seq in range(2, 60):
            await add(store, A, seq, lease)
            head = seq

    writing = asyncio.create_task(write())
    killed = last_head = 0
    while not writing.done():
        if head >= last_head + 5:  # it gets on: strike again
            last_head = head
            killed += await connection.fetchval(
                "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity "
                "WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
        await asyncio.sleep(0)
    await writing
    assert killed > 1
    assert list_seqs(await store.read(A)) == list(range(1, 60))
    await connection.close()
    await store.close()


async def test_a_session_ended_in_the_middle_of_an_append(postgres_database: str) -> None:
    """The append waits for a lock when its session is ended; it is done once when the lock is gone."""
    store, connection = PostgresStore(postgres_database), await asyncpg.connect(postgres_database)
    await begin(store, A)
    async with connection.transaction():
        await connection.execute("SELECT 1 FROM chats WHERE id = $1 FOR UPDATE", A)
        waiting = asyncio.create_task(add(store, A, 2))
        kill_count = 0
        async with asyncio.timeout(30):
            while kill_count < 3:
                await connection.execute("SELECT pg_stat_clear_snapshot()")
                kill_count += await connection.fetchval(
                    "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity "
                    "WHERE datname = current_database() AND wait_event_type = 'Lock'"
                )
        assert not waiting.done()
    await waiting
    assert list_seqs(await store.read(A)) == [1, 2]
    await connection.close()
    await store.close()


@pytest.fixture
def restartable(own_postgres: Postgres) -> Iterator[Postgres]:
    yield own_postgres
    if own_postgres.process is None or own_postgres.process.poll() is not None:
        own_postgres.start()


@pytest.mark.thorough(one_of=8)
@pytest.mark.parametrize("stop_signal", [signal.SIGINT, signal.SIGQUIT], ids=["restart", "crash"])
async def test_a_server_that_is_restarted_in_mid_append(
    restartable: Postgres, postgres: str, stop_signal: signal.Signals
) -> None:
    """Every append that was acknowledged is there, also those that need not be durable; none is there twice."""
    if str(restartable.folder) not in postgres:
        pytest.skip("somebody else's server is not ours to restart")
    store = PostgresStore(postgres, patience_s=60)
    chats = [ChatId(f"c_{number}") for number in range(4)]
    for chat in chats:
        await begin(store, chat)
    acknowledged = dict.fromkeys(chats, 1)
    enough = asyncio.Event()

    async def write(chat: ChatId) -> None:
        lease = await claim_lease(store, "w", chat)
        while not enough.is_set():
            seq = acknowledged[chat] + 1
            await store.append(Commit(chat, [record(seq)], make_summary(chat, seq), lease=lease, durable=bool(seq % 2)))
            acknowledged[chat] = seq

    writing = [asyncio.create_task(write(chat)) for chat in chats]

    async def all_reach(count: int) -> None:
        async with asyncio.timeout(60):
            while min(acknowledged.values()) < count:
                for task in writing:
                    if task.done():
                        task.result()
                await asyncio.sleep(0.01)

    await all_reach(10)
    await asyncio.to_thread(restartable.stop, stop_signal)
    await asyncio.to_thread(restartable.start)
    await all_reach(min(acknowledged.values()) + 10)
    enough.set()
    await asyncio.gather(*writing)
    for chat in chats:
        assert list_seqs(await store.read(chat)) == list(range(1, acknowledged[chat] + 1))
    await store.close()


async def test_a_server_that_stays_away_is_told(line: Line) -> None:
    url = await line.start()
    store = PostgresStore(url.replace("postgres@", "postgres:hidden@"), patience_s=0.3)
    await begin(store, A)
    line.deaf = True
    await line.stop()
    with pytest.raises(StoreError, match="cannot be reached") as caught:
        await add(store, A, 2)
    assert "hidden" not in str(caught.value)
    await store.close()


async def test_a_fault_before_the_commit_changes_nothing(store: PostgresStore) -> None:
    await begin(store, A)

    def strike(name: str) -> None:
        if name == "store.before_commit":
            raise RuntimeError("struck")

    file_system.install_fault_hook(strike)
    try:
        with pytest.raises(RuntimeError):
            await add(store, A, 2)
    finally:
        file_system.install_fault_hook(None)
    assert await store.read_head(A) == 1
    await add(store, A, 2)
