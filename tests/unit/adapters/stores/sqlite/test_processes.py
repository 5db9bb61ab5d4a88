"""Several processes on one file, and their deaths: D-03, faults 1, 4 and 15."""

import asyncio
import signal
from pathlib import Path

import pytest

from tests.unit.adapters.stores.sqlite.conftest import Spawn, text
from treadle.adapters.stores.sqlite import SqliteStore
from treadle.adapters.stores.sqlite.leases import BootClock
from treadle.errors import ChatBusy
from treadle.ports.store import LEASE_S, Lease
from treadle.testing.store_contract.helpers import A, B, add, begin, claim_lease, list_seqs

APPENDER = """
say("ready"); hear()
mine, head = 0, 1
while mine < 40:
    try:
        await store.append(Commit(A, [record(head + 1, text("%s"))], make_summary(A, head + 1), durable=False))
        mine += 1
    except HeadMoved:
        pass
    head = await store.read_head(A)
"""


class LaterClock(BootClock):
    """The machine's uptime, half a minute and a second from now."""

    def monotonic(self) -> float:
        return super().monotonic() + LEASE_S + 1


@pytest.mark.thorough(one_of=8)
async def test_two_processes_append_to_one_chat(store: SqliteStore, spawn: Spawn) -> None:
    await begin(store, A)
    writers = [spawn(APPENDER % name) for name in ("one", "two")]
    assert [writer.hear() for writer in writers] == ["ready", "ready"]
    for writer in writers:
        writer.say()
    assert [writer.finish() for writer in writers] == [0, 0]
    log = await store.read(A)
    assert list_seqs(log) == list(range(1, 82))
    assert sorted(record.body for record in log[1:]) == [text("one")] * 40 + [text("two")] * 40
    assert await store.check() == []


@pytest.mark.thorough(one_of=8)
async def test_many_first_starts_at_once(path: Path, spawn: Spawn) -> None:
    starters = [spawn(f'say("ready"); hear(); await begin(store, "c_{n}")') for n in range(4)]
    assert [starter.hear() for starter in starters] == ["ready"] * 4
    for starter in starters:
        starter.say()
    assert [starter.finish() for starter in starters] == [0] * 4
    store = SqliteStore(path)
    assert len(await store.list()) == 4
    await store.close()


async def test_a_killed_worker_frees_its_chats_at_once(store: SqliteStore, spawn: Spawn, path: Path) -> None:
    """Fault 4: resuming after kill -9 does not wait for the lease to expire."""
    await begin(store, A, runnable=True)
    await begin(store, B)
    holder = spawn('await claim_lease(store, "gone", A); await claim_lease(store, "gone", B); say("held"); hear()')
    assert holder.hear() == "held"
    assert (await store.get(A)).leased
    assert await store.claim("heir") is None
    with pytest.raises(ChatBusy):
        await store.claim("heir", B)
    holder.kill()
    assert not (await store.get(A)).leased
    assert await store.claim("heir") == Lease(A, 2, "heir", 1)
    assert await store.claim("heir", B) == Lease(B, 2, "heir", 1)
    assert [file.name for file in (path.parent / "workers").iterdir()] == ["heir.lock"]


async def test_a_stopped_worker_keeps_its_lease_until_it_expires(store: SqliteStore, spawn: Spawn, path: Path) -> None:
    """Fault 4: SIGSTOP past the lease, then SIGCONT. One writes; the zombie is refused."""
    await begin(store, A, runnable=True)
    zombie = spawn(
        """
        lease = await claim_lease(store, "zombie")
        say("held"); hear()
        try:
            await add(store, A, 2, lease)
        except LeaseLost:
            say("refused")
        """
    )
    assert zombie.hear() == "held"
    zombie.signal(signal.SIGSTOP)
    assert await store.claim("heir") is None
    with pytest.raises(ChatBusy):
        await store.claim("heir", A)
    later = SqliteStore(path, clock=LaterClock())
    heir = await claim_lease(later, "heir")
    assert heir.epoch == 2
    zombie.say()
    zombie.signal(signal.SIGCONT)
    assert zombie.hear() == "refused"
    await add(later, A, 2, heir)
    assert list_seqs(await store.read(A)) == [1, 2]
    await later.close()


async def test_a_wait_sees_the_appends_of_others(store: SqliteStore, spawn: Spawn) -> None:
    """D-04"""
    await begin(store, A)
    process = spawn('say("ready"); hear(); await add(store, A, 2)')
    assert process.hear() == "ready"
    waiting = asyncio.create_task(store.wait(A, 1, 60))
    await asyncio.sleep(0)
    process.say()
    assert await waiting == 2


async def test_whoever_follows_all_chats_sees_those_of_others(store: SqliteStore, spawn: Spawn) -> None:
    """A-07, and live text of a chat that another process runs (D-04)."""
    await begin(store, A)
    process = spawn("""
        hear()
        lease = await claim_lease(store, "w", A)
        from treadle.ports.store import Delta
        await store.put_deltas([Delta(A, lease.epoch, 1, 1, b"so far")])
        await add(store, A, 2, lease)
        hear()
        """)
    old_change = await store.wait_any(0, 0)
    process.say()
    new_change = await store.wait_any(old_change, 60)
    assert [(one.summary.head, one.change_number) for one in await store.list_changes(after_change=old_change)] == [
        (2, new_change)
    ]
    assert [delta.payload for delta in await store.read_deltas({A: (0, 0, 0)})] == [b"so far"]
    process.say()
    assert process.finish() == 0


async def test_what_was_acknowledged_survives_kill_9(store: SqliteStore, spawn: Spawn) -> None:
    """Fault 1"""
    await begin(store, A)
    writer = spawn(
        """
        for seq in range(2, 1_000_000):
            records = [record(seq, text("x" * seq * 40))]
            await store.append(Commit(A, records, make_summary(A, seq), durable=seq % 2 < 1))
            say(seq)
        """
    )
    last = 0
    while last < 60:
        last = int(writer.hear())
    writer.kill()
    log = await store.read(A)
    assert list_seqs(log) == list(range(1, len(log) + 1))
    assert len(log) >= last
    assert all(record.body == text("x" * record.seq * 40) for record in log[1:])
    assert await store.check() == []


@pytest.mark.thorough(one_of=8)
@pytest.mark.parametrize(
    ("name", "landed"),
    [
        ("store.before_commit", False),
        ("store.after_commit", True),
        ("store.blob_before_rename", False),
        ("store.blob_written", False),
    ],
)
async def test_killed_at_a_persistence_point(store: SqliteStore, spawn: Spawn, name: str, landed: bool) -> None:
    """Fault 1: exactly before or after, and usable at once."""
    await begin(store, A, runnable=True)
    worker = spawn(
        f"""
        lease = await claim_lease(store, "gone")
        file_system.install_fault_hook(lambda name: os.kill(os.getpid(), signal.SIGKILL) if name == "{name}" else None)
        new = [record(2, text("x" * 100_000))]
        await store.append(Commit(A, new, make_summary(A, 2, runnable=True), lease=lease))
        """
    )
    assert worker.finish() == -signal.SIGKILL
    assert await store.read_head(A) == (2 if landed else 1)
    assert await store.check() == []
    heir = await claim_lease(store, "heir")
    head = await store.read_head(A)
    await add(store, A, head + 1, heir)


@pytest.mark.parametrize("name", ["store.migrating", "store.migrated"])
async def test_killed_while_the_database_is_made(store: SqliteStore, spawn: Spawn, name: str) -> None:
    """Fault 3"""
    worker = spawn(
        f"""
        file_system.install_fault_hook(lambda name: os.kill(os.getpid(), signal.SIGKILL) if name == "{name}" else None)
        await begin(store, A)
        """
    )
    assert worker.finish() == -signal.SIGKILL
    await begin(store, A)
    assert await store.check() == []


async def test_the_wall_clock_is_never_asked(store: SqliteStore, spawn: Spawn) -> None:
    """Fault 15"""
    worker = spawn(
        """
        def never(): os._exit(7)
        time.time = time.time_ns = never
        await begin(store, A, runnable=True)
        lease = await claim_lease(store, "w")
        await store.renew([lease])
        await add(store, A, 2, lease)
        try:
            await store.claim("w2", A)
        except ChatBusy:
            await store.release(lease)
        """
    )
    assert worker.finish() == 0
    assert await store.read_head(A) == 2


async def test_a_lease_of_another_boot_is_over(store: SqliteStore, path: Path) -> None:
    import sqlite3

    await begin(store, A)
    await claim_lease(store, "w", A)
    connection = sqlite3.connect(path)
    connection.execute("UPDATE chats SET boot = 'another'")
    connection.commit()
    connection.close()
    assert (await claim_lease(store, "w2", A)).epoch == 2


async def test_two_processes_may_not_be_one_worker(store: SqliteStore, spawn: Spawn) -> None:
    await begin(store, A)
    await begin(store, B)
    holder = spawn('await claim_lease(store, "same", A); say("held"); hear()')
    assert holder.hear() == "held"
    with pytest.raises(Exception, match="another process works under the name 'same'"):
        await store.claim("same", B)


async def test_locks_of_workers_clean_up_after_themselves(path: Path, spawn: Spawn) -> None:
    process = spawn(
        'await begin(store, A); lease = await claim_lease(store, "gone", A); await store.release(lease); os._exit(0)'
    )
    assert process.finish() == 0
    workers = path.parent / "workers"
    assert [file.name for file in workers.iterdir()] == ["gone.lock"]
    stores = [SqliteStore(path), SqliteStore(path)]
    for number, store in enumerate(stores):
        await store.claim("a/b: odd name\n", A if number == 0 else None)
    assert len(list(workers.iterdir())) == 1
    await stores[0].close()
    assert len(list(workers.iterdir())) == 1
    await stores[1].close()
    assert list(workers.iterdir()) == []
