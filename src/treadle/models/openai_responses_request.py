"""A request as Responses bytes: instructions and tools beside the conversation, which is a flat list of items, with
encrypted reasoning where it stood (M-10). What stays the same comes first and every entry is encoded once, so that a
request begins with the bytes of the one before (L-21)."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, assert_never
from weakref import WeakKeyDictionary

from treadle.models.wire.call_ids import CallIds
from treadle.models.wire.encoding import ToolBytes, encode_json, json_object, tool_name, user_text
from treadle.models.wire.sealed import Sealed, lay_out, unseal
from treadle.ports.model import Memo, ModelRequest
from treadle.protocol.content import AssistantEntry, Entry, ResultsEntry, Thinking, ToolResult, UserEntry
from treadle.protocol.tools import ToolSpec
from treadle.types import CallKey

LONGEST_NAME = 64
_ID = re.compile(r"[a-zA-Z0-9_-]{1,64}")


class Encoder:
    """The bytes of requests to one model."""

    def __init__(self, ref: str) -> None:
        self._ref = ref
        self._tools = ToolBytes(lambda tools: encode_json([_tool(spec) for spec in tools]))
        self._refused: WeakKeyDictionary[Memo, tuple[frozenset[str], Memo]] = WeakKeyDictionary()
        """By conversation: reasoning that the provider did not take back, and the memo of the items without it."""

    def body(self, parameters: dict[str, Any], request: ModelRequest) -> bytes:
        parts = [encode_json(parameters)[:-1]]
        if request.system.strip():
            parts.append(b',"instructions":' + encode_json(request.system))
        if request.tools:
            parts += (b',"tools":', self._tools.of(request.tools), b',"tool_choice":"auto","parallel_tool_calls":true')
        refused, memo = self._refused.get(request.memo, (frozenset[str](), request.memo))
        items = memo.pieces(request.entries, lambda: Conversation(self._ref, refused))
        return b"".join((*parts, b',"input":[', b",".join(items), b"]}"))

    def drop_reasoning(self, request: ModelRequest) -> bool:
        """Send none of this request's reasoning again; False when none was sent."""
        refused, _ = self._refused.get(request.memo, (frozenset[str](), None))
        blocks = (block for entry in request.entries if isinstance(entry, AssistantEntry) for block in entry.thinking)
        sent = {block.opaque for block in blocks if _returns(block, self._ref, refused)}
        if sent:
            self._refused[request.memo] = (refused | sent, Memo())
        return bool(sent)


class Conversation:
    """Encodes entries in order, each as one or more items."""

    def __init__(self, ref: str, refused: frozenset[str] = frozenset()) -> None:
        self._ref = ref
        self._refused = refused
        self._ids = CallIds(_ID)

    def __call__(self, entry: Entry) -> bytes:
        match entry:
            case UserEntry():
                return _message("user", "input_text", user_text(entry))
            case AssistantEntry(calls=calls):
                return b",".join(self._assistant(entry, self._ids.of_calls(calls)))
            case ResultsEntry(results=results):
                return b",".join(_result(result, self._ids) for result in results)
            case _ as never:
                assert_never(never)

    def _assistant(self, entry: AssistantEntry, ids: Mapping[CallKey, str]) -> Iterator[bytes]:
        reasoning = [sealed for block in entry.thinking if (sealed := self._returned(block)) is not None]
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

    def _returned(self, block: Thinking) -> Sealed | None:
        return unseal(block.opaque) if _returns(block, self._ref, self._refused) else None


def _returns(block: Thinking, ref: str, refused: frozenset[str]) -> bool:
    return bool(block.opaque) and block.model == ref and block.opaque not in refused


def _message(role: str, kind: str, text: str) -> bytes:
    return encode_json({"type": "message", "role": role, "content": [{"type": kind, "text": text}]})


def _result(result: ToolResult, ids: CallIds) -> bytes:
    return encode_json({"type": "function_call_output", "call_id": ids.of_result(result.call), "output": result.text})


def _tool(spec: ToolSpec) -> dict[str, Any]:
    """Not strict: strict schemas must name every property as required, which those of tools do not."""
    function = {"name": spec.name, "description": spec.description, "parameters": spec.parameters}
    return {"type": "function", **function, "strict": False}
