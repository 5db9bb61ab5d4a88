"""A fake server of the Responses API on loopback, scripted for tests. It is as strict as the real one about what it is
asked (`complaint`): calls without results, results without calls, reasoning that stands alone or was tampered with.

In a test: `with FakeResponses([Reply(text="Hi")]) as fake:` and point a client at `fake.base_url`."""

import hashlib
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import count
from typing import Any

import msgspec

from treadle.base.types import JsonObject
from treadle.testing.fake_http import FakeResponse, Headers, encode
from treadle.testing.fake_model import Dialect, FakeModelServer, Reply, Script, split_text


def seal(thinking: str) -> str:
    """A stand-in for the encrypted form of a thought, the same in every process."""
    return "gAAAAA" + hashlib.sha256(thinking.encode()).hexdigest()


def find_complaint(body: bytes, sealed: Collection[str]) -> str:
    """Why a request is refused; empty if it is accepted. `sealed`: encrypted thoughts valid with any summary."""
    try:
        request = msgspec.json.decode(body, type=dict[str, Any])
    except msgspec.MsgspecError as error:
        return f"We could not parse the JSON body of your request: {error}"
    items = request.get("input")
    if isinstance(items, str):
        return ""
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        return "Invalid type for 'input': expected one of an array of objects or a string."
    if request.get("store") is not False:
        reasons = any(item.get("type") == "reasoning" for item in items)
        return "Items of type 'reasoning' are only taken with store=false here." if reasons else ""
    return _call_complaint(items) or _check_thoughts(items, sealed)


def _call_complaint(items: Sequence[dict[str, Any]]) -> str:
    call_ids: set[str] = set()
    answered_ids: set[str] = set()
    for number, item in enumerate(items):
        call = item.get("call_id", "")
        match item.get("type"):
            case "function_call":
                if not isinstance(call, str) or not 0 < len(call) <= 64:
                    return f"Invalid 'input[{number}].call_id': expected a string with length 1 to 64."
                if not item.get("name") or not isinstance(item.get("arguments"), str):
                    return f"Missing required parameter: 'input[{number}].name' or 'input[{number}].arguments'."
                if call in call_ids:
                    return f"Duplicate function call with call_id {call}."
                call_ids.add(call)
            case "function_call_output":
                if call not in call_ids or call in answered_ids:
                    return f"No tool call found for function call output with call_id {call}."
                answered_ids.add(call)
    return f"No tool output found for function call {min(call_ids - answered_ids)}." if call_ids - answered_ids else ""


def _check_thoughts(items: Sequence[dict[str, Any]], sealed: Collection[str]) -> str:
    for item, next_item in zip(items, [*items[1:], {}], strict=True):
        if item.get("type") != "reasoning":
            continue
        summary = "\n\n".join(part["text"] for part in item.get("summary", ()))
        encrypted = item.get("encrypted_content")
        is_plain = encrypted is None and bool(item.get("content"))  # open models: there is nothing to verify
        if not is_plain and encrypted not in (*sealed, seal(summary)):
            return f"The encrypted content for item {item.get('id')} could not be verified."
        follows = next_item.get("type") in ("function_call", "reasoning") or next_item.get("role") == "assistant"
        if not follows:
            return f"Item '{item.get('id')}' of type 'reasoning' was provided without its required following item."
    return ""


__all__ = ["FakeResponses", "Reply", "Responses", "Script"]
_INCOMPLETE = {"length": "max_output_tokens", "content_filter": "content_filter"}


class Responses(Dialect):
    def __init__(self) -> None:
        self._sealed: set[str] = set()  # encrypted thoughts of the script, valid with any summary

    def count_answers(self, request: JsonObject) -> int:
        items = request.get("input")
        own_flags = [
            isinstance(item, dict)
            and (item.get("type") in ("reasoning", "function_call") or item.get("role") == "assistant")
            for item in (items if isinstance(items, list) else ())
        ]
        return sum(mine and not previous for previous, mine in zip([False, *own_flags], own_flags, strict=False))

    def build_pieces(self, reply: Reply, request: JsonObject, position: int) -> tuple[str, Iterable[bytes]]:
        self._sealed.add(reply.signature)
        return super().build_pieces(reply, request, position)

    def stream(self, reply: Reply, request: JsonObject, position: int) -> Iterator[bytes]:
        numbers = count()

        def encode_event(kind: str, **data: Any) -> bytes:
            payload = {"type": kind, "sequence_number": next(numbers), **data}
            return b"event: %b\ndata: %b\n\n" % (kind.encode(), encode(payload))

        response = self.build_answer(reply, request, position)
        initial = {**response, "status": "in_progress", "output": [], "usage": None, "incomplete_details": None}
        yield encode_event("response.created", response=initial)
        yield encode_event("response.in_progress", response=initial)
        for index, item in enumerate(response["output"]):
            yield encode_event("response.output_item.added", output_index=index, item=_begin_item(item))
            for kind, data in _stream_item(item, reply.chunk_size):
                yield encode_event(kind, item_id=item["id"], output_index=index, **data)
            yield encode_event("response.output_item.done", output_index=index, item=item)
        yield encode_event(f"response.{response['status']}", response=response)

    def build_answer(self, reply: Reply, request: JsonObject, position: int) -> dict[str, Any]:
        reason = _INCOMPLETE.get(reply.finish)
        status, details = ("incomplete", {"reason": reason}) if reason else ("completed", None)
        return {
            "id": f"resp_{position}", "object": "response", "created_at": 1_700_000_000, "status": status,
            "error": None, "incomplete_details": details, "model": request.get("model", "fake"),
            "output": list(_build_output(reply, position)), "parallel_tool_calls": True, "tool_choice": "auto",
            "tools": [], "usage": _build_usage(reply.usage) if reply.usage else None,
        }  # fmt: skip

    def build_failure(self, status: int, message: str) -> JsonObject:
        kind = "invalid_request_error" if status < 500 else "server_error"
        return {"error": {"message": message, "type": kind, "param": None, "code": None}}

    def answer_other_request(self, method: str, path: str, headers: Headers, body: bytes) -> FakeResponse | None:
        if (method, path.partition("?")[0].removeprefix("/v1")) != ("POST", "/responses"):
            return self.answer_unknown_path(method, path)
        problem = find_complaint(body, self._sealed)
        return self.refuse(problem) if problem else None


class FakeResponses(FakeModelServer):
    dialect = Responses
    base_path = "/v1"


def _begin_item(item: dict[str, Any]) -> dict[str, Any]:
    match item["type"]:
        case "message":
            return {**item, "content": [], "status": "in_progress"}
        case "function_call":
            return {**item, "arguments": "", "status": "in_progress"}
        case _:
            return {**item, "summary": [], "encrypted_content": "gAAAAA"}


def _stream_item(item: dict[str, Any], size: int) -> Iterator[tuple[str, dict[str, Any]]]:
    match item["type"]:
        case "message":
            part = item["content"][0]
            yield "response.content_part.added", {"content_index": 0, "part": {**part, "text": ""}}
            for piece in split_text(part["text"], size):
                yield "response.output_text.delta", {"content_index": 0, "delta": piece, "logprobs": []}
            yield "response.output_text.done", {"content_index": 0, "text": part["text"], "logprobs": []}
            yield "response.content_part.done", {"content_index": 0, "part": part}
        case "function_call":
            for piece in split_text(item["arguments"], size):
                yield "response.function_call_arguments.delta", {"delta": piece}
            call_data = {"name": item["name"], "arguments": item["arguments"]}
            yield "response.function_call_arguments.done", call_data
        case _:
            for number, part in enumerate(item["summary"]):
                place = {"summary_index": number}
                yield "response.reasoning_summary_part.added", {**place, "part": {**part, "text": ""}}
                for piece in split_text(part["text"], size):
                    yield "response.reasoning_summary_text.delta", {**place, "delta": piece}
                yield "response.reasoning_summary_text.done", {**place, "text": part["text"]}
                yield "response.reasoning_summary_part.done", {**place, "part": part}


def _build_output(reply: Reply, position: int) -> Iterator[dict[str, Any]]:
    if reply.thinking or reply.signature:
        parts = reply.thinking.split("\n\n") if reply.thinking else []
        summary = [{"type": "summary_text", "text": part} for part in parts]
        sealed = reply.signature or seal(reply.thinking)
        yield {"id": f"rs_{position}", "type": "reasoning", "summary": summary, "encrypted_content": sealed}
    if reply.text:
        part = {"type": "output_text", "text": reply.text, "annotations": [], "logprobs": []}
        message = {"id": f"msg_{position}", "type": "message", "role": "assistant", "status": "completed"}
        yield {**message, "content": [part]}
    for index, (identity, name, arguments) in enumerate(reply.identify_calls(f"call_{position}")):
        call = {"id": f"fc_{position}_{index}", "type": "function_call", "status": "completed"}
        yield {**call, "call_id": identity, "name": name, "arguments": arguments}


def _build_usage(usage: tuple[int, int]) -> dict[str, Any]:
    input_details, output_details = {"cached_tokens": 0, "cache_write_tokens": 0}, {"reasoning_tokens": 0}
    counts = {"input_tokens": usage[0], "input_tokens_details": input_details, "output_tokens": usage[1]}
    return {**counts, "output_tokens_details": output_details, "total_tokens": sum(usage)}
