"""A database that failed over, or was restored while processes lived on: the log is shorter than what they know of it.
Nobody spins on what is lost, and the chat goes on from what is there."""

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.scenario.kit import Gate, Stage, list_idle_reasons, play, results
from treadle import tool
from treadle.adapters.models.scripted import Call, Say
from treadle.adapters.stores.sqlite import SqliteStore
from treadle.base.types import ChatId
from treadle.protocol import commands as c


class Backup:
    """The state of a chat in the file, to be put back later."""

    def __init__(self, path: Path, chat: ChatId) -> None:
        self.path = path
        with closing(sqlite3.connect(path)) as connection:
            self._row = connection.execute(
                "SELECT head, summary, no, runnable FROM chats WHERE id = ?", (chat,)
            ).fetchone()

    def restore(self) -> None:
        head, summary, number, runnable = self._row
        with closing(sqlite3.connect(self.path)) as connection, connection:
            connection.execute("DELETE FROM events WHERE place > ?", (number * (1 << 32) + head,))
            connection.execute(
                "UPDATE chats SET head = ?, summary = ?, runnable = ? WHERE no = ?", (head, summary, runnable, number)
            )


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "treadle.db"


async def test_a_command_goes_on_from_what_is_there(path: Path) -> None:
    stage = Stage(SqliteStore(path))
    chat = stage.agent([Say("one"), Say("two")]).chat()
    await chat.ask("one")
    backup = Backup(path, chat.id)
    await chat.command(c.Rename("lost"))
    await chat.command(c.Rename("lost, too"))
    backup.restore()
    await chat.command(c.Rename("kept"))
    assert (await stage.store.get(chat.id)).summary.title == "kept"
    assert (await chat.ask("two")).text == "two"
    await stage.close()


async def test_a_worker_whose_records_are_lost_stops_and_another_goes_on(path: Path) -> None:
    stage = Stage(SqliteStore(path))
    stage.replayed = False  # the worker that stopped knew what the log does not tell
    gate = Gate()

    @tool(read_only=True)
    async def wait() -> str:
        """Wait."""
        return await gate.pass_through()

    chat = stage.agent([Call("wait")], wait).chat()
    await chat.open()
    backup = Backup(path, chat.id)
    await chat.send("go")
    await gate.entered.wait()
    backup.restore()
    gate.open.set()
    async with asyncio.timeout(60):
        while (await stage.store.get(chat.id)).leased:  # noqa: ASYNC110  # a fact in the store, not in this process
            await asyncio.sleep(0.01)
    assert await stage.store.read_head(chat.id) == 1
    heir = stage.agent([Call("wait"), Say("Done.")], wait).chat(chat.id)
    assert list_idle_reasons(await play(heir.send("go"))) == ["done"]
    assert await results(heir) == ["passed"]
    await stage.close()
