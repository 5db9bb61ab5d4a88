"""The Responses adapter against real servers on loopback: requests, refusals, dropped parameters (M-01, M-05,
M-10; faults 7, 8 and 24)."""

from typing import Any

import pytest

from tests.unit.adapters.models.loopback import Exchange, event, serving
from treadle.adapters.models.catalog.lookup import look_up
from treadle.adapters.models.openai_responses import OpenAIResponses
from treadle.adapters.models.registry import ModelRegistry
from treadle.base.types import make_call_key
from treadle.chat.assembly import Assembler, ModelAnswer
from treadle.errors import ModelError
from treadle.ports.model import Memo, ModelInfo, ModelRequest
from treadle.protocol.content import AssistantEntry, Entry, ResultsEntry, Thinking, ToolRequest, ToolResult, UserEntry
from treadle.protocol.deltas import NoticeDelta
from treadle.protocol.tools import ToolSpec
from treadle.testing.fake_responses import FakeResponses, Reply

KEY = "sk-very-secret-key"
THINKER = ModelInfo("openai-responses", "o-test", temperature=None, thinking=True)
TALKER = ModelInfo("openai-responses", "gpt-test", window=64_000)
TOOLS = (ToolSpec("read_file"),)


async def ask(model: OpenAIResponses, request: ModelRequest | None = None) -> tuple[ModelAnswer, list[NoticeDelta]]:
    assembler = Assembler(1)
    async for deltas in model.stream(request or ModelRequest("s", [UserEntry("hi")])):
        assembler.feed(deltas)
    return assembler.finish(model.info.ref), assembler.notices


async def test_what_is_sent() -> None:
    with FakeResponses([Reply(text="hello", chunk_size=2)] * 3, in_order=True) as fake:
        thinker = OpenAIResponses(THINKER, base_url=fake.base_url + "/", api_key=KEY, effort="high")
        talker = OpenAIResponses(TALKER, base_url=fake.base_url + "/responses", headers={"X-Title": "t"})
        stranger = OpenAIResponses(ModelInfo("openai-responses", "new"), base_url=fake.base_url)
        for model in (thinker, talker, stranger):
            assert (await ask(model, ModelRequest("s", [UserEntry("hi")], max_tokens=3)))[0].text == "hello"
            await model.close()
    common_fields = {"stream": True, "store": False, "instructions": "s", "max_output_tokens": 16}
    common_fields["input"] = [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]}]
    encrypted = {"include": ["reasoning.encrypted_content"]}
    assert fake.requests == [
        {"model": "o-test", **common_fields, **encrypted, "reasoning": {"effort": "high", "summary": "auto"}},
        {"model": "gpt-test", **common_fields, "temperature": 0.1},
        {"model": "new", **common_fields, **encrypted, "temperature": 0.1},
    ]
    assert fake.paths == ["/v1/responses"] * 3
    assert fake.headers[0]["authorization"] == f"Bearer {KEY}"
    assert (fake.headers[1]["x-title"], "authorization" in fake.headers[1]) == ("t", False)


async def test_reasoning_returns_to_the_model_that_thought_it_and_to_no_other() -> None:  # M-10, fault 24
    script = [Reply(thinking="first\n\nsecond", calls=[("read_file", {"path": "a"})]), Reply(text="done")]
    with FakeResponses(script) as fake:
        model = OpenAIResponses(THINKER, base_url=fake.base_url)
        other_model = OpenAIResponses(TALKER, base_url=fake.base_url)
        answer, _ = await ask(model, ModelRequest("", [UserEntry("go")], TOOLS))
        entry = AssistantEntry(1, answer.text, answer.thinking, answer.requests)
        entries: list[Entry] = [UserEntry("go"), entry, ResultsEntry(1, (ToolResult(make_call_key(1, 0), "r"),))]
        assert (await ask(model, ModelRequest("", entries, TOOLS)))[0].text == "done"
        assert (await ask(other_model, ModelRequest("", entries, TOOLS)))[0].text == "done"
        await model.close()
        await other_model.close()
    assert answer.thinking[0].text == "first\n\nsecond"
    returned = [[item["type"] for item in request["input"]] for request in fake.requests]
    assert returned == [
        ["message"],
        ["message", "reasoning", "function_call", "function_call_output"],
        ["message", "function_call", "function_call_output"],
    ]
    assert fake.requests[1]["input"][1]["encrypted_content"]


async def test_refused_reasoning_is_dropped_and_the_call_made_again_once() -> None:  # M-10
    stale = '{"type":"reasoning","id":"rs_9","summary":[],"encrypted_content":"stale"}'
    call = ToolRequest(make_call_key(1, 0), "read_file", "{}", "i")
    entry = AssistantEntry(1, "", (Thinking("", stale, THINKER.ref),), (call,))
    entries: list[Entry] = [UserEntry("go"), entry, ResultsEntry(1, (ToolResult(call.call, "r"),))]
    with FakeResponses([Reply(), Reply(text="done")]) as fake:
        model = OpenAIResponses(THINKER, base_url=fake.base_url)
        request = ModelRequest("", entries, TOOLS, memo=Memo())
        answer, notices = await ask(model, request)
        assert answer.text == "done"
        assert [(notice.kind, notice.text.split(" ", 1)[0]) for notice in notices] == [
            ("thinking_dropped", THINKER.ref)
        ]
        assert (await ask(model, request))[1] == []  # it is remembered
        await model.close()
    assert b"stale" not in repr(fake.requests).encode()  # the fake counts only what it accepts


def picky(refusals: dict[str, dict[str, Any]]) -> Any:
    """A server that refuses these parameters, one at a time, in these words."""
    words = b'data: {"type":"response.output_text.delta","delta":"hello"}\n\ndata: {"type":"response.completed"}\n\n'

    async def handler(exchange: Exchange) -> None:
        for name, error in refusals.items():
            if name in exchange.json:
                await exchange.reply(400, event(error=error)[6:])
                return
        await exchange.stream(words)

    return handler


async def test_refused_parameters_are_dropped_for_good() -> None:  # M-01
    refusals: dict[str, dict[str, Any]] = {
        "include": {"message": "Encrypted content is not supported with this model.", "param": "include"},
        "reasoning": {"message": "Your organization must be verified to see it.", "param": "reasoning.summary"},
        "temperature": {"message": "Unsupported parameter: 'temperature' is not supported with this model."},
        "max_output_tokens": {"message": "Unsupported parameter: max_output_tokens"},
    }
    async with serving(picky(refusals)) as server:
        model = OpenAIResponses(THINKER, base_url=server.url)
        answer, notices = await ask(model, ModelRequest("", [UserEntry("hi")], temperature=0.5))
        assert answer.text == "hello"
        assert sorted(notice.text.split(" ")[2] for notice in notices) == [
            "include;",
            "max_output_tokens;",
            "reasoning;",
            "temperature;",
        ]
        request_count = len(server.seen)
        assert (await ask(model))[1] == []
        assert len(server.seen) == request_count + 1
        await model.close()
    assert sorted(server.seen[-1].json) == ["input", "instructions", "model", "store", "stream"]


@pytest.mark.parametrize(
    ("status", "kind"),
    [(400, "bad_request"), (401, "auth"), (404, "bad_request"), (429, "rate_limit"), (500, "overloaded")],
)
async def test_refusals_are_errors_and_show_no_key(status: int, kind: str) -> None:  # fault 8, M-13
    with FakeResponses(
        [Reply(status=status, error={"message": f"not with {KEY}", "code": "x"})], in_order=True
    ) as fake:
        model = OpenAIResponses(THINKER, base_url=fake.base_url, api_key=KEY)
        with pytest.raises(ModelError, match=r"not with \*\*\*") as caught:
            await ask(model)
        await model.close()
    assert (caught.value.kind, caught.value.status, len(fake.requests)) == (kind, status, 1)
    assert KEY not in f"{model!r} {vars(model)} {caught.value!r}"


async def test_cut_and_split_on_the_network() -> None:  # fault 7
    reply = {"text": "Grüße 🧵", "thinking": "hm", "calls": [("f", {"a": "ä"})], "chunk_size": 3}
    sizes = [0, 1, 7, 64]
    cuts = [0, 40, 700, 2000]
    script = [Reply(**reply, split=size) for size in sizes] + [Reply(**reply, cut_after=cut_size) for cut_size in cuts]  # type: ignore[arg-type]
    with FakeResponses(script, in_order=True) as fake:
        model = OpenAIResponses(THINKER, base_url=fake.base_url)
        answers = [(await ask(model))[0] for _ in sizes]
        for _ in cuts:
            with pytest.raises(ModelError) as caught:
                await ask(model)
            assert caught.value.kind == "cut_stream"
        await model.close()
    assert all(answer == answers[0] for answer in answers)
    assert (answers[0].text, answers[0].requests[0].arguments) == ("Grüße 🧵", '{"a":"ä"}')


async def test_found_by_name_with_the_key_of_openai() -> None:  # M-12
    with FakeResponses([Reply(text="hi")]) as fake:
        registry = ModelRegistry({"OPENAI_BASE_URL": fake.base_url, "OPENAI_API_KEY": KEY})
        model = registry.get("openai-responses:gpt-5")
        async for _ in model.stream(ModelRequest("", [UserEntry("x")])):
            pass
        await registry.close()
    assert fake.headers[0]["authorization"] == f"Bearer {KEY}"
    assert fake.requests[0]["reasoning"] == {"summary": "auto"}
    assert "temperature" not in fake.requests[0]
    assert look_up("openai-responses", "gpt-4.1").thinking is False
    assert look_up("openai-responses", "gpt-5.3-codex").usd_per_million_output == 14.0
