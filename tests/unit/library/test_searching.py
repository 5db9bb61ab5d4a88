"""Chats by words in them (U-04)."""

import pytest

from treadle.adapters.stores.memory import MemoryStore
from treadle.base.types import ChatId
from treadle.library import searching
from treadle.ports.store import ALL_CHATS, ChatFilter
from treadle.protocol.events import UserMessage
from treadle.testing.store_contract.helpers import begin
from treadle.testing.store_contract.lists import say


async def search_chats(store: MemoryStore, text: str, chat_filter: ChatFilter = ALL_CHATS) -> list[tuple[str, str]]:
    return [(hit.listed.summary.chat, hit.text) async for hit in searching.search_chats(store, chat_filter, text)]


async def test_the_oldest_of_many_chats_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(searching, "CHATS", 7)
    store = MemoryStore()
    for number in range(20):
        await begin(store, ChatId(f"c_{number:02d}"), updated_ms=number, title=f"chat {number}", owner="ada")
    assert [chat for chat, _ in await search_chats(store, "CHAT")] == [
        f"c_{number:02d}" for number in reversed(range(20))
    ]
    assert await search_chats(store, "chat", ChatFilter(owner="bob")) == []
    await say(store, ChatId("c_03"), 1, UserMessage('a line\nwith parse("x\\y") in it'))
    assert await search_chats(store, 'PARSE("x\\y")') == [("c_03", 'a line\nwith parse("x\\y") in it')]
    assert await search_chats(store, "line nowhere") == []
