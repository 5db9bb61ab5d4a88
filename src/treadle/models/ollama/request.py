"""A request as the bytes of `/api/chat`. Everything that stays the same comes first, every entry is encoded once, and
the body is a join: so the prefix is byte-stable (L-21) and a turn costs what is new in it (law 13)."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, assert_never

import msgspec

from treadle.models.wire.call_ids import CallIds
from treadle.models.wire.encoding import ToolBytes, encode_json, json_object
from treadle.models.wire.pictures import NO_PICTURES, shown
from treadle.ports.model import ModelRequest, Pictures
from treadle.protocol.content import AssistantEntry, Entry, ResultsEntry, ToolRequest, UserEntry
from treadle.protocol.tools import ToolSpec
from treadle.types import CallKey


class Encoder:
    """The bytes of requests to one model. Holds the encoded tools."""

    def __init__(self) -> None:
        self._tools = ToolBytes(lambda tools: encode_json([_tool(spec) for spec in tools]))

    def body(self, parameters: dict[str, Any], request: ModelRequest) -> bytes:
        head = encode_json(parameters)[:-1]
        if request.tools:
            head += b',"tools":' + self._tools.of(request.tools)
        return b"".join((head, b',"messages":[', b",".join(_messages(request)), b"]}"))


def _messages(request: ModelRequest) -> Sequence[bytes]:
    said = request.memo.pieces(request.entries, lambda: Conversation(request.pictures))
    if not request.system:
        return said
    return [encode_json({"role": "system", "content": request.system}), *said]


class Conversation:
    """Encodes entries in order. A result names its tool, and its call by an id: older servers know only the former,
    and models differ in which of them their templates use (M-04)."""

    def __init__(self, pictures: Pictures = NO_PICTURES) -> None:
        self._pictures = pictures
        self._ids = CallIds()
        self._names: Mapping[CallKey, str] = {}

    def __call__(self, entry: Entry) -> bytes:
        match entry:
            case UserEntry():
                text, images = shown(entry, self._pictures)
                seen = {"images": [image.data for image in images]} if images else {}
                return encode_json({"role": "user", "content": text, **seen})
            case AssistantEntry(calls=calls):
                self._names = {call.call: _name(call) for call in calls}
                return _assistant(entry, self._ids.of_calls(calls))
            case ResultsEntry():
                return b",".join(self._results(entry))
            case _ as never:
                assert_never(never)

    def _results(self, entry: ResultsEntry) -> Iterator[bytes]:
        for result in entry.results:
            message = {"role": "tool", "content": result.text, "tool_call_id": self._ids.of_result(result.call)}
            if name := self._names.get(result.call):
                message["tool_name"] = name
            yield encode_json(message)


def _assistant(entry: AssistantEntry, ids: Mapping[CallKey, str]) -> bytes:
    """Thinking is not sent back: nothing here is signed, and the template of a model drops it anyway (M-10)."""
    message: dict[str, Any] = {"role": "assistant", "content": entry.text}
    if entry.calls:
        message["tool_calls"] = [
            {"id": ids[call.call], "function": {"name": _name(call), "arguments": _arguments(call)}}
            for call in entry.calls
        ]
    return encode_json(message)


def _name(call: ToolRequest) -> str:
    return call.name or "unnamed"


def _arguments(call: ToolRequest) -> msgspec.Raw:
    """An object, where others take its text. Anything else makes the server refuse the whole request."""
    return msgspec.Raw(json_object(call.arguments).encode())


def _tool(spec: ToolSpec) -> dict[str, Any]:
    parameters = {**_fitted(spec.parameters), "type": "object"}
    parameters.setdefault("properties", {})
    function = {"name": spec.name, "description": spec.description, "parameters": parameters}
    return {"type": "function", "function": function}


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
