"""Readers that live long go on after the store could not be read (D-04, E-05, E-08, fault 16)."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from treadle import Agent, ScriptedModel
from treadle.adapters.models.scripted import Say, Turn
from treadle.adapters.stores.sqlite import SqliteStore
from treadle.errors import StoreError
from treadle.library import watching
from treadle.protocol.events import AssistantMessage, SessionIdle
from treadle.protocol.options import ChatOptions

WAIT_S = 60


class FlakyStore(SqliteStore):
    """Fails to be read as often as it is told."""

    failures = 0

    def _fail(self) -> None:
        if self.failures > 0:
            self.failures -= 1
            raise StoreError("the store is away")

    async def read(self, *args: Any, **kwargs: Any) -> Any:
        self._fail()
        return await super().read(*args, **kwargs)

    async def wait(self, *args: Any, **kwargs: Any) -> int:
        self._fail()
        return await super().wait(*args, **kwargs)


def agent_on(store: SqliteStore, folder: Path) -> Agent:
    options = ChatOptions(model="scripted:test", summarize=False, verify=False)
    return Agent(
        store,
        model=ScriptedModel([Turn((Say(text),), chunk=1, delay_s=0.2) for text in ("One.", "Two.")]),
        options=options,
        home=folder,
    )


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "PAUSE_S", 0.01)


async def test_whoever_watches_a_chat_of_another_process_hears_of_it_after_an_outage(tmp_path: Path) -> None:
    store = FlakyStore(tmp_path / "t.db")
    here, elsewhere = agent_on(store, tmp_path), agent_on(SqliteStore(tmp_path / "t.db"), tmp_path)
    chat = elsewhere.chat()
    await chat.open()
    news = watching.watch(here.deps, chat.id, 0)
    texts: list[str] = []

    async def read_on() -> None:
        async for envelope in news:
            if isinstance(envelope.data, AssistantMessage):
                texts.append(envelope.data.content)
                if len(texts) == 2:
                    return

    reading = asyncio.create_task(read_on())
    async with asyncio.timeout(WAIT_S):
        for text in ("First.", "Second."):
            store.failures = 3
            async for _ in chat.send(text):
                pass
        await reading
    assert texts == ["One.", "Two."]
    await here.close()
    await elsewhere.close()


async def test_whoever_follows_a_command_sees_its_end_after_an_outage(tmp_path: Path) -> None:
    store = FlakyStore(tmp_path / "t.db")
    agent, driver = agent_on(store, tmp_path), agent_on(SqliteStore(tmp_path / "t.db"), tmp_path)
    chat = driver.chat()
    await chat.open()
    following = agent.chat(chat.id).resume()
    events = []
    async with asyncio.timeout(WAIT_S):
        await chat.send("First.")
        async for envelope in following:
            store.failures = 0 if events else 3
            events.append(envelope.data)
    assert isinstance(events[-1], SessionIdle)
    await agent.close()
    await driver.close()
