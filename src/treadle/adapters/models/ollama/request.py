"""A request as the bytes of `/api/chat`."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from treadle.adapters.models.wire.encoder import ConversationEncoder, Picture, RequestEncoder, with_system
from treadle.adapters.models.wire.json import encode_json, json_object
from treadle.base.types import CallKey
from treadle.ports.model import Encode, ModelRequest, Pictures
from treadle.protocol.content import AssistantEntry, ToolRequest, ToolResult
from treadle.protocol.tools import ToolSpec


class OllamaEncoder(RequestEncoder):
    def body(self, parameters: dict[str, Any], request: ModelRequest) -> bytes:
        head = encode_json(parameters)[:-1]
        if request.tools:
            head += b',"tools":' + self._encoded_tools(request.tools)
        messages = with_system(request.system, self._pieces(request))
        return b"".join((head, b',"messages":[', b",".join(messages), b"]}"))

    def _conversation(self, refused: frozenset[str], pictures: Pictures) -> Encode:
        return OllamaConversation(self._ref, refused, pictures)

    def _tool(self, spec: ToolSpec) -> dict[str, Any]:
        parameters = {**_fitted(spec.parameters), "type": "object"}
        parameters.setdefault("properties", {})
        function = {"name": spec.name, "description": spec.description, "parameters": parameters}
        return {"type": "function", "function": function}


class OllamaConversation(ConversationEncoder):
    """A result names its tool, and its call by an id: older servers know only the former, and models differ in which of
    them their templates use (M-04)."""

    _names: Mapping[CallKey, str] = {}

    def _user(self, text: str, images: Sequence[Picture]) -> bytes:
        image_fields = {"images": [image.data for image in images]} if images else {}
        return encode_json({"role": "user", "content": text, **image_fields})

    def _assistant(self, entry: AssistantEntry, ids: Mapping[CallKey, str]) -> bytes:
        """Thinking goes back with calls, to the model that thought it: templates put it before them (M-10)."""
        self._names = {call.call: _name(call) for call in entry.calls}
        message: dict[str, Any] = {"role": "assistant", "content": entry.text}
        if entry.calls:
            message["tool_calls"] = [
                # The arguments are an object, where others take its text: else the server refuses the whole request.
                {
                    "id": ids[call.call],
                    "function": {"name": _name(call), "arguments": msgspec.Raw(json_object(call.arguments).encode())},
                }
                for call in entry.calls
            ]
            if thinking := "".join(block.text for block in entry.thinking if block.model == self._ref):
                message["thinking"] = thinking
        return encode_json(message)

    def _result(self, result: ToolResult) -> bytes:
        message = {"role": "tool", "content": result.text, "tool_call_id": self._ids.of_result(result.call)}
        if name := self._names.get(result.call):
            message["tool_name"] = name
        return encode_json(message)


def _name(call: ToolRequest) -> str:
    return call.name or "unnamed"


def _fitted(schema: Any) -> dict[str, Any]:
    """A schema as the server can read it. It has a type for each of these words and refuses the request where another
    stands, though a schema may be `true`, or a type unknown: such parts are left out."""
    if not isinstance(schema, dict):
        return {}
    fitted = dict(schema)
    for word, fits in _WORDS.items():
        if word in schema and not fits(schema[word]):
            del fitted[word]
    if "anyOf" in fitted:
        fitted["anyOf"] = [_fitted(option) for option in fitted["anyOf"]]
    if "properties" in fitted:
        fitted["properties"] = {name: _fitted(inner) for name, inner in fitted["properties"].items()}
    return fitted


def _strings(value: Any) -> bool:
    return isinstance(value, list | tuple) and all(isinstance(item, str) for item in value)


_WORDS: dict[str, Callable[[Any], bool]] = {
    "type": lambda value: isinstance(value, str) or _strings(value),
    "description": lambda value: isinstance(value, str),
    "enum": lambda value: isinstance(value, list | tuple),
    "required": _strings,
    "anyOf": lambda value: isinstance(value, list | tuple),
    "properties": lambda value: isinstance(value, dict),
}
