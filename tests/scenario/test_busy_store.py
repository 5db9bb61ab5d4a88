"""A database that another process holds for longer than the store waits: a known outcome is recorded as soon as that is
possible (D-02, fault 14), and `treadle fsck --repair` disturbs no worker (D-06)."""

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.scenario.kit import of
from treadle import Agent, ScriptedModel, tool
from treadle.adapters.models.scripted import Call, Say
from treadle.adapters.stores.sqlite import SqliteStore
from treadle.errors import StoreError
from treadle.protocol import events as e
from treadle.protocol.commands import Send
from treadle.testing.checker import check


async def test_an_outcome_waits_for_a_busy_database(tmp_path: Path) -> None:
    path, ran = tmp_path / "t.db", 0
    connection = sqlite3.connect(tmp_path / "t.db", isolation_level=None)

    @tool
    async def effect() -> str:
        """Do something once; another process holds the database when it is done."""
        nonlocal ran
        ran += 1
        connection.execute("BEGIN IMMEDIATE")
        asyncio.get_running_loop().call_later(1.5, connection.execute, "ROLLBACK")
        return "did it"

    store = SqliteStore(path, busy_s=0.1)
    async with Agent(
        store, model=ScriptedModel([Call("effect"), Say("Done.")]), tools=[effect], builtin=False
    ) as agent:
        chat = await agent.chat()
        answer = await chat.ask("go")
        assert answer.text == "Done."
        (completion,) = of(await chat.events(), e.ExecutionComplete)
        assert (completion.result, completion.synthetic, ran) == ("did it", "", 1)
        assert await check(store, chat.id) == []
    await store.close()
    connection.close()


async def test_an_outcome_waits_no_longer_than_a_lease(tmp_path: Path) -> None:
    """A follower of the chat hears why it cannot go on."""
    connection = sqlite3.connect(tmp_path / "t.db", isolation_level=None)

    @tool
    async def effect() -> str:
        """Do something; the database stays locked."""
        connection.execute("BEGIN IMMEDIATE")
        return "did it"

    store = SqliteStore(tmp_path / "t.db", busy_s=0.05)
    model = ScriptedModel([Call("effect"), Say("Done.")])
    async with Agent(store, model=model, tools=[effect], builtin=False, renew_s=0.2) as agent:
        chat = await agent.chat()
        with pytest.raises(StoreError, match="locked"):
            async with asyncio.timeout(30):
                await chat.ask("go")
        connection.execute("ROLLBACK")
    await store.close()
    connection.close()


async def test_a_message_waits_for_a_busy_database_without_a_pool(tmp_path: Path) -> None:
    """The message is acknowledged; then another process holds the database when the chat is to be claimed."""
    connection = sqlite3.connect(tmp_path / "t.db", isolation_level=None)
    store = SqliteStore(tmp_path / "t.db", busy_s=0.05)
    async with Agent(store, model=ScriptedModel([Say("Done.")]), builtin=False) as agent:
        chat = await agent.chat()
        await agent.deps.log.execute(chat.id, Send("go"))
        connection.execute("BEGIN IMMEDIATE")
        agent.worker.start(chat.id)
        asyncio.get_running_loop().call_later(1.0, connection.execute, "ROLLBACK")
        async with asyncio.timeout(30):
            head = 0
            while not of(await chat.events(), e.RunEnd):
                head = await store.wait(chat.id, head, 1.0)
    connection.close()


async def test_fsck_repairs_chat_by_chat(tmp_path: Path) -> None:
    """Sound chats are only read: a process that writes meanwhile is not waited for, nor kept waiting."""
    path = tmp_path / "t.db"
    store = SqliteStore(path)
    async with Agent(store, model=ScriptedModel([Say("Done.")]), builtin=False) as agent:
        sound, damaged = await agent.chat(), await agent.chat()
        await sound.ask("hello")
        await damaged.ask("hello")
        with closing(sqlite3.connect(path, isolation_level=None)) as connection, connection:
            connection.execute("BEGIN IMMEDIATE")
            async with asyncio.timeout(60):
                assert await store.check(repair=True) == []
            connection.execute("ROLLBACK")
        with closing(sqlite3.connect(path)) as connection, connection:
            last = connection.execute("SELECT max(place) FROM events").fetchone()[0]
            connection.execute("UPDATE events SET body = x'00' WHERE place = ?", (last,))
        problems = await store.check(repair=True)
        assert [(problem.chat, problem.repaired) for problem in problems] == [(damaged.id, True)]
        assert await store.check() == []
        assert len(await sound.events()) == len(await damaged.events())
    await store.close()
