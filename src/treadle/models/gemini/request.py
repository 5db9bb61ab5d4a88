"""A request as generateContent bytes: system text and tools beside the conversation, roles that alternate, signatures
on the parts that carried them.

The bytes of an entry are made once, though what follows may belong to the same turn of the conversation: so a piece
leaves its turn open, and the next one goes on with it or closes it. A request begins with the very bytes of the one
before, but for its last two brackets (L-21).
"""

from collections.abc import Iterator, Sequence
from typing import Any, Literal, assert_never
from weakref import WeakKeyDictionary

import msgspec

from treadle.models.gemini.schema import reduced
from treadle.models.gemini.signature import lay_out, signatures
from treadle.models.wire.call_ids import CallIds
from treadle.models.wire.encoding import ToolBytes, encode_json, json_object, tool_name
from treadle.models.wire.pictures import NO_PICTURES, Picture, shown
from treadle.models.wire.returned import Goes, Returned
from treadle.ports.model import Memo, ModelRequest, Pictures
from treadle.protocol.content import AssistantEntry, Entry, ResultsEntry, ToolRequest, ToolResult, UserEntry
from treadle.protocol.tools import ToolSpec
from treadle.types import CallKey

STAND_IN = "skip_thought_signature_validator"
"""What the provider takes in place of a signature, for calls of other models and for signatures that it refused."""

_USER = b'{"role":"user","parts":['
_MODEL = b'{"role":"model","parts":['
_CLOSE = b"]}"
_NEXT_USER = _CLOSE + b"," + _USER
_NEXT_MODEL = _CLOSE + b"," + _MODEL
_UNTOLD = _USER + b'{"text":"(The beginning of the conversation is left out.)"}' + _NEXT_MODEL
"""A conversation must begin with the user."""
_GO_ON = b'{"text":"Go on."}'
"""And end with the user."""


class Encoder:
    """The bytes of requests to one model. `stand_in` says whether calls without a signature get one that stands in."""

    def __init__(self, ref: str, *, stand_in: bool = False) -> None:
        self.signatures = Returned(ref)
        self.stand_in = stand_in
        self.reduced = False
        """Whether the tools' schemas are cut down to what the oldest servers take."""
        self._tools = ToolBytes(self._encode_tools)
        self._memos: WeakKeyDictionary[Memo, Memo] | None = None
        """In place of the requests' own, which hold bytes made the other way."""

    def body(self, config: dict[str, Any], request: ModelRequest) -> bytes:
        parts = [b'"generationConfig":' + encode_json(config)] if config else []
        if request.system.strip():
            parts.append(b'"systemInstruction":' + encode_json({"parts": [{"text": request.system}]}))
        if request.tools:
            parts.append(b'"tools":[{"functionDeclarations":' + self._tools.of(request.tools) + b"}]")
            parts.append(b'"toolConfig":{"functionCallingConfig":{"mode":"AUTO"}}')
        contents = self.signatures.pieces(
            self.own(request), lambda goes: Conversation(goes, self.stand_in, request.pictures)
        )
        parts.append(b'"contents":[' + _joined(contents))
        return b"{" + b",".join(parts) + b"]}"

    def own(self, request: ModelRequest) -> ModelRequest:
        """The request with the memo that holds its bytes."""
        if self._memos is None:
            return request
        return msgspec.structs.replace(request, memo=self._memos.setdefault(request.memo, Memo()))

    def switch_stand_in(self) -> None:
        self.stand_in = not self.stand_in
        self._memos = WeakKeyDictionary()

    def reduce(self) -> None:
        self.reduced = True
        self._tools = ToolBytes(self._encode_tools)

    def _encode_tools(self, tools: tuple[ToolSpec, ...]) -> bytes:
        return encode_json([self._tool(spec) for spec in tools])

    def _tool(self, spec: ToolSpec) -> dict[str, Any]:
        declared: dict[str, Any] = {"name": spec.name, "description": spec.description or spec.name}
        if not self.reduced:
            return declared | {"parametersJsonSchema": {"type": "object", **spec.parameters}}
        schema = reduced(spec.parameters)
        return declared | {"parameters": schema} if schema.get("properties") else declared


class Conversation:
    """Encodes entries in order, as pieces to be joined."""

    def __init__(self, goes_back: Goes, stand_in: bool = False, pictures: Pictures = NO_PICTURES) -> None:
        self._goes_back = goes_back
        self._pictures = pictures
        self._stand_in = stand_in
        self._ids = CallIds()
        self._called: dict[CallKey, dict[str, str]] = {}
        """The names and ids of the last turn's calls."""
        self._speaker: Literal["user", "model", ""] = ""

    def __call__(self, entry: Entry) -> bytes:
        match entry:
            case UserEntry():
                text, images = shown(entry, self._pictures)
                said = [encode_json({"text": text})] if text else []
                return self._piece("user", [*map(_image, images), *said])
            case AssistantEntry(calls=calls):
                self._called = self._labels(calls)
                return self._piece("model", list(self._answer(entry)))
            case ResultsEntry(results=results):
                return self._piece("user", [self._result(result) for result in results])
            case _ as never:
                assert_never(never)

    def _piece(self, speaker: Literal["user", "model"], parts: Sequence[bytes]) -> bytes:
        if not parts:
            return b""
        before, self._speaker = self._speaker, speaker
        if before == speaker:
            opening = b","
        elif speaker == "user":
            opening = _NEXT_USER if before else _USER
        else:
            opening = _NEXT_MODEL if before else _UNTOLD
        return opening + b",".join(parts)

    def _labels(self, calls: Sequence[ToolRequest]) -> dict[CallKey, dict[str, str]]:
        """Calls are told apart by name and order; ids are optional, and sent only where all of a turn can be."""
        ids = self._ids.of_calls(calls)
        own = all(ids[call.call] == call.id for call in calls)
        return {call.call: {"id": call.id} | _named(call.name) if own else _named(call.name) for call in calls}

    def _answer(self, entry: AssistantEntry) -> Iterator[bytes]:
        signed = list(signatures(block for block in entry.thinking if self._goes_back(block)))
        for on, content, signature in lay_out(entry.text, len(entry.calls), signed):
            if isinstance(content, int):
                call = entry.calls[content]
                arguments = msgspec.Raw(json_object(call.arguments).encode())
                part: dict[str, Any] = {"functionCall": self._called[call.call] | {"args": arguments}}
                if not content and not signature and self._stand_in:
                    signature = STAND_IN
            else:
                part = {"text": content, "thought": True} if on == "thought" else {"text": content}
            yield encode_json(part | {"thoughtSignature": signature} if signature else part)

    def _result(self, result: ToolResult) -> bytes:
        said = {"output": result.text} if result.success else {"error": result.text}
        return encode_json({"functionResponse": self._called.get(result.call, _named("")) | {"response": said}})


def _image(image: Picture) -> bytes:
    return encode_json({"inlineData": {"mimeType": image.media_type, "data": image.data}})


def _named(name: str) -> dict[str, str]:
    named = tool_name(name)
    return {"name": named if named[0].isalpha() or named[0] == "_" else f"_{named}"}


def _joined(pieces: Sequence[bytes]) -> bytes:
    """The conversation, with the last word for the user."""
    if not pieces:
        return _USER + _GO_ON + _CLOSE
    last = next(piece for piece in reversed(pieces) if not piece.startswith(b","))
    end = _NEXT_USER + _GO_ON if last.startswith((_NEXT_MODEL, _UNTOLD)) else b""
    return b"".join((*pieces, end, _CLOSE))
