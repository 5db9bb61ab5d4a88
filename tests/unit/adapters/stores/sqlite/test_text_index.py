"""The index of what was said, where it is another than the contract can see (U-04)."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from treadle.adapters.stores.sqlite import SqliteStore, text_index
from treadle.protocol.events import UserMessage
from treadle.testing.store_contract.helpers import A, B, begin
from treadle.testing.store_contract.lists import is_found, say


async def test_without_fts5_every_chat_may_have_the_words(
    store: SqliteStore, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(text_index, "_MAKE", [statement.replace("fts5", "fts0") for statement in text_index._MAKE])
    for chat in (A, B):
        await begin(store, chat)
        await say(store, chat, 1, UserMessage("something"))
    assert await store.search_text(["something"]) == {A: 1, B: 1}
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT count(*) FROM sqlite_master WHERE name LIKE 'said%'").fetchone() == (0,)


async def test_what_was_said_is_taken_in_once(store: SqliteStore, path: Path) -> None:
    await begin(store, A)
    await say(store, A, 1, UserMessage("a secret word"))
    for _ in range(3):
        assert await is_found(store, ["secret"], A, 2)
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT chat_no, first, last FROM said_parts").fetchall() == [(1, 1, 2)]
