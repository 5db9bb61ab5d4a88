"""A fake Anthropic server on loopback, scripted for tests. It is as strict as the real one about what it is asked:
whatever the Messages API would refuse, it refuses in the same words (see `anthropic_rules`).

In a test: `with FakeAnthropic([Reply(text="Hi")]) as fake:` and point a client at `fake.base_url`.
"""

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from treadle.testing.anthropic_rules import complaint, signature
from treadle.testing.fake_http import Answer, Headers, json_answer
from treadle.testing.fake_model import FakeModelServer, Reply, Script, cut
from treadle.types import JsonObject

__all__ = ["FakeAnthropic", "Messages", "Reply", "Script"]

_encode = msgspec.json.Encoder().encode
_STOP = {"stop": "end_turn", "tool_calls": "tool_use", "length": "max_tokens", "content_filter": "refusal"}
_ERRORS = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
    529: "overloaded_error",
}


class FakeAnthropic(FakeModelServer):
    """A scripted Messages server."""

    def __init__(self, script: Script = (), *, in_order: bool = False) -> None:
        super().__init__(Messages(), script, in_order=in_order)

    @property
    def base_url(self) -> str:
        return self.url


class Messages:
    """Implements `treadle.testing.fake_model.Dialect`."""

    def __init__(self) -> None:
        self._signatures: set[str] = set()
        """Those of the script, which sign what the script says."""

    def position(self, request: JsonObject) -> int:
        return sum(message["role"] == "assistant" for message in request["messages"])

    def pieces(self, reply: Reply, request: JsonObject, position: int) -> tuple[str, Iterable[bytes]]:
        self._signatures.add(reply.signature)
        if request.get("stream"):
            return "text/event-stream", stream_events(reply, request, position)
        return "application/json", [_encode(message(reply, request, position))]

    def failure(self, status: int, message: str) -> JsonObject:
        return {"type": "error", "error": {"type": _ERRORS.get(status, "api_error"), "message": message}}

    def other(self, method: str, path: str, headers: Headers, body: bytes) -> Answer | None:
        if (method, path.partition("?")[0]) == ("GET", "/v1/models"):
            listed = {"type": "model", "id": "claude-opus-5-5", "display_name": "Claude Opus 5.5"}
            return json_answer(200, {"data": [listed], "has_more": False})
        if (method, path.partition("?")[0]) != ("POST", "/v1/messages"):
            return json_answer(404, self.failure(404, f"the fake server has no {method} {path}"))
        said = complaint(headers, body, self._signatures)
        return json_answer(400, self.failure(400, said)) if said else None


def event(kind: str, **data: Any) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (kind.encode(), _encode({"type": kind, **data}))


def stream_events(reply: Reply, request: JsonObject, position: int) -> Iterator[bytes]:
    """The server-sent events of a streamed reply, one by one."""
    whole = message(reply, request, position)
    usage = {**whole["usage"], "output_tokens": 1} if reply.usage else {}
    yield event("message_start", message={**whole, "content": [], "stop_reason": None, "usage": usage})
    for index, block in enumerate(whole["content"]):
        start, deltas = _streamed(block, reply.chunk_size)
        yield event("content_block_start", index=index, content_block=start)
        if not index:
            yield event("ping")
        for delta in deltas:
            yield event("content_block_delta", index=index, delta=delta)
        yield event("content_block_stop", index=index)
    ended = {"stop_reason": whole["stop_reason"], "stop_sequence": None}
    yield event("message_delta", delta=ended, usage={"output_tokens": whole["usage"].get("output_tokens", 0)})
    yield event("message_stop")


def _streamed(block: dict[str, Any], size: int) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """A block as it begins, and the deltas that make it whole."""
    match block["type"]:
        case "text":
            return {**block, "text": ""}, [{"type": "text_delta", "text": piece} for piece in cut(block["text"], size)]
        case "thinking":
            pieces = [{"type": "thinking_delta", "thinking": piece} for piece in cut(block["thinking"], size)]
            signed = {"type": "signature_delta", "signature": block["signature"]}
            return {**block, "thinking": "", "signature": ""}, [*pieces, signed]
        case _:
            text = bytes(block["input"]).decode()
            pieces = [{"type": "input_json_delta", "partial_json": piece} for piece in ("", *cut(text, size))]
            return {**block, "input": {}}, pieces


def message(reply: Reply, request: JsonObject, position: int) -> dict[str, Any]:
    """The whole answer; the input of a call is raw JSON, valid or not."""
    content: list[dict[str, Any]] = []
    if reply.thinking or reply.signature:
        signed = reply.signature or signature(reply.thinking)
        content.append({"type": "thinking", "thinking": reply.thinking, "signature": signed})
    if reply.text:
        content.append({"type": "text", "text": reply.text})
    for index, (name, arguments) in enumerate(reply.calls):
        identity = reply.ids[index] if index < len(reply.ids) else f"toolu_{position}_{index}"
        raw = arguments.encode() if isinstance(arguments, str) else _encode(arguments)
        content.append({"type": "tool_use", "id": identity, "name": name, "input": msgspec.Raw(raw)})
    usage = {"input_tokens": reply.usage[0], "output_tokens": reply.usage[1]} if reply.usage else {}
    finish = reply.finish or ("tool_calls" if reply.calls else "stop")
    return {
        "id": "msg_fake",
        "type": "message",
        "role": "assistant",
        "model": request.get("model", "fake"),
        "content": content,
        "stop_reason": _STOP.get(finish, finish),
        "stop_sequence": None,
        "usage": usage,
    }
