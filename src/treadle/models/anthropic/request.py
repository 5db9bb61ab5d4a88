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
from typing import Any, Literal, assert_never
from weakref import WeakKeyDictionary

import msgspec

from treadle.models.wire.call_ids import CallIds
from treadle.models.wire.encoding import ToolBytes, encode_json, json_object, tool_name
from treadle.models.wire.pictures import NO_PICTURES, Picture, shown
from treadle.models.wire.sealed import Sealed, lay_out, unseal
from treadle.ports.model import Memo, ModelRequest, Pictures
from treadle.protocol.content import AssistantEntry, Entry, ResultsEntry, Thinking, ToolResult, UserEntry
from treadle.protocol.tools import ToolSpec
from treadle.types import CallKey

MARK = b',"cache_control":{"type":"ephemeral"}'
"""A cache breakpoint. Four are allowed: on the tools, on the system text, and on two messages."""
_MARKED_MESSAGES = 2

_USER = b'{"role":"user","content":['
_ASSISTANT = b'{"role":"assistant","content":['
_CLOSE = b"]},"
_UNTOLD = _USER + b'{"type":"text","text":"(The beginning of the conversation is left out.)"}'
"""A conversation must begin with the user."""
_GO_ON = b'{"type":"text","text":"Go on."'
"""And end with the user: models refuse to go on in the middle of their own words."""

_ID = re.compile(r"[a-zA-Z0-9_-]{1,128}")


class Talk:
    """What is remembered of one conversation from request to request."""

    def __init__(self) -> None:
        self.tools: tuple[ToolSpec, ...] = ()
        self.refused: frozenset[str] = frozenset()
        """Thinking that the provider did not take back."""
        self.memo: Memo | None = None
        """In place of the request's own, which holds the bytes of what was refused."""
        self.calm = False
        """Whether thinking is not asked for, because the provider misses blocks that cannot be sent."""


class Encoder:
    """The bytes of requests to one model."""

    def __init__(self, ref: str) -> None:
        self._ref = ref
        self._mark = MARK
        self._tools = ToolBytes(self._encode_tools)
        self._talks: WeakKeyDictionary[Memo, Talk] = WeakKeyDictionary()

    def talk(self, request: ModelRequest) -> Talk:
        talk = self._talks.get(request.memo)
        if talk is None:
            talk = self._talks[request.memo] = Talk()
        return talk

    def body(self, parameters: dict[str, Any], request: ModelRequest) -> bytes:
        talk = self.talk(request)
        # What is asked once is not worth being cached, which costs a quarter more.
        mark = self._mark if request.purpose == "turn" else b""
        memo = talk.memo or request.memo
        pieces = memo.pieces(request.entries, lambda: Conversation(self._ref, talk.refused, request.pictures))
        return b"".join(
            (
                encode_json(parameters)[:-1],
                self._tools_part(talk, request),
                _system_part(request.system, mark),
                b',"messages":[',
                _joined(pieces, mark),
                b"]}",
            )
        )

    def drop_thinking(self, request: ModelRequest) -> bool:
        """Send none of this request's thinking again; False when none was sent."""
        talk = self.talk(request)
        blocks = (block for entry in request.entries if isinstance(entry, AssistantEntry) for block in entry.thinking)
        sent = {block.opaque for block in blocks if _returns(block, self._ref, talk.refused)}
        if sent:
            talk.refused |= sent
            talk.memo = Memo()
        return bool(sent)

    def drop_marks(self) -> bool:
        """Send no cache breakpoints any more; False when none were sent."""
        sent, self._mark = bool(self._mark), b""
        self._tools = ToolBytes(self._encode_tools)
        return sent

    def _encode_tools(self, tools: tuple[ToolSpec, ...]) -> bytes:
        return b"[" + b",".join(encode_json(_tool(spec)) for spec in tools)[:-1] + self._mark + b"}]"

    def _tools_part(self, talk: Talk, request: ModelRequest) -> bytes:
        """A request for a last answer names the tools too, and forbids them: the calls in its history need them."""
        if request.tools:
            talk.tools = request.tools
            return b',"tools":' + self._tools.of(request.tools)
        calls = [call for entry in request.entries if isinstance(entry, AssistantEntry) for call in entry.calls]
        if not calls:
            return b""
        known = talk.tools or tuple(ToolSpec(name) for name in dict.fromkeys(tool_name(call.name) for call in calls))
        encoded = self._tools.of(known) if talk.tools else self._encode_tools(known)
        return b',"tools":' + encoded + b',"tool_choice":{"type":"none"}'


class Conversation:
    """Encodes entries in order, as pieces to be joined."""

    def __init__(self, ref: str, refused: frozenset[str] = frozenset(), pictures: Pictures = NO_PICTURES) -> None:
        self._ref = ref
        self._pictures = pictures
        self._refused = refused
        self._ids = CallIds(_ID)
        self._speaker: Literal["user", "assistant", ""] = ""

    def __call__(self, entry: Entry) -> bytes:
        match entry:
            case UserEntry():
                text, images = shown(entry, self._pictures)
                said = [_text(text)] if text.strip() else []
                return self._piece("user", [*map(_image, images), *said])
            case AssistantEntry(calls=calls):
                return self._piece("assistant", list(self._assistant(entry, self._ids.of_calls(calls))))
            case ResultsEntry(results=results):
                return self._piece("user", [_result(result, self._ids) for result in results])
            case _ as never:
                assert_never(never)

    def _piece(self, speaker: Literal["user", "assistant"], blocks: Sequence[bytes]) -> bytes:
        if not blocks:
            return b""
        before, self._speaker = self._speaker, speaker
        if before == speaker:
            opening = b","
        else:
            opening = _USER if speaker == "user" else _ASSISTANT
            if before:
                opening = _CLOSE + opening
            elif speaker == "assistant":
                opening = _UNTOLD + _CLOSE + opening
        return opening + b",".join(blocks)[:-1]

    def _assistant(self, entry: AssistantEntry, ids: Mapping[CallKey, str]) -> Iterator[bytes]:
        """Text and calls with the thinking put back in between."""
        thinking = [sealed for block in entry.thinking if (sealed := self._returned(block)) is not None]
        for part in lay_out(entry.text, len(entry.calls), thinking):
            match part:
                case bytes():
                    yield part
                case str():
                    yield _text(part)
                case int():
                    call = entry.calls[part]
                    arguments = msgspec.Raw(json_object(call.arguments).encode())
                    name = tool_name(call.name)
                    yield encode_json({"type": "tool_use", "id": ids[call.call], "name": name, "input": arguments})

    def _returned(self, block: Thinking) -> Sealed | None:
        return unseal(block.opaque) if _returns(block, self._ref, self._refused) else None


def _returns(block: Thinking, ref: str, refused: frozenset[str]) -> bool:
    return bool(block.opaque) and block.model == ref and block.opaque not in refused


def _joined(pieces: Sequence[bytes], mark: bytes) -> bytes:
    """The conversation, with breakpoints at the ends of the last messages of the user."""
    if not pieces:
        return _USER + _GO_ON + b"}]}"
    ends: list[int] = []
    last = end = len(pieces) - 1
    for at in range(last, -1, -1):
        if pieces[at].startswith(b","):
            continue
        if not pieces[at].startswith((_UNTOLD, _CLOSE + _ASSISTANT)):
            ends.append(end)
        end = at - 1
        if len(ends) == _MARKED_MESSAGES:
            break
    parts = list(pieces)
    for at in ends:
        parts[at] += mark
    if last not in ends:
        parts.append(_CLOSE + _USER + _GO_ON)
    return b"}".join(parts) + b"}]}"


def _system_part(system: str, mark: bytes) -> bytes:
    return b',"system":[' + _text(system)[:-1] + mark + b"}]" if system.strip() else b""


def _text(text: str) -> bytes:
    return encode_json({"type": "text", "text": text})


def _image(image: Picture) -> bytes:
    source = {"type": "base64", "media_type": image.media_type, "data": image.data}
    return encode_json({"type": "image", "source": source})


def _result(result: ToolResult, ids: CallIds) -> bytes:
    # An error without a word is refused, and so is blank text wherever it stands.
    content = result.text if result.text.strip() else "(no output)"
    block: dict[str, Any] = {"type": "tool_result", "tool_use_id": ids.of_result(result.call), "content": content}
    return encode_json(block if result.success else {**block, "is_error": True})


def _tool(spec: ToolSpec) -> dict[str, Any]:
    described = {"description": spec.description} if spec.description else {}
    return {"name": spec.name, **described, "input_schema": {"type": "object", **spec.parameters}}
