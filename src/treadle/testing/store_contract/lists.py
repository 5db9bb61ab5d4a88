"""Finding chats among many, and following all of them (A-06, A-07)."""

import asyncio

import pytest

from treadle.base.types import ChatId
from treadle.errors import StoreError
from treadle.ports.store import ChatFilter, Listed, Store
from treadle.protocol.views import Status
from treadle.testing.store_contract.helpers import A, B, C, OpensStore, add, begin, claimed


def chats(listed_chats: list[Listed]) -> list[ChatId]:
    return [one.summary.chat for one in listed_chats]


async def visible(store: Store, chat: ChatId) -> int:
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
        assert chats(await store.list(ChatFilter(status=status))) == expected

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
        assert chats(await store.list(ChatFilter(label=label))) == expected
        await add(store, B, 2, labels=(), updated_ms=2)
        assert chats(await store.list(ChatFilter(label=label))) == [chat for chat in expected if chat != B]

    @pytest.mark.parametrize(
        ("query", "expected"),
        [
            ("parser", [B, A]),
            ("PARSER", [B, A]),
            ("strasse", [A]),
            ("ÜBER", [C]),
            ("100%", [B]),
            ("1_0", []),
            ("%", [B]),
            ("c_a", [A]),
            ("a", [B, A]),
            ("_a", []),
            ("nothing", []),
            ("\0", [C, B, A]),
        ],
    )
    async def test_searching_titles_and_ids(self, store: Store, query: str, expected: list[ChatId]) -> None:
        await begin(store, A, title="The Parser in der Straße", updated_ms=1)
        await begin(store, B, title="parsers, 100% done", updated_ms=2)
        await begin(store, C, title="über x", updated_ms=3)
        assert chats(await store.list(ChatFilter(query=query))) == expected

    async def test_a_title_is_found_as_it_is_now(self, store: Store) -> None:
        await begin(store, A, title="old")
        await add(store, A, 2, title="new")
        assert chats(await store.list(ChatFilter(query="old"))) == []
        assert chats(await store.list(ChatFilter(query="new"))) == [A]

    async def test_filters_narrow_together(self, store: Store) -> None:
        await begin(store, A, owner="ann", labels=("x",), title="one", updated_ms=1)
        await begin(store, B, owner="ann", labels=("x",), title="two", updated_ms=2)
        await begin(store, C, owner="bob", labels=("x",), title="one", updated_ms=3)
        assert chats(
            await store.list(ChatFilter(owner="ann", label="x", query="one", status="idle", archived=False))
        ) == [A]

    async def test_pages_follow_each_other(self, store: Store) -> None:
        """Chats of the same moment too; each is on exactly one page."""
        for number in range(25):
            await begin(store, ChatId(f"c_{number:02d}"), updated_ms=number // 4, owner="ann" if number % 5 else "bob")
        all_chats = chats(await store.list())
        assert all_chats == sorted(all_chats, key=lambda chat: (int(chat[2:]) // 4, chat), reverse=True)
        for owner in (None, "ann"):
            paged: list[ChatId] = []
            cursor = None
            while page := await store.list(ChatFilter(owner=owner), limit=4, cursor=cursor):
                paged += chats(page)
                cursor = (page[-1].summary.updated_ms, page[-1].summary.chat)
            assert paged == chats(await store.list(ChatFilter(owner=owner)))

    async def test_a_page_keeps_its_place_while_chats_change(self, store: Store) -> None:
        for number, chat in enumerate((A, B, C)):
            await begin(store, chat, updated_ms=number)
        first = (await store.list(limit=1))[0]
        await add(store, A, 2, updated_ms=9)
        await begin(store, ChatId("c_new"), updated_ms=8)
        assert chats(await store.list(cursor=(first.summary.updated_ms, first.summary.chat))) == [B]

    # -- following ----------------------------------------------------------------------------------------------

    async def test_every_change_has_a_higher_number(self, store: Store) -> None:
        await begin(store, A)
        numbers = [(await store.get(A)).change_number]
        for step in (begin(store, B), add(store, A, 2), add(store, B, 2), begin(store, C)):
            await step
            numbers.append(max(one.change_number for one in await store.list()))
        assert numbers == sorted(set(numbers))
        assert numbers[0] > 0
        assert await visible(store, C) == numbers[-1]

    async def test_changes_in_their_order(self, store: Store) -> None:
        for chat, owner in ((A, "ann"), (B, "bob"), (C, "ann")):
            await begin(store, chat, owner=owner)
        await visible(store, C)
        seen_changes = [*await store.changes()]
        assert chats(seen_changes) == [A, B, C]
        assert chats([*await store.changes(owner="ann")]) == [A, C]
        assert chats([*await store.changes(limit=2)]) == [A, B]
        assert chats([*await store.changes(after_change=seen_changes[1].change_number)]) == [C]
        await add(store, A, 2, owner="ann", title="new")
        after_change = seen_changes[-1].change_number
        await visible(store, A)
        news = await store.changes(owner="ann", after_change=after_change)
        assert [(one.summary.chat, one.summary.title) for one in news] == [(A, "new")]
        assert [*await store.changes(owner="bob", after_change=after_change)] == []
        assert chats([*await store.changes()]) == [B, C, A]

    async def test_a_claim_is_no_change(self, store: Store) -> None:
        await begin(store, A)
        last_change = await visible(store, A)
        await store.release(await claimed(store, "w", A))
        assert await store.wait_any(last_change, 0) == last_change

    async def test_waiting_for_any_chat(self, store: Store) -> None:
        await begin(store, A)
        last = await visible(store, A)
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
        for chat in many:
            await begin(store, chat)
        heads: dict[ChatId, int] = {}

        async def follow() -> None:
            after_change = 0
            async with asyncio.timeout(60):
                while set(heads.values()) != {12} or len(heads) < len(many):
                    await store.wait_any(after_change, 20)
                    for one in await store.changes(after_change=after_change, limit=3):
                        assert one.change_number > after_change
                        after_change = one.change_number
                        heads[one.summary.chat] = one.summary.head

        async def write(chat: ChatId) -> None:
            for seq in range(2, 13):
                await add(store, chat, seq)

        await asyncio.gather(follow(), *(write(chat) for chat in many))

    async def test_closing_ends_the_following(self, store: Store) -> None:
        await begin(store, A)
        waiting = asyncio.create_task(store.wait_any(await visible(store, A), 60))
        for _ in range(3):
            await asyncio.sleep(0)
        await store.close()
        with pytest.raises(StoreError):
            await waiting
