"""The right to write: claims, epochs, expiry (D-03, faults 4 and 15)."""

import asyncio
from pathlib import Path

import pytest

from treadle.base.types import ChatId
from treadle.errors import ChatBusy, HeadMoved, InvalidInput, LeaseLost
from treadle.ports.store import LEASE_S, Commit, Lease, Store
from treadle.testing.clock import ManualClock
from treadle.testing.store_contract.helpers import (
    A,
    B,
    C,
    OpensStore,
    add,
    assert_raises,
    begin,
    begin_claimed,
    claim_lease,
    list_seqs,
    make_summary,
    record,
)

MOMENT = 1 / 16  # a little time that sums up exactly


class LeaseContract(OpensStore):
    """One writer per chat, by number and never by time."""

    async def test_every_claim_has_a_higher_epoch(self, store: Store) -> None:
        await begin(store, A)
        for epoch in (1, 2, 3):
            lease = await claim_lease(store, f"w{epoch}", A)
            assert lease == Lease(A, epoch, f"w{epoch}", await store.read_head(A))
            await store.release(lease)

    async def test_a_chat_that_brings_epochs_along_gets_a_higher_one(self, store: Store) -> None:
        """D-08: an imported chat was written under leases of another store; two tenures must not share a number."""
        await store.create(make_summary(A, 2), [record(1), record(2, epoch=7)])
        assert (await claim_lease(store, "w", A)).epoch == 8

    async def test_a_holder_appends(self, store: Store) -> None:
        lease = await begin_claimed(store, "w", A)
        await add(store, A, 2, lease)
        assert await store.read_head(A) == 2

    async def test_an_append_can_give_the_lease_back(self, store: Store) -> None:
        lease = await begin_claimed(store, "w1", A, runnable=True)
        await store.append(Commit(A, [record(2)], make_summary(A, 2), lease=lease, release=True))
        assert not (await store.get(A)).leased
        await assert_raises(LeaseLost, add(store, A, 3, lease))
        assert (await claim_lease(store, "w2", A)).epoch == lease.epoch + 1

    async def test_an_append_that_is_refused_gives_nothing_back(self, store: Store) -> None:
        lease = await begin_claimed(store, "w1", A)
        await assert_raises(
            HeadMoved, store.append(Commit(A, [record(5)], make_summary(A, 5), lease=lease, release=True))
        )
        await add(store, A, 2, lease)

    async def test_a_zombie_is_refused(self, store: Store, clock: ManualClock) -> None:
        """Fault 4: the worker that slept past its lease writes nothing more."""
        zombie = await begin_claimed(store, "old", A)
        clock.advance(LEASE_S + 1)
        heir = await claim_lease(store, "new", A)
        await assert_raises(LeaseLost, add(store, A, 2, zombie))
        await add(store, A, 2, heir)
        await store.release(zombie)
        assert list(await store.renew([zombie, heir])) == [heir]
        await add(store, A, 3, heir)

    async def test_a_lease_is_its_worker_s_own(self, store: Store) -> None:
        """A restored database issues the same epoch again. The earlier holder of that epoch has lost its lease."""
        lease = await begin_claimed(store, "new", A)
        stale_lease = Lease(A, lease.epoch, "old", lease.head)
        await assert_raises(LeaseLost, add(store, A, 2, stale_lease))
        assert list(await store.renew([stale_lease])) == []
        await store.release(stale_lease)
        await add(store, A, 2, lease)

    async def test_a_released_lease_writes_nothing_more(self, store: Store) -> None:
        lease = await begin_claimed(store, "w", A)
        await store.release(lease)
        await assert_raises(LeaseLost, add(store, A, 2, lease))
        assert list(await store.renew([lease])) == []
        await store.release(lease)
        assert await store.read_head(A) == 1

    async def test_an_expired_lease_nobody_took_may_still_write(self, store: Store, clock: ManualClock) -> None:
        """Law 2: appends are fenced by number, never by time."""
        lease = await begin_claimed(store, "w", A)
        clock.advance(LEASE_S * 10)
        await add(store, A, 2, lease)

    async def test_a_lost_lease_is_said_before_a_moved_head(self, store: Store) -> None:
        old = await begin_claimed(store, "w", A)
        await store.release(old)
        new = await claim_lease(store, "w", A)
        await assert_raises(LeaseLost, add(store, A, 9, old))
        await assert_raises(HeadMoved, add(store, A, 9, new))

    async def test_a_lease_is_good_for_its_own_chat_only(self, store: Store) -> None:
        await begin(store, A, B)
        lease = await claim_lease(store, "w", A)
        await claim_lease(store, "w", B)
        await assert_raises(LeaseLost, add(store, B, 2, lease))

    async def test_commands_need_no_lease(self, store: Store) -> None:
        await begin(store, A)
        await add(store, A, 2)
        lease = await claim_lease(store, "w", A)
        await add(store, A, 3)
        await assert_raises(HeadMoved, add(store, A, 3, lease))
        await add(store, A, 4, lease)
        assert list_seqs(await store.read(A)) == [1, 2, 3, 4]

    async def test_a_named_chat_is_had_once(self, store: Store) -> None:
        await begin(store, A)
        outcome = await asyncio.gather(*(store.claim(f"w{n}", A) for n in range(20)), return_exceptions=True)
        assert sum(isinstance(one, Lease) for one in outcome) == 1
        assert sum(isinstance(one, ChatBusy) for one in outcome) == 19

    async def test_a_named_chat_need_not_be_runnable(self, store: Store) -> None:
        await begin(store, A, runnable=False)
        await begin(store, B, archived=True)
        assert (await claim_lease(store, "w", A)).chat == A
        assert (await claim_lease(store, "w", B)).chat == B
        await assert_raises(ChatBusy, store.claim("w", A))

    async def test_a_worker_needs_a_name(self, store: Store) -> None:
        await begin(store, A)
        await assert_raises(InvalidInput, store.claim("", A))

    async def test_a_claim_finds_what_is_to_be_done(self, store: Store) -> None:
        await begin(store, A, runnable=False)
        await begin(store, B, runnable=True, archived=True)
        assert await store.claim("w") is None
        await begin(store, C, runnable=True)
        assert (await claim_lease(store, "w")).chat == C
        assert await store.claim("w") is None

    async def test_the_longest_unchanged_chat_comes_first(self, store: Store) -> None:
        await begin(store, A, runnable=True, updated_ms=30)
        await begin(store, B, runnable=True, updated_ms=10)
        await begin(store, C, runnable=True, updated_ms=20)
        assert [(await claim_lease(store, f"w{n}")).chat for n in range(3)] == [B, C, A]

    async def test_claims_are_fair_between_owners(self, store: Store) -> None:
        """An owner with many chats does not keep the chats of other owners waiting."""
        for number in range(4):
            await begin(store, ChatId(f"c_ann{number}"), owner="ann", runnable=True, updated_ms=number)
        for number in range(2):
            await begin(store, ChatId(f"c_bob{number}"), owner="bob", runnable=True, updated_ms=10 + number)
        await begin(store, ChatId("c_eve"), owner="eve", wake_ms=5, updated_ms=20)
        leases = [await claim_lease(store, "w", now_ms=100) for _ in range(5)]
        assert [lease.chat for lease in leases] == ["c_ann0", "c_eve", "c_bob0", "c_ann1", "c_bob1"]
        await store.release(leases[0])
        await store.release(leases[3])
        assert (await claim_lease(store, "w", now_ms=100)).chat == "c_ann0"

    async def test_leases_that_are_over_do_not_count_against_their_owner(
        self, store: Store, clock: ManualClock
    ) -> None:
        await begin(store, A, owner="ann", runnable=True, updated_ms=1)
        await begin(store, B, owner="ann", runnable=True, updated_ms=2)
        await begin(store, C, owner="bob", runnable=True, updated_ms=3)
        assert (await claim_lease(store, "w1")).chat == A
        clock.advance(LEASE_S + 1)
        assert [(await claim_lease(store, "w2")).chat for _ in range(3)] == [A, C, B]

    async def test_who_waits_for_its_wake_time_waits_since_then(self, store: Store) -> None:
        await begin(store, A, runnable=True, updated_ms=50)
        await begin(store, B, wake_ms=40, updated_ms=1)
        await begin(store, C, wake_ms=60, updated_ms=1)
        assert [(await claim_lease(store, "w", now_ms=99)).chat for _ in range(3)] == [B, A, C]

    async def test_many_workers_share_without_overlap(self, store: Store) -> None:
        chats = [ChatId(f"c_{n}") for n in range(20)]
        await begin(store, *chats, runnable=True)
        leases = await asyncio.gather(*(store.claim(f"w{n}") for n in range(30)))
        assert sorted(lease.chat for lease in leases if lease) == sorted(chats)

    async def test_a_wake_time_makes_a_chat_claimable(self, store: Store) -> None:
        await begin(store, A, wake_ms=5_000)
        assert await store.claim("w", now_ms=4_999) is None
        assert (await claim_lease(store, "w", now_ms=5_000)).chat == A

    async def test_a_finished_chat_is_not_claimed(self, store: Store) -> None:
        lease = await begin_claimed(store, "w", A, runnable=True)
        await add(store, A, 2, lease, runnable=False)
        await store.release(lease)
        assert await store.claim("w") is None

    async def test_an_expired_lease_is_found_by_the_claim_itself(self, store: Store, clock: ManualClock) -> None:
        await begin_claimed(store, "w1", A, runnable=True)
        clock.advance(LEASE_S - 0.5)
        assert await store.claim("w2") is None
        await assert_raises(ChatBusy, store.claim("w2", A))
        clock.advance(1)
        assert await claim_lease(store, "w2") == Lease(A, 2, "w2", await store.read_head(A))

    async def test_renewing_extends(self, store: Store, clock: ManualClock) -> None:
        leases = [await begin_claimed(store, "w", chat) for chat in (A, B)]
        clock.advance(LEASE_S - 1)
        assert list(await store.renew(leases[:1])) == leases[:1]
        clock.advance(LEASE_S - 1)
        await assert_raises(ChatBusy, store.claim("w2", A))
        assert (await claim_lease(store, "w2", B)).epoch == 2
        assert list(await store.renew(leases)) == leases[:1]
        assert list(await store.renew([])) == []

    async def test_a_lease_is_over_at_its_end_and_not_before(self, store: Store, clock: ManualClock) -> None:
        """For everybody who asks: a claim of this chat or of any, a command that takes it along, a list."""
        for chat in (A, B, C):
            await begin_claimed(store, "w1", chat, runnable=True)
        clock.advance(LEASE_S - MOMENT)
        new_lease = Lease(C, 2, "w2", 2)
        assert await store.claim("w2") is None
        await assert_raises(ChatBusy, store.claim("w2", B))
        await assert_raises(ChatBusy, store.append(Commit(C, [record(2)], make_summary(C, 2), take=new_lease)))
        assert [one.leased for one in await store.list()] == [True] * 3
        clock.advance(MOMENT)
        assert [one.leased for one in await store.list()] == [False] * 3
        assert not (await store.get(A)).leased
        await store.append(Commit(C, [record(2)], make_summary(C, 2), take=new_lease))
        assert (await claim_lease(store, "w2", B)).epoch == 2
        assert await claim_lease(store, "w2") == Lease(A, 2, "w2", 1)

    async def test_what_was_renewed_or_taken_along_lasts_as_long(self, store: Store, clock: ManualClock) -> None:
        await begin(store, A, B)
        renewed = await claim_lease(store, "w1", A)
        clock.advance(LEASE_S / 2)
        assert list(await store.renew([renewed])) == [renewed]
        await store.append(Commit(B, [record(2)], make_summary(B, 2), take=Lease(B, 1, "w1", 2)))
        for seconds, leased in ((LEASE_S - MOMENT, True), (MOMENT, False)):
            clock.advance(seconds)
            assert [one.leased for one in await store.list()] == [leased] * 2

    async def test_a_lease_that_ran_out_is_renewed_if_nobody_took_it(self, store: Store, clock: ManualClock) -> None:
        lease = await begin_claimed(store, "w1", A)
        clock.advance(LEASE_S * 2)
        assert list(await store.renew([lease])) == [lease]
        await assert_raises(ChatBusy, store.claim("w2", A))

    @pytest.mark.parametrize("other_s", [LEASE_S / 10, LEASE_S * 10])
    async def test_the_end_of_a_lease_binds_whoever_looks(
        self, store: Store, clock: ManualClock, tmp_path: Path, other_s: float
    ) -> None:
        """Two processes with different settings: a lease lasts as long as the one says who took it."""
        await begin(store, A, runnable=True)
        await begin(store, B, runnable=True)
        other_store = await self.open_beside(clock, tmp_path, other_s)
        try:
            assert (await claim_lease(store, "w1", A)).epoch == 1
            assert (await claim_lease(other_store, "w2", B)).epoch == 1
            lengths = [(LEASE_S, store, other_store, A), (other_s, other_store, store, B)]
            for _, _, theirs, chat in lengths:
                assert (await theirs.get(chat)).leased
                assert await theirs.claim("thief") is None
                await assert_raises(ChatBusy, theirs.claim("thief", chat))
            for length, mine, theirs, chat in sorted(lengths, key=lambda one: one[0]):
                start = clock.monotonic() - 1_000.0
                clock.advance(length - start - MOMENT)
                assert [(await one.get(chat)).leased for one in (mine, theirs)] == [True, True]
                await assert_raises(ChatBusy, theirs.claim("thief", chat))
                clock.advance(MOMENT)
                assert [(await one.get(chat)).leased for one in (mine, theirs)] == [False, False]
                assert (await claim_lease(theirs, "heir", chat)).epoch == 2
        finally:
            await other_store.close()

    async def test_the_wall_clock_does_not_matter(self, store: Store, clock: ManualClock) -> None:
        """Fault 15: hours forwards and backwards."""
        await begin_claimed(store, "w1", A)
        for hours in (5, -50):
            clock.jump(hours * 3600)
            await assert_raises(ChatBusy, store.claim("w2", A))
        clock.advance(LEASE_S + 1)
        assert (await claim_lease(store, "w2", A)).epoch == 2

    async def test_a_cancelled_claim_leaves_the_chat_free(self, store: Store) -> None:
        await begin(store, A, runnable=True)
        for steps in range(4):
            task = asyncio.create_task(store.claim("w1"))
            for _ in range(steps):
                await asyncio.sleep(0)
            task.cancel()
            outcome = (await asyncio.gather(task, return_exceptions=True))[0]
            if isinstance(outcome, Lease):
                await store.release(outcome)
            await self._claim_and_release(store)

    async def _claim_and_release(self, store: Store) -> None:
        """The cancelled claim may still be under way; it must be over soon."""
        async with asyncio.timeout(10):
            while (lease := await store.claim("w2")) is None:
                continue
        await store.release(lease)

    async def test_a_command_can_take_the_chat_in_its_commit(self, store: Store) -> None:
        await begin(store, A)
        lease = Lease(A, 1, "w1", 3)
        records = [record(2), record(3, epoch=1)]
        await store.append(Commit(A, records, make_summary(A, 3, runnable=True), take=lease))
        assert (await store.get(A)).leased
        await assert_raises(ChatBusy, store.claim("w2", A))
        await add(store, A, 4, lease)
        await store.release(lease)
        assert (await claim_lease(store, "w2", A)).epoch == 2

    @pytest.mark.parametrize("epoch", [1, 3, 4])
    async def test_a_command_takes_only_the_next_epoch(self, store: Store, epoch: int) -> None:
        await store.release(await begin_claimed(store, "w1", A))
        old_listed = await store.get(A)
        new_lease = Lease(A, epoch, "w2", 2)
        await assert_raises(ChatBusy, store.append(Commit(A, [record(2)], make_summary(A, 2), take=new_lease)))
        assert (await store.get(A), await store.read_head(A)) == (old_listed, 1)

    async def test_a_command_takes_nothing_that_is_held(self, store: Store, clock: ManualClock) -> None:
        lease = await begin_claimed(store, "w1", A)
        new_lease = Lease(A, 2, "w2", 2)
        await assert_raises(ChatBusy, store.append(Commit(A, [record(2)], make_summary(A, 2), take=new_lease)))
        await add(store, A, 2, lease)
        clock.advance(LEASE_S + 1)
        await store.append(Commit(A, [record(3)], make_summary(A, 3), take=new_lease))
        await assert_raises(LeaseLost, add(store, A, 4, lease))

    async def test_a_command_that_comes_too_late_takes_nothing(self, store: Store) -> None:
        await begin(store, A)
        await add(store, A, 2)
        await assert_raises(
            HeadMoved, store.append(Commit(A, [record(2)], make_summary(A, 2), take=Lease(A, 1, "w", 2)))
        )
        assert not (await store.get(A)).leased

    async def test_a_command_that_leaves_nothing_to_do_uses_its_epoch_up(self, store: Store) -> None:
        """The events that the rules added were written under that epoch; no later lease may have the same."""
        await begin(store, A)
        records = [record(2), record(3, epoch=1)]
        await store.append(Commit(A, records, make_summary(A, 3), release=True, take=Lease(A, 1, "w1", 3)))
        assert not (await store.get(A)).leased
        assert (await claim_lease(store, "w2", A)).epoch == 2
