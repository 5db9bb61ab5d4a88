"""Google's own SDK and our adapter read the same bytes from the fake server and must come to the same answer: text,
thoughts, signatures, calls, usage and why it ended; and they send the same conversation back (M-03, M-10)."""

import base64
from typing import Any, NamedTuple

import msgspec
import pytest

from tests.lazily import lazily
from treadle.adapters.models.gemini.adapter import Gemini
from treadle.adapters.models.gemini.vertex import Vertex, VertexEndpoint, make_fixed_tokens
from treadle.adapters.models.keys import Secret
from treadle.adapters.models.thinking import unseal
from treadle.chat.assembly import Assembler, ModelAnswer
from treadle.ports.model import ModelInfo, ModelRequest
from treadle.protocol.content import AssistantEntry, Entry, ResultsEntry, ToolResult, UserEntry
from treadle.protocol.tools import ToolSpec
from treadle.testing.fake_gemini import FakeGemini, Reply

pytestmark = pytest.mark.thorough(one_of=12)

genai = lazily("google.genai")

INFO = ModelInfo("gemini", "gemini-3.8-flash", temperature=None, thinking=True)
OLDER = ModelInfo("gemini", "gemini-2.5-pro", thinking=True)
TOOLS = (ToolSpec("read_file", "Reads a file.", {"type": "object", "properties": {"path": {"type": "string"}}}),)
FINISH = {"MAX_TOKENS": "length", "SAFETY": "content_filter"}
CASES = {
    "text": Reply(text="Grüße 🧵 {an} alle", chunk_size=3),
    "text at once": Reply(text="Grüße"),
    "calls": Reply(calls=[("read_file", {"path": "ä.py"}), ("read_file", {"path": "b"})]),
    "ids": Reply(calls=[("f", {}), ("g", {"a": [1, {"b": None}]})], ids=["x", "y"]),
    "everything": Reply(thinking="First. Then.", text="So.", calls=[("run", {})], usage=(1234, 57), chunk_size=2),
    "signed": Reply(signature="gAAA/+8=", text="Hi."),
    "length": Reply(text="to be contin", finish="length"),
    "filter": Reply(text="I must", finish="content_filter"),
    "no usage": Reply(text="x", usage=None),
    "byte by byte": Reply(text="Grüße", thinking="hm", calls=[("f", {"a": "ü"})], split=1),
}


class CommonAnswer(NamedTuple):
    """An answer as far as both sides know it."""

    text: str
    thinking: str
    signatures: list[bytes]
    calls: list[tuple[str, str, Any]]
    usage: tuple[int, int, int, int]
    finish: str


async def answer_of(model: Gemini, request: ModelRequest) -> ModelAnswer:
    assembler = Assembler(1)
    async for deltas in model.stream(request):
        assembler.feed(deltas)
    await model.close()
    return assembler.finish(model.info.ref)


def by_adapter(answer: ModelAnswer) -> CommonAnswer:
    usage = answer.usage
    signed = [sealed for block in answer.thinking if (sealed := unseal(block.opaque)) is not None]
    return CommonAnswer(
        answer.text,
        "".join(block.text for block in answer.thinking),
        [base64.b64decode(msgspec.json.decode(sealed.block)["thoughtSignature"]) for sealed in signed],
        [(call.id, call.name, msgspec.json.decode(call.arguments)) for call in answer.requests],
        (usage.input, usage.output, usage.cached, usage.reasoning) if usage else (0, 0, 0, 0),
        answer.finish_reason,
    )


def client_of(url: str, **more: Any) -> Any:
    """It blocks; the fake server has a thread of its own."""
    options = {"base_url": url}
    return genai.Client(**(more or {"api_key": "key"}), http_options=options)


def parts_of(client: Any, info: ModelInfo, *, stream: bool = True) -> tuple[list[Any], Any]:
    """The parts of an answer as the SDK reads them, and its last response."""
    if not stream:
        response = client.models.generate_content(model=info.name, contents="hi")
        return list(response.candidates[0].content.parts), response
    parts: list[Any] = []
    for response in client.models.generate_content_stream(model=info.name, contents="hi"):
        parts += response.candidates[0].content.parts or ()
    return parts, response


def by_sdk(parts: list[Any], last: Any) -> CommonAnswer:
    counts = last.usage_metadata
    calls = [part.function_call for part in parts if part.function_call]
    finish = last.candidates[0].finish_reason.value
    thoughts = (counts and counts.thoughts_token_count) or 0
    return CommonAnswer(
        "".join(part.text for part in parts if part.text and not part.thought),
        "".join(part.text for part in parts if part.text and part.thought),
        [part.thought_signature for part in parts if part.thought_signature],
        [(call.id or "", call.name, call.args) for call in calls],
        (counts.prompt_token_count, counts.candidates_token_count + thoughts, 0, thoughts) if counts else (0, 0, 0, 0),
        FINISH.get(finish, "tool_calls" if calls else "stop"),
    )


@pytest.mark.parametrize("info", [INFO, OLDER], ids=["signs", "older"])
@pytest.mark.parametrize("stream", [True, False])
async def test_the_same_answers_from_the_same_bytes(stream: bool, info: ModelInfo) -> None:
    ours, theirs = {}, {}
    script = [reply for reply in CASES.values() for _ in "ab"]
    with FakeGemini(script, in_order=True) as fake, client_of(fake.base_url) as client:
        for case in CASES:
            answer = await answer_of(Gemini(info, base_url=fake.base_url), ModelRequest("", [UserEntry("hi")]))
            ours[case] = by_adapter(answer)
            theirs[case] = by_sdk(*parts_of(client, info, stream=stream))
    assert ours == theirs


def merge_returned_parts(parts: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The parts of an answer as they go back, with pieces of unsigned text joined and signatures as their bytes."""
    merged_parts: list[dict[str, Any]] = []
    for part in parts:
        if "thoughtSignature" in part:
            signature = part["thoughtSignature"].replace("-", "+").replace("_", "/")
            merged_parts.append({**part, "thoughtSignature": base64.b64decode(signature)})
        elif part.get("thought"):
            continue  # the text of thoughts need not go back
        elif merged_parts and merged_parts[-1].keys() == part.keys() == {"text"}:
            merged_parts[-1] = {"text": merged_parts[-1]["text"] + part["text"]}
        else:
            merged_parts.append(part)
    return merged_parts


@pytest.mark.parametrize("case", ["text", "text at once", "calls", "everything"])
async def test_the_sdk_sends_the_same_conversation_back(case: str) -> None:  # M-10
    """The adapter returns the same parts of an answer as Google's own chat keeps: each signature on its part."""
    with FakeGemini([CASES[case], Reply(text="done")]) as fake:
        answer = await answer_of(Gemini(INFO, base_url=fake.base_url), ModelRequest("", [UserEntry("hi")]))
        entries: list[Entry] = [UserEntry("hi"), AssistantEntry(1, answer.text, answer.thinking, answer.requests)]
        results = tuple(ToolResult(call.call, "r") for call in answer.requests)
        entries.append(ResultsEntry(1, results) if results else UserEntry("more"))
        await answer_of(Gemini(INFO, base_url=fake.base_url), ModelRequest("", entries, TOOLS))
        with client_of(fake.base_url) as client:
            chat = client.chats.create(model=INFO.name)
            for _ in chat.send_message_stream("hi"):
                pass
    model_parts = [part for content in chat.get_history() if content.role == "model" for part in content.parts]
    parts = [msgspec.json.decode(part.model_dump_json(exclude_none=True, by_alias=True)) for part in model_parts]
    assert merge_returned_parts(fake.requests[1]["contents"][1]["parts"]) == merge_returned_parts(parts)


async def test_vertex_reads_the_same() -> None:
    credentials: Any = pytest.importorskip("google.oauth2.credentials").Credentials(token="ya29.token")
    with FakeGemini([CASES["everything"]]) as fake:
        info = ModelInfo("vertex", INFO.name, thinking=True)
        endpoint = VertexEndpoint(
            make_fixed_tokens(Secret("ya29.token")), project="p-1", location="us-east5", base_url=fake.base_url
        )
        answer = await answer_of(Vertex(info, endpoint=endpoint), ModelRequest("", [UserEntry("hi")]))
        project = {"vertexai": True, "project": "p-1", "location": "us-east5", "credentials": credentials}
        with client_of(fake.base_url, **project) as client:
            parts, _ = parts_of(client, INFO)
    assert fake.paths[0] == fake.paths[1]
    assert fake.headers[0]["authorization"] == fake.headers[1]["authorization"]
    assert answer.text == "".join(part.text for part in parts if part.text and not part.thought)


def test_the_sdk_reads_failures() -> None:  # fault 8
    refused = pytest.raises(genai.errors.ClientError, match="scripted failure")
    with FakeGemini([Reply(status=429)]) as fake, client_of(fake.base_url) as client, refused as caught:
        parts_of(client, INFO)
    assert (caught.value.code, caught.value.status) == (429, "RESOURCE_EXHAUSTED")
