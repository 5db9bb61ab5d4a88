"""A request as Chat Completions bytes. Everything that stays the same comes first, every entry is encoded once, and
the body is a join: so the prefix is byte-stable (L-21) and a turn costs what is new in it (law 13)."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, assert_never
from weakref import WeakKeyDictionary

from msgspec.structs import replace

from treadle.models.wire.call_ids import CallIds
from treadle.models.wire.encoding import ToolBytes, encode_json, json_object
from treadle.models.wire.pictures import NO_PICTURES, shown
from treadle.models.wire.returned import Goes, Returned
from treadle.models.wire.sealed import unseal
from treadle.ports.model import Memo, ModelRequest, Pictures
from treadle.protocol.content import AssistantEntry, Entry, ResultsEntry, ToolResult, UserEntry
from treadle.protocol.tools import ToolSpec
from treadle.types import CallKey


class Encoder:
    """The bytes of requests to one model. Holds the encoded tools. `thinking_field` is where the server wants to see
    in every answer what its model thought, even if that was nothing; `ids` is what it takes as the id of a call."""

    def __init__(self, ref: str = "", *, thinking_field: str = "", ids: re.Pattern[str] | None = None) -> None:
        self.thinking = Returned(ref)
        self.thinking_field = thinking_field
        self._ids = ids
        self._tools = ToolBytes(lambda tools: encode_json([_tool(spec) for spec in tools]))
        self._memos: WeakKeyDictionary[Memo, Memo] | None = None

    def want_thinking(self, field: str) -> None:
        """From now on thinking goes back in this field; conversations are encoded anew."""
        self.thinking_field = field
        self._memos = WeakKeyDictionary()

    def drop_thinking(self, request: ModelRequest) -> bool:
        """Send none of this request's sealed thinking again; False when none was sent."""
        return self.thinking.drop(self._own(request))

    def body(self, parameters: dict[str, Any], request: ModelRequest) -> bytes:
        head = encode_json(parameters)[:-1]
        if request.tools:
            head += b',"tools":' + self._tools.of(request.tools) + b',"tool_choice":"auto"'
        return b"".join((head, b',"messages":[', b",".join(self._messages(request)), b"]}"))

    def _messages(self, request: ModelRequest) -> Sequence[bytes]:
        said = self.thinking.pieces(
            self._own(request),
            lambda goes_back: Conversation(goes_back, self.thinking_field, self._ids, request.pictures),
        )
        if not request.system:
            return said
        return [encode_json({"role": "system", "content": request.system}), *said]

    def _own(self, request: ModelRequest) -> ModelRequest:
        """The request with a memo that knows no bytes of an earlier way to encode."""
        if self._memos is None:
            return request
        return replace(request, memo=self._memos.setdefault(request.memo, Memo()))


class Conversation:
    """Encodes entries in order, each call and its result under one id (M-09)."""

    def __init__(
        self,
        goes_back: Goes,
        thinking_field: str = "",
        ids: re.Pattern[str] | None = None,
        pictures: Pictures = NO_PICTURES,
    ) -> None:
        self._goes_back = goes_back
        self._pictures = pictures
        self._thinking_field = thinking_field
        self._ids = CallIds(ids)

    def __call__(self, entry: Entry) -> bytes:
        match entry:
            case UserEntry():
                return _user(entry, self._pictures)
            case AssistantEntry(calls=calls):
                return self._sealed(_assistant(entry, self._ids.of_calls(calls)), entry)
            case ResultsEntry(results=results):
                return b",".join(_result(result, self._ids) for result in results)
            case _ as never:
                assert_never(never)

    def _sealed(self, message: bytes, entry: AssistantEntry) -> bytes:
        """The message with the fields in which a server hid its thinking, exactly as they came (M-10)."""
        found = [
            sealed.block
            for block in entry.thinking
            if self._goes_back(block) and (sealed := unseal(block.opaque)) is not None
        ]
        if self._thinking_field and not found:
            found = [encode_json({self._thinking_field: ""})]
        for fields in found:
            message = message[:-1] + b"," + fields[1:]
        return message


def _tool(spec: ToolSpec) -> dict[str, Any]:
    function = {"name": spec.name, "description": spec.description, "parameters": spec.parameters}
    return {"type": "function", "function": function}


def _user(entry: UserEntry, pictures: Pictures) -> bytes:
    text, images = shown(entry, pictures)
    parts = [{"type": "image_url", "image_url": {"url": image.url}} for image in images]
    content = [{"type": "text", "text": text}, *parts] if text and parts else parts or text
    return encode_json({"role": "user", "content": content})


def _assistant(entry: AssistantEntry, ids: Mapping[CallKey, str]) -> bytes:
    """Plain thinking is not sent back: this wire has no place for it (M-10)."""
    message: dict[str, Any] = {"role": "assistant", "content": entry.text}
    if entry.calls:
        message["content"] = entry.text or None
        message["tool_calls"] = [
            {
                "id": ids[call.call],
                "type": "function",
                # Servers refuse an empty name, with which the whole chat would be stuck.
                "function": {"name": call.name or "unnamed", "arguments": json_object(call.arguments)},
            }
            for call in entry.calls
        ]
    return encode_json(message)


def _result(result: ToolResult, ids: CallIds) -> bytes:
    return encode_json({"role": "tool", "tool_call_id": ids.of_result(result.call), "content": result.text})
