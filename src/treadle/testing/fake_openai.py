"""A fake OpenAI-compatible server on loopback: scripted for tests, fast for benchmarks.

In a test: `with FakeOpenAI([Reply(text="Hi")]) as fake:` and point a client at `fake.base_url`. As a process of its
own: `python -m treadle.testing.fake_openai --bench` (or `--script FILE`), which prints its base URL first.

For benchmarks an answer is chosen by the model's name alone and encoded once: `bench-chunks-400` streams 400 chunks of
text; `bench-rounds-10` asks for one tool call in each of 10 rounds, then answers; `-every-20ms` paces the chunks; the
parts combine."""

import argparse
import asyncio
import random
import re
import sys
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec

from treadle.base.types import JsonObject
from treadle.testing.fake_http import (
    END,
    FakeResponse,
    Headers,
    Route,
    encode,
    encode_chunk,
    encode_head,
    listen,
    make_json_answer,
)
from treadle.testing.fake_model import Dialect, FakeModelServer, Reply, Script, Scripted, answer, split_text

DONE = b"data: [DONE]\n\n"


def encode_sse(data: object) -> bytes:
    return b"data: %b\n\n" % encode(data)


class ChatCompletions(Dialect):
    def stream(self, reply: Reply, request: JsonObject, position: int) -> Iterator[bytes]:
        for delta in _build_deltas(reply, position):
            yield encode_sse(_build_chunk(request, [{"index": 0, "delta": delta, "finish_reason": None}]))
        yield encode_sse(_build_chunk(request, [{"index": 0, "delta": {}, "finish_reason": _finish(reply)}]))
        options = request.get("stream_options")
        if reply.usage and isinstance(options, dict) and options.get("include_usage"):
            yield encode_sse({**_build_chunk(request, []), "usage": _build_usage(reply.usage)})
        yield DONE

    def build_answer(self, reply: Reply, request: JsonObject, position: int) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": reply.text or None}
        if reply.thinking:
            message["reasoning_content"] = reply.thinking
        if reply.calls:
            message["tool_calls"] = _build_calls(reply, position)
        choice = {"index": 0, "message": message, "finish_reason": _finish(reply)}
        completion = {**_build_chunk(request, [choice]), "object": "chat.completion"}
        return {**completion, "usage": _build_usage(reply.usage)} if reply.usage else completion

    def build_failure(self, status: int, message: str) -> JsonObject:
        return {"error": {"message": message, "type": "fake_openai", "code": None}}

    def answer_other_request(self, method: str, path: str, headers: Headers, body: bytes) -> FakeResponse | None:
        match method, path.partition("?")[0].removeprefix("/v1"):
            case "POST", "/chat/completions":
                return None
            case "GET", "/models":
                model = {"id": "fake", "object": "model", "created": 1_700_000_000, "owned_by": "treadle"}
                return make_json_answer(200, {"object": "list", "data": [model]})
        return self.answer_unknown_path(method, path)


_dialect = ChatCompletions()


def _build_deltas(reply: Reply, position: int) -> Iterator[dict[str, Any]]:
    yield {"role": "assistant", "content": ""}
    for piece in split_text(reply.thinking, reply.chunk_size):
        yield {"reasoning_content": piece}
    for piece in split_text(reply.text, reply.chunk_size):
        yield {"content": piece}
    for index, call in enumerate(_build_calls(reply, position)):
        function = call["function"]
        yield {"tool_calls": [{**call, "index": index, "function": {**function, "arguments": ""}}]}
        for piece in split_text(function["arguments"], reply.chunk_size):
            yield {"tool_calls": [{"index": index, "function": {"arguments": piece}}]}


def _build_calls(reply: Reply, position: int) -> list[dict[str, Any]]:
    return [
        {"id": identity, "type": "function", "function": {"name": name, "arguments": arguments}}
        for identity, name, arguments in reply.identify_calls(f"call_{position}")
    ]


def _build_chunk(request: JsonObject, choices: list[dict[str, Any]]) -> dict[str, Any]:
    head = {"id": "chatcmpl-fake", "object": "chat.completion.chunk", "created": 1_700_000_000}
    return {**head, "model": request.get("model", "fake"), "choices": choices}


def _build_usage(usage: tuple[int, int]) -> dict[str, int]:
    return {"prompt_tokens": usage[0], "completion_tokens": usage[1], "total_tokens": sum(usage)}


def _finish(reply: Reply) -> str:
    return reply.finish or ("tool_calls" if reply.calls else "stop")


_PARTS = re.compile(r"-(chunks|rounds|every)-(\d+)(?:ms)?")
_WORD = " streams"
_PARAGRAPH = 79 * _WORD + "\n\nstream"  # as long as its words, and with an end, as answers have one
_PREFERRED = ("noop", "read_file")


class _BenchMessage(msgspec.Struct):
    role: str


class _BenchFunction(msgspec.Struct):
    name: str


class _BenchTool(msgspec.Struct):
    function: _BenchFunction


class _BenchRequest(msgspec.Struct):
    """Only what an answer depends on; the rest of a long request is skipped, not built."""

    model: str
    messages: list[_BenchMessage]
    stream: bool = False
    tools: list[_BenchTool] = []
    stream_options: dict[str, Any] | None = None


_decode = msgspec.json.Decoder(_BenchRequest).decode


def answer_bench(body: bytes) -> FakeResponse:
    try:
        request = _decode(body)
    except msgspec.MsgspecError as error:
        return _dialect.refuse(f"not a chat completions request: {error}")
    parts = {name: int(number) for name, number in _PARTS.findall(request.model)}
    if not request.model.startswith("bench") or not parts:
        return _dialect.refuse(f"no such model {request.model!r}; try bench-chunks-400 or bench-rounds-10", 404)
    answer_count = sum(message.role == "assistant" for message in request.messages)
    names = [tool.function.name for tool in request.tools]
    preferred = next((name for name in _PREFERRED if name in names), names[0] if names else "")
    tool = preferred if answer_count < parts.get("rounds", 0) else ""
    usage = bool((request.stream_options or {}).get("include_usage"))
    number, chunks = answer_count if tool else 0, parts.get("chunks", 4)
    writes = _build_writes(request.model, request.stream, usage, tool, number, chunks)
    every_s = parts.get("every", 0) / 1000
    if not every_s or len(writes) == 1:
        return FakeResponse((b"".join(writes),))
    # A random phase, so that the chunks of many chats do not arrive in step.
    return FakeResponse(writes, delay_s=random.random() * every_s, every_s=every_s)


@lru_cache(maxsize=4096)
def _build_writes(model: str, stream: bool, usage: bool, tool: str, number: int, chunks: int) -> tuple[bytes, ...]:
    """The writes of an answer: its head with the first chunk, then a write for each chunk."""
    request = {"model": model, "stream": stream, "stream_options": {"include_usage": usage}}
    if tool:  # with other arguments in every round, so that no loop guard takes the rounds for a loop
        arguments: JsonObject = {"path": f"file-{number}.txt"} if tool == "read_file" else {"n": number}
        reply = Reply(calls=[(tool, arguments)])
    else:
        text = (_PARAGRAPH * (chunks // 80 + 1))[: chunks * len(_WORD)]
        reply = Reply(text=text, chunk_size=len(_WORD), usage=(100, chunks))
    if not stream:
        return answer(_dialect, reply, request, number).writes
    first, *later_frames = [encode_chunk(event) for event in _dialect.stream(reply, request, number)]
    return (encode_head(200, "text/event-stream") + first, *later_frames[:-1], later_frames[-1] + END)


__all__ = ["FakeOpenAI", "Reply", "Script", "main"]


class FakeOpenAI(FakeModelServer):
    dialect = ChatCompletions
    base_path = "/v1"


async def _serve_process(route: Route, until_eof: bool) -> None:
    server, port = await listen(route, set())
    print(f"http://127.0.0.1:{port}/v1", flush=True)
    if until_eof:
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.buffer.read)
        server.close()
    else:
        await server.serve_forever()


def _route_bench(method: str, path: str, headers: Headers, body: bytes) -> FakeResponse:
    return _dialect.answer_other_request(method, path, headers, body) or answer_bench(body)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m treadle.testing.fake_openai", description=__doc__)
    kind = parser.add_mutually_exclusive_group(required=True)
    kind.add_argument("--script", type=Path, metavar="FILE", help="a JSON list of replies (fields of Reply)")
    kind.add_argument("--bench", action="store_true", help="answer by the model's name, such as bench-chunks-400")
    parser.add_argument("--in-order", action="store_true", help="one reply a request, instead of by assistant messages")
    parser.add_argument("--until-eof", action="store_true", help="end when standard input does")
    options = parser.parse_args(arguments)
    if options.bench:
        route: Route = _route_bench
    else:
        try:
            script = msgspec.json.decode(options.script.read_bytes(), type=list[Reply])
        except (OSError, msgspec.MsgspecError) as error:
            parser.error(f"cannot use the script {options.script}: {error}")
        route = Scripted(_dialect, script, options.in_order).route
    try:
        asyncio.run(_serve_process(route, options.until_eof))
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
