"""The adapter against a real server on loopback: connections, refusals, silence, hang-ups (M-01, faults 7 and 8)."""

import asyncio
from email.utils import formatdate
from typing import Any

import pytest

from tests.unit.adapters.models.loopback import DONE, Exchange, build_chunk, event, serving
from treadle.adapters.models.openai_chat.adapter import OpenAIChat
from treadle.adapters.models.wire import http
from treadle.adapters.models.wire.http import Http
from treadle.chat.assembly import Assembler, ModelAnswer
from treadle.engine.silence_timeout import SilenceTimeout
from treadle.errors import ModelError
from treadle.ports.model import ModelInfo, ModelRequest
from treadle.protocol.content import UserEntry
from treadle.protocol.deltas import NoticeDelta

KEY = "sk-very-secret-key"
INFO = ModelInfo("openai", "gpt-test")
GREETING = (build_chunk(content="hel"), build_chunk(content="lo"), build_chunk("stop"), DONE)


async def ask(model: OpenAIChat, request: ModelRequest | None = None) -> tuple[ModelAnswer, list[NoticeDelta]]:
    assembler = Assembler(1)
    async for deltas in model.stream(request or ModelRequest("s", [UserEntry("hi")])):
        assembler.feed(deltas)
    return assembler.finish(model.info.ref), assembler.notices


async def failing(model: OpenAIChat) -> ModelError:
    with pytest.raises(ModelError) as caught:
        await ask(model)
    return caught.value


async def test_one_call_and_the_connection_is_used_again() -> None:
    async def handler(exchange: Exchange) -> None:
        await exchange.stream(*GREETING)

    async with serving(handler) as server:
        http = Http()
        model = OpenAIChat(INFO, base_url=server.url + "/", api_key=KEY, headers={"X-Title": "t"}, http=http)
        for _ in range(3):
            answer, _ = await ask(model)
            assert (answer.text, answer.finish_reason) == ("hello", "stop")
        await http.close()
    first = server.seen[0]
    assert first.path == "/v1/chat/completions"
    assert (first.headers["authorization"], first.headers["x-title"]) == (f"Bearer {KEY}", "t")
    assert first.json == {
        "model": "gpt-test",
        "stream": True,
        "stream_options": {"include_usage": True},
        "temperature": 0.1,
        "max_tokens": 4096,
        "messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "hi"}],
    }
    assert [exchange.connection for exchange in server.seen] == [1, 1, 1]


async def test_the_request_overrules_the_catalogue_and_no_key_sends_none() -> None:
    async def handler(exchange: Exchange) -> None:
        await exchange.stream(*GREETING)

    async with serving(handler) as server:
        model = OpenAIChat(ModelInfo("openai", "m", temperature=None), base_url=server.url)
        await ask(model)
        await ask(model, ModelRequest("", [UserEntry("x")], temperature=0.7, max_tokens=9))
        await model.close()
    assert "temperature" not in server.seen[0].json
    assert (server.seen[1].json["temperature"], server.seen[1].json["max_tokens"]) == (0.7, 9)
    assert "authorization" not in server.seen[0].headers


@pytest.mark.parametrize("size", [1, 2, 7])
async def test_small_pieces_on_the_network(size: int) -> None:  # fault 7
    stream = build_chunk(content="Grüße 🧵") + build_chunk("stop") + DONE

    async def handler(exchange: Exchange) -> None:
        await exchange.stream(*(stream[at : at + size] for at in range(0, len(stream), size)))

    async with serving(handler) as server:
        model = OpenAIChat(INFO, base_url=server.url)
        assert (await ask(model))[0].text == "Grüße 🧵"
        await model.close()


@pytest.mark.parametrize(
    ("status", "headers", "kind", "wait"),
    [
        (401, {}, "auth", None),
        (402, {}, "quota", None),
        (429, {"Retry_After": "3"}, "rate_limit", 3.0),
        (429, {"Retry_After": formatdate(100, usegmt=True), "Date": formatdate(40, usegmt=True)}, "rate_limit", 60.0),
        (400, {}, "bad_request", None),
        (500, {}, "overloaded", None),
        (503, {"Retry_After_Ms": "1500"}, "overloaded", 1.5),
        (529, {}, "overloaded", None),
        (302, {"Location": "http://127.0.0.1:1/"}, "bad_request", None),
    ],
)
async def test_refusals(status: int, headers: dict[str, str], kind: str, wait: float | None) -> None:  # fault 8
    async def handler(exchange: Exchange) -> None:
        await exchange.reply(status, b'{"error":{"message":"the reason"}}', **headers)

    async with serving(handler) as server:
        model = OpenAIChat(INFO, base_url=server.url)
        error = await failing(model)
        await model.close()
    assert (error.kind, error.status, error.retry_after) == (kind, status, wait)
    assert "the reason" in str(error)
    assert "127.0.0.1" in str(error)


async def test_a_key_that_the_server_echoes_is_not_shown() -> None:  # M-13
    async def handler(exchange: Exchange) -> None:
        await exchange.reply(401, b'{"error":{"message":"Incorrect API key: ' + KEY.encode() + b'"}}')

    async with serving(handler) as server:
        model = OpenAIChat(INFO, base_url=server.url, api_key=KEY)
        error = await failing(model)
        assert KEY not in repr(model) + str(vars(model)) + str(error) + repr(error)
        assert "Incorrect API key: ***" in str(error)
        await model.close()


async def test_no_server_a_reset_and_a_cut() -> None:  # faults 7 and 8
    cut_event = asyncio.Event()

    async def handler(exchange: Exchange) -> None:
        if exchange.path.startswith("/cut"):
            await exchange.stream(build_chunk(content="so far"), end=False)
            await cut_event.wait()
        exchange.drop()

    async with serving(handler) as server:
        model = OpenAIChat(INFO, base_url=server.url)
        assert (await failing(model)).kind == "network"
        await model.close()
        model = OpenAIChat(INFO, base_url=server.url.replace("/v1", "/cut"))
        stream = model.stream(ModelRequest("", [UserEntry("x")]))
        assembler = Assembler(1)
        assembler.feed(await anext(stream))
        cut_event.set()
        with pytest.raises(ModelError) as caught:
            await anext(stream)
        assert (assembler.text, caught.value.kind) == ("so far", "cut_stream")
        await model.close()
    model = OpenAIChat(INFO, base_url="http://127.0.0.1:1/v1")
    error = await failing(model)
    assert (error.kind, "cannot be reached" in str(error)) == ("network", True)
    await model.close()


@pytest.mark.parametrize("pieces", [(), (build_chunk(content="a"),)])
async def test_silence_is_a_fault(pieces: tuple[bytes, ...]) -> None:  # L-12, fault 8
    async def handler(exchange: Exchange) -> None:
        if pieces:
            await exchange.stream(*pieces, end=False)
        await exchange.hung_up()

    async with serving(handler) as server:
        model = OpenAIChat(INFO, base_url=server.url)
        with pytest.raises(ModelError, match=r"sent nothing for 0\.05 s") as caught:
            async with SilenceTimeout(0.05):
                await failing(model)
        await model.close()
    assert caught.value.kind == "silence"


# L-12: nothing may hang
async def test_a_server_that_never_closes_after_its_last_word(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "AFTER_FINISH_S", 1000.0)

    async def handler(exchange: Exchange) -> None:
        await exchange.stream(*GREETING, end=False)
        await exchange.hung_up()

    async with serving(handler) as server:
        model = OpenAIChat(INFO, base_url=server.url)
        async with asyncio.timeout(60):
            assert (await ask(model))[0].text == "hello"
        await model.close()


async def test_closing_the_stream_drops_the_connection() -> None:  # L-07
    hangup_event = asyncio.Event()

    async def handler(exchange: Exchange) -> None:
        await exchange.stream(build_chunk(content="a"), end=False)
        await exchange.hung_up()
        hangup_event.set()

    async with serving(handler) as server:
        model = OpenAIChat(INFO, base_url=server.url)
        stream = model.stream(ModelRequest("", [UserEntry("x")]))
        await anext(stream)
        await stream.aclose()  # type: ignore[attr-defined]
        async with asyncio.timeout(60):
            await hangup_event.wait()
        await model.close()


def picky(**refusals: str) -> Any:
    """A server that refuses these parameters, one at a time, in these words."""

    async def handler(exchange: Exchange) -> None:
        for name, words in refusals.items():
            if name in exchange.json:
                await exchange.reply(400, event(error={"message": words})[6:])
                return
        await exchange.stream(*GREETING)

    return handler


async def test_refused_parameters_are_dropped_for_good() -> None:  # M-01
    refusals = {
        "max_tokens": "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead.",
        "temperature": "'temperature' does not support 0.1 with this model",
        "stream_options": "stream_options: extra inputs are not permitted",
    }
    async with serving(picky(**refusals)) as server:
        model = OpenAIChat(INFO, base_url=server.url)
        answer, notices = await ask(model)
        assert answer.text == "hello"
        assert sorted(notice.text.split(" ")[2] for notice in notices) == [
            "max_completion_tokens",
            "stream_options;",
            "temperature;",
        ]
        request_count = len(server.seen)
        assert (await ask(model))[1] == []
        assert len(server.seen) == request_count + 1
        await model.close()
    last = server.seen[-1].json
    assert sorted(last) == ["max_completion_tokens", "messages", "model", "stream"]


async def test_a_limit_refused_under_both_names_is_dropped_and_other_refusals_are_errors() -> None:
    refusals = {"max_tokens": "max_tokens is too large", "max_completion_tokens": "max_completion_tokens is too large"}
    async with serving(picky(**refusals)) as server:
        model = OpenAIChat(INFO, base_url=server.url)
        assert (await ask(model))[0].text == "hello"
        await model.close()
    assert len(server.seen) == 3
    async with serving(picky(messages="messages: unknown role", model="")) as server:
        model = OpenAIChat(INFO, base_url=server.url)
        assert (await failing(model)).kind == "bad_request"
        await model.close()
    assert len(server.seen) == 1


async def test_many_streams_at_once_over_one_session() -> None:
    together = asyncio.Event()
    open_now = 0

    async def handler(exchange: Exchange) -> None:
        nonlocal open_now
        open_now += 1
        if open_now == 150:
            together.set()
        await together.wait()
        await exchange.stream(*GREETING)

    async with serving(handler) as server:
        http = Http()
        models = [OpenAIChat(INFO, base_url=server.url, http=http) for _ in range(150)]
        answers = await asyncio.gather(*(ask(model) for model in models))
        assert {answer.text for answer, _ in answers} == {"hello"}
        await http.close()
