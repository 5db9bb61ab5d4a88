"""Random answers of each wire, read by the vendor's SDK and by our adapter: text, thinking, calls, usage and ending
must be the same (M-01 to M-05, M-08). The bytes are cut at random places, also inside of a character; lines end and are
commented in several ways that the format allows."""

import asyncio
import json
import os
from collections.abc import Callable, Iterator
from random import Random
from typing import Any, NamedTuple

import msgspec
import pytest

from tests.lazily import lazily
from tests.wires.case import reach
from treadle.adapters.models.registry import ModelRegistry
from treadle.chat.assembly import Assembler
from treadle.ports.model import Memo, ModelRequest
from treadle.protocol.content import UserEntry
from treadle.testing.fake_http import (
    END,
    FakeResponse,
    Headers,
    ThreadedServer,
    encode_chunk,
    encode_head,
    make_json_answer,
)

pytestmark = pytest.mark.thorough(one_of=12)

openai = lazily("openai")
openai_chat = lazily("openai.lib.streaming.chat")
anthropic = lazily("anthropic")
genai = lazily("google.genai")
ollama = lazily("ollama")

SEEDS = range(400 if os.environ.get("TEST_SOAK") else 20)
ASKED = [{"role": "user", "content": "Hi."}]
WORDS = (
    "Grüße",
    " ",
    "\n",
    "🧵",
    "{",
    "}",
    '"',
    "\\",
    "\u2028",
    "data: ",
    "[DONE]",
    "<b>",
    "\r\n",
    "e\u0301",
    "0",
    "\x7f",
)


class Call(NamedTuple):
    id: str
    name: str
    arguments: dict[str, Any]


class Reading(NamedTuple):
    """An answer, as it was made and as each side reads it."""

    text: str
    thinking: str
    calls: list[tuple[str, Any]]
    usage: tuple[int, int, int, int]
    """Input, output, of the input from a cache, of the output for thinking."""
    ending: str


class Source:
    """Random parts of an answer."""

    def __init__(self, seed: int) -> None:
        self.chance = Random(seed)
        self.calls = [self._call(number) for number in range(self.chance.choice((0, 0, 1, 2, 3)))]
        self.thoughts = self.pieces(self.chance.choice((0, 0, 3)))
        self.texts = self.pieces(self.chance.choice((1, 4, 8)) if not self.calls else self.chance.choice((0, 2)))
        self.ending = self.chance.choice(("stop", "stop", "length")) if not self.calls else "tool_calls"
        self.counts = [self.chance.randrange(1, 5_000) for _ in range(4)]

    def pieces(self, most: int) -> list[str]:
        return ["".join(self.chance.choices(WORDS, k=self.chance.randrange(4))) for _ in range(most)]

    def _call(self, number: int) -> Call:
        values: list[Any] = ["ä\n\\", 1, 1.5, None, True, [], {"b": [{"c": ""}]}, "}{", 2**53]
        arguments = {f"k{at}": self.chance.choice(values) for at in range(self.chance.randrange(4))}
        return Call(f"call_{number}", self.chance.choice(("read_file", "list_files")), arguments)

    def split_text(self, text: str) -> list[str]:
        """The text in pieces, some of them empty."""
        places = sorted(self.chance.randrange(len(text) + 1) for _ in range(self.chance.randrange(4)))
        return [text[start:end] for start, end in zip([0, *places], [*places, len(text)], strict=True)]

    def cut_bytes(self, data: bytes) -> tuple[bytes, ...]:
        places = sorted(self.chance.randrange(len(data)) for _ in range(self.chance.choice((0, 3, 40))))
        pieces = [data[start:end] for start, end in zip([0, *places], [*places, len(data)], strict=True)]
        return tuple(encode_chunk(piece) for piece in pieces if piece)

    def events(
        self, items: list[dict[str, Any]], *, has_names: bool = False, has_end: bool = False, plain: bool = False
    ) -> bytes:
        """Server-sent events, in one of the ways to write them; `plain`: in the only one that Google's SDK reads."""
        end, space = self.chance.choice(("\n", "\r\n")), " " if plain else self.chance.choice(("", " "))
        chunks = []
        for item in items:
            if not plain and self.chance.random() < 0.1:
                chunks.append(f": comment{end}{end}")
            name = f"event:{space}{item['type']}{end}" if has_names else ""
            chunks.append(f"{name}data:{space}{encode(item, self.chance)}{end}{end}")
        if has_end:
            chunks.append(f"data:{space}[DONE]{end}{end}")
        return "".join(chunks).encode()


def encode(item: dict[str, Any], chance: Random) -> str:
    """JSON with characters as they are, or escaped."""
    return json.dumps(item, ensure_ascii=chance.random() < 0.3, separators=(",", ":"))


def escape_separators(body: bytes) -> bytes:
    """The SDKs of Google and Ollama take U+2028 for the end of a line; their servers escape it."""
    return body.replace("\u2028".encode(), rb"\u2028")


def chat_stream(source: Source) -> bytes:
    def chunk(delta: dict[str, Any], finish: str | None = None, **more: Any) -> dict[str, Any]:
        choice = {"index": 0, "delta": delta, "finish_reason": finish, "logprobs": None}
        return {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice], **more}

    items = [chunk({"role": "assistant", "content": ""})]
    items += [chunk({"reasoning_content": piece}) for piece in source.thoughts]
    items += [chunk({"content": piece}) for piece in source.texts]
    pieces = []
    for index, call in enumerate(source.calls):
        first, *other_pieces = source.split_text(msgspec.json.encode(call.arguments).decode())
        function = {"name": call.name, "arguments": first}
        items.append(chunk({"tool_calls": [{"index": index, "id": call.id, "type": "function", "function": function}]}))
        pieces.append(
            [chunk({"tool_calls": [{"index": index, "function": {"arguments": each}}]}) for each in other_pieces]
        )
    while remaining := [each for each in pieces if each]:  # the calls take turns
        items.append(source.chance.choice(remaining).pop(0))
    items.append(chunk({}, source.ending))
    prompt, answer, cached, reasoning = source.counts
    usage = {
        **{"prompt_tokens": prompt, "completion_tokens": answer, "total_tokens": prompt + answer},
        **{"prompt_tokens_details": {"cached_tokens": cached}},
        **{"completion_tokens_details": {"reasoning_tokens": reasoning}},
    }
    items.append({**chunk({}), "choices": [], "usage": usage})
    return source.events(items, has_end=True)


async def read_chat(url: str) -> Reading:
    state = openai_chat.ChatCompletionStreamState()
    async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="k", max_retries=0) as client:
        async for chunk in await client.chat.completions.create(model="m", messages=ASKED, stream=True):
            state.handle_chunk(chunk)
    snapshot = state.current_completion_snapshot
    choice, usage = snapshot.choices[0], snapshot.usage
    return Reading(
        choice.message.content or "",
        getattr(choice.message, "reasoning_content", None) or "",
        [
            (call.function.name, msgspec.json.decode(call.function.arguments))
            for call in choice.message.tool_calls or ()
        ],
        (
            *(usage.prompt_tokens, usage.completion_tokens),
            *(usage.prompt_tokens_details.cached_tokens, usage.completion_tokens_details.reasoning_tokens),
        ),
        choice.finish_reason,
    )


def responses_stream(source: Source) -> bytes:
    events: list[dict[str, Any]] = []
    output: list[dict[str, Any]] = []

    def put(kind: str, **fields: Any) -> None:
        events.append({"type": f"response.{kind}", "sequence_number": len(events), **fields})

    def envelope(status: str, **more: Any) -> dict[str, Any]:
        base = {"id": "resp_1", "object": "response", "created_at": 1, "model": "m", "status": status, "error": None}
        fixed = {"tools": [], "tool_choice": "auto", "parallel_tool_calls": True, "incomplete_details": None}
        return {**base, **fixed, "output": [], **more}

    put("created", response=envelope("in_progress"))
    if source.thoughts:
        at, place = len(output), {"item_id": "rs_1", "output_index": len(output), "summary_index": 0}
        item: dict[str, Any] = {"id": "rs_1", "type": "reasoning", "summary": [], "encrypted_content": "gAAA"}
        put("output_item.added", output_index=at, item=item)
        put("reasoning_summary_part.added", part={"type": "summary_text", "text": ""}, **place)
        for piece in source.thoughts:
            put("reasoning_summary_text.delta", delta=piece, **place)
        full_text = "".join(source.thoughts)
        put("reasoning_summary_text.done", text=full_text, **place)
        output.append({**item, "summary": [{"type": "summary_text", "text": full_text}]})
        put("output_item.done", output_index=at, item=output[-1])
    if source.texts:
        at = len(output)
        place = {"item_id": "msg_1", "output_index": at, "content_index": 0}
        item = {"id": "msg_1", "type": "message", "role": "assistant", "status": "in_progress", "content": []}
        put("output_item.added", output_index=at, item=item)
        part = {"type": "output_text", "text": "", "annotations": []}
        put("content_part.added", part=part, **place)
        for piece in source.texts:
            put("output_text.delta", delta=piece, logprobs=[], **place)
        full_text = "".join(source.texts)
        put("output_text.done", text=full_text, logprobs=[], **place)
        output.append({**item, "status": "completed", "content": [{**part, "text": full_text}]})
        put("output_item.done", output_index=at, item=output[-1])
    for call in source.calls:
        at, arguments = len(output), msgspec.json.encode(call.arguments).decode()
        item = {"id": f"fc_{at}", "type": "function_call", "call_id": call.id, "name": call.name, "arguments": ""}
        put("output_item.added", output_index=at, item={**item, "status": "in_progress"})
        for piece in source.split_text(arguments):
            put("function_call_arguments.delta", delta=piece, item_id=item["id"], output_index=at)
        put(
            "function_call_arguments.done",
            **{"arguments": arguments, "name": call.name, "item_id": item["id"], "output_index": at},
        )
        output.append({**item, "arguments": arguments, "status": "completed"})
        put("output_item.done", output_index=at, item=output[-1])
    prompt, answer, cached, reasoning = source.counts
    usage = {
        **{"input_tokens": prompt, "output_tokens": answer, "total_tokens": prompt + answer},
        **{"input_tokens_details": {"cached_tokens": cached, "cache_write_tokens": 0}},
        **{"output_tokens_details": {"reasoning_tokens": reasoning}},
    }
    if source.ending == "length":
        details = {"reason": "max_output_tokens"}
        put("incomplete", response=envelope("incomplete", output=output, usage=usage, incomplete_details=details))
    else:
        put("completed", response=envelope("completed", output=output, usage=usage))
    return source.events(events, has_names=True)


async def read_responses(url: str) -> Reading:
    text, thinking, arguments = "", "", ""
    async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="k", max_retries=0) as client:
        async with client.responses.stream(model="m", input=ASKED) as events:
            async for event in events:
                text += event.delta if event.type == "response.output_text.delta" else ""
                thinking += event.delta if event.type == "response.reasoning_summary_text.delta" else ""
                arguments += event.delta if event.type == "response.function_call_arguments.delta" else ""
        response = event.response
    calls = [item for item in response.output if item.type == "function_call"]
    assert (response.output_text, "".join(call.arguments for call in calls)) == (text, arguments)
    usage = response.usage
    return Reading(
        text,
        thinking,
        [(call.name, msgspec.json.decode(call.arguments)) for call in calls],
        (
            *(usage.input_tokens, usage.output_tokens),
            *(usage.input_tokens_details.cached_tokens, usage.output_tokens_details.reasoning_tokens),
        ),
        "length" if response.status == "incomplete" else "tool_calls" if calls else "stop",
    )


ANTHROPIC_ENDINGS = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use"}


def anthropic_stream(source: Source) -> bytes:
    prompt, answer, cached, thought_tokens = source.counts
    usage = {"input_tokens": prompt, "output_tokens": 1, "cache_read_input_tokens": cached}
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": [], "usage": usage}
    items: list[dict[str, Any]] = [
        {"type": "message_start", "message": {**message, "stop_reason": None, "stop_sequence": None}}
    ]

    def put_block(start: dict[str, Any], deltas: list[dict[str, Any]]) -> None:
        index = sum(item["type"] == "content_block_start" for item in items)
        items.append({"type": "content_block_start", "index": index, "content_block": start})
        for delta in deltas:
            if source.chance.random() < 0.1:
                items.append({"type": "ping"})
            items.append({"type": "content_block_delta", "index": index, "delta": delta})
        items.append({"type": "content_block_stop", "index": index})

    if source.thoughts:
        deltas = [{"type": "thinking_delta", "thinking": piece} for piece in source.thoughts]
        signature = [{"type": "signature_delta", "signature": "c2ln"}]
        put_block({"type": "thinking", "thinking": "", "signature": ""}, deltas + signature)
        if source.chance.random() < 0.3:
            put_block({"type": "redacted_thinking", "data": "ZGF0YQ=="}, [])
    for part in (source.texts[:2], source.texts[2:]):
        if part:
            put_block({"type": "text", "text": ""}, [{"type": "text_delta", "text": piece} for piece in part])
    for call in source.calls:
        text = msgspec.json.encode(call.arguments).decode() if call.arguments else ""
        deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in ("", *source.split_text(text))]
        put_block({"type": "tool_use", "id": call.id, "name": call.name, "input": {}}, deltas)
    counts = {"output_tokens": answer, "output_tokens_details": {"thinking_tokens": thought_tokens}}
    reason = {"stop_reason": ANTHROPIC_ENDINGS[source.ending], "stop_sequence": None}
    items += [{"type": "message_delta", "delta": reason, "usage": counts}, {"type": "message_stop"}]
    return source.events(items, has_names=True)


async def read_anthropic(url: str) -> Reading:
    client = anthropic.AsyncAnthropic(base_url=url, api_key="k", max_retries=0)
    async with client, client.messages.stream(model="m", messages=ASKED, max_tokens=9) as stream:
        message = await stream.get_final_message()
    usage = message.usage
    endings = {word: ending for ending, word in ANTHROPIC_ENDINGS.items()}
    return Reading(
        "".join(block.text for block in message.content if block.type == "text"),
        "".join(block.thinking for block in message.content if block.type == "thinking"),
        [(block.name, block.input) for block in message.content if block.type == "tool_use"],
        (
            usage.input_tokens + (usage.cache_read_input_tokens or 0),
            *(usage.output_tokens, usage.cache_read_input_tokens or 0, usage.output_tokens_details.thinking_tokens),
        ),
        endings[message.stop_reason],
    )


def gemini_stream(source: Source) -> bytes:
    prompt, answer, cached, thought_tokens = source.counts
    parts: list[dict[str, Any]] = [{"text": piece, "thought": True} for piece in source.thoughts]
    parts += [{"text": piece} for piece in source.texts]
    for number, call in enumerate(source.calls):
        function = {"name": call.name, "args": call.arguments, **({"id": call.id} if number % 2 else {})}
        parts.append({"functionCall": function, **({} if number else {"thoughtSignature": "c2ln"})})
    items: list[dict[str, Any]] = []
    while parts:
        count = source.chance.randrange(1, 3)
        content = {"role": "model", "parts": parts[:count]}
        items.append({"candidates": [{"content": content, "index": 0}], "usageMetadata": {"promptTokenCount": prompt}})
        del parts[:count]
    reason = "MAX_TOKENS" if source.ending == "length" else "STOP"
    counts = {"promptTokenCount": prompt, "candidatesTokenCount": answer}
    counts |= {"cachedContentTokenCount": cached, "thoughtsTokenCount": thought_tokens}
    last = {"content": {"role": "model", "parts": [{"text": ""}]}, "finishReason": reason, "index": 0}
    items.append({"candidates": [last], "usageMetadata": counts})
    return escape_separators(source.events(items, plain=True))


async def read_gemini(url: str) -> Reading:
    def ask() -> list[Any]:
        client = genai.Client(api_key="k", http_options={"base_url": url})
        return list(client.models.generate_content_stream(model="m", contents="Hi."))

    answers = await asyncio.to_thread(ask)  # its asynchronous client warns of its own base class
    parts = [part for answer in answers for part in answer.candidates[0].content.parts or ()]
    response = answers[-1]
    calls = [part.function_call for part in parts if part.function_call]
    counts = response.usage_metadata
    thought_tokens = counts.thoughts_token_count
    finish_reason = "length" if response.candidates[0].finish_reason.value == "MAX_TOKENS" else "stop"
    return Reading(
        "".join(part.text for part in parts if part.text and not part.thought),
        "".join(part.text for part in parts if part.text and part.thought),
        [(call.name, call.args) for call in calls],
        (
            *(counts.prompt_token_count, counts.candidates_token_count + thought_tokens),
            *(counts.cached_content_token_count, thought_tokens),
        ),
        "tool_calls" if calls else finish_reason,
    )


def ollama_stream(source: Source) -> bytes:
    prompt, answer, _, _ = source.counts
    messages: list[dict[str, Any]] = [{"content": "", "thinking": piece} for piece in source.thoughts]
    messages += [{"content": piece} for piece in source.texts]
    for call in source.calls:
        function = {"index": 0, "name": call.name, "arguments": call.arguments}
        messages.append({"content": "", "tool_calls": [{"id": call.id, "function": function}]})
    items = [{"model": "m", "message": {"role": "assistant", **each}, "done": False} for each in messages]
    counts = {"prompt_eval_count": prompt, "eval_count": answer, "total_duration": 5}
    reason = "length" if source.ending == "length" else "stop"
    last = {"model": "m", "message": {"role": "assistant", "content": ""}, "done": True, "done_reason": reason}
    lines = [encode(item, source.chance) + "\n" for item in [*items, {**last, **counts}]]
    return escape_separators("".join(lines).encode())


async def read_ollama(url: str) -> Reading:
    async with ollama.AsyncClient(host=url) as client:
        parts = [part async for part in await client.chat(model="m", messages=ASKED, stream=True)]
    calls = [call.function for part in parts for call in part.message.tool_calls or ()]
    return Reading(
        "".join(part.message.content or "" for part in parts),
        "".join(part.message.thinking or "" for part in parts),
        [(call.name, dict(call.arguments)) for call in calls],
        (parts[-1].prompt_eval_count, parts[-1].eval_count, 0, 0),
        "tool_calls" if calls else parts[-1].done_reason,
    )


class Wire(NamedTuple):
    model: str
    make_stream: Callable[[Source], bytes]
    read: Callable[[str], Any]
    content_type: str = "text/event-stream"


WIRES = {
    "chat": Wire("openai:some-model", chat_stream, read_chat),
    "responses": Wire("openai-responses:some-model", responses_stream, read_responses),
    "anthropic": Wire("anthropic:some-model", anthropic_stream, read_anthropic),
    "gemini": Wire("gemini:some-model", gemini_stream, read_gemini),
    "ollama": Wire("ollama:some-model", ollama_stream, read_ollama, "application/x-ndjson"),
}


async def read_by_adapter(registry: ModelRegistry, ref: str) -> Reading:
    model, assembler = registry.get(ref), Assembler(1)
    async for deltas in model.stream(ModelRequest("", [UserEntry("Hi.")], memo=Memo())):
        assembler.feed(deltas)
    answer = assembler.finish(ref)
    usage = answer.usage
    assert usage is not None
    return Reading(
        answer.text,
        assembler.thinking_text,
        [(call.name, msgspec.json.decode(call.arguments)) for call in answer.requests],
        (usage.input, usage.output, usage.cached, usage.reasoning),
        answer.finish_reason,
    )


@pytest.mark.parametrize("name", WIRES)
async def test_the_sdk_and_the_adapter_read_the_same(name: str) -> None:
    wire = WIRES[name]
    writes: Iterator[bytes] | tuple[bytes, ...] = ()

    def answer(method: str, path: str, _headers: Headers, _body: bytes) -> FakeResponse:
        if method == "GET" or path.endswith("/api/show"):
            return make_json_answer(404, {"error": "unknown"})
        return FakeResponse((encode_head(200, wire.content_type), *writes, END))

    with ThreadedServer(answer) as server:
        url = server.url
        registry = ModelRegistry(reach(wire.model, f"{url}/v1"))
        for seed in SEEDS:
            source = Source(seed)
            writes = source.cut_bytes(wire.make_stream(source))
            ours, theirs = await read_by_adapter(registry, wire.model), await wire.read(url)
            assert ours == theirs, f"seed {seed}"
            assert (ours.text, ours.ending) == ("".join(source.texts), source.ending), f"seed {seed}"
            assert [each.arguments for each in source.calls] == [arguments for _, arguments in ours.calls], seed
        await registry.close()
