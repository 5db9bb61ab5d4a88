"""A request as Chat Completions bytes. Everything that stays the same comes first, every entry is encoded once, and
the body is a join: so the prefix is byte-stable (L-21) and a turn costs what is new in it (law 13)."""

from collections.abc import Mapping, Sequence
from typing import Any, assert_never

import msgspec

from treadle.ports.model import ModelRequest
from treadle.protocol.content import AssistantEntry, Entry, ResultsEntry, ToolRequest, ToolResult, UserEntry
from treadle.protocol.tools import ToolSpec
from treadle.types import CallKey

_encoder = msgspec.json.Encoder()
_object = msgspec.json.Decoder(dict[str, Any])
_TOOL_SETS_KEPT = 64


def encode_json(value: Any) -> bytes:
    try:
        return _encoder.encode(value)
    except UnicodeEncodeError:  # half a surrogate pair, from a file name or a program's output
        return _encoder.encode(_printable(value))


def _printable(value: Any) -> Any:
    match value:
        case str():
            return value.encode("utf-8", "replace").decode()
        case dict():
            return {_printable(key): _printable(inner) for key, inner in value.items()}
        case list() | tuple():
            return [_printable(inner) for inner in value]
        case _:
            return value


class Encoder:
    """The bytes of requests to one model. Holds the encoded tools."""

    def __init__(self) -> None:
        self._tools: dict[tuple[int, ...], tuple[tuple[ToolSpec, ...], bytes]] = {}

    def body(self, parameters: dict[str, Any], request: ModelRequest) -> bytes:
        head = encode_json(parameters)[:-1]
        if request.tools:
            head += b',"tools":' + self._tools_of(request.tools) + b',"tool_choice":"auto"'
        return b"".join((head, b',"messages":[', b",".join(self._messages(request)), b"]}"))

    def _tools_of(self, tools: tuple[ToolSpec, ...]) -> bytes:
        key = tuple(map(id, tools))
        kept = self._tools.get(key)
        if kept is None:
            if len(self._tools) >= _TOOL_SETS_KEPT:
                self._tools.clear()
            encoded = encode_json([_tool(spec) for spec in tools])
            kept = self._tools[key] = (tools, encoded)  # the tools are held, so that their ids stay theirs
        return kept[1]

    def _messages(self, request: ModelRequest) -> Sequence[bytes]:
        said = request.memo.pieces(request.entries, Conversation)
        if not request.system:
            return said
        return [encode_json({"role": "system", "content": request.system}), *said]


class Conversation:
    """Encodes entries in order. Provider ids may repeat across turns (M-09): the first call of an id keeps it, and a
    turn whose ids are taken gets made-up ones, in its calls and in their results alike."""

    def __init__(self) -> None:
        self._taken: set[str] = set()
        self._ids: dict[CallKey, str] = {}
        """The ids under which the last turn's calls were sent."""

    def __call__(self, entry: Entry) -> bytes:
        match entry:
            case UserEntry():
                return _user(entry)
            case AssistantEntry(calls=calls):
                own = _claim(calls, self._taken)
                self._ids = {call.call: call.id if own else _alias(call.call) for call in calls}
                return _assistant(entry, self._ids)
            case ResultsEntry(results=results):
                return b",".join(_result(result, self._ids) for result in results)
            case _ as never:
                assert_never(never)


def _claim(calls: Sequence[ToolRequest], taken: set[str]) -> bool:
    """Take the calls' own ids if all are there and new; else take none."""
    ids = {call.id for call in calls}
    if len(ids) < len(calls) or "" in ids or not taken.isdisjoint(ids):
        return False
    taken |= ids
    return True


def _alias(call: str) -> str:
    """An id made of the call's key: nine letters or digits, which the strictest servers demand."""
    turn, _, position = call.partition(".")
    return f"t{turn:0>5}{position:0>3}"


def _tool(spec: ToolSpec) -> dict[str, Any]:
    function = {"name": spec.name, "description": spec.description, "parameters": spec.parameters}
    return {"type": "function", "function": function}


def _user(entry: UserEntry) -> bytes:
    text = entry.text
    for image in entry.images:  # the bytes lie in the blob store, which no adapter sees
        text += f"\n[an image ({image.media_type}) was attached here, which cannot be shown to you]"
    return encode_json({"role": "user", "content": text})


def _assistant(entry: AssistantEntry, ids: Mapping[CallKey, str]) -> bytes:
    """Thinking is not sent back: this wire has no place for it (M-10)."""
    message: dict[str, Any] = {"role": "assistant", "content": entry.text}
    if entry.calls:
        message["content"] = entry.text or None
        message["tool_calls"] = [
            {
                "id": ids[call.call],
                "type": "function",
                # Servers refuse an empty name, with which the whole chat would be stuck.
                "function": {"name": call.name or "unnamed", "arguments": _arguments(call.arguments)},
            }
            for call in entry.calls
        ]
    return encode_json(message)


def _result(result: ToolResult, ids: Mapping[CallKey, str]) -> bytes:
    sent_as = ids.get(result.call) or _alias(result.call)
    return encode_json({"role": "tool", "tool_call_id": sent_as, "content": result.text})


def _arguments(text: str) -> str:
    """Arguments as every server takes them. Many parse them for their chat template and refuse a request with
    broken ones for ever; wrapped in an object, the model still sees what it wrote."""
    try:
        _object.decode(text)
    except (msgspec.MsgspecError, UnicodeEncodeError, RecursionError):
        return encode_json({"invalid_json": text}).decode()
    return text
