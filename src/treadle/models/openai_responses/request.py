"""A request as Responses bytes: instructions and tools beside the conversation, which is a flat list of items, with
encrypted reasoning where it stood (M-10). What stays the same comes first and every entry is encoded once, so that a
request begins with the bytes of the one before (L-21)."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, assert_never

from treadle.models.wire.call_ids import CallIds
from treadle.models.wire.encoding import ToolBytes, encode_json, json_object, tool_name
from treadle.models.wire.pictures import NO_PICTURES, shown
from treadle.models.wire.returned import Goes, Returned
from treadle.models.wire.sealed import lay_out, unseal
from treadle.ports.model import ModelRequest, Pictures
from treadle.protocol.content import AssistantEntry, Entry, ResultsEntry, ToolResult, UserEntry
from treadle.protocol.tools import ToolSpec
from treadle.types import CallKey

LONGEST_NAME = 64
_ID = re.compile(r"[a-zA-Z0-9_-]{1,64}")


class Encoder:
    """The bytes of requests to one model."""

    def __init__(self, ref: str) -> None:
        self.reasoning = Returned(ref)
        self._tools = ToolBytes(lambda tools: encode_json([_tool(spec) for spec in tools]))

    def body(self, parameters: dict[str, Any], request: ModelRequest) -> bytes:
        parts = [encode_json(parameters)[:-1]]
        if request.system.strip():
            parts.append(b',"instructions":' + encode_json(request.system))
        if request.tools:
            parts += (b',"tools":', self._tools.of(request.tools), b',"tool_choice":"auto","parallel_tool_calls":true')
        items = self.reasoning.pieces(request, lambda goes_back: Conversation(goes_back, request.pictures))
        return b"".join((*parts, b',"input":[', b",".join(items), b"]}"))


class Conversation:
    """Encodes entries in order, each as one or more items."""

    def __init__(self, goes_back: Goes, pictures: Pictures = NO_PICTURES) -> None:
        self._goes_back = goes_back
        self._pictures = pictures
        self._ids = CallIds(_ID)

    def __call__(self, entry: Entry) -> bytes:
        match entry:
            case UserEntry():
                text, images = shown(entry, self._pictures)
                parts = [{"type": "input_image", "image_url": image.url} for image in images]
                return _message("user", "input_text", text, parts)
            case AssistantEntry(calls=calls):
                return b",".join(self._assistant(entry, self._ids.of_calls(calls)))
            case ResultsEntry(results=results):
                return b",".join(_result(result, self._ids) for result in results)
            case _ as never:
                assert_never(never)

    def _assistant(self, entry: AssistantEntry, ids: Mapping[CallKey, str]) -> Iterator[bytes]:
        returned = (unseal(block.opaque) for block in entry.thinking if self._goes_back(block))
        reasoning = [sealed for sealed in returned if sealed is not None]
        for part in lay_out(entry.text, len(entry.calls), reasoning):
            match part:
                case bytes():
                    yield part
                case str():
                    yield _message("assistant", "output_text", part)
                case int():
                    call = entry.calls[part]
                    item = {
                        "type": "function_call",
                        "call_id": ids[call.call],
                        "name": tool_name(call.name, LONGEST_NAME),
                        "arguments": json_object(call.arguments),
                    }
                    yield encode_json(item)


def _message(role: str, kind: str, text: str, more: Sequence[dict[str, str]] = ()) -> bytes:
    said = [{"type": kind, "text": text}] if text or not more else []
    return encode_json({"type": "message", "role": role, "content": [*said, *more]})


def _result(result: ToolResult, ids: CallIds) -> bytes:
    return encode_json({"type": "function_call_output", "call_id": ids.of_result(result.call), "output": result.text})


def _tool(spec: ToolSpec) -> dict[str, Any]:
    """Not strict: strict schemas must name every property as required, which those of tools do not."""
    function = {"name": spec.name, "description": spec.description, "parameters": spec.parameters}
    return {"type": "function", **function, "strict": False}
