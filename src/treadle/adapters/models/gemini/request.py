"""A request as generateContent bytes: system text and tools beside the conversation, roles that alternate, signatures
on the parts that carried them.

The bytes of an entry are made once, though what follows may belong to the same turn of the conversation: so a piece
leaves its turn open, and the next one goes on with it or closes it. A request begins with the very bytes of the one
before, but for its last two brackets (L-21).
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

import msgspec

from treadle.adapters.models.gemini.schema import reduced
from treadle.adapters.models.gemini.signature import lay_out, signatures
from treadle.adapters.models.wire.encoder import CLOSE, AlternatingConversation, Picture, RequestEncoder
from treadle.adapters.models.wire.json import encode_json, json_object, tool_name
from treadle.base.types import CallKey
from treadle.ports.model import Encode, ModelRequest, Pictures
from treadle.protocol.content import AssistantEntry, ToolResult
from treadle.protocol.tools import ToolSpec

STAND_IN = "skip_thought_signature_validator"
"""The value that replaces a signature, for calls of other models and for signatures that were refused."""

_USER = b'{"role":"user","parts":['
_MODEL = b'{"role":"model","parts":['
_UNTOLD = b'{"text":"(The beginning of the conversation is left out.)"}'
"""A conversation must begin with the user."""
_GO_ON = b'{"text":"Go on."}'
"""And end with the user."""


class GeminiEncoder(RequestEncoder):
    """The bytes of requests to one model. `stand_in` says whether calls without a signature get one that stands in."""

    def __init__(self, ref: str, *, stand_in: bool = False) -> None:
        super().__init__(ref)
        self.stand_in = stand_in
        self.reduced = False
        """True if the tools' schemas are reduced to the subset that the oldest servers accept."""

    def body(self, parameters: dict[str, Any], request: ModelRequest) -> bytes:
        parts = [b'"generationConfig":' + encode_json(parameters)] if parameters else []
        if request.system.strip():
            parts.append(b'"systemInstruction":' + encode_json({"parts": [{"text": request.system}]}))
        if request.tools:
            parts.append(b'"tools":[{"functionDeclarations":' + self._encoded_tools(request.tools) + b"}]")
            parts.append(b'"toolConfig":{"functionCallingConfig":{"mode":"AUTO"}}')
        parts.append(b'"contents":[' + _joined(self._pieces(request)))
        return b"{" + b",".join(parts) + b"]}"

    def switch_stand_in(self) -> None:
        self.stand_in = not self.stand_in
        self._encode_anew()

    def reduce(self) -> None:
        self.reduced = True
        self._encode_anew()

    def _conversation(self, refused: frozenset[str], pictures: Pictures) -> Encode:
        return GeminiConversation(self._ref, refused, pictures, stand_in=self.stand_in)

    def _tool(self, spec: ToolSpec) -> dict[str, Any]:
        declared: dict[str, Any] = {"name": spec.name, "description": spec.description or spec.name}
        if not self.reduced:
            return declared | {"parametersJsonSchema": {"type": "object", **spec.parameters}}
        schema = reduced(spec.parameters)
        return declared | {"parameters": schema} if schema.get("properties") else declared


class GeminiConversation(AlternatingConversation):
    opening: ClassVar = {"user": _USER, "model": _MODEL}
    untold = _UNTOLD

    def __init__(self, ref: str, refused: frozenset[str], pictures: Pictures, *, stand_in: bool) -> None:
        super().__init__(ref, refused, pictures)
        self._stand_in = stand_in
        self._called: dict[CallKey, dict[str, str]] = {}
        """The names and ids of the last turn's calls."""

    def _user(self, text: str, images: Sequence[Picture]) -> bytes:
        image_parts = [{"inlineData": {"mimeType": image.media_type, "data": image.data}} for image in images]
        text_parts = [{"text": text}] if text else []
        return self._piece("user", [encode_json(part) for part in (*image_parts, *text_parts)])

    def _assistant(self, entry: AssistantEntry, ids: Mapping[CallKey, str]) -> bytes:
        """Calls are told apart by name and order; ids are optional, and sent only where all of a turn can be."""
        has_own_ids = all(ids[call.call] == call.id for call in entry.calls)
        self._called = {
            call.call: {"id": call.id} | _encode_name(call.name) if has_own_ids else _encode_name(call.name)
            for call in entry.calls
        }
        return self._piece("model", list(self._parts(entry)))

    def _results(self, results: Sequence[ToolResult]) -> bytes:
        return self._piece("user", [*map(self._result, results)])

    def _parts(self, entry: AssistantEntry) -> Iterator[bytes]:
        signed = list(signatures(self._returned(entry)))
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
        response = {"output": result.text} if result.success else {"error": result.text}
        return encode_json(
            {"functionResponse": self._called.get(result.call, _encode_name("")) | {"response": response}}
        )


def _encode_name(name: str) -> dict[str, str]:
    safe_name = tool_name(name)
    return {"name": safe_name if safe_name[0].isalpha() or safe_name[0] == "_" else f"_{safe_name}"}


def _joined(pieces: Sequence[bytes]) -> bytes:
    """The conversation, with the last word for the user."""
    if not pieces:
        return _USER + _GO_ON + b"]}"
    last = next(piece for piece in reversed(pieces) if not piece.startswith(b","))
    by_model = last.startswith((CLOSE + _MODEL, _USER + _UNTOLD + CLOSE))
    return b"".join((*pieces, CLOSE + _USER + _GO_ON if by_model else b"", b"]}"))
