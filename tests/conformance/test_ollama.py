"""Ollama's own SDK and our adapter read the same bytes from the fake server and must come to the same answer: text,
thinking, calls, usage and why it ended (M-04). And what we send is what the SDK could have sent."""

from typing import Any, NamedTuple

import msgspec
import pytest

from tests.lazily import lazily
from treadle.adapters.models.ollama import OllamaChat, OllamaEncoder
from treadle.chat.assembly import Assembler
from treadle.errors import ModelError
from treadle.ports.model import ModelInfo, ModelRequest
from treadle.protocol.content import AssistantEntry, ResultsEntry, ToolRequest, ToolResult, UserEntry
from treadle.protocol.tools import ToolSpec
from treadle.testing.fake_ollama import FakeOllama, Reply

pytestmark = pytest.mark.thorough(one_of=12)

ollama = lazily("ollama")

INFO = ModelInfo("ollama", "qwen3:8b")
PARAMETERS = {
    "type": "object",
    "properties": {"path": {"type": "string", "description": "Which."}},
    "required": ["path"],
}
TOOLS = (ToolSpec("read_file", "Reads a file.", PARAMETERS),)


class CommonAnswer(NamedTuple):
    """An answer as far as both sides know it."""

    text: str
    thinking: str
    calls: list[tuple[str, Any]]
    usage: tuple[int, int]
    finish: str


async def by_adapter(url: str, request: ModelRequest) -> CommonAnswer:
    model = OllamaChat(INFO, base_url=url)
    assembler = Assembler(1)
    try:
        async for deltas in model.stream(request):
            assembler.feed(deltas)
    finally:
        await model.close()
    answer = assembler.finish(INFO.ref)
    return CommonAnswer(
        answer.text,
        assembler.thinking_text,
        [(call.name, msgspec.json.decode(call.arguments)) for call in answer.requests],
        (answer.usage.input, answer.usage.output) if answer.usage else (0, 0),
        answer.finish_reason,
    )


async def by_sdk(url: str, body: dict[str, Any]) -> CommonAnswer:
    parameters = {name: body[name] for name in ("model", "messages", "tools", "think", "options") if name in body}
    async with ollama.AsyncClient(host=url) as client:
        parts = [part async for part in await client.chat(**parameters, stream=True)]
    last = parts[-1]
    assert last.done
    calls = [call.function for part in parts for call in part.message.tool_calls or ()]
    return CommonAnswer(
        "".join(part.message.content or "" for part in parts),
        "".join(part.message.thinking or "" for part in parts),
        [(call.name, dict(call.arguments)) for call in calls],
        (last.prompt_eval_count or 0, last.eval_count or 0),
        "tool_calls" if calls and last.done_reason == "stop" else last.done_reason,
    )


def line(message: dict[str, Any], **more: Any) -> bytes:
    head = {"model": "qwen3:8b", "created_at": "2026-05-05T10:11:12.131415926Z"}
    return msgspec.json.encode({**head, "message": {"role": "assistant", **message}, "done": False, **more}) + b"\n"


CAPTURED = (
    line({"content": "", "thinking": "Zuerst "})
    + line({"content": "", "thinking": "lesen. 🧵"})
    + line({"content": "Ich lese "})
    + line({"content": "„a.py“."})
    + line(
        {
            "content": "",
            "tool_calls": [
                {"id": "call_a1", "function": {"index": 0, "name": "read_file", "arguments": {"path": "a.py"}}},
                {
                    "id": "call_a2",
                    "function": {"index": 1, "name": "read_file", "arguments": {"path": "b", "n": [1.5]}},
                },
            ],
        }
    )
    + line(
        {"content": ""},
        done=True,
        done_reason="stop",
        total_duration=4883583458,
        load_duration=1334875,
        prompt_eval_count=26,
        prompt_eval_duration=342546000,
        eval_count=282,
        eval_duration=4535599000,
    )
)

REPLIES = {
    "text": Reply(text="Grüße an {alle} 🧵\n"),
    "text by character": Reply(text="Grüße", chunk_size=1),
    "thinking": Reply(text="t", thinking="hm, ü", chunk_size=2),
    "calls": Reply(
        text="t", calls=[("read_file", {"path": "ä\n\\"}), ("read_file", {}), ("f", {"deep": [{"a": None}]})]
    ),
    "equal calls": Reply(calls=[("read_file", {"path": "a"})] * 2),
    "length": Reply(text="and so", finish="length"),
    "no usage": Reply(text="a", usage=None),
    "captured": Reply(raw=CAPTURED),
    "small writes": Reply(raw=CAPTURED, split=5),
}


@pytest.mark.parametrize("case", REPLIES)
async def test_the_sdk_and_the_adapter_read_the_same(case: str) -> None:
    with FakeOllama(lambda _request: REPLIES[case]) as fake:
        ours = await by_adapter(fake.url, ModelRequest("Be brief.", [UserEntry("go")], TOOLS))
        theirs = await by_sdk(fake.url, fake.requests[0])  # type: ignore[arg-type]
    assert ours == theirs
    first_request, again = fake.requests
    server_fields = {"truncate", "shift"}  # words of the server that the SDK does not have
    assert {name: value for name, value in first_request.items() if name not in server_fields} == again


async def test_what_a_model_can_as_the_sdk_reads_it() -> None:
    with FakeOllama(models=["qwen3:8b"], parameters="num_ctx 4096") as fake:
        model = OllamaChat(INFO, base_url=fake.url)
        await model.prepare()
        await model.close()
        async with ollama.AsyncClient(host=fake.url) as client:
            description = await client.show("qwen3:8b")
            listed = await client.list()
            with pytest.raises(ollama.ResponseError, match="not found"):
                await client.show("other")
    assert model.served_model is not None
    assert model.served_model.capabilities == frozenset(description.capabilities)
    assert model.served_model.window == description.modelinfo["fake.context_length"]
    assert description.parameters == "num_ctx 4096"
    assert [listed_model.model for listed_model in listed.models] == ["qwen3:8b"]


async def test_the_sdk_sees_the_same_failures() -> None:
    raw = b'{"message":{"role":"assistant","content":"a"},"done":false}\n{"error":"the model failed"}\n'
    for reply in (Reply(raw=raw), Reply(status=500, raw=b'{"error":"the model failed"}')):
        with FakeOllama([reply]) as fake:
            request = ModelRequest("", [UserEntry("go")])
            with pytest.raises(ModelError, match="the model failed"):
                await by_adapter(fake.url, request)
            with pytest.raises(ollama.ResponseError, match="the model failed"):
                await by_sdk(fake.url, fake.requests[0])  # type: ignore[arg-type]


def test_a_conversation_that_the_sdk_could_have_sent() -> None:
    calls = (ToolRequest("1.0", "read_file", '{"path": "a"}'), ToolRequest("1.1", "read_file", "broken"))
    results = ResultsEntry(1, (ToolResult("1.0", "x"), ToolResult("1.1", "no", success=False)))
    entries = [UserEntry("go"), AssistantEntry(1, "", calls=calls), results]
    body = msgspec.json.decode(OllamaEncoder("").encode_body({"model": "m"}, ModelRequest("s", entries, TOOLS)))
    message = ollama.Message
    messages = [message.model_validate(item).model_dump(exclude_none=True) for item in body["messages"]]
    assert [item["role"] for item in messages] == ["system", "user", "assistant", "tool", "tool"]
    assert messages[2]["tool_calls"] == [
        {"function": {"name": "read_file", "arguments": {"path": "a"}}},
        {"function": {"name": "read_file", "arguments": {"invalid_json": "broken"}}},
    ]
    assert [item["tool_name"] for item in messages[3:]] == ["read_file", "read_file"]
    assert ollama.Tool.model_validate(body["tools"][0]).model_dump(exclude_none=True) == body["tools"][0]
