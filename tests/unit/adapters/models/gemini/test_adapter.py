"""The Gemini adapter against real servers on loopback: requests, refusals, dropped parameters (M-01, M-03,
M-10, M-11, M-13; faults 7, 8 and 24)."""

from typing import Any

import msgspec
import pytest

from tests.unit.adapters.models.loopback import Exchange, serving
from treadle.adapters.models.catalog.lookup import look_up
from treadle.adapters.models.gemini.adapter import STAND_IN, Gemini
from treadle.adapters.models.registry import ModelRegistry
from treadle.base.types import make_call_key
from treadle.chat.assembly import Assembler, ModelAnswer
from treadle.errors import ConfigError, ModelError
from treadle.ports.model import Memo, ModelInfo, ModelRequest
from treadle.protocol.content import AssistantEntry, Entry, ResultsEntry, Thinking, ToolRequest, ToolResult, UserEntry
from treadle.protocol.deltas import NoticeDelta
from treadle.protocol.tools import ToolSpec
from treadle.testing.fake_gemini import FakeGemini, Reply

KEY = "AIzaVerySecretKey0123456789"
THINKER = ModelInfo("gemini", "gemini-3-test", temperature=None, thinking=True)
TALKER = ModelInfo("gemini", "gemini-2-test", window=64_000)
TOOLS = (ToolSpec("read_file", parameters={"properties": {"path": {"const": "x"}}}),)
SAID = b'data: {"candidates":[{"content":{"parts":[{"text":"hello"}]},"finishReason":"STOP"}]}\n\n'


async def ask(model: Gemini, request: ModelRequest | None = None) -> tuple[ModelAnswer, list[NoticeDelta]]:
    assembler = Assembler(1)
    async for deltas in model.stream(request or ModelRequest("s", [UserEntry("hi")])):
        assembler.feed(deltas)
    return assembler.finish(model.info.ref), assembler.notices


def history(opaque: str = "", model: str = THINKER.ref) -> list[Entry]:
    call = ToolRequest(make_call_key(1, 0), "read_file", "{}", "i")
    thinking = (Thinking("", opaque, model),) if opaque else ()
    return [UserEntry("go"), AssistantEntry(1, "", thinking, (call,)), ResultsEntry(1, (ToolResult(call.call, "r"),))]


def signatures(request: Any) -> list[str]:
    parts = [part for content in request["contents"] for part in content["parts"]]
    return [part["thoughtSignature"] for part in parts if "thoughtSignature" in part]


async def test_what_is_sent() -> None:
    with FakeGemini([Reply(text="hello", chunk_size=2)] * 4, in_order=True) as fake:
        models = [
            Gemini(THINKER, base_url=fake.base_url + "/", api_key=KEY, level="low"),
            Gemini(TALKER, base_url=fake.base_url + "/v1", headers={"X-Title": "t"}),
            Gemini(ModelInfo("gemini", "gemini-9"), base_url=fake.base_url + "/v1beta"),
            Gemini(ModelInfo("gemini", "models/gemma-3"), base_url=fake.base_url),
        ]
        for model in models:
            assert (await ask(model))[0].text == "hello"
            await model.close()
    common_fields = {
        "systemInstruction": {"parts": [{"text": "s"}]},
        "contents": [{"role": "user", "parts": [{"text": "hi"}]}],
    }
    thoughts = {"includeThoughts": True}
    assert fake.requests == [
        {
            "generationConfig": {"maxOutputTokens": 4096, "thinkingConfig": thoughts | {"thinkingLevel": "low"}},
            **common_fields,
        },
        {"generationConfig": {"temperature": 0.1, "maxOutputTokens": 4096}, **common_fields},
        {
            "generationConfig": {"temperature": 0.1, "maxOutputTokens": 4096, "thinkingConfig": thoughts},
            **common_fields,
        },
        {"generationConfig": {"temperature": 0.1, "maxOutputTokens": 4096}, **common_fields},
    ]
    method = ":streamGenerateContent?alt=sse"
    assert fake.paths == [
        f"/v1beta/models/gemini-3-test{method}",
        f"/v1/models/gemini-2-test{method}",
        f"/v1beta/models/gemini-9{method}",
        f"/v1beta/models/gemma-3{method}",
    ]
    assert (fake.headers[0]["x-goog-api-key"], "authorization" in fake.headers[0]) == (KEY, False)
    assert (fake.headers[1]["x-title"], "x-goog-api-key" in fake.headers[1]) == ("t", False)


async def test_what_the_user_asks_for_comes_first() -> None:  # M-01
    with FakeGemini([Reply(text="hello")]) as fake:
        model = Gemini(THINKER, base_url=fake.base_url, thinking=False)
        await ask(model, ModelRequest("", [UserEntry("hi")], temperature=0.7, max_tokens=11))
        await model.close()
    assert fake.requests[0]["generationConfig"] == {"temperature": 0.7, "maxOutputTokens": 11}


async def test_signatures_return_to_the_model_that_made_them_and_to_no_other() -> None:  # M-10, fault 24
    script = [Reply(thinking="hm", text="So", calls=[("read_file", {"path": "x"})] * 2), Reply(text="done")]
    with FakeGemini(script) as fake:
        model = Gemini(THINKER, base_url=fake.base_url)
        other_model = Gemini(ModelInfo("gemini", "gemini-3-other"), base_url=fake.base_url)
        older = Gemini(TALKER, base_url=fake.base_url)
        answer, _ = await ask(model, ModelRequest("", [UserEntry("go")], TOOLS))
        results = ResultsEntry(1, tuple(ToolResult(call.call, "r") for call in answer.requests))
        entry = AssistantEntry(1, answer.text, answer.thinking, answer.requests)
        entries: list[Entry] = [UserEntry("go"), entry, results]
        for current_model in (model, other_model, older):
            final_answer, notices = await ask(current_model, ModelRequest("", entries, TOOLS))
            assert (final_answer.text, notices) == ("done", [])
            await current_model.close()
    assert [block.text for block in answer.thinking] == ["hm"]
    sent_signatures = signatures(fake.requests[1])
    assert len(sent_signatures) == 1
    assert sent_signatures[0] in answer.thinking[0].opaque
    assert [signatures(request) for request in fake.requests[2:]] == [[STAND_IN], []]


async def test_refused_signatures_are_dropped_and_the_call_made_again_once() -> None:  # M-10
    entries = history('{"on":"call","thoughtSignature":"stale"}')
    with FakeGemini([Reply(), Reply(text="done")]) as fake:
        model = Gemini(THINKER, base_url=fake.base_url)
        request = ModelRequest("", entries, TOOLS, memo=Memo())
        answer, notices = await ask(model, request)
        assert answer.text == "done"
        assert [(notice.kind, notice.text.split(" ")[0]) for notice in notices] == [("thinking_dropped", THINKER.ref)]
        assert (await ask(model, request))[1] == []  # it is remembered
        await model.close()
    assert [signatures(request) for request in fake.requests] == [[STAND_IN]] * 2  # the fake counts what it accepts
    assert entries == history('{"on":"call","thoughtSignature":"stale"}')  # the record stays


async def test_a_model_that_misses_signatures_gets_stand_ins() -> None:  # M-10
    """One whose name does not tell that it demands them."""

    async def handler(exchange: Exchange) -> None:
        if b"thoughtSignature" in exchange.body:
            await exchange.stream(SAID)
        else:
            message = "Function call is missing a thought_signature in functionCall parts."
            await exchange.reply(400, msgspec.json.encode({"error": {"code": 400, "message": message}}))

    async with serving(handler) as server:
        model = Gemini(ModelInfo("gemini", "latest"), base_url=server.url)
        request = ModelRequest("", history(), TOOLS, memo=Memo())
        answer, notices = await ask(model, request)
        assert (answer.text, [notice.kind for notice in notices]) == ("hello", ["thinking_dropped"])
        assert (await ask(model, request))[1] == []
        await model.close()
    assert [signatures(exchange.json) for exchange in server.seen] == [[], [STAND_IN], [STAND_IN]]


async def test_a_server_that_takes_neither_is_not_asked_for_ever() -> None:
    async def handler(exchange: Exchange) -> None:
        word = "Invalid" if b"thoughtSignature" in exchange.body else "missing"
        await exchange.reply(400, msgspec.json.encode({"error": {"message": f"{word} thought signature."}}))

    for info in (THINKER, ModelInfo("gemini", "latest")):
        async with serving(handler) as server:
            model = Gemini(info, base_url=server.url)
            with pytest.raises(ModelError, match="thought signature"):
                await ask(model, ModelRequest("", history('{"on":"call","thoughtSignature":"s"}', info.ref), TOOLS))
            await model.close()
        assert len(server.seen) <= 6


def picky(refusals: dict[bytes, str]) -> Any:
    """A server that refuses bodies with these bytes, one at a time, in these words."""

    async def handler(exchange: Exchange) -> None:
        for part, message in refusals.items():
            if part in exchange.body:
                error = {"code": 400, "message": message, "status": "INVALID_ARGUMENT"}
                await exchange.reply(400, msgspec.json.encode([{"error": error}]))
                return
        await exchange.stream(SAID)

    return handler


async def test_what_is_refused_by_name_is_left_out_for_good() -> None:  # M-01
    refusals = {
        b"parametersJsonSchema": "Invalid JSON payload received. Unknown name \"parametersJsonSchema\" at 'tools[0]'",
        b"thinkingConfig": "Unable to submit request because thinking is not supported by this model.",
        b"temperature": "temperature must not be set",
        b"maxOutputTokens": "it has a maxOutputTokens value of 9 but the supported range is from 1 to 8",
    }
    async with serving(picky(refusals)) as server:
        model = Gemini(THINKER, base_url=server.url)
        request = ModelRequest("", [UserEntry("hi")], TOOLS, temperature=0.5)
        answer, notices = await ask(model, request)
        assert answer.text == "hello"
        assert [notice.kind for notice in notices] == ["schema_reduced", *["parameter_dropped"] * 3]
        request_count = len(server.seen)
        assert (await ask(model, request))[1] == []
        assert len(server.seen) == request_count + 1
        await model.close()
    last = server.seen[-1].json
    assert sorted(last) == ["contents", "toolConfig", "tools"]
    declared = last["tools"][0]["functionDeclarations"][0]
    assert declared["parameters"]["properties"] == {"path": {"type": "string", "enum": ["x"]}}


async def test_a_signature_that_is_missed_at_the_end_of_a_stream() -> None:
    missed = b'data: {"candidates":[{"finishReason":"MISSING_THOUGHT_SIGNATURE"}],"usageMetadata":{}}\n\n'

    async def handler(exchange: Exchange) -> None:
        await exchange.stream(SAID if b"thoughtSignature" in exchange.body else missed)

    async with serving(handler) as server:
        model = Gemini(TALKER, base_url=server.url)
        answer, notices = await ask(model, ModelRequest("", history(), TOOLS))
        await model.close()
    assert (answer.text, len(notices), len(server.seen)) == ("hello", 1, 2)


@pytest.mark.parametrize(
    ("status", "kind"),
    [(400, "bad_request"), (401, "auth"), (403, "auth"), (429, "rate_limit"), (500, "overloaded"), (503, "overloaded")],
)
async def test_refusals_are_errors_and_show_no_key(status: int, kind: str) -> None:  # fault 8, M-13
    with FakeGemini(
        [Reply(status=status, error={"message": f"not with {KEY}", "code": status})], in_order=True
    ) as fake:
        model = Gemini(THINKER, base_url=fake.base_url, api_key=KEY)
        with pytest.raises(ModelError, match=r"not with \*\*\*") as caught:
            await ask(model)
        await model.close()
    assert (caught.value.kind, caught.value.status, len(fake.requests)) == (kind, status, 1)
    assert KEY not in f"{model!r} {vars(model)} {caught.value!r}"


async def test_the_wait_that_is_asked_for_is_told() -> None:  # M-11
    details = [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "7.5s"}]
    error = {"code": 429, "message": "You exceeded your current quota", "details": details}
    with FakeGemini([Reply(status=429, error=error)], in_order=True) as fake:
        model = Gemini(THINKER, base_url=fake.base_url)
        with pytest.raises(ModelError) as caught:
            await ask(model)
        await model.close()
    assert (caught.value.kind, caught.value.retry_after) == ("rate_limit", 7.5)


async def test_cut_and_split_on_the_network() -> None:  # fault 7
    reply = {"text": "Grüße 🧵", "thinking": "hm", "calls": [("f", {"a": "ä"})], "chunk_size": 3}
    sizes = [0, 1, 7, 64]
    cuts = [0, 40, 700]
    script = [Reply(**reply, split=size) for size in sizes] + [Reply(**reply, cut_after=cut_size) for cut_size in cuts]  # type: ignore[arg-type]
    with FakeGemini(script, in_order=True) as fake:
        model = Gemini(THINKER, base_url=fake.base_url)
        answers = [(await ask(model))[0] for _ in sizes]
        for _ in cuts:
            with pytest.raises(ModelError) as caught:
                await ask(model)
            assert caught.value.kind == "cut_stream"
        await model.close()
    assert all(answer == answers[0] for answer in answers)
    assert (answers[0].text, answers[0].requests[0].arguments) == ("Grüße 🧵", '{"a":"ä"}')


async def test_the_connection_is_used_again() -> None:
    async with serving(picky({})) as server:
        model = Gemini(THINKER, base_url=server.url)
        await ask(model)
        await ask(model)
        await model.close()
    assert [exchange.connection for exchange in server.seen] == [1, 1]


@pytest.mark.parametrize(
    ("env", "key"),
    [
        ({"GEMINI_API_KEY": KEY}, KEY),
        ({"GOOGLE_API_KEY": KEY}, KEY),
        ({"GEMINI_API_KEY": KEY, "GOOGLE_API_KEY": "another"}, KEY),
        ({}, None),
    ],
)
async def test_found_by_name_with_either_key(env: dict[str, str], key: str | None) -> None:  # M-12, M-13
    with FakeGemini([Reply(text="hi")]) as fake:
        registry = ModelRegistry({"GEMINI_BASE_URL": fake.base_url, **env})
        model = registry.get("gemini:gemini-3.8-flash")
        async for _ in model.stream(ModelRequest("", [UserEntry("x")])):
            pass
        await registry.close()
    assert fake.headers[0].get("x-goog-api-key") == key
    assert fake.requests[0]["generationConfig"] == {
        "maxOutputTokens": 32_768,
        "thinkingConfig": {"includeThoughts": True},
    }


def test_without_a_key_it_says_what_to_set() -> None:
    with pytest.raises(ConfigError, match="set GEMINI_API_KEY"):
        ModelRegistry({}).get("gemini:gemini-3.8-flash")


def test_the_catalogue() -> None:  # M-12
    newest, small = look_up("gemini", "gemini-4-argon"), look_up("vertex", "gemini-2.5-flash-lite")
    assert (newest.window, newest.thinking, newest.temperature) == (1_048_576, True, None)
    assert (small.ref, small.thinking, small.temperature) == ("vertex:gemini-2.5-flash-lite", False, 0.1)
