"""The dialect of Chat Completions: what such a server says, streamed and whole, and the bytes in which it does."""

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from treadle.testing.fake_http import Answer, Headers, json_answer
from treadle.testing.fake_model import Reply, cut
from treadle.types import JsonObject

_encode = msgspec.json.Encoder().encode
DONE = b"data: [DONE]\n\n"


def sse(data: object) -> bytes:
    return b"data: %b\n\n" % _encode(data)


def failure(message: str) -> JsonObject:
    return {"error": {"message": message, "type": "fake_openai", "code": None}}


class ChatCompletions:
    """Implements `treadle.testing.fake_model.Dialect`."""

    def position(self, request: JsonObject) -> int:
        messages = request.get("messages")
        if not isinstance(messages, list):
            return 0
        return sum(isinstance(message, dict) and message.get("role") == "assistant" for message in messages)

    def pieces(self, reply: Reply, request: JsonObject, position: int) -> tuple[str, Iterable[bytes]]:
        if request.get("stream"):
            return "text/event-stream", stream_chunks(reply, request, position)
        return "application/json", [_encode(_completion(reply, request, position))]

    def failure(self, status: int, message: str) -> JsonObject:
        return failure(message)

    def other(self, method: str, path: str, headers: Headers, body: bytes) -> Answer | None:
        match method, path.partition("?")[0].removeprefix("/v1"):
            case "POST", "/chat/completions":
                return None
            case "GET", "/models":
                model = {"id": "fake", "object": "model", "created": 1_700_000_000, "owned_by": "treadle"}
                return json_answer(200, {"object": "list", "data": [model]})
        return json_answer(404, failure(f"the fake server has no {method} {path}"))


def stream_chunks(reply: Reply, request: JsonObject, position: int) -> Iterator[bytes]:
    """The server-sent events of a streamed reply, one by one."""
    for delta in _deltas(reply, position):
        yield sse(_chunk(request, [{"index": 0, "delta": delta, "finish_reason": None}]))
    yield sse(_chunk(request, [{"index": 0, "delta": {}, "finish_reason": _finish(reply)}]))
    options = request.get("stream_options")
    if reply.usage and isinstance(options, dict) and options.get("include_usage"):
        yield sse({**_chunk(request, []), "usage": _usage(reply.usage)})
    yield DONE


def _deltas(reply: Reply, position: int) -> Iterator[dict[str, Any]]:
    yield {"role": "assistant", "content": ""}
    for piece in cut(reply.thinking, reply.chunk_size):
        yield {"reasoning_content": piece}
    for piece in cut(reply.text, reply.chunk_size):
        yield {"content": piece}
    for index, call in enumerate(_calls(reply, position)):
        function = call["function"]
        yield {"tool_calls": [{**call, "index": index, "function": {**function, "arguments": ""}}]}
        for piece in cut(function["arguments"], reply.chunk_size):
            yield {"tool_calls": [{"index": index, "function": {"arguments": piece}}]}


def _calls(reply: Reply, position: int) -> list[dict[str, Any]]:
    calls = []
    for index, (name, arguments) in enumerate(reply.calls):
        text = arguments if isinstance(arguments, str) else _encode(arguments).decode()
        identity = reply.ids[index] if index < len(reply.ids) else f"call_{position}_{index}"
        calls.append({"id": identity, "type": "function", "function": {"name": name, "arguments": text}})
    return calls


def _chunk(request: JsonObject, choices: list[dict[str, Any]]) -> dict[str, Any]:
    model = request.get("model", "fake")
    return {
        "id": "chatcmpl-fake",
        "object": "chat.completion.chunk",
        "created": 1_700_000_000,
        "model": model,
        "choices": choices,
    }


def _completion(reply: Reply, request: JsonObject, position: int) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": reply.text or None}
    if reply.thinking:
        message["reasoning_content"] = reply.thinking
    if reply.calls:
        message["tool_calls"] = _calls(reply, position)
    choice = {"index": 0, "message": message, "finish_reason": _finish(reply)}
    whole = {**_chunk(request, [choice]), "object": "chat.completion"}
    return {**whole, "usage": _usage(reply.usage)} if reply.usage else whole


def _usage(usage: tuple[int, int]) -> dict[str, int]:
    return {"prompt_tokens": usage[0], "completion_tokens": usage[1], "total_tokens": sum(usage)}


def _finish(reply: Reply) -> str:
    return reply.finish or ("tool_calls" if reply.calls else "stop")
