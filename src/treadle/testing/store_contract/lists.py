"""Finding chats among many and by what was said in them, and following all of them (A-06, A-07, U-04); beside the logs:
answers to repeated requests (A-04) and live text (D-04, law 7)."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from treadle import errors
from treadle.base.types import ChatId
from treadle.ports.store import ANSWER_MS, LEASE_S, ChatFilter, Commit, Delta, Lease, Listed, Remembered, Store
from treadle.protocol import wire
from treadle.protocol.events import AssistantMessage, Envelope, Event, RecordLost, UserMessage
from treadle.protocol.views import Status
from treadle.testing.clock import ManualClock
from treadle.testing.store_contract.helpers import (
    NOBODY,
    A,
    B,
    C,
    OpensStore,
    add,
    assert_raises,
    begin,
    begin_claimed,
    claim_lease,
    make_records,
    make_summary,
    record,
)


def list_chats(listed_chats: list[Listed]) -> list[ChatId]:
    return [one.summary.chat for one in listed_chats]


async def find_visible_change(store: Store, chat: ChatId) -> int:
    """The number of the chat's last change, when it and all before it are to be seen: a store may need a moment."""
    change_number = (await store.get(chat)).change_number
    assert await store.wait_any(change_number - 1, 20) >= change_number
    return change_number


class ListContract(OpensStore):
    """Every filter narrows, every page follows the one before, no change is missed."""

    @pytest.mark.parametrize(
        ("status", "expected"), [("idle", [B]), ("requires_action", [C, A]), ("error", []), (None, [C, B, A])]
    )
    async def test_filtering_by_status(self, store: Store, status: Status | None, expected: list[ChatId]) -> None:
        await begin(store, A, status="requires_action", updated_ms=1)
        await begin(store, B, status="idle", updated_ms=2)
        await begin(store, C, status="requires_action", updated_ms=3)
        assert list_chats(await store.list(ChatFilter(status=status))) == expected

    @pytest.mark.parametrize(
        ("label", "expected"),
        [
            *[("a", [B, A]), ("b", [B]), ('a"b\\c', [C]), ("ü", [C]), ("A", []), ("", []), ('"', [])],
            *[(",", []), ("b\\c", []), ("%", []), ("_", []), ('a"', []), ("\\", []), ('","', [])],
        ],
    )
    async def test_filtering_by_label(self, store: Store, label: str, expected: list[ChatId]) -> None:
        await begin(store, A, labels=("a",), updated_ms=1)
        await begin(store, B, labels=("b", "a", "ab"), updated_ms=2)
        await begin(store, C, labels=('a"b\\c', "ü"), updated_ms=3)
        assert list_chats(await store.list(ChatFilter(label=label))) == expected
        await add(store, B, 2, labels=(), updated_ms=2)
        assert list_chats(await store.list(ChatFilter(label=label))) == [chat for chat in expected if chat != B]

    @pytest.mark.parametrize(
        ("query", "expected"),
        [
            *[("parser", [B, A]), ("PARSER", [B, A]), ("strasse", [A]), ("ÜBER", [C]), ("100%", [B]), ("1_0", [])],
            *[("%", [B]), ("c_a", [A]), ("a", [B, A]), ("_a", []), ("nothing", []), ("\0", [C, B, A])],
        ],
    )
    async def test_searching_titles_and_ids(self, store: Store, query: str, expected: list[ChatId]) -> None:
        await begin(store, A, title="The Parser in der Straße", updated_ms=1)
        await begin(store, B, title="parsers, 100% done", updated_ms=2)
        await begin(store, C, title="über x", updated_ms=3)
        assert list_chats(await store.list(ChatFilter(query=query))) == expected

    async def test_a_title_is_found_as_it_is_now(self, store: Store) -> None:
        await begin(store, A, title="old")
        await add(store, A, 2, title="new")
        assert list_chats(await store.list(ChatFilter(query="old"))) == []
        assert list_chats(await store.list(ChatFilter(query="new"))) == [A]

    async def test_filters_narrow_together(self, store: Store) -> None:
        await begin(store, A, owner="ann", labels=("x",), title="one", updated_ms=1)
        await begin(store, B, owner="ann", labels=("x",), title="two", updated_ms=2)
        await begin(store, C, owner="bob", labels=("x",), title="one", updated_ms=3)
        narrow = ChatFilter(owner="ann", label="x", query="one", status="idle", archived=False)
        assert list_chats(await store.list(narrow)) == [A]

    async def test_pages_follow_each_other(self, store: Store) -> None:
        """Chats of the same moment too; each is on exactly one page."""
        for number in range(25):
            await begin(store, ChatId(f"c_{number:02d}"), updated_ms=number // 4, owner="ann" if number % 5 else "bob")
        all_chats = list_chats(await store.list())
        assert all_chats == sorted(all_chats, key=lambda chat: (int(chat[2:]) // 4, chat), reverse=True)
        for owner in (None, "ann"):
            paged: list[ChatId] = []
            cursor = None
            while page := await store.list(ChatFilter(owner=owner), limit=4, cursor=cursor):
                paged += list_chats(page)
                cursor = (page[-1].summary.updated_ms, page[-1].summary.chat)
            assert paged == list_chats(await store.list(ChatFilter(owner=owner)))

    async def test_a_page_keeps_its_place_while_chats_change(self, store: Store) -> None:
        for number, chat in enumerate((A, B, C)):
            await begin(store, chat, updated_ms=number)
        first = (await store.list(limit=1))[0]
        await add(store, A, 2, updated_ms=9)
        await begin(store, ChatId("c_new"), updated_ms=8)
        assert list_chats(await store.list(cursor=(first.summary.updated_ms, first.summary.chat))) == [B]

    async def test_every_change_has_a_higher_number(self, store: Store) -> None:
        await begin(store, A)
        numbers = [(await store.get(A)).change_number]
        for step in (begin(store, B), add(store, A, 2), add(store, B, 2), begin(store, C)):
            await step
            numbers.append(max(one.change_number for one in await store.list()))
        assert numbers == sorted(set(numbers))
        assert numbers[0] > 0
        assert await find_visible_change(store, C) == numbers[-1]

    async def test_changes_in_their_order(self, store: Store) -> None:
        for chat, owner in ((A, "ann"), (B, "bob"), (C, "ann")):
            await begin(store, chat, owner=owner)
        await find_visible_change(store, C)
        seen_changes = [*await store.list_changes()]
        assert list_chats(seen_changes) == [A, B, C]
        assert list_chats([*await store.list_changes(owner="ann")]) == [A, C]
        assert list_chats([*await store.list_changes(limit=2)]) == [A, B]
        assert list_chats([*await store.list_changes(after_change=seen_changes[1].change_number)]) == [C]
        await add(store, A, 2, owner="ann", title="new")
        after_change = seen_changes[-1].change_number
        await find_visible_change(store, A)
        news = await store.list_changes(owner="ann", after_change=after_change)
        assert [(one.summary.chat, one.summary.title) for one in news] == [(A, "new")]
        assert [*await store.list_changes(owner="bob", after_change=after_change)] == []
        assert list_chats([*await store.list_changes()]) == [B, C, A]

    async def test_a_claim_is_no_change(self, store: Store) -> None:
        await begin(store, A)
        last_change = await find_visible_change(store, A)
        await store.release(await claim_lease(store, "w", A))
        assert await store.wait_any(last_change, 0) == last_change

    async def test_waiting_for_any_chat(self, store: Store) -> None:
        await begin(store, A)
        last = await find_visible_change(store, A)
        waiting = [asyncio.create_task(store.wait_any(last, 60)) for _ in range(3)]
        await asyncio.sleep(0)
        await add(store, A, 2)
        numbers = await asyncio.gather(*waiting)
        assert set(numbers) == {(await store.get(A)).change_number}
        assert await store.wait_any(numbers[0], 0.01) == numbers[0]
        created = asyncio.create_task(store.wait_any(numbers[0], 60))
        await asyncio.sleep(0)
        await begin(store, B)
        assert await created == (await store.get(B)).change_number

    async def test_whoever_follows_misses_nothing(self, store: Store) -> None:
        """A-07: writers that race, and a follower that goes on from the last number it got."""
        many = [ChatId(f"c_{number}") for number in range(8)]
        await begin(store, *many)
        heads: dict[ChatId, int] = {}

        async def follow() -> None:
            after_change = 0
            async with asyncio.timeout(60):
                while set(heads.values()) != {12} or len(heads) < len(many):
                    await store.wait_any(after_change, 20)
                    for one in await store.list_changes(after_change=after_change, limit=3):
                        assert one.change_number > after_change
                        after_change = one.change_number
                        heads[one.summary.chat] = one.summary.head

        async def write(chat: ChatId) -> None:
            for seq in range(2, 13):
                await add(store, chat, seq)

        await asyncio.gather(follow(), *(write(chat) for chat in many))

    async def test_closing_ends_the_following(self, store: Store) -> None:
        await begin(store, A)
        waiting = asyncio.create_task(store.wait_any(await find_visible_change(store, A), 60))
        for _ in range(3):
            await asyncio.sleep(0)
        await store.close()
        await assert_raises(errors.StoreError, waiting)


async def say(store: Store, chat: ChatId, seq: int, *events: Event) -> None:
    """Append to a chat whose last record is `seq`."""
    encoded = [wire.encode(Envelope(seq + 1 + at, chat, 0, event)) for at, event in enumerate(events)]
    await store.append(Commit(chat, encoded, make_summary(chat, seq + len(encoded)), durable=False))


async def is_found(store: Store, words: Sequence[str], chat: ChatId, seq: int) -> bool:
    """True if a reader that starts where the store says finds the record `seq`."""
    first = (await store.search_text(words)).get(chat)
    return first is not None and first <= seq


class SaidContract(OpensStore):
    """No chat that has the words is left out."""

    async def test_words_of_a_message(self, store: Store) -> None:
        await begin(store, A)
        text = 'The Lease and its\nepoch: say("hi") \\d+\'%_* Straße 数据库 a\0b ' + "x" * 600
        await say(store, A, 1, UserMessage(text))
        for words in (
            *(["lease"], ["LEASE"], ["eas"], ["le"], ["e"], ["lease", "epoch"], ["epoch", "le"], []),
            *(['say("hi")'], ["\\d+'%_*"], ["straße"], ["STRASSE"], ["数据库"], ["数"], ["x" * 500], ["a\0b"]),
        ):
            assert await is_found(store, words, A, 2), words

    async def test_what_was_said_since_the_last_search(self, store: Store) -> None:
        await begin(store, A, B)
        await say(store, A, 1, UserMessage("the first thing"), AssistantMessage(1, "an answer"))
        assert await is_found(store, ["first"], A, 2)
        assert await is_found(store, ["answer"], A, 3)
        await say(store, A, 3, RecordLost("", ""), UserMessage("the second thing"))
        await say(store, B, 1, AssistantMessage(1, "a second chat"))
        assert await is_found(store, ["second"], A, 5)
        assert await is_found(store, ["second"], B, 2)
        assert await is_found(store, ["first"], A, 2)

    async def test_chats_without_the_words_are_left_out(self, store: Store) -> None:
        """Sooner or later: a store may be behind for a moment, and has at most to be asked again."""
        await begin(store, A, B)
        await say(store, A, 1, UserMessage("something about leases"))
        await say(store, B, 1, UserMessage("something else"))
        async with asyncio.timeout(60):
            while B in (matches := await store.search_text(["leases"])):
                pass
        assert [*matches] == [A]
        assert A not in await store.search_text(["leases", "else"])
        assert not await store.search_text(["nowhere"])

    async def test_a_long_chat(self, store: Store) -> None:
        await begin(store, A)
        await say(store, A, 1, *(UserMessage(f"number{seq} " + "and so on " * 1_000) for seq in range(2, 32)))
        for seq in (2, 17, 31):
            assert await is_found(store, [f"number{seq}"], A, seq)

    async def test_damaged_records_hide_no_others(self, store: Store) -> None:
        await begin(store, A)
        await store.append(Commit(A, [wire.Record(2, 0, UserMessage.TYPE, 1, 0, b"\xff{")], make_summary(A, 2)))
        await say(store, A, 2, UserMessage("still here"))
        assert await is_found(store, ["still"], A, 3)

    async def test_many_search_at_once(self, store: Store, clock: ManualClock, tmp_path: Path) -> None:
        for chat in (A, B, C):
            await begin(store, chat)
            await say(store, chat, 1, UserMessage(f"words of {chat}"))
        try:
            other_store = await self.open_beside(clock, tmp_path, LEASE_S)
        except pytest.skip.Exception:
            other_store = store
        try:
            results = await asyncio.gather(*(each.search_text(["words"]) for each in (store, other_store) * 4))
            assert all({*each} == {A, B, C} for each in results)
            await say(store, A, 2, UserMessage("later words"))
            assert await is_found(other_store, ["later"], A, 3)
        finally:
            if other_store is not store:
                await other_store.close()


NOW = 1_700_000_000_000


def answer(
    key: str = "k", owner: str = "ann", *, body: bytes = b"\0first", time_ms: int = NOW, request: str = "r1"
) -> Remembered:
    return Remembered(owner, key, request, 204, body, time_ms)


def make_delta(chat: ChatId, number: int, *, epoch: int = 1, turn: int = 1) -> Delta:
    return Delta(chat, epoch, turn, number, b"\0%d" % number)


async def put(store: Store, chat: ChatId, seq: int, remembered: Remembered, lease: Lease | None = None) -> None:
    new_summary = make_summary(chat, seq, title=remembered.body.decode("latin-1"))
    await store.append(Commit(chat, [record(seq)], new_summary, lease=lease, answer=remembered))


class SideContract(OpensStore):
    """One answer a key, in the commit of what it is about; live text until the message is there."""

    async def test_an_answer_is_kept_with_what_it_is_about(self, store: Store) -> None:
        await begin(store, A)
        assert await store.recall("ann", "k") is None
        await put(store, A, 2, answer())
        assert await store.recall("ann", "k") == answer()
        assert await store.recall("bob", "k") is None
        assert await store.recall("ann", "other") is None

    async def test_a_repeated_append_changes_nothing_and_gets_the_first_answer(self, store: Store) -> None:
        await begin(store, A)
        await put(store, A, 2, answer())
        old_listed = await store.get(A)
        for seq in (2, 3, 99):
            with pytest.raises(errors.AlreadyAnswered) as caught:
                await put(store, A, seq, answer(body=b"second", request="r2"))
            assert (caught.value.status, caught.value.body, caught.value.request) == (204, b"\0first", "r1")
        assert await store.read_head(A) == 2
        assert await store.get(A) == old_listed
        assert await store.recall("ann", "k") == answer()

    async def test_of_many_with_one_key_one_is_carried_out(self, store: Store) -> None:
        """A-04, fault 5: also if the requests are about different chats."""
        await begin(store, A, B)
        attempts = [put(store, chat, 2, answer(body=b"%d" % n)) for n, chat in enumerate([A, B] * 10)]
        outcome = await asyncio.gather(*attempts, return_exceptions=True)
        assert outcome.count(None) == 1
        body = b"%d" % outcome.index(None)
        assert all(isinstance(e, errors.AlreadyAnswered) and e.body == body for e in outcome if e is not None)
        assert sorted([await store.read_head(A), await store.read_head(B)]) == [1, 2]

    async def test_keys_of_others_are_others(self, store: Store) -> None:
        await begin(store, A)
        await put(store, A, 2, answer(owner="ann"))
        await put(store, A, 3, answer(owner="bob"))
        await put(store, A, 4, answer(key="other"))
        assert await store.read_head(A) == 4

    async def test_a_refused_append_is_not_answered(self, store: Store) -> None:
        """The refusal is the server's to remember; the key is free."""
        lease = await begin_claimed(store, "w", A)
        await assert_raises(errors.HeadMoved, put(store, A, 9, answer()))
        await assert_raises(errors.LeaseLost, put(store, A, 2, answer(), Lease(A, 7, "w")))
        await assert_raises(errors.NotFound, put(store, NOBODY, 2, answer()))
        new_lease = Lease(A, lease.epoch + 1, "w2", 2)
        with pytest.raises(errors.ChatBusy):
            await store.append(Commit(A, [record(2)], make_summary(A, 2), take=new_lease, answer=answer()))
        with pytest.raises(errors.InvalidInput):
            await store.append(Commit(A, [record(2), record(4)], make_summary(A, 4), answer=answer()))
        assert await store.recall("ann", "k") is None
        await put(store, A, 2, answer())

    async def test_a_chat_is_created_once_for_a_key(self, store: Store) -> None:
        await store.create(make_summary(A), make_records(1, 1), answer=answer())
        await assert_raises(
            errors.AlreadyAnswered, store.create(make_summary(B), make_records(1, 1), answer=answer(body=b"second"))
        )
        await assert_raises(errors.NotFound, store.read_head(B))
        await assert_raises(
            errors.ChatExists, store.create(make_summary(A), make_records(1, 1), answer=answer(key="other"))
        )
        assert await store.recall("ann", "other") is None
        assert await store.recall("ann", "k") == answer()

    async def test_an_answer_without_an_append(self, store: Store) -> None:
        await store.remember(answer(body=b""))
        await assert_raises(errors.AlreadyAnswered, store.remember(answer(body=b"second")))
        assert await store.recall("ann", "k") == answer(body=b"")

    async def test_answers_are_dropped_after_a_day(self, store: Store) -> None:
        await store.remember(answer("old"))
        await store.remember(answer("younger", time_ms=NOW + 1))
        await assert_raises(errors.AlreadyAnswered, store.remember(answer("old", time_ms=NOW + ANSWER_MS)))
        await store.remember(answer("new", time_ms=NOW + ANSWER_MS + 1))
        assert await store.recall("ann", "old") is None
        assert await store.recall("ann", "younger") is not None
        later = answer("younger", body=b"later", time_ms=NOW + 2 * ANSWER_MS)
        await store.remember(later)
        assert await store.recall("ann", "younger") == later

    async def test_live_text_is_read_on_from_where_one_was(self, store: Store) -> None:
        for chat in (A, B):
            await begin_claimed(store, "w", chat)
        await store.put_deltas([make_delta(A, 1), make_delta(B, 1), make_delta(A, 2)])
        await store.put_deltas([make_delta(A, 3), make_delta(A, 1, turn=2)])
        await store.put_deltas([])
        assert [*await store.read_deltas({A: (0, 0, 0)})] == [
            make_delta(A, 1), make_delta(A, 2), make_delta(A, 3), make_delta(A, 1, turn=2)
        ]  # fmt: skip
        assert [*await store.read_deltas({A: (1, 1, 2)})] == [make_delta(A, 3), make_delta(A, 1, turn=2)]
        assert [*await store.read_deltas({A: (1, 2, 1), B: (0, 0, 0), NOBODY: (0, 0, 0)})] == [make_delta(B, 1)]
        assert [*await store.read_deltas({})] == []

    async def test_live_text_goes_with_the_message(self, store: Store) -> None:
        lease, _ = [await begin_claimed(store, "w", chat) for chat in (A, B)]
        await store.put_deltas([make_delta(A, 1), make_delta(B, 1)])
        await add(store, A, 2)
        assert [*await store.read_deltas({A: (0, 0, 0)})] == [make_delta(A, 1)], "a command of a user ends no message"
        with pytest.raises(errors.HeadMoved):
            await store.append(Commit(A, [record(9)], make_summary(A, 9), lease=lease, drop_deltas=True))
        assert [*await store.read_deltas({A: (0, 0, 0)})] == [make_delta(A, 1)]
        await store.append(Commit(A, [record(3)], make_summary(A, 3), lease=lease, drop_deltas=True))
        assert [*await store.read_deltas({A: (0, 0, 0), B: (0, 0, 0)})] == [make_delta(B, 1)]
        await store.put_deltas([make_delta(A, 1, turn=2)])
        assert [*await store.read_deltas({A: (1, 1, 9)})] == [make_delta(A, 1, turn=2)]

    async def test_a_zombie_says_nothing(self, store: Store, clock: ManualClock) -> None:
        """Fault 4: neither what it said is shown any more, nor what it says."""
        old = await begin_claimed(store, "old", A)
        await store.put_deltas([make_delta(A, 1, epoch=old.epoch)])
        clock.advance(LEASE_S + 1)
        new = await claim_lease(store, "new", A)
        assert [*await store.read_deltas({A: (0, 0, 0)})] == []
        await store.put_deltas(
            [make_delta(A, 2, epoch=old.epoch), make_delta(A, 1, epoch=new.epoch), make_delta(NOBODY, 1)]
        )
        assert [*await store.read_deltas({A: (old.epoch, 1, 1)})] == [make_delta(A, 1, epoch=new.epoch)]
        await store.release(new)
        await store.put_deltas([make_delta(A, 2, epoch=new.epoch)])
        assert [*await store.read_deltas({A: (new.epoch, 1, 1)})] == []
