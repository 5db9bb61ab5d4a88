"""Anthropic's own SDK and our adapter read the same bytes from the fake server and must come to the same answer: text,
thinking, calls, usage and why it ended (M-02)."""

from typing import Any, NamedTuple

import msgspec
import pytest

from tests.lazily import lazily
from treadle.adapters.models.anthropic import AnthropicEncoder, AnthropicMessages
from treadle.chat.assembly import Assembler
from treadle.ports.model import ModelInfo, ModelRequest
from treadle.protocol.content import AssistantEntry, ResultsEntry, ToolResult, UserEntry
from treadle.protocol.tools import ToolSpec
from treadle.testing.fake_anthropic import FakeAnthropic, Reply, encode_event

pytestmark = pytest.mark.thorough(one_of=12)

anthropic = lazily("anthropic")

INFO = ModelInfo("anthropic", "claude-opus-5-5", temperature=None, thinking=True)
TOOLS = (ToolSpec("read_file", "Reads a file.", {"type": "object", "properties": {"path": {"type": "string"}}}),)
FINISH = {"end_turn": "stop", "tool_use": "tool_calls", "max_tokens": "length", "refusal": "content_filter"}


class CommonAnswer(NamedTuple):
    """An answer as far as both sides know it."""

    text: str
    thinking: list[dict[str, Any]]
    calls: list[tuple[str, str, Any]]
    usage: tuple[int, int, int, int]
    finish: str


async def by_adapter(url: str, request: ModelRequest) -> CommonAnswer:
    model = AnthropicMessages(INFO, base_url=url, api_key="key")
    assembler = Assembler(1)
    async for deltas in model.stream(request):
        assembler.feed(deltas)
    await model.close()
    answer = assembler.finish(INFO.ref)
    usage = answer.usage
    assert usage is not None
    blocks = [msgspec.json.decode(block.opaque) for block in answer.thinking]
    return CommonAnswer(
        answer.text,
        [block[-1] if isinstance(block, list) else block for block in blocks],
        [(call.id, call.name, msgspec.json.decode(call.arguments)) for call in answer.requests],
        (usage.input, usage.output, usage.cached, usage.reasoning),
        answer.finish_reason,
    )


async def by_sdk(url: str, body: dict[str, Any]) -> CommonAnswer:
    parameters = {name: value for name, value in body.items() if name != "stream"}
    client = anthropic.AsyncAnthropic(base_url=url, api_key="key", max_retries=0)
    async with client, client.messages.stream(**parameters) as stream:
        message = await stream.get_final_message()
    usage = message.usage
    details = usage.output_tokens_details
    input_tokens = usage.input_tokens + (usage.cache_creation_input_tokens or 0) + (usage.cache_read_input_tokens or 0)
    return CommonAnswer(
        "".join(block.text for block in message.content if block.type == "text"),
        [block.to_dict() for block in message.content if "thinking" in block.type],
        [(block.id, block.name, block.input) for block in message.content if block.type == "tool_use"],
        (
            input_tokens,
            usage.output_tokens,
            usage.cache_read_input_tokens or 0,
            details.thinking_tokens if details else 0,
        ),
        FINISH[message.stop_reason],
    )


def start(index: int, **block: Any) -> bytes:
    return encode_event("content_block_start", index=index, content_block=block)


def piece(index: int, kind: str, **delta: Any) -> bytes:
    return encode_event("content_block_delta", index=index, delta={"type": f"{kind}_delta", **delta})


def stop(index: int) -> bytes:
    return encode_event("content_block_stop", index=index)


INTERLEAVED = (
    encode_event(
        "message_start",
        message={
            "id": "msg_01",
            "type": "message",
            "role": "assistant",
            "model": "claude-opus-5-5",
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": {
                "input_tokens": 12,
                "cache_creation_input_tokens": 340,
                "cache_read_input_tokens": 5600,
                "cache_creation": {"ephemeral_5m_input_tokens": 340, "ephemeral_1h_input_tokens": 0},
                "output_tokens": 3,
                "service_tier": "standard",
            },
        },
    )
    + start(0, type="thinking", thinking="", signature="")
    + encode_event("ping")
    + piece(0, "thinking", thinking="Zuerst ")
    + piece(0, "thinking", thinking="lesen. 🧵")
    + piece(0, "signature", signature="EqQBCgIYAhIM+/==")
    + stop(0)
    + start(1, type="redacted_thinking", data="EmwKAhgBEgy3va3pzix")
    + stop(1)
    + start(2, type="text", text="")
    + piece(2, "text", text="Ich lese ")
    + encode_event("ping")
    + piece(2, "text", text="„a.py“.")
    + stop(2)
    + start(3, type="tool_use", id="toolu_01", name="read_file", input={})
    + piece(3, "input_json", partial_json="")
    + piece(3, "input_json", partial_json='{"path": "a')
    + piece(3, "input_json", partial_json='.py"}')
    + stop(3)
    + start(4, type="thinking", thinking="", signature="")
    + piece(4, "signature", signature="omitted-text==")
    + stop(4)
    + start(5, type="tool_use", id="toolu_02", name="read_file", input={})
    + stop(5)
    + encode_event(
        "message_delta",
        delta={"stop_reason": "tool_use", "stop_sequence": None, "stop_details": None},
        usage={
            "input_tokens": 12,
            "cache_creation_input_tokens": 340,
            "cache_read_input_tokens": 5600,
            "output_tokens": 89,
            "output_tokens_details": {"thinking_tokens": 40},
        },
    )
    + encode_event("message_stop")
)

REPLIES = {
    "text": Reply(text="Grüße an {alle} 🧵\n"),
    "text by character": Reply(text="Grüße", chunk_size=1),
    "thinking": Reply(text="t", thinking="hm, ü", chunk_size=2),
    "calls": Reply(
        text="t", calls=[("read_file", {"path": "ä\n\\"}), ("read_file", {}), ("read_file", {"deep": [{"a": None}]})]
    ),
    "arguments by character": Reply(calls=[("read_file", {"path": 'x"}{'})], chunk_size=1),
    "equal calls": Reply(calls=[("read_file", {"path": "a"})] * 2),
    "length": Reply(text="and so", finish="length"),
    "refusal": Reply(text="I", finish="content_filter"),
    "interleaved": Reply(raw=INTERLEAVED),
    "small writes": Reply(raw=INTERLEAVED, split=5),
}


@pytest.mark.parametrize("case", REPLIES)
async def test_the_sdk_and_the_adapter_read_the_same(case: str) -> None:
    with FakeAnthropic(lambda _request: REPLIES[case]) as fake:
        ours = await by_adapter(fake.base_url, ModelRequest("Be brief.", [UserEntry("go")], TOOLS))
        theirs = await by_sdk(fake.base_url, fake.requests[0])  # type: ignore[arg-type]
    assert ours == theirs
    assert fake.requests[0] == fake.requests[1]


async def test_what_the_sdk_sends_back_is_what_we_send_back() -> None:  # M-10: byte-exact, in its place
    """Both continue the same answer: the assistant's message must be the same."""
    with FakeAnthropic([Reply(raw=INTERLEAVED)]) as fake:
        model = AnthropicMessages(INFO, base_url=fake.base_url)
        assembler = Assembler(1)
        async for deltas in model.stream(ModelRequest("", [UserEntry("go")], TOOLS)):
            assembler.feed(deltas)
        await model.close()
        client = anthropic.AsyncAnthropic(base_url=fake.base_url, api_key="key", max_retries=0)
        body = {"model": "m", "max_tokens": 1, "messages": [{"role": "user", "content": "go"}]}
        async with client, client.messages.stream(**body) as stream:
            message = await stream.get_final_message()
    answer = assembler.finish(INFO.ref)
    entry = AssistantEntry(1, answer.text, answer.thinking, answer.requests)
    results = ResultsEntry(1, tuple(ToolResult(call.call, "ok") for call in answer.requests))
    encoded_body = AnthropicEncoder(INFO.ref).encode_body(
        {"model": "m"}, ModelRequest("", [UserEntry("go"), entry, results], TOOLS)
    )
    assert msgspec.json.decode(encoded_body)["messages"][1] == {
        "role": "assistant",
        "content": [block.to_dict() for block in message.content],
    }
