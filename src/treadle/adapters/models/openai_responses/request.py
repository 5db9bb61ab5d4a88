"""A request as Responses bytes: instructions and tools beside the conversation, which is a flat list of items, with
encrypted reasoning where it stood (M-10)."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from treadle.adapters.models.openai_responses.stream import SEPARATOR
from treadle.adapters.models.wire.encoder import ConversationEncoder, Picture, RequestEncoder
from treadle.adapters.models.wire.json import encode_json, json_object, tool_name
from treadle.adapters.models.wire.signed_thinking import lay_out
from treadle.base.types import CallKey
from treadle.ports.model import Encode, ModelRequest, Pictures
from treadle.protocol.content import AssistantEntry, ToolRequest, ToolResult
from treadle.protocol.tools import ToolSpec

LONGEST_NAME = 64
_HEAD = b'{"type":"message"'
"""How the record of a message begins that goes back with its id and its phase."""
_ID = re.compile(r"[a-zA-Z0-9_-]{1,64}")


class ResponsesEncoder(RequestEncoder):
    def body(self, parameters: dict[str, Any], request: ModelRequest) -> bytes:
        parts = [encode_json(parameters)[:-1]]
        if request.system.strip():
            parts.append(b',"instructions":' + encode_json(request.system))
        if request.tools:
            tools = self._encoded_tools(request.tools)
            parts += (b',"tools":', tools, b',"tool_choice":"auto","parallel_tool_calls":true')
        return b"".join((*parts, b',"input":[', b",".join(self._pieces(request)), b"]}"))

    def _conversation(self, refused: frozenset[str], pictures: Pictures) -> Encode:
        return ResponsesConversation(self._ref, refused, pictures, _ID)

    def _tool(self, spec: ToolSpec) -> dict[str, Any]:
        """Not strict: strict schemas must name every property as required, which those of tools do not."""
        function = {"name": spec.name, "description": spec.description, "parameters": spec.parameters}
        return {"type": "function", **function, "strict": False}


class ResponsesConversation(ConversationEncoder):
    """Each entry is one or more items."""

    def _user(self, text: str, images: Sequence[Picture]) -> bytes:
        said = [{"type": "input_text", "text": text}] if text or not images else []
        return _message("user", [*said, *({"type": "input_image", "image_url": image.url} for image in images)])

    def _assistant(self, entry: AssistantEntry, ids: Mapping[CallKey, str]) -> bytes:
        return b",".join(self._items(entry, ids))

    def _items(self, entry: AssistantEntry, ids: Mapping[CallKey, str]) -> Iterator[bytes]:
        parts = [*lay_out(entry.text, len(entry.calls), [sealed for _, sealed in self._returned(entry)])]
        head = b""
        messages = sum(isinstance(part, bytes) and part.startswith(_HEAD) for part in parts)
        for part in parts:
            match part:
                case bytes() if part.startswith(_HEAD):
                    head, messages = part, messages - 1
                case bytes():
                    yield part
                case str():
                    message_text = (
                        part.removesuffix(SEPARATOR) if messages else part
                    )  # it was put before the next message
                    yield _recorded_message(head, message_text) if head else _message("assistant", message_text)
                    head = b""
                case int():
                    head = b""
                    yield _call(entry.calls[part], ids)

    def _result(self, result: ToolResult) -> bytes:
        identity = self._ids.of_result(result.call)
        return encode_json({"type": "function_call_output", "call_id": identity, "output": result.text})


def _call(call: ToolRequest, ids: Mapping[CallKey, str]) -> bytes:
    name = tool_name(call.name, LONGEST_NAME)
    item = {"type": "function_call", "call_id": ids[call.call], "name": name, "arguments": json_object(call.arguments)}
    return encode_json(item)


def _message(role: str, content: str | Sequence[dict[str, str]]) -> bytes:
    """A message without an id. That of an assistant is plain text: parts are for messages with id and status."""
    return encode_json({"type": "message", "role": role, "content": content})


def _recorded_message(head: bytes, text: str) -> bytes:
    content = encode_json([{"type": "output_text", "text": text, "annotations": []}])
    return head[:-1] + b',"content":' + content + b"}"
