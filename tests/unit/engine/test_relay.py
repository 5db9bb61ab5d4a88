"""Live text of a chat that another process drives (law 7, D-04): the same text, in order, also for who comes late."""

import asyncio
import gc
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from treadle import Agent, Envelope, ScriptedModel, tool
from treadle.adapters.models.scripted import Call, Delay, Fail, Hang, Say, Turn
from treadle.adapters.stores.memory import MemoryStore
from treadle.adapters.stores.sqlite import SqliteStore
from treadle.base.types import ChatId
from treadle.engine.hub import Relay
from treadle.engine.pool import WorkerPool
from treadle.ports.store import Reach, Store
from treadle.ports.toolset import Invocation
from treadle.protocol import wire
from treadle.protocol.commands import Send
from treadle.protocol.events import (
    AssistantMessage,
    AssistantReset,
    ExecutionOutput,
    MessageDelta,
    ReasoningDelta,
    RunEnd,
    TurnRetry,
)

TIMEOUT_S = 60
QUICK_S = 0.01
TEXT = "".join(f"word {number} " for number in range(40))


@pytest.fixture(params=["memory", "sqlite"])
def stores(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], Store]:
    """A store as several processes would open it."""
    memory = MemoryStore()
    return (lambda: memory) if request.param == "memory" else (lambda: SqliteStore(tmp_path / "chats.db"))


class Reader:
    """A process that only reads: the log, and what its worker passes on."""

    def __init__(self, agent: Agent, chat: ChatId, after_seq: int = 0) -> None:
        self.agent = agent
        self.chat = chat
        self.after = after_seq
        self.reach: Reach = (0, 0, 0)
        self.seen: list[Envelope] = []

    async def until(self, fact: Callable[["Reader"], object]) -> None:
        async with asyncio.timeout(TIMEOUT_S):
            while not fact(self):
                await self.look()
                await asyncio.sleep(QUICK_S)

    async def look(self) -> None:
        store = self.agent.deps.store
        for delta in await store.read_deltas({self.chat: self.reach}):
            self.reach = (delta.epoch, delta.turn, delta.number)
            self.seen.append(wire.from_json(delta.payload))
        for record in await store.read(self.chat, self.after):
            self.after = record.seq
            self.seen.append(wire.decode(self.chat, record))

    def text(self) -> str:
        """The text on the screen of the open turn."""
        screen_text = ""
        for envelope in self.seen:
            match envelope.data:
                case AssistantReset() | AssistantMessage():
                    screen_text = ""
                case MessageDelta(text=text):
                    screen_text += text
        return screen_text

    def of(self, kind: type) -> list[Envelope]:
        return [envelope for envelope in self.seen if isinstance(envelope.data, kind)]


@asynccontextmanager
async def working(
    store: Store,
    *turns: object,
    tools: tuple[object, ...] = (),
    pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> AsyncIterator[Agent]:
    model = ScriptedModel(turns, sleep=pause)  # type: ignore[arg-type]
    agent = Agent(store, model=model, tools=tools, builtin=False, relays=True, retry_base_s=0.0)  # type: ignore[arg-type]
    agent.deps.log.relay.every_s = QUICK_S  # type: ignore[union-attr]
    pool = WorkerPool(agent.worker, poll_s=QUICK_S)
    pool.start()
    try:
        yield agent
    finally:
        await pool.close()
        if not isinstance(store, MemoryStore):
            await agent.close()


async def begin(reading: Agent) -> ChatId:
    chat = await reading.chat()
    await reading.deps.log.execute(chat.id, Send("go"))
    return chat.id


async def test_text_comes_as_it_is_made_and_to_a_late_reader_as_far_as_it_is(stores: Callable[[], Store]) -> None:
    turn = Turn((Say(TEXT), Hang()), chunk=5, delay_s=0.001)
    reading = Agent(stores(), builtin=False)
    async with working(stores(), turn):
        chat = await begin(reading)
        first = Reader(reading, chat)
        await first.until(lambda reader: reader.text() == TEXT)
        assert len(first.of(MessageDelta)) > 1, "it came in pieces"
        assert len(first.of(MessageDelta)) < len(TEXT) // 5, "but not in as many as it was made of"
        late = Reader(reading, chat, after_seq=first.after)
        await late.until(lambda reader: reader.text() == TEXT)
        await first.look()
        assert first.text() == TEXT, "nothing came twice"
    await reading.close()


async def test_no_text_comes_behind_the_message_that_it_is_part_of(stores: Callable[[], Store]) -> None:
    reading = Agent(stores(), builtin=False)
    async with working(stores(), Turn((Say(TEXT),), chunk=5, delay_s=0.001)):
        chat = await begin(reading)
        reader = Reader(reading, chat)
        await reader.until(lambda reader: reader.of(RunEnd))
        await reader.look()
        later_events = reader.seen[reader.seen.index(reader.of(AssistantMessage)[0]) :]
        assert not [envelope for envelope in later_events if isinstance(envelope.data, MessageDelta | ReasoningDelta)]
        assert TEXT.startswith("".join(envelope.data.text for envelope in reader.of(MessageDelta)))  # type: ignore[attr-defined]
        assert await reading.deps.store.read_deltas({chat: (0, 0, 0)}) == []
    await reading.close()


async def test_a_retry_tells_readers_elsewhere_to_drop_the_partial_text(stores: Callable[[], Store]) -> None:  # M-11
    turn = Turn((Say("partial "), Delay(1), Fail("network"), Say("whole"), Hang()), chunk=3)
    reading = Agent(stores(), builtin=False)
    resume = asyncio.Event()

    async def pause(_seconds: float) -> None:
        await resume.wait()

    async with working(stores(), turn, pause=pause):
        chat = await begin(reading)
        reader = Reader(reading, chat)
        await reader.until(lambda reader: reader.text() == "partial ")
        resume.set()
        await reader.until(lambda reader: reader.of(TurnRetry))
        await reader.until(lambda reader: reader.text() == "partial whole")
        assert reader.of(AssistantReset)
    await reading.close()


async def test_another_worker_goes_on_and_what_the_first_one_said_is_dropped(stores: Callable[[], Store]) -> None:
    reading = Agent(stores(), builtin=False)
    async with working(stores(), [Say("of the dead"), Hang()]):
        chat = await begin(reading)
        reader = Reader(reading, chat)
        await reader.until(lambda reader: reader.text() == "of the dead")
    async with working(stores(), [Say("of the living"), Hang()]):
        await reader.until(lambda reader: reader.text() == "of the living")
    await reading.close()


async def test_output_of_tools_is_passed_on_too(stores: Callable[[], Store]) -> None:
    resume = asyncio.Event()

    @tool
    async def build(invocation: Invocation) -> str:
        """Build."""
        for number in range(20):
            invocation.emit(f"line {number}\n")
        await resume.wait()
        return "built"

    reading = Agent(stores(), builtin=False)
    async with working(stores(), [Call("build")], [Say("Done."), Hang()], tools=(build,)):
        chat = await begin(reading)
        reader = Reader(reading, chat)
        await reader.until(lambda reader: reader.of(ExecutionOutput))
        resume.set()
        await reader.until(lambda reader: reader.text() == "Done.")
        output = "".join(envelope.data.text for envelope in reader.of(ExecutionOutput))  # type: ignore[attr-defined]
        assert output == "".join(f"line {number}\n" for number in range(20))
    await reading.close()


async def test_nothing_is_written_where_nobody_else_reads() -> None:
    """Law 13: an agent that does not share its chats keeps no live text."""
    store = MemoryStore()
    async with Agent(store, model=ScriptedModel([[Say(TEXT), Hang()]]), builtin=False) as agent:
        chat = agent.chat()
        await chat.send("go")
        async for envelope in chat.resume():
            if isinstance(envelope.data, MessageDelta):
                break
        assert agent.deps.log.relay is None
        assert await store.read_deltas({chat.id: (0, 0, 0)}) == []


async def test_what_is_shown_after_the_end_is_not_passed_on() -> None:
    relay = Relay(MemoryStore(), {ChatId("c_1"): 1}, every_s=0)
    await relay.close()
    tasks = asyncio.all_tasks()
    relay.hear(Envelope(0, ChatId("c_1"), 0, MessageDelta(1, "late")))
    await asyncio.sleep(0.01)
    assert asyncio.all_tasks() == tasks


def test_text_that_is_pending_when_the_loop_ends_leaves_no_coroutine(recwarn: pytest.WarningsRecorder) -> None:
    """A program that does not close its agent: the time to write comes while the loop is shut down."""

    async def speak() -> None:
        relay = Relay(MemoryStore(), {ChatId("c_1"): 1}, every_s=0.01)
        relay.hear(Envelope(0, ChatId("c_1"), 0, MessageDelta(1, "late")))

    async def shut_down_slowly(*_: object) -> None:
        time.sleep(0.02)  # noqa: ASYNC251 - the loop stands still

    with asyncio.Runner() as runner:
        runner.run(speak())
        runner.get_loop().shutdown_default_executor = shut_down_slowly  # type: ignore[method-assign]
    gc.collect()
    assert [str(warning.message) for warning in recwarn] == []
