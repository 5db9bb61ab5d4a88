"""What a fake OpenAI-compatible server says, and the exact bytes in which it says it.

Owns the shape of Chat Completions answers, streamed and whole. Knows no sockets: an `Answer` is a list of writes.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from http import HTTPStatus
from typing import Any

import msgspec

from treadle.types import JsonObject

_encode = msgspec.json.Encoder().encode
DONE = b"data: [DONE]\n\n"
END = b"0\r\n\r\n"


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """One scripted answer. The defaults are a short, well-behaved one."""

    text: str = ""
    calls: Sequence[tuple[str, JsonObject | str]] = ()
    """Tool calls as (name, arguments); arguments given as a string are sent as they are, valid JSON or not."""
    ids: Sequence[str] = ()
    """Ids of the calls; by default they are made from the number of assistant messages before."""
    thinking: str = ""
    usage: tuple[int, int] | None = (10, 5)
    """Input and output tokens. A stream carries them only when the request asks for `include_usage`."""
    finish: str = ""
    """The finish reason; by default `tool_calls` or `stop`, whichever fits."""
    status: int = 200
    headers: Mapping[str, str] = {}
    error: JsonObject | None = None
    """The body's `error` object. A status of 400 and above has one by itself."""
    chunk_size: int = 0
    """Characters in each streamed chunk; 0 sends text, thinking and arguments in one chunk each."""
    delay_s: float = 0.0
    """Before the first byte."""
    every_s: float = 0.0
    """Between two chunks (or two writes, with `split`)."""
    cut_after: int | None = None
    """Drop the connection after this many bytes of the body."""
    raw: bytes | None = None
    """The exact bytes of the body, in place of all that the fields above would make."""
    split: int = 0
    """Bytes of the body in each write; 0 leaves each chunk whole."""


class Answer(msgspec.Struct, frozen=True):
    """An answer ready for the wire: what to write, and when."""

    writes: tuple[bytes, ...]
    delay_s: float = 0.0
    every_s: float = 0.0
    cut: bool = False
    """Close the connection at the end."""


def head(status: int, content_type: str, headers: Mapping[str, str] | None = None) -> bytes:
    """The status line and headers of a chunked response."""
    try:
        phrase = HTTPStatus(status).phrase
    except ValueError:
        phrase = "Status"
    lines = [f"HTTP/1.1 {status} {phrase}", f"Content-Type: {content_type}", "Transfer-Encoding: chunked"]
    lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


def frame(data: bytes) -> bytes:
    """One HTTP chunk."""
    return b"%x\r\n%b\r\n" % (len(data), data)


def sse(data: object) -> bytes:
    return b"data: %b\n\n" % _encode(data)


def json_answer(status: int, body: object) -> Answer:
    return Answer((head(status, "application/json") + frame(_encode(body)) + END,))


def error_answer(status: int, message: str) -> Answer:
    return json_answer(status, {"error": {"message": message, "type": "fake_openai", "code": None}})


def answer(reply: Reply, request: JsonObject, position: int) -> Answer:
    """Turn a reply to `request`, the one after `position` assistant messages, into bytes."""
    streamed = bool(request.get("stream"))
    content_type = "application/json"
    if reply.error is not None or reply.status >= 400:
        failure = reply.error or {"message": f"scripted failure {reply.status}", "type": "fake_openai", "code": None}
        pieces: Iterable[bytes] = [_encode({"error": failure})]
    elif streamed:
        content_type = "text/event-stream"
        pieces = stream_chunks(reply, request, position)
    else:
        pieces = [_encode(_completion(reply, request, position))]
    if reply.raw is not None:
        pieces = [reply.raw]
    cut = reply.cut_after is not None
    body = [frame(piece) for piece in _resize(pieces, reply) if piece]
    writes = [head(reply.status, content_type, reply.headers), *body, b"" if cut else END]
    if not reply.split and not reply.every_s:
        writes = [b"".join(writes)]
    return Answer(tuple(writes), reply.delay_s, reply.every_s, cut)


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
    for piece in _cut(reply.thinking, reply.chunk_size):
        yield {"reasoning_content": piece}
    for piece in _cut(reply.text, reply.chunk_size):
        yield {"content": piece}
    for index, call in enumerate(_calls(reply, position)):
        function = call["function"]
        yield {"tool_calls": [{**call, "index": index, "function": {**function, "arguments": ""}}]}
        for piece in _cut(function["arguments"], reply.chunk_size):
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


def _cut(text: str, size: int) -> list[str]:
    if not text or not size:
        return [text] if text else []
    return [text[start : start + size] for start in range(0, len(text), size)]


def _resize(pieces: Iterable[bytes], reply: Reply) -> Iterable[bytes]:
    """Apply `cut_after` and `split`, which count bytes of the body whatever its chunks are."""
    if reply.cut_after is None and not reply.split:
        return pieces
    body = b"".join(pieces)[: reply.cut_after]
    size = reply.split or len(body) or 1
    return [body[start : start + size] for start in range(0, len(body), size)]
