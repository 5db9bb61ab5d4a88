"""A request as Messages bytes: system and tools beside the conversation, roles that alternate, thinking where it stood.

Two things move from request to request, though the bytes of an entry are made once: where a message ends, because what
follows may have to be merged into it, and where the cache breakpoints stand. So a piece ends before the closing brace
of its last block, and the next one begins by closing the message or by going on with it. Joining the pieces with `}`
makes the conversation; a breakpoint is put in between a piece and its brace. The provider's cache goes by what the
blocks say, not by their marks: the last two messages of the user are marked, the first of which ended the request
before, so its prefix is found however much came since. Without the marks, a request begins with the very bytes of the
one before (L-21).
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

import msgspec

from treadle.adapters.models.wire.encoder import CLOSE, AlternatingConversation, Picture, RequestEncoder
from treadle.adapters.models.wire.json import encode_json, json_object, tool_name
from treadle.adapters.models.wire.signed_thinking import TEXT_PLACE, lay_out
from treadle.base.types import CallKey
from treadle.ports.model import Encode, ModelRequest, Pictures
from treadle.protocol.content import AssistantEntry, ToolResult
from treadle.protocol.tools import ToolSpec

MARK = b',"cache_control":{"type":"ephemeral"}'
"""A cache breakpoint. Four are allowed: on the tools, on the system text, and on two messages."""
_MARKED_MESSAGES = 2

_USER = b'{"role":"user","content":['
_ASSISTANT = b'{"role":"assistant","content":['
_UNTOLD = b'{"type":"text","text":"(The beginning of the conversation is left out.)"}'
"""A conversation must begin with the user."""
_GO_ON = b'{"type":"text","text":"Go on."'
"""And end with the user: models refuse to go on in the middle of their own words."""

_ID = re.compile(r"[a-zA-Z0-9_-]{1,128}")


class AnthropicEncoder(RequestEncoder):
    def __init__(self, ref: str) -> None:
        super().__init__(ref)
        self._mark = MARK
        self._demands_thinking = False

    def body(self, parameters: dict[str, Any], request: ModelRequest) -> bytes:
        # A request that is sent once is not worth caching: a cache write costs a quarter more.
        mark = self._mark if request.purpose == "turn" else b""
        return b"".join(
            (
                encode_json(parameters)[:-1],
                self._tools_part(request),
                b',"system":[' + _text(request.system)[:-1] + mark + b"}]" if request.system.strip() else b"",
                b',"messages":[',
                _joined(self._pieces(request), mark),
                b"]}",
            )
        )

    def want_thinking(self) -> bool:
        """From now on every answer with calls has a block of thinking; False when that was so before."""
        had_thinking, self._demands_thinking = self._demands_thinking, True
        self._encode_anew()
        return not had_thinking

    def drop_marks(self) -> bool:
        """Send no cache breakpoints any more; False when none were sent."""
        had_marks, self._mark = bool(self._mark), b""
        self._encode_anew()
        return had_marks

    def _conversation(self, refused: frozenset[str], pictures: Pictures) -> Encode:
        conversation = AnthropicConversation(self._ref, refused, pictures, _ID)
        conversation.demands_thinking = self._demands_thinking
        return conversation

    def _encode_tools(self, tools: tuple[ToolSpec, ...]) -> bytes:
        return super()._encode_tools(tools)[:-2] + self._mark + b"}]"

    def _tool(self, spec: ToolSpec) -> dict[str, Any]:
        described = {"description": spec.description} if spec.description else {}
        return {"name": spec.name, **described, "input_schema": {"type": "object", **spec.parameters}}

    def _tools_part(self, request: ModelRequest) -> bytes:
        """A request for a last answer names the tools too, and forbids them: the calls in its history need them."""
        talk = self.talk(request)
        if request.tools:
            talk.tools = request.tools
            return b',"tools":' + self._encoded_tools(request.tools)
        calls = [call for entry in request.entries if isinstance(entry, AssistantEntry) for call in entry.calls]
        if not calls:
            return b""
        tools = talk.tools or tuple(ToolSpec(name) for name in dict.fromkeys(tool_name(call.name) for call in calls))
        encoded = self._encoded_tools(tools) if talk.tools else self._encode_tools(tools)
        return b',"tools":' + encoded + b',"tool_choice":{"type":"none"}'


class AnthropicConversation(AlternatingConversation):
    """Pieces to be joined, each without the brace that ends its last block."""

    opening: ClassVar = {"user": _USER, "model": _ASSISTANT}
    untold = _UNTOLD
    demands_thinking = False
    """True if the server refuses answers without a block of thinking."""

    def _user(self, text: str, images: Sequence[Picture]) -> bytes:
        sources = ({"type": "base64", "media_type": image.media_type, "data": image.data} for image in images)
        image_parts = [encode_json({"type": "image", "source": source}) for source in sources]
        return self._piece("user", [*image_parts, _text(text)] if text.strip() else image_parts)[:-1]

    def _assistant(self, entry: AssistantEntry, ids: Mapping[CallKey, str]) -> bytes:
        return self._piece("model", list(self._blocks(entry, ids)))[:-1]

    def _results(self, results: Sequence[ToolResult]) -> bytes:
        return self._piece("user", [*map(self._result, results)])[:-1]

    def _result(self, result: ToolResult) -> bytes:
        # An error without a word is refused, and so is blank text wherever it stands.
        content = result.text if result.text.strip() else "(no output)"
        identity = self._ids.of_result(result.call)
        block: dict[str, Any] = {"type": "tool_result", "tool_use_id": identity, "content": content}
        return encode_json(block if result.success else {**block, "is_error": True})

    def _blocks(self, entry: AssistantEntry, ids: Mapping[CallKey, str]) -> Iterator[bytes]:
        """Text and calls with the thinking put back in between."""
        returned = [sealed for _, sealed in self._returned(entry)]
        if self.demands_thinking and not any(sealed.block != TEXT_PLACE for sealed in returned):
            text = "".join(block.text for block in entry.thinking)
            yield encode_json({"type": "thinking", "thinking": text, "signature": ""})
        for part in lay_out(entry.text, len(entry.calls), returned):
            match part:
                case bytes() if part == TEXT_PLACE:
                    continue
                case bytes():
                    yield part
                case str():
                    yield _text(part)
                case int():
                    call = entry.calls[part]
                    arguments = msgspec.Raw(json_object(call.arguments).encode())
                    name = tool_name(call.name)
                    yield encode_json({"type": "tool_use", "id": ids[call.call], "name": name, "input": arguments})


def _joined(pieces: Sequence[bytes], mark: bytes) -> bytes:
    """The conversation, with breakpoints at the ends of the last messages of the user."""
    if not pieces:
        return _USER + _GO_ON + b"}]}"
    ends: list[int] = []
    last = end = len(pieces) - 1
    for at in range(last, -1, -1):
        if pieces[at].startswith(b","):
            continue
        if not pieces[at].startswith((_USER + _UNTOLD + CLOSE, CLOSE + _ASSISTANT)):
            ends.append(end)
        end = at - 1
        if len(ends) == _MARKED_MESSAGES:
            break
    parts = list(pieces)
    for at in ends:
        parts[at] += mark
    if last not in ends:
        parts.append(CLOSE + _USER + _GO_ON)
    return b"}".join(parts) + b"}]}"


def _text(text: str) -> bytes:
    return encode_json({"type": "text", "text": text})
