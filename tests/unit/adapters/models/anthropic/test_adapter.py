"""The Messages adapter against real servers on loopback: refusals that can be mended, thinking that is not taken back,
cuts, hang-ups (M-02, M-10, M-13, faults 7, 8 and 24)."""

import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from tests.unit.adapters.models.loopback import Exchange, serving
from treadle.adapters.models.anthropic import AnthropicMessages
from treadle.adapters.models.wire.http import Http
from treadle.chat.assembly import Assembler, ModelAnswer
from treadle.errors import ModelError
from treadle.ports.model import Memo, ModelInfo, ModelRequest
from treadle.protocol.content import AssistantEntry, Entry, ResultsEntry, Thinking, ToolResult, UserEntry
from treadle.protocol.deltas import NoticeDelta
from treadle.protocol.tools import ToolSpec
from treadle.testing.fake_anthropic import FakeAnthropic, Messages, Reply, encode_event

KEY = "sk-ant-very-secret-key"
INFO = ModelInfo("anthropic", "claude-test")
THINKER = ModelInfo("anthropic", "claude-thinker", temperature=None, thinking=True)
TOOLS = (ToolSpec("look", "Looks.", {"type": "object"}),)
GREETING = tuple(Messages().build_pieces(Reply(text="hello", chunk_size=3), {"stream": True}, 0)[1])


async def ask(
    model: AnthropicMessages, request: ModelRequest | None = None, turn: int = 1
) -> tuple[ModelAnswer, list[NoticeDelta]]:
    assembler = Assembler(turn)
    async for deltas in model.stream(request or ModelRequest("s", [UserEntry("hi")])):
        assembler.feed(deltas)
    return assembler.finish(model.info.ref), assembler.notices


async def failing(model: AnthropicMessages) -> ModelError:
    with pytest.raises(ModelError) as caught:
        await ask(model)
    return caught.value


def entries_after(answer: ModelAnswer, turn: int = 1) -> list[Entry]:
    results = tuple(ToolResult(request.call, "seen") for request in answer.requests)
    return [AssistantEntry(turn, answer.text, answer.thinking, answer.requests), ResultsEntry(turn, results)]


@pytest.mark.parametrize("tail", ["", "/", "/v1", "/v1/", "/v1/messages"])
async def test_one_call_wherever_the_address_ends(tail: str) -> None:
    with FakeAnthropic([Reply(text="hello")]) as fake:
        http = Http()
        model = AnthropicMessages(INFO, base_url=fake.base_url + tail, api_key=KEY, headers={"X-Title": "t"}, http=http)
        for _ in range(3):
            answer, notices = await ask(model)
            assert (answer.text, answer.finish_reason, notices) == ("hello", "stop", [])
        assert fake.connections == 1
        await http.close()
    assert fake.paths[0] == "/v1/messages"
    headers = fake.headers[0]
    assert (headers["x-api-key"], headers["anthropic-version"], headers["x-title"]) == (KEY, "2023-06-01", "t")
    assert "authorization" not in headers
    assert fake.requests[0] == {
        "model": "claude-test",
        "max_tokens": 4096,
        "stream": True,
        "temperature": 0.1,
        "system": [{"type": "text", "text": "s", "cache_control": {"type": "ephemeral"}}],
        "messages": [
            {
                "role": "user",
                "content": [{"type": "text", "text": "hi", "cache_control": {"type": "ephemeral"}}],
            }
        ],
    }


async def test_thinking_is_asked_for_as_the_catalogue_or_the_caller_says() -> None:
    async def parameters(request: ModelRequest, info: ModelInfo = INFO, **options: Any) -> dict[str, Any]:
        with FakeAnthropic([Reply(text="x")]) as fake:
            model = AnthropicMessages(info, base_url=fake.base_url, **options)
            await ask(model, request)
            await model.close()
            request_body = fake.requests[0]
            return {
                name: request_body[name] for name in ("max_tokens", "temperature", "thinking") if name in request_body
            }

    plain = ModelRequest("", [UserEntry("x")])
    adaptive = {"type": "adaptive", "display": "summarized"}
    assert await parameters(plain) == {"max_tokens": 4096, "temperature": 0.1}
    assert await parameters(plain, THINKER) == {"max_tokens": 4096, "thinking": adaptive}
    assert await parameters(plain, thinking="adaptive") == {"max_tokens": 4096, "thinking": adaptive}
    assert await parameters(plain, THINKER, thinking="") == {"max_tokens": 4096}
    wide = ModelRequest("", [UserEntry("x")], temperature=0.7, max_tokens=2000)
    assert await parameters(wide) == {"max_tokens": 2000, "temperature": 0.7}
    narrow = ModelRequest("", [UserEntry("x")], max_tokens=2000)
    assert await parameters(narrow, thinking=9000) == {
        "max_tokens": 2000,
        "thinking": {"type": "enabled", "budget_tokens": 1999},
    }
    tiny = ModelRequest("", [UserEntry("x")], max_tokens=500)
    assert await parameters(tiny, thinking=9000) == {"max_tokens": 500, "temperature": 0.1}


@pytest.mark.parametrize("size", [1, 2, 7])
async def test_small_pieces_on_the_network(size: int) -> None:  # fault 7
    reply = Reply(text="Grüße 🧵", thinking="hm", calls=[("look", {"a": "ä"})], split=size)
    with FakeAnthropic([reply]) as fake:
        model = AnthropicMessages(THINKER, base_url=fake.base_url)
        answer, _ = await ask(model, ModelRequest("", [UserEntry("x")], TOOLS))
        await model.close()
    assert (answer.text, answer.thinking[0].text) == ("Grüße 🧵", "hm")
    assert [(call.name, call.arguments) for call in answer.requests] == [("look", '{"a":"ä"}')]


@pytest.mark.parametrize(
    ("status", "headers", "kind", "wait"),
    [
        (401, {}, "auth", None),
        (402, {}, "quota", None),
        (403, {}, "auth", None),
        (404, {}, "bad_request", None),
        (413, {}, "context_limit", None),
        (429, {"Retry-After": "3"}, "rate_limit", 3.0),
        (500, {}, "overloaded", None),
        (504, {}, "overloaded", None),
        (529, {"Retry-After": "7"}, "overloaded", 7.0),
    ],
)
async def test_refusals(status: int, headers: dict[str, str], kind: str, wait: float | None) -> None:  # fault 8
    with FakeAnthropic([Reply(status=status, headers=headers)]) as fake:
        model = AnthropicMessages(INFO, base_url=fake.base_url)
        error = await failing(model)
        await model.close()
        assert len(fake.requests) == 1
    assert (error.kind, error.status, error.retry_after) == (kind, status, wait)
    assert f"scripted failure {status}" in str(error)


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        ("prompt is too long: 210000 tokens > 200000 maximum", "context_limit"),
        ("input length and `max_tokens` exceed context limit: 190000 + 32768 > 200000", "context_limit"),
        ("Your credit balance is too low to access the Anthropic API. Please go to Plans & Billing.", "quota"),
        ("You have reached your specified API usage limits. You will regain access on 2027-01-01.", "quota"),
    ],
)
async def test_what_a_400_means(words: str, kind: str) -> None:
    refused = Reply(status=400, error={"type": "invalid_request_error", "message": words})
    with FakeAnthropic([refused]) as fake:
        model = AnthropicMessages(INFO, base_url=fake.base_url)
        error = await failing(model)
        await model.close()
    assert error.kind == kind
    assert words in str(error)


async def test_a_key_that_the_server_echoes_is_not_shown() -> None:  # M-13
    with FakeAnthropic([Reply(status=401, error={"message": f"invalid x-api-key {KEY}"})]) as fake:
        model = AnthropicMessages(INFO, base_url=fake.base_url, api_key=KEY)
        error = await failing(model)
        assert KEY not in repr(model) + str(vars(model)) + str(error) + repr(error)
        assert "invalid x-api-key ***" in str(error)
        await model.close()


async def test_a_cut_is_told_and_a_server_that_never_closes_is_left() -> None:  # faults 7 and 8, L-12
    async def handler(exchange: Exchange) -> None:
        await exchange.stream(*GREETING, end=False)
        await exchange.hung_up()

    async with serving(handler) as server:
        model = AnthropicMessages(INFO, base_url=server.url)
        async with asyncio.timeout(60):
            assert (await ask(model))[0].text == "hello"
        await model.close()
    with FakeAnthropic([Reply(text="hello", cut_after=len(b"".join(GREETING[:4])))]) as fake:
        model = AnthropicMessages(INFO, base_url=fake.base_url)
        assert (await failing(model)).kind == "cut_stream"
        await model.close()


async def test_pings_are_no_part_of_an_answer() -> None:  # L-12: they do not end a silence
    async def handler(exchange: Exchange) -> None:
        await exchange.stream(encode_event("ping") + GREETING[0] + encode_event("ping") * 3 + b"".join(GREETING[1:]))

    async with serving(handler) as server:
        model = AnthropicMessages(INFO, base_url=server.url)
        items = [item async for item in model.stream(ModelRequest("", [UserEntry("x")]))]
        await model.close()
    assert len(items) > 0
    assert all(items)


async def test_closing_the_stream_drops_the_connection() -> None:  # L-07
    hangup_event = asyncio.Event()

    async def handler(exchange: Exchange) -> None:
        await exchange.stream(b"".join(GREETING[:3]), end=False)
        await exchange.hung_up()
        hangup_event.set()

    async with serving(handler) as server:
        model = AnthropicMessages(INFO, base_url=server.url)
        stream = model.stream(ModelRequest("", [UserEntry("x")]))
        await anext(stream)
        await stream.aclose()  # type: ignore[attr-defined]
        async with asyncio.timeout(60):
            await hangup_event.wait()
        await model.close()


def picky(*refusals: tuple[str, str]) -> Any:
    """A server that refuses requests with these bytes in them, in these words."""

    async def handler(exchange: Exchange) -> None:
        for fragment, words in refusals:
            if fragment.encode() in exchange.body:
                error = {"type": "error", "error": {"type": "invalid_request_error", "message": words}}
                await exchange.reply(400, msgspec.json.encode(error))
                return
        await exchange.stream(*GREETING)

    return handler


async def test_refused_parameters_are_dropped_for_good() -> None:  # M-01
    refusals = (
        ('"temperature"', "`temperature` is deprecated for this model."),
        ("cache_control", "system.0.cache_control: Extra inputs are not permitted"),
        ('"max_tokens":4096', "max_tokens: 4096 > 1000, which is the maximum allowed number of output tokens for x"),
        ('"thinking"', '"thinking.type.adaptive" is not supported for this model.'),
    )
    async with serving(picky(*refusals)) as server:
        model = AnthropicMessages(INFO, base_url=server.url, thinking="adaptive")
        answer, notices = await ask(model, ModelRequest("s", [UserEntry("hi")], TOOLS, temperature=0.5))
        assert answer.text == "hello"
        assert sorted(notice.kind for notice in notices) == ["parameter_dropped"] * 3 + ["parameter_lowered"]
        request_count = len(server.seen)
        assert (await ask(model, ModelRequest("s", [UserEntry("hi")], TOOLS, temperature=0.5)))[1] == []
        assert len(server.seen) == request_count + 1
        await model.close()
    last = server.seen[-1].json
    assert sorted(last) == ["max_tokens", "messages", "model", "stream", "system", "tools"]
    assert last["max_tokens"] == 1000


async def test_other_refusals_are_errors_and_are_not_asked_again() -> None:
    async with serving(picky(("hi", "messages.0: thinking of it, no"))) as server:
        model = AnthropicMessages(INFO, base_url=server.url)
        assert (await failing(model)).kind == "bad_request"
        await model.close()
    assert len(server.seen) == 1


async def thinking_turn(model: AnthropicMessages, entries: Sequence[Entry], memo: Memo, turn: int) -> list[Entry]:
    answer, notices = await ask(model, ModelRequest("", entries, TOOLS, memo=memo), turn)
    assert notices == []
    return [*entries, *entries_after(answer, turn)]


async def test_signed_thinking_makes_the_round_trip() -> None:  # M-10
    replies = [Reply(thinking=f"thought ü/{at}\n", text="t", calls=[("look", {})]) for at in range(3)]
    with FakeAnthropic([*replies, Reply(text="done")]) as fake:
        model = AnthropicMessages(THINKER, base_url=fake.base_url)
        memo = Memo()
        entries: list[Entry] = [UserEntry("go")]
        for turn in (1, 2, 3):
            entries = await thinking_turn(model, entries, memo, turn)
        assert (await ask(model, ModelRequest("", entries, TOOLS, memo=memo)))[0].text == "done"
        await model.close()
    blocks = [block for message in fake.requests[-1]["messages"] for block in message["content"]]
    assert [block["thinking"] for block in blocks if block["type"] == "thinking"] == [
        f"thought ü/{at}\n" for at in range(3)
    ]


async def test_refused_thinking_is_dropped_once_and_the_chat_goes_on() -> None:  # M-10, fault 24
    with FakeAnthropic([Reply(thinking="hm", text="t", calls=[("look", {})])] * 3) as fake:
        model = AnthropicMessages(THINKER, base_url=fake.base_url)
        memo = Memo()
        answer, _ = await ask(model, ModelRequest("", [UserEntry("go")], TOOLS, memo=memo))
        forged = Thinking("hm", answer.thinking[0].opaque.replace("sig-", "gis-"), THINKER.ref)
        entries: list[Entry] = [UserEntry("go"), *entries_after(answer)]
        assert isinstance(entries[1], AssistantEntry)
        entries[1] = msgspec.structs.replace(entries[1], thinking=(forged,))
        second, notices = await ask(model, ModelRequest("", entries, TOOLS, memo=memo), 2)
        assert [notice.kind for notice in notices] == ["thinking_dropped"]
        # Refused thinking is not sent again, so it is not refused again; new thinking is sent.
        entries += entries_after(second, 2)
        _, notices = await ask(model, ModelRequest("", entries, TOOLS, memo=memo), 3)
        assert notices == []
        await model.close()
    blocks = [block for message in fake.requests[-1]["messages"] for block in message["content"]]
    assert sum(block["type"] == "thinking" for block in blocks) == 1
    assert entries[1].thinking == (forged,)  # the record is as it was


async def test_a_model_switched_to_in_mid_chat_gets_no_foreign_thinking() -> None:  # M-10, fault 24
    with FakeAnthropic([Reply(thinking="hm", text="t", calls=[("look", {})]), Reply(text="done")]) as fake:
        first = AnthropicMessages(THINKER, base_url=fake.base_url)
        answer, _ = await ask(first, ModelRequest("", [UserEntry("go")], TOOLS))
        other_model = AnthropicMessages(msgspec.structs.replace(THINKER, name="claude-other"), base_url=fake.base_url)
        again, notices = await ask(other_model, ModelRequest("", [UserEntry("go"), *entries_after(answer)], TOOLS), 2)
        assert (again.text, notices) == ("done", [])
        await first.close()
        await other_model.close()
    blocks = [block["type"] for block in fake.requests[-1]["messages"][1]["content"]]
    assert blocks == ["text", "tool_use"]


async def test_a_budget_without_the_blocks_it_wants_is_not_asked_for_in_this_chat() -> None:  # fault 24
    words = "messages.1.content.0.type: Expected `thinking` or `redacted_thinking`, but found `tool_use`."
    async with serving(picky(('"budget_tokens"', words))) as server:
        model = AnthropicMessages(INFO, base_url=server.url, thinking=2048)
        memo = Memo()
        for expected_kinds in (["thinking_dropped"], []):
            _, notices = await ask(model, ModelRequest("", [UserEntry("go")], TOOLS, memo=memo))
            assert [notice.kind for notice in notices] == expected_kinds
        request_count = len(server.seen)
        await ask(model, ModelRequest("", [UserEntry("another chat")], TOOLS))
        assert "thinking" in server.seen[request_count].json
        await model.close()
