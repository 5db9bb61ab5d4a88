"""A log whose last records are lost while its chat still counts them: found when the chat is opened, said, and mended
by a repair. No worker spins on it, nothing is done twice, and other chats do not notice (D-06, D-02, fault 14)."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import asyncpg  # type: ignore[import-untyped]
import pytest

from tests.scenario.command_line import CommandLine
from tests.scenario.kit import Stage, list_idle_reasons, of, play
from treadle import tool
from treadle.adapters.models.scripted import Call, Say, ScriptedModel
from treadle.adapters.stores import open_store
from treadle.adapters.stores.postgres import PostgresStore
from treadle.adapters.stores.sqlite import SqliteStore
from treadle.base.types import ChatId
from treadle.engine.pool import WorkerPool
from treadle.errors import Damaged
from treadle.protocol import events as e
from treadle.protocol import wire
from treadle.protocol.commands import Send

SCRIPT = """
[[turn]]
call = [{ name = "list_directory", args = { path = "." } }]
[[turn]]
text = "Hi."
"""


async def lose(address: str | Path, chat: ChatId, *, seq: int) -> None:
    """Take the records behind `after` out of a database; the chat's own line stays."""
    if isinstance(address, Path):
        with closing(sqlite3.connect(address)) as connection, connection:
            (number,) = connection.execute("SELECT no FROM chats WHERE id = ?", (chat,)).fetchone()
            begin = number << 32
            connection.execute("DELETE FROM events WHERE place > ? AND place < ?", (begin + seq, begin + (1 << 32)))
            connection.execute("DELETE FROM snapshots")
        return
    connection = await asyncpg.connect(address)
    number = await connection.fetchval("SELECT no FROM chats WHERE id = $1", chat)
    await connection.execute("DELETE FROM events WHERE chat_no = $1 AND seq > $2", number, seq)
    await connection.execute("DELETE FROM snapshots")
    await connection.close()


async def set_head(address: str | Path, head: int) -> None:
    if isinstance(address, Path):
        with closing(sqlite3.connect(address)) as connection, connection:
            connection.execute("UPDATE chats SET head = ?", (head,))
        return
    connection = await asyncpg.connect(address)
    await connection.execute("UPDATE chats SET head = $1", head)
    await connection.close()


@pytest.fixture(params=["sqlite", "postgres"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str | Path:
    place: str | Path = request.getfixturevalue("postgres") if request.param == "postgres" else tmp_path / "treadle.db"
    return place


@pytest.fixture
async def stage(address: str | Path) -> AsyncIterator[Stage]:
    new_stage = Stage(open_store(address))
    new_stage.replayed = False  # a log with a gap cannot tell what came of it
    yield new_stage
    async with asyncio.timeout(60):
        await new_stage.close()


def script_reply(text: str) -> ScriptedModel:
    """A model that says this next, after any history."""
    return ScriptedModel([Say(text)], follow="calls")


async def seq_of(stage: Stage, chat: ChatId, kind: type[e.Event]) -> int:
    return next(r.seq for r in reversed(await stage.store.read(chat)) if isinstance(wire.decode(chat, r).data, kind))


async def sound(stage: Stage) -> bool:
    store = stage.store
    assert isinstance(store, SqliteStore | PostgresStore)
    return not await store.check()


async def repair_store(stage: Stage) -> list[tuple[str, bool]]:
    store = stage.store
    assert isinstance(store, SqliteStore | PostgresStore)
    return [(problem.kind, problem.repaired) for problem in await store.check(repair=True)]


async def test_an_idle_chat_whose_last_record_is_lost_takes_the_next_message(stage: Stage, address: str | Path) -> None:
    chat = stage.agent([Say("one")]).chat()
    await chat.ask("first")
    head = await stage.store.read_head(chat.id)
    await stage.kill()
    await lose(address, chat.id, seq=head - 1)
    again = stage.agent(script_reply("two")).chat(chat.id)
    async with asyncio.timeout(60):
        events = await play(again.send("second"))
    assert list_idle_reasons(events)[-1] == "done"
    assert [notice.kind for notice in of(events, e.ModelNotice)] == ["record_lost"]
    assert isinstance(wire.decode(chat.id, (await stage.store.read(chat.id))[head - 1]).data, e.RecordLost)
    assert await repair_store(stage) == [("gap", True)]
    assert await sound(stage)


async def test_a_call_whose_intent_is_lost_is_not_made_again(stage: Stage, address: str | Path) -> None:
    """D-02: a call that was begun may have taken effect; only its record is gone."""
    effects: list[str] = []
    begin_event, never = asyncio.Event(), asyncio.Event()

    @tool
    async def count() -> str:
        """Count."""
        effects.append("once")
        begin_event.set()
        await never.wait()
        return "counted"

    chat = stage.agent([Call("count")], count).chat()
    await chat.send("go")
    await begin_event.wait()
    await stage.kill()
    await lose(address, chat.id, seq=await seq_of(stage, chat.id, e.ExecutionStart) - 1)
    again = stage.agent(script_reply("Looking."), count).chat(chat.id)
    async with asyncio.timeout(60):
        events = await play(again.resume())
        assert (await stage.agent([Say("Fine.")]).chat().ask("Well?")).text == "Fine."
        assert list_idle_reasons(events) == ["error"]
        assert [error.error_class for error in of(events, e.SessionError)] == ["record_lost"]
        assert "not known" in of(events, e.ExecutionComplete)[-1].error
        assert (await again.ask("look")).text == "Looking."
    assert effects == ["once"]


async def test_a_worker_lets_go_of_a_chat_whose_message_is_lost(stage: Stage, address: str | Path) -> None:
    """The line says that there is something to do, the log says that there is not."""
    chat = stage.agent([]).chat()
    await chat.open()
    head = await stage.store.read_head(chat.id)
    await chat.carry_out(Send("go"), work=False)
    await lose(address, chat.id, seq=head)
    pool = WorkerPool(stage.agent([]).worker, poll_s=0.01)
    pool.start()
    async with asyncio.timeout(60):
        while (await stage.store.get(chat.id)).summary.runnable:  # noqa: ASYNC110  # a fact in the store
            await asyncio.sleep(0.01)
    await pool.close()
    assert (await stage.store.get(chat.id)).summary.status == "idle"


async def test_a_head_that_no_log_has_is_said_and_mended(stage: Stage, address: str | Path) -> None:
    chat = stage.agent([Say("one"), Say("two")]).chat()
    await chat.ask("first")
    head = await stage.store.read_head(chat.id)
    await stage.kill()
    await set_head(address, 2_000_000_000)
    again = stage.agent(script_reply("two")).chat(chat.id)
    async with asyncio.timeout(60):
        with pytest.raises(Damaged, match="treadle fsck --repair"):
            await again.ask("second")
    assert await repair_store(stage) == [("head", True)]
    assert await sound(stage)
    assert await stage.store.read_head(chat.id) == head + 1
    async with asyncio.timeout(60):
        assert (await stage.agent(script_reply("two")).chat(chat.id).ask("second")).text == "two"


async def test_records_behind_the_end_stop_whoever_writes(stage: Stage, address: str | Path) -> None:
    """The other way round: the chat counts fewer records than there are."""
    chat = stage.agent([Say("one")]).chat()
    await chat.ask("first")
    head = await stage.store.read_head(chat.id)
    await stage.kill()
    await set_head(address, head - 2)
    async with asyncio.timeout(60):
        with pytest.raises(Damaged, match="treadle fsck --repair"):
            await stage.agent(script_reply("two")).chat(chat.id).ask("second")
    assert await repair_store(stage) == [("head", True)]
    assert await stage.store.read_head(chat.id) == head
    async with asyncio.timeout(60):
        assert (await stage.agent(script_reply("two")).chat(chat.id).ask("second")).text == "two"


def test_the_command_line_says_it(cli: CommandLine) -> None:
    ran = cli("run", "Hello.", "--model", cli.script(SCRIPT), "--json")
    chat, start = ran.events[0]["chat"], next(v for v in ran.events if v["type"] == "tool.execution_start")["seq"]
    asyncio.run(lose(cli.home / "treadle.db", chat, seq=start - 1))
    resumed = cli("resume", chat)
    assert resumed.code == 1
    assert "A record of this run was lost" in resumed.out + resumed.err
    assert "a damaged record was left out" in cli("show", chat).err
    report = cli("fsck")
    assert (report.code, "gap" in report.out) == (1, True)
    assert cli("fsck", "--repair").code == 0
    assert cli("fsck").code == 0
