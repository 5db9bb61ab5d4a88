"""A request as Chat Completions bytes."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from treadle.adapters.models.openai_chat.stream import AT, CALL_EXTRAS, THINK_CHUNKS
from treadle.adapters.models.wire.encoder import ConversationEncoder, Picture, RequestEncoder, with_system
from treadle.adapters.models.wire.json import encode_json, json_object
from treadle.base.types import CallKey
from treadle.ports.model import Encode, ModelRequest, Pictures
from treadle.protocol.content import AssistantEntry, ToolResult
from treadle.protocol.tools import ToolSpec

_fields = msgspec.json.Decoder(dict[str, Any])


class ChatEncoder(RequestEncoder):
    """The bytes of requests to one model. `thinking_field` is where the server wants to see in every answer what its
    model thought, even if that was nothing; `ids` is what it takes as the id of a call."""

    def __init__(self, ref: str = "", *, thinking_field: str = "", ids: re.Pattern[str] | None = None) -> None:
        super().__init__(ref)
        self.thinking_field = thinking_field
        self._ids = ids

    def want_thinking(self, field: str) -> None:
        """From now on thinking goes back in this field; conversations are encoded anew."""
        self.thinking_field = field
        self._encode_anew()

    def body(self, parameters: dict[str, Any], request: ModelRequest) -> bytes:
        head = encode_json(parameters)[:-1]
        if request.tools:
            head += b',"tools":' + self._encoded_tools(request.tools) + b',"tool_choice":"auto"'
        messages = with_system(request.system, self._pieces(request))
        return b"".join((head, b',"messages":[', b",".join(messages), b"]}"))

    def _conversation(self, refused: frozenset[str], pictures: Pictures) -> Encode:
        conversation = ChatConversation(self._ref, refused, pictures, self._ids)
        conversation.thinking_field = self.thinking_field
        return conversation

    def _tool(self, spec: ToolSpec) -> dict[str, Any]:
        function = {"name": spec.name, "description": spec.description, "parameters": spec.parameters}
        return {"type": "function", "function": function}


class ChatConversation(ConversationEncoder):
    thinking_field = ""

    def _user(self, text: str, images: Sequence[Picture]) -> bytes:
        parts = [{"type": "image_url", "image_url": {"url": image.url}} for image in images]
        content = [{"type": "text", "text": text}, *parts] if text and parts else parts or text
        return encode_json({"role": "user", "content": content})

    def _assistant(self, entry: AssistantEntry, ids: Mapping[CallKey, str]) -> bytes:
        """Thinking goes back in the fields in which it came, exactly as it came (M-10). Where the server demands it in
        one field, an answer from before that was known has its recorded text there."""
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
        returned = [sealed.block for _, sealed in self._returned(entry)]
        demanded = self.thinking_field
        if demanded and not any(demanded in _fields.decode(block) for block in returned):
            text = "".join(block.text for block in entry.thinking if block.model == self._ref)
            returned.append(encode_json({demanded: text}))
        return self._join(message, returned, entry)

    def _join(self, body: dict[str, Any], returned: Sequence[bytes], entry: AssistantEntry) -> bytes:
        """The message with the fields that go back. Two of them stand inside of it: Mistral's thinking is a part of the
        content, and what was attached to a call stands with the call."""
        blocks: list[bytes] = []
        for block in returned:
            if CALL_EXTRAS not in (fields := _fields.decode(block)) and THINK_CHUNKS not in fields:
                blocks.append(block)  # to the letter: there may be signatures in it
                continue
            extras = fields.pop(CALL_EXTRAS, {})
            for position, (call, tool_call) in enumerate(zip(entry.calls, body.get("tool_calls", ()), strict=False)):
                extra = extras.get(call.id or f"{AT}{position}")
                if extra is not None:
                    tool_call["extra_content"] = extra
            if THINK_CHUNKS in fields:
                text = [{"type": "text", "text": entry.text}] if entry.text else []
                body["content"] = [*fields.pop(THINK_CHUNKS), *text]
            body |= fields
        message = encode_json(body)
        for block in blocks:
            message = message[:-1] + b"," + block[1:]
        return message

    def _result(self, result: ToolResult) -> bytes:
        return encode_json({"role": "tool", "tool_call_id": self._ids.of_result(result.call), "content": result.text})
