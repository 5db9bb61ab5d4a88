"""OpenAI's own SDK reads the fake's stream, and our adapter makes the same of the same bytes: text, thinking, calls and
usage (M-05). Needs the package `openai`."""

from typing import Any

import pytest

from tests.lazily import lazily
from treadle.adapters.models.openai_responses import OpenAIResponses
from treadle.base.types import make_call_key
from treadle.chat.assembly import Assembler, ModelAnswer
from treadle.ports.model import ModelInfo, ModelRequest
from treadle.protocol.content import AssistantEntry, Entry, ResultsEntry, ToolResult, UserEntry
from treadle.protocol.tools import ToolSpec
from treadle.testing.fake_responses import FakeResponses, Reply

pytestmark = pytest.mark.thorough(one_of=12)

openai = lazily("openai")

INFO = ModelInfo("openai-responses", "o-test", thinking=True)
CASES = {
    "text": Reply(text="Grüße 🧵 {an} alle", chunk_size=3),
    "calls": Reply(calls=[("read_file", {"path": "ä.py"}), ("read_file", {"path": "b"})], chunk_size=4),
    "everything": Reply(
        thinking="First.\n\nThen.", text="So.", calls=[("run", {})], ids=["call_x"], usage=(1234, 56), chunk_size=2
    ),
    "encrypted only": Reply(signature="gAAAA/+=", text="Hi."),
    "length": Reply(text="to be contin", finish="length"),
    "filter": Reply(text="I must", finish="content_filter"),
    "no usage": Reply(text="x", usage=None),
    "byte by byte": Reply(text="Grüße", thinking="hm", calls=[("f", {"a": [1, {"b": None}]})], split=1),
}


async def ours(base_url: str, request: ModelRequest) -> ModelAnswer:
    model, assembler = OpenAIResponses(INFO, base_url=base_url), Assembler(1)
    async for deltas in model.stream(request):
        assembler.feed(deltas)
    await model.close()
    return assembler.finish(INFO.ref)


async def theirs(base_url: str, request: ModelRequest, *, stream: bool) -> Any:
    async with openai.AsyncOpenAI(base_url=base_url, api_key="k", max_retries=0) as client:
        parameters: dict[str, Any] = {"model": INFO.name, "input": [{"role": "user", "content": "hi"}], "store": False}
        if not stream:
            return await client.responses.create(**parameters)
        texts = {"output_text": "", "function_call_arguments": "", "reasoning_summary_text": ""}
        async with client.responses.stream(**parameters) as events:
            async for event in events:
                _, _, kind = event.type.removesuffix(".delta").partition(".")
                if event.type.endswith(".delta"):
                    texts[kind] += event.delta
        response = event.response
        assert texts["output_text"] == response.output_text  # the pieces make up the whole
        arguments = [item.arguments for item in response.output if item.type == "function_call"]
        assert texts["function_call_arguments"] == "".join(arguments)
        return response


def check_same(answer: ModelAnswer, response: Any) -> None:
    assert answer.text == response.output_text
    calls = [item for item in response.output if item.type == "function_call"]
    assert [(call.id, call.name, call.arguments) for call in answer.requests] == [
        (call.call_id, call.name, call.arguments) for call in calls
    ]
    reasoning = [item for item in response.output if item.type == "reasoning"]
    heads = [block for block in answer.thinking if '"type":"message"' in block.opaque]
    thinking_blocks = [block for block in answer.thinking if block not in heads]
    assert [block.text for block in thinking_blocks] == [
        "\n\n".join(part.text for part in item.summary) for item in reasoning
    ]
    assert all(item.encrypted_content in block.opaque for block, item in zip(thinking_blocks, reasoning, strict=True))
    messages = [item for item in response.output if item.type == "message"]
    assert all(message.id in head.opaque for head, message in zip(heads, messages, strict=True))
    if response.usage is None:
        assert answer.usage is None
    else:
        assert answer.usage is not None
        assert (answer.usage.input, answer.usage.output) == (response.usage.input_tokens, response.usage.output_tokens)
    reason = response.incomplete_details.reason if response.status == "incomplete" else None
    mapped = {"max_output_tokens": "length", "content_filter": "content_filter"}
    assert answer.finish_reason == mapped.get(reason or "", "tool_calls" if calls else "stop")


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("stream", [True, False])
async def test_the_same_answer_from_the_same_bytes(case: str, stream: bool) -> None:
    request = ModelRequest("", [UserEntry("hi")])
    with FakeResponses([CASES[case]]) as fake:
        check_same(await ours(fake.base_url, request), await theirs(fake.base_url, request, stream=stream))


async def test_the_sdk_sends_back_the_same_items() -> None:  # M-10
    """The adapter returns the same items of an answer as the SDK, but for ids and states, which need not be."""
    with FakeResponses([CASES["everything"], Reply(text="done")]) as fake:
        answer = await ours(fake.base_url, ModelRequest("", [UserEntry("hi")]))
        response = await theirs(fake.base_url, ModelRequest("", [UserEntry("hi")]), stream=False)
        entry = AssistantEntry(1, answer.text, answer.thinking, answer.requests)
        entries: list[Entry] = [UserEntry("hi"), entry, ResultsEntry(1, (ToolResult(make_call_key(1, 0), "r"),))]
        await ours(fake.base_url, ModelRequest("", entries, (ToolSpec("run"),)))
    items = fake.requests[-1]["input"][1:-1]
    reasoning, message, call = (item.model_dump(exclude_none=True) for item in response.output)
    assert items[0] == reasoning
    assert items[1]["content"][0]["text"] == message["content"][0]["text"]
    assert {**call, **items[2]} == call


async def test_the_sdk_reads_failures() -> None:  # fault 8
    refusal = Reply(status=429, headers={"Retry-After": "3"})
    with FakeResponses([refusal]) as fake, pytest.raises(openai.RateLimitError, match="scripted failure"):
        await theirs(fake.base_url, ModelRequest("", []), stream=True)
