"""Readers that live long go on after the store could not be read (D-04, E-05, E-08, fault 16)."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.scenario.kit import Gate, list_idle_reasons, of, play
from treadle import Agent, ScriptedModel, tool
from treadle.adapters.models.scripted import Call, Say, Turn
from treadle.adapters.stores.sqlite import SqliteStore
from treadle.errors import StoreError
from treadle.library import feeds
from treadle.protocol.events import AssistantMessage, ExecutionComplete, SessionIdle
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
    monkeypatch.setattr(feeds, "PAUSE_S", 0.01)


async def test_whoever_watches_a_chat_of_another_process_hears_of_it_after_an_outage(tmp_path: Path) -> None:
    store = FlakyStore(tmp_path / "t.db")
    here, elsewhere = agent_on(store, tmp_path), agent_on(SqliteStore(tmp_path / "t.db"), tmp_path)
    chat = elsewhere.chat()
    await chat.open()
    news = feeds.watch(here.deps, chat.id, 0)
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


@pytest.mark.parametrize("interrupted", [False, True])
async def test_a_call_outlives_an_outage_and_can_still_be_stopped(tmp_path: Path, interrupted: bool) -> None:
    """D-02, L-07: the worker that watches the log for an interrupt cannot read it for a while."""
    store, gate = FlakyStore(tmp_path / "t.db"), Gate()
    wait = tool(name="wait")(gate.pass_through)
    model = ScriptedModel([Call("wait"), Say("Done.")])
    elsewhere = agent_on(SqliteStore(tmp_path / "t.db"), tmp_path)
    async with Agent(store, model=model, tools=[wait], builtin=False, home=tmp_path) as agent:
        chat = await agent.chat()
        async with asyncio.timeout(WAIT_S):
            playing = asyncio.create_task(play(chat.send("go")))
            await gate.entered.wait()
            store.failures = 3
            while store.failures and not playing.done():  # noqa: ASYNC110 - failures come with no event
                await asyncio.sleep(0.01)
            if interrupted:
                await elsewhere.chat(chat.id).interrupt()
            else:
                gate.open.set()
            reasons = list_idle_reasons(await playing)
        (completion,) = of(await chat.events(), ExecutionComplete)
    assert reasons == ["interrupted" if interrupted else "done"]
    assert (completion.synthetic, gate.left) == ("interrupted" if interrupted else "", 1)
    await elsewhere.close()
