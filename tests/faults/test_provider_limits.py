"""A provider that sends too much, something else, or nothing but signs of life: each ends in one clear error, and the
chat goes on later (faults 8, 9, 11; L-12, M-11). The same for every wire."""

import asyncio
import gzip
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import pytest

from treadle import Agent, Envelope, tool
from treadle.adapters.models.anthropic import AnthropicMessages
from treadle.adapters.models.capability_ladder import Ladder
from treadle.adapters.models.gemini.adapter import Gemini
from treadle.adapters.models.ollama import OllamaChat
from treadle.adapters.models.openai_chat.adapter import OpenAIChat
from treadle.adapters.models.openai_responses import OpenAIResponses
from treadle.adapters.models.wire import http
from treadle.adapters.models.wire.reading import EVENT_BYTES
from treadle.adapters.stores.memory import MemoryStore
from treadle.base.types import JsonObject
from treadle.chat.assembly import ANSWER_CHARS, ARGUMENTS_CHARS, CALLS
from treadle.engine.silence_timeout import SilenceTimeout
from treadle.errors import ModelError
from treadle.ports.model import Model, ModelInfo, ModelRequest
from treadle.protocol.content import Usage, UserEntry
from treadle.protocol.deltas import CallDelta, Delta, TextDelta, UsageDelta
from treadle.protocol.events import (
    AssistantMessage,
    ExecutionStart,
    MessageDelta,
    SessionError,
    SessionIdle,
    TurnRetry,
)
from treadle.protocol.tools import ToolSpec
from treadle.testing.checker import check
from treadle.testing.fake_anthropic import FakeAnthropic
from treadle.testing.fake_gemini import FakeGemini
from treadle.testing.fake_model import FakeModelServer, Reply
from treadle.testing.fake_ollama import FakeOllama
from treadle.testing.fake_openai import FakeOpenAI
from treadle.testing.fake_responses import FakeResponses

pytestmark = pytest.mark.thorough(one_of=12)


class Wire(NamedTuple):
    fake: Callable[[Callable[[JsonObject], Reply]], FakeModelServer]
    connect: Callable[[Any], Model]
    keeps_alive: bytes
    """The bytes that a server of this kind may send to keep the line open."""


def make_priced_model(provider: str) -> ModelInfo:
    return ModelInfo(provider, "fake", usd_per_million_input=1.0, usd_per_million_output=1.0)


WIRES = {
    "openai": Wire(
        FakeOpenAI,
        lambda fake: OpenAIChat(make_priced_model("openai"), base_url=fake.base_url),
        b': OPENROUTER PROCESSING\n\ndata: {"choices":[{"delta":{}}]}\n\ndata: {"choices":[],"usage":{}}\n\n',
    ),
    "responses": Wire(
        FakeResponses,
        lambda fake: OpenAIResponses(make_priced_model("openai"), base_url=fake.base_url),
        b': ping\n\nevent: response.in_progress\ndata: {"type":"response.in_progress","response":{}}\n\n',
    ),
    "anthropic": Wire(
        FakeAnthropic,
        lambda fake: AnthropicMessages(make_priced_model("anthropic"), base_url=fake.base_url),
        b'event: ping\ndata: {"type":"ping"}\n\n',
    ),
    "gemini": Wire(
        FakeGemini,
        lambda fake: Gemini(make_priced_model("gemini"), base_url=fake.base_url),
        b': ping\n\ndata: {"usageMetadata":{"promptTokenCount":3}}\n\n',
    ),
    "ollama": Wire(
        FakeOllama,
        lambda fake: OllamaChat(make_priced_model("ollama"), base_url=fake.url),
        b'\n{"message":{"role":"assistant","content":""},"done":false}\n',
    ),
}
EVENTS = [name for name in WIRES if name != "ollama"]


class Stage:
    """A chat with a tool that leaves a trace, and a provider that answers with the replies of a test, then well."""

    def __init__(self, agent: Agent, fake: FakeModelServer, notes: list[str]) -> None:
        self.agent = agent
        self.fake = fake
        self.notes = notes
        self.chat = agent.chat()

    async def send(self, text: str = "Go.") -> list[Envelope]:
        return [envelope async for envelope in self.chat.send(text)]

    async def fails_once(self, kind: str, words: str) -> None:
        """One request, one error, no charge for nothing; and the next message is answered."""
        news = await self.send()
        (error,) = of(news, SessionError)
        assert error.error_class == kind
        assert words in error.message
        assert len(self.fake.requests) == 1
        assert self.notes == []
        assert of(news, ExecutionStart) == of(news, AssistantMessage) == []
        assert of(news, SessionIdle) == [SessionIdle("error")]
        news = await self.send("Again.")
        assert [message.content for message in of(news, AssistantMessage)] == ["Fine."]
        assert await check(self.agent.deps.store, self.chat.id) == []

    async def spent(self) -> float:
        return (await self.agent.deps.log.load(self.chat.id)).totals.usage.usd


def of(news: Sequence[Envelope], kind: type) -> list[Any]:
    return [envelope.data for envelope in news if isinstance(envelope.data, kind)]


@asynccontextmanager
async def stage(wire: str, *replies: Reply, text_rung: bool = False, **settings: float) -> AsyncIterator[Stage]:
    pending_replies = list(replies)
    notes: list[str] = []

    @tool
    def note(text: str) -> str:
        """Write something down."""
        notes.append(text)
        return "noted"

    with WIRES[wire].fake(lambda _: pending_replies.pop(0) if pending_replies else Reply(text="Fine.")) as fake:
        model = WIRES[wire].connect(fake)
        async with Agent(
            MemoryStore(),
            model=Ladder(model, "text") if text_rung else model,
            tools=[note],
            builtin=False,
            retry_base_s=0.0001,
            **settings,  # type: ignore[arg-type]
        ) as agent:
            yield Stage(agent, fake, notes)


PAGE = b"\xef\xbb\xbf\r\n  <!DOCTYPE html><html><head><title>Sign in</title></head><body>Welcome</body></html>"


@pytest.mark.parametrize("split", [0, 1])
@pytest.mark.parametrize("wire", WIRES)
async def test_a_web_page_is_one_clear_error_and_costs_nothing(wire: str, split: int) -> None:
    """A wrong base URL, or the sign-in page of a network: nothing was answered, so nothing is charged."""
    async with stage(wire, Reply(raw=PAGE, split=split)) as on:
        news = await on.send()
        (error,) = of(news, SessionError)
        assert error.error_class == "bad_request"
        assert "a web page" in error.message
        assert "check the base URL" in error.message
        assert of(news, TurnRetry) == []
        assert len(on.fake.requests) == 1
        assert await on.spent() == 0


@pytest.mark.parametrize("body", [b'{"ok": true}', b'{"models": [1, 2]}', b"Hello from nginx", b"[]", b'"yes"'])
@pytest.mark.parametrize("wire", WIRES)
async def test_what_is_no_answer_is_one_clear_error(wire: str, body: bytes) -> None:
    async with stage(wire, Reply(raw=body)) as on:
        await on.fails_once("bad_request", "check the base URL")


@pytest.mark.parametrize("wire", WIRES)
async def test_more_calls_than_a_turn_may_have_are_not_carried_out(wire: str) -> None:
    calls = [("note", {"text": str(number)}) for number in range(CALLS + 1)]
    async with stage(wire, Reply(calls=calls)) as on:
        await on.fails_once("answer_limit", f"more than {CALLS} calls")


@pytest.mark.parametrize("wire", ["openai", "ollama"])
async def test_as_many_calls_as_a_turn_may_have_are_carried_out(wire: str) -> None:
    calls = [("note", {"text": str(number)}) for number in range(CALLS)]
    async with stage(wire, Reply(calls=calls)) as on:
        await on.send()
        assert on.notes == [str(number) for number in range(CALLS)]


async def test_more_calls_than_a_turn_may_have_in_the_text() -> None:
    text = "".join(
        f'<tool_call>{{"name": "note", "arguments": {{"text": "{number}"}}}}</tool_call>\n'
        for number in range(10 * CALLS)
    )
    async with stage("openai", Reply(text=text), text_rung=True) as on:
        await on.fails_once("answer_limit", f"more than {CALLS} calls")


@pytest.mark.parametrize("wire", WIRES)
async def test_arguments_that_are_too_long(wire: str) -> None:
    async with stage(wire, Reply(calls=[("note", {"text": "x" * ARGUMENTS_CHARS})])) as on:
        await on.fails_once("answer_limit", "arguments of more than")


@pytest.mark.parametrize("wire", WIRES)
async def test_an_answer_that_is_too_long(wire: str) -> None:
    reply = Reply(text="x" * (ANSWER_CHARS + 1), chunk_size=1 << 20)
    async with stage(wire, reply) as on:
        await on.fails_once("answer_limit", "more than")


@pytest.mark.parametrize("wire", EVENTS)
@pytest.mark.parametrize("prefix", [b'data: {"x":"', b": ", b'{"x":"'])
async def test_an_event_or_a_document_without_end(wire: str, prefix: bytes) -> None:
    async with stage(wire, Reply(raw=prefix + b"x" * (EVENT_BYTES + 1))) as on:
        await on.fails_once("answer_limit", "of more than 16 MiB")


async def test_a_line_without_end() -> None:
    async with stage("ollama", Reply(raw=b'{"x":"' + b"x" * (EVENT_BYTES + 1))) as on:
        await on.fails_once("answer_limit", "a line of more than 16 MiB")


@pytest.mark.parametrize("wire", WIRES)
async def test_a_body_without_end(wire: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """However small its parts are, and however well compressed: the decompressed size counts."""
    monkeypatch.setattr(http, "ANSWER_BYTES", 2 * 1024 * 1024)
    endless = WIRES[wire].keeps_alive * (3 * 1024 * 1024 // len(WIRES[wire].keeps_alive))
    bomb = gzip.compress(endless)
    assert len(bomb) < len(endless) / 100
    for reply in (Reply(raw=endless), Reply(raw=bomb, headers={"Content-Encoding": "gzip"})):
        async with stage(wire, reply) as on:
            await on.fails_once("answer_limit", "an answer of more than 2 MiB")


async def test_a_compressed_answer_is_read_though_none_was_asked_for() -> None:
    body = (
        b'data: {"choices":[{"delta":{"content":"packed"}}]}\n\n'
        b'data: {"choices":[{"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
    )
    for split in (0, 1, 7):
        reply = Reply(raw=gzip.compress(body), headers={"Content-Encoding": "gzip"}, split=split)
        async with stage("openai", reply) as on:
            news = await on.send()
            assert [message.content for message in of(news, AssistantMessage)] == ["packed"]
    async with stage("openai", Reply(raw=b"x", headers={"Content-Encoding": "br"})) as on:
        await on.fails_once("bad_request", "compressed its answer (br)")


@pytest.mark.parametrize("wire", WIRES)
async def test_keep_alives_do_not_break_the_silence(wire: str) -> None:
    """L-12: the line is open, and nothing is said."""
    alive = WIRES[wire].keeps_alive
    silent = Reply(raw=alive * 2000, split=len(alive), every_s=0.01)
    async with stage(wire, silent, silence_s=1.0) as on:
        news = await asyncio.wait_for(on.send(), 60)
        assert [retry.error_class for retry in of(news, TurnRetry)][:1] == ["silence"]
        assert [message.content for message in of(news, AssistantMessage)] == ["Fine."]


@pytest.mark.parametrize("wire", WIRES)
async def test_an_answer_has_an_end_in_time_however_lively_it_is(wire: str) -> None:
    async with stage(wire, Reply(text="on and on " * 500, chunk_size=1, every_s=0.01), answer_s=6) as on:
        await asyncio.wait_for(on.fails_once("answer_limit", "within 6 seconds"), 60)


async def test_a_call_that_is_long_in_the_writing_is_no_silence() -> None:
    """On the text rung nothing of a call is shown before it is whole: its pieces are signs of life all the same."""
    text = '<tool_call>{"name": "note", "arguments": {"text": "' + "x" * 60 + '"}}</tool_call>'
    tools = (ToolSpec("note", "Write something down.", {"type": "object", "properties": {"text": {"type": "string"}}}),)
    with FakeOpenAI([Reply(text=text, chunk_size=1, every_s=0.01)]) as fake:
        model = OpenAIChat(make_priced_model("openai"), base_url=fake.base_url)
        stream = Ladder(model, "text").stream(ModelRequest("", [UserEntry("Go.")], tools))
        items = [list(item) async for item in stream]
        await model.close()
    assert items.count([]) > 5
    assert items[0] != []
    with_calls = [item for item in items if any(isinstance(delta, CallDelta) for delta in item)]
    assert with_calls == items[-len(with_calls) :] != []


async def test_a_sign_of_life_is_something_of_the_answer() -> None:
    """L-12: an item without deltas says that the answer goes on; counts and empty fragments say nothing."""
    alive: list[list[Delta]] = [[], [TextDelta("x")], [CallDelta(arguments="{")], [UsageDelta(Usage()), TextDelta("x")]]
    dead: list[list[Delta]] = [[UsageDelta(Usage(1))], [CallDelta(index=0)], [CallDelta(id="a"), UsageDelta(Usage())]]

    async def listen(items: list[list[Delta]], silence_s: float) -> None:
        async with SilenceTimeout(silence_s, 8.0) as patience:
            while True:
                for item in items:
                    patience.hear(item)
                    await asyncio.sleep(0.001)

    for items, silence_s, kind in ((alive, 4.0, "answer_limit"), (dead, 0.3, "silence")):
        with pytest.raises(ModelError) as caught:
            await listen(items, silence_s)
        assert caught.value.kind == kind


async def test_counts_below_zero_take_nothing_from_what_was_spent() -> None:
    async with stage("openai", Reply(text="Hi", usage=(-1_000_000, -5))) as on:
        news = await on.send()
        assert of(news, MessageDelta)
        assert await on.spent() >= 0


@pytest.mark.parametrize("name", ["note", "no_such_tool"])
async def test_between_two_calls_others_get_their_turn(name: str) -> None:
    """A store in memory never waits, and neither does a call that is refused: the loop must let others in by itself."""
    count = 100
    calls = [(name, {"text": str(number)}) for number in range(count)]
    turns = 0
    async with stage("openai", Reply(calls=calls)) as on:
        at: list[int] = []

        async def count_turns() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        counter_task = asyncio.create_task(count_turns())
        async for envelope in on.chat.send("Go."):
            if isinstance(envelope.data, ExecutionStart):
                at.append(turns)
        counter_task.cancel()
        state = await on.agent.deps.log.load(on.chat.id)
    assert state.totals.tool_calls == count
    assert len(set(at)) > count * 0.9
