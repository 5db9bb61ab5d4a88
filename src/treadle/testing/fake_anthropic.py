"""A fake Anthropic server on loopback, scripted for tests. It is as strict about requests as the real one: a request
that the Messages API would refuse (`complaint`) is refused in the same words.

In a test: `with FakeAnthropic([Reply(text="Hi")]) as fake:` and point a client at `fake.base_url`."""

import hashlib
import re
from collections.abc import Collection, Iterable, Iterator
from typing import Any

import msgspec

from treadle.base.types import JsonObject
from treadle.testing.fake_http import FakeResponse, Headers, encode, make_json_answer
from treadle.testing.fake_model import Dialect, FakeModelServer, Reply, Script, split_text

_ID = re.compile(r"[a-zA-Z0-9_-]+")
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}")
_request = msgspec.json.Decoder(dict[str, Any])
BREAKPOINTS = 4
_BLOCKS = ("text", "image", "document", "thinking", "redacted_thinking", "tool_use", "tool_result")


def make_signature(thinking: str) -> str:
    return f"sig-{hashlib.sha256(thinking.encode()).hexdigest()[:24]}"


def find_complaint(headers: Headers, body: bytes, signatures: Collection[str] = ()) -> str:
    """Why the API would refuse the request; empty when it would not. `signatures` are good whatever they sign;
    an empty one among them stands for a server that does not sign."""
    if not headers.get("anthropic-version"):
        return "anthropic-version: header is required"
    try:
        request = _request.decode(body)
    except msgspec.MsgspecError as error:
        return f"the request body is not valid JSON: {error}"
    return next(_find_complaints(request, signatures), "")


def _find_complaints(request: dict[str, Any], signatures: Collection[str]) -> Iterator[str]:
    for field, kind in (("model", str), ("max_tokens", int), ("messages", list)):
        if not isinstance(request.get(field), kind):
            yield f"{field}: Field required"
            return
    marks = sum(1 for block in _iterate_blocks(request) if "cache_control" in block)
    if marks > BREAKPOINTS:
        yield f"A maximum of {BREAKPOINTS} blocks with cache_control may be provided. Found {marks}."
    for at, tool in enumerate(request.get("tools", [])):
        if not _NAME.fullmatch(tool.get("name", "")):
            yield f"tools.{at}.name: String should match pattern '^[a-zA-Z0-9_-]{{1,128}}$'"
        if tool.get("input_schema", {}).get("type") != "object":
            yield f"tools.{at}.input_schema.type: Field required"
    if "thinking" in request and request.get("temperature", 1) != 1:
        yield "`temperature` may only be set to 1 when thinking is enabled"
    if "tool_choice" in request and "tools" not in request:
        yield "tool_choice may only be specified while providing tools"
    for at, message in enumerate(request["messages"]):
        yield from _check_thinking(at, message, signatures)
    yield from _check_conversation(request["messages"], "tools" in request)


def _iterate_blocks(request: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield from request.get("tools", [])
    yield from request["system"] if isinstance(request.get("system"), list) else []
    for message in request["messages"]:
        yield from message["content"] if isinstance(message["content"], list) else []


def _check_conversation(messages: list[dict[str, Any]], tools: bool) -> Iterator[str]:
    if not messages:
        yield "messages: at least one message is required"
        return
    if messages[0]["role"] != "user":
        yield 'messages: first message must use the "user" role'
    if messages[-1]["role"] != "user":
        yield "This model does not support assistant message prefill. The conversation must end with a user message."
    open_ids: list[str] = []
    seen_ids: set[str] = set()
    for at, message in enumerate(messages):
        if at and message["role"] == messages[at - 1]["role"]:
            yield f"messages.{at}: roles must alternate between user and assistant"
        content = message["content"]
        blocks = content if isinstance(content, list) else [{"type": "text", "text": content}]
        yield from _check_content(at, blocks, tools)
        answered_ids = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
        if answered_ids != open_ids:
            yield f"messages.{at}: `tool_use` ids were found without `tool_result` blocks immediately after: {open_ids}"
        open_ids = [block["id"] for block in blocks if block["type"] == "tool_use"]
        if not seen_ids.isdisjoint(open_ids) or len(set(open_ids)) < len(open_ids):
            yield f"messages.{at}: `tool_use` ids must be unique"
        seen_ids.update(open_ids)


def _check_thinking(at: int, message: dict[str, Any], signatures: Collection[str]) -> Iterator[str]:
    for index, block in enumerate(message["content"] if isinstance(message["content"], list) else []):
        if block["type"] not in ("thinking", "redacted_thinking"):
            continue
        path = f"messages.{at}.content.{index}"
        signed = (make_signature(block["thinking"]), *signatures) if block["type"] == "thinking" else ()
        if signed and block.get("signature", "") not in signed:
            yield f"{path}: Invalid `signature` in `thinking` block"
        if index == len(message["content"]) - 1:
            yield f"{path}: The final block in an assistant message cannot be `thinking`."


def _check_content(at: int, blocks: list[dict[str, Any]], tools: bool) -> Iterator[str]:
    if not blocks:
        yield f"messages.{at}: all messages must have non-empty content"
    results_over = False
    for index, block in enumerate(blocks):
        path = f"messages.{at}.content.{index}"
        match block["type"]:
            case "text" if not block["text"].strip():
                yield f"{path}: text content blocks must contain non-whitespace text"
            case kind if kind not in _BLOCKS:
                yield f"{path}: Input tag '{kind}' found using 'type' does not match any of the expected tags"
            case "tool_use" if not _ID.fullmatch(block["id"]) or not _NAME.fullmatch(block["name"]):
                yield f"{path}: String should match pattern '^[a-zA-Z0-9_-]+$'"
            case "tool_use" if not isinstance(block["input"], dict):
                yield f"{path}.input: Input should be a valid dictionary"
            case "tool_use" | "tool_result" if not tools:
                yield "Requests which include `tool_use` or `tool_result` blocks must define tools"
            case "tool_result" if results_over:
                yield f"{path}: `tool_result` blocks must come first in the message"
            case "tool_result" if block.get("is_error") and not block.get("content"):
                yield f"{path}: content cannot be empty if `is_error` is true"
        results_over = results_over or block["type"] != "tool_result"


__all__ = ["FakeAnthropic", "Messages", "Reply", "Script"]
_STOP = {"stop": "end_turn", "tool_calls": "tool_use", "length": "max_tokens", "content_filter": "refusal"}
_ERRORS = {
    400: "invalid_request_error", 401: "authentication_error", 402: "billing_error", 403: "permission_error",
    404: "not_found_error", 413: "request_too_large", 429: "rate_limit_error", 504: "timeout_error",
    529: "overloaded_error",
}  # fmt: skip


class Messages(Dialect):
    def __init__(self) -> None:
        self._signatures: set[str] = set()  # those of the script, which sign what the script says

    def build_pieces(self, reply: Reply, request: JsonObject, position: int) -> tuple[str, Iterable[bytes]]:
        self._signatures.add(reply.signature)
        return super().build_pieces(reply, request, position)

    def stream(self, reply: Reply, request: JsonObject, position: int) -> Iterator[bytes]:
        message = self.build_answer(reply, request, position)
        usage = {**message["usage"], "output_tokens": 1} if reply.usage else {}
        yield encode_event("message_start", message={**message, "content": [], "stop_reason": None, "usage": usage})
        for index, block in enumerate(message["content"]):
            start, deltas = _split_block(block, reply.chunk_size)
            yield encode_event("content_block_start", index=index, content_block=start)
            if not index:
                yield encode_event("ping")
            for delta in deltas:
                yield encode_event("content_block_delta", index=index, delta=delta)
            yield encode_event("content_block_stop", index=index)
        stop = {"stop_reason": message["stop_reason"], "stop_sequence": None}
        yield encode_event(
            "message_delta", delta=stop, usage={"output_tokens": message["usage"].get("output_tokens", 0)}
        )
        yield encode_event("message_stop")

    def build_answer(self, reply: Reply, request: JsonObject, position: int) -> dict[str, Any]:
        """The whole answer; the input of a call is raw JSON, valid or not."""
        content: list[dict[str, Any]] = []
        if reply.thinking or reply.signature:
            signed = reply.signature or make_signature(reply.thinking)
            content.append({"type": "thinking", "thinking": reply.thinking, "signature": signed})
        if reply.text:
            content.append({"type": "text", "text": reply.text})
        for identity, name, arguments in reply.identify_calls(f"toolu_{position}"):
            raw_input = msgspec.Raw(arguments.encode())
            content.append({"type": "tool_use", "id": identity, "name": name, "input": raw_input})
        usage = {"input_tokens": reply.usage[0], "output_tokens": reply.usage[1]} if reply.usage else {}
        finish = reply.finish or ("tool_calls" if reply.calls else "stop")
        message = {"id": "msg_fake", "type": "message", "role": "assistant", "model": request.get("model", "fake")}
        ending = {"stop_reason": _STOP.get(finish, finish), "stop_sequence": None}
        return {**message, "content": content, **ending, "usage": usage}

    def build_failure(self, status: int, message: str) -> JsonObject:
        return {"type": "error", "error": {"type": _ERRORS.get(status, "api_error"), "message": message}}

    def answer_other_request(self, method: str, path: str, headers: Headers, body: bytes) -> FakeResponse | None:
        if (method, path.partition("?")[0]) == ("GET", "/v1/models"):
            listed = {"type": "model", "id": "claude-opus-5-5", "display_name": "Claude Opus 5.5"}
            return make_json_answer(200, {"data": [listed], "has_more": False})
        if (method, path.partition("?")[0]) != ("POST", "/v1/messages"):
            return self.answer_unknown_path(method, path)
        problem = find_complaint(headers, body, self._signatures)
        return self.refuse(problem) if problem else None


class FakeAnthropic(FakeModelServer):
    dialect = Messages


def encode_event(kind: str, **data: Any) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (kind.encode(), encode({"type": kind, **data}))


def _split_block(block: dict[str, Any], size: int) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """A block as it begins, and the deltas that make it whole."""
    match block["type"]:
        case "text":
            pieces = [{"type": "text_delta", "text": piece} for piece in split_text(block["text"], size)]
            return {**block, "text": ""}, pieces
        case "thinking":
            pieces = [{"type": "thinking_delta", "thinking": piece} for piece in split_text(block["thinking"], size)]
            signed = {"type": "signature_delta", "signature": block["signature"]}
            return {**block, "thinking": "", "signature": ""}, [*pieces, signed]
        case _:
            text = bytes(block["input"]).decode()
            pieces = [{"type": "input_json_delta", "partial_json": piece} for piece in ("", *split_text(text, size))]
            return {**block, "input": {}}, pieces
