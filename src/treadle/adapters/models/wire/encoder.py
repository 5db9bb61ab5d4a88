"""Encoding of requests as a provider's bytes: the part common to all protocols. Every entry is encoded once and its
bytes are cached, so that a request begins with the bytes of the one before (L-21) and a turn costs only its new entries
(law 13). Adapters define the encoding of an entry and of a tool.

The ids of calls and results: those of providers may repeat or be missing (M-09), while servers require unique ones. The
first call with an id keeps it; a turn whose ids cannot be used gets generated ones."""

import re
from abc import ABC, abstractmethod
from base64 import b64encode
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal, NamedTuple, assert_never
from weakref import WeakKeyDictionary

import msgspec

from treadle.adapters.models.thinking import SignedBlock, unseal
from treadle.adapters.models.wire.json import encode_json
from treadle.base.types import CallKey
from treadle.ports.model import Memo, ModelRequest, Pictures
from treadle.protocol.content import PICTURE_KINDS, AssistantEntry, Entry, ResultsEntry, Thinking, ToolResult, UserEntry
from treadle.protocol.tools import ToolSpec

_TOOL_SETS_KEPT = 64
CLOSE = b"]},"  # between two messages that take turns


NO_PICTURES: Pictures = {}
NONE_REFUSED: frozenset[str] = frozenset()  # one for all conversations


class Picture(NamedTuple):
    media_type: str
    data: str  # its bytes in base64

    @property
    def url(self) -> str:
        return f"data:{self.media_type};base64,{self.data}"


def resolve_pictures(entry: UserEntry, pictures: Pictures) -> tuple[str, list[Picture]]:
    """Return the text, with a note for each picture that cannot be shown, and the pictures that can."""
    shown_pictures: list[Picture] = []
    missing = ""
    for image in entry.images:
        data = pictures.get(image.blob)
        if data is not None and image.media_type in PICTURE_KINDS:
            shown_pictures.append(Picture(image.media_type, b64encode(data).decode()))
        else:
            missing += f"\n[an image ({image.media_type}) was attached here, which cannot be shown to you]"
    return entry.text + missing, shown_pictures


def _make_call_id(call: str) -> str:
    """An id made of the call's key: nine letters or digits, which the strictest servers demand."""
    turn, _, position = call.partition(".")
    return f"t{turn:0>5}{position:0>3}"


class Talk(msgspec.Struct):
    refused: frozenset[str] = NONE_REFUSED  # thinking that the provider refused to take back
    memo: Memo | None = None  # replaces the request's own memo, which holds bytes of another encoding
    tools: tuple[ToolSpec, ...] = ()  # the tools of the last request that had any
    calm: bool = False  # True if thinking is not requested: the provider requires earlier blocks that are lost


class ConversationEncoder(ABC):
    """Encodes entries in order, each call and its result under one id."""

    def __init__(self, encoder: "RequestEncoder", refused: frozenset[str], pictures: Pictures) -> None:
        self._encoder, self._refused, self._pictures = encoder, refused, pictures
        self._used_ids: set[str] = set()
        self._ids: Mapping[CallKey, str] = {}  # of the last turn's calls

    def __call__(self, entry: Entry) -> bytes:
        match entry:
            case UserEntry():
                return self._encode_user(*resolve_pictures(entry, self._pictures))
            case AssistantEntry(text="", calls=(), thinking=thinking) if not any(each.opaque for each in thinking):
                return b""  # an empty answer, which servers refuse as a message
            case AssistantEntry(calls=calls):
                ids = {call.id for call in calls}
                has_own_ids = len(ids) == len(calls) and "" not in ids and self._used_ids.isdisjoint(ids)
                if pattern := self._encoder.ids:
                    has_own_ids = has_own_ids and all(map(pattern.fullmatch, ids))
                if has_own_ids:
                    self._used_ids |= ids
                self._ids = {call.call: call.id if has_own_ids else _make_call_id(call.call) for call in calls}
                return self._encode_assistant(entry, self._ids)
            case ResultsEntry(results=results):
                return self._encode_results(results)
            case _ as never:
                assert_never(never)

    @abstractmethod
    def _encode_user(self, text: str, images: Sequence[Picture]) -> bytes: ...

    @abstractmethod
    def _encode_assistant(self, entry: AssistantEntry, ids: Mapping[CallKey, str]) -> bytes: ...

    def _encode_results(self, results: Sequence[ToolResult]) -> bytes:
        return b",".join(map(self._encode_result, results))

    @abstractmethod
    def _encode_result(self, result: ToolResult) -> bytes: ...

    def _get_id(self, result: ToolResult) -> str:
        return self._ids.get(result.call) or _make_call_id(result.call)

    def _unseal_thinking(self, entry: AssistantEntry) -> list[tuple[Thinking, SignedBlock]]:
        """The thinking of an answer that goes back, as it was recorded and as the provider wrote it."""
        own_blocks = (block for block in entry.thinking if self._encoder.can_send_back(block, self._refused))
        return [(block, sealed) for block in own_blocks if (sealed := unseal(block.opaque)) is not None]


class AlternatingConversation(ConversationEncoder):
    """User and model take turns. A piece leaves its message open: the next one goes on with it, or closes it."""

    opening: ClassVar[Mapping[Literal["user", "model"], bytes]]  # the beginning of a message of each speaker
    untold: ClassVar[bytes]  # the user's text that is inserted where a conversation begins with the model
    _speaker: Literal["user", "model", ""] = ""

    def _join_parts(self, speaker: Literal["user", "model"], parts: Sequence[bytes]) -> bytes:
        if not parts:
            return b""
        previous, self._speaker = self._speaker, speaker
        opening = b"," if previous == speaker else self.opening[speaker]
        if previous != speaker and (previous or speaker == "model"):
            opening = (b"" if previous else self.opening["user"] + self.untold) + CLOSE + opening
        return opening + b",".join(parts)

    def _encode_results(self, results: Sequence[ToolResult]) -> bytes:
        return self._join_parts("user", [*map(self._encode_result, results)])


class RequestEncoder:
    """The bytes of requests to one model. Holds the encoded tools, each set made once."""

    conversation: ClassVar[type[ConversationEncoder]]
    tool_choice: ClassVar[bytes] = b""  # what stands behind the tools
    ids: re.Pattern[str] | None = None  # what the server takes as the id of a call; None: anything

    def __init__(self, ref: str) -> None:
        self.ref = ref
        self._tool_sets: dict[tuple[int, ...], tuple[tuple[ToolSpec, ...], bytes]] = {}
        self._talks: WeakKeyDictionary[Memo, Talk] = WeakKeyDictionary()

    def encode_body(self, parameters: dict[str, Any], request: ModelRequest) -> bytes:
        """The constant parts first, then the conversation: here in the form of Chat Completions and Ollama."""
        head = encode_json(parameters)[:-1]
        if request.tools:
            head += b',"tools":' + self._get_encoded_tools(request.tools) + self.tool_choice
        system = [encode_json({"role": "system", "content": request.system})] if request.system else []
        return b"".join((head, b',"messages":[', b",".join([*system, *self._encode_entries(request)]), b"]}"))

    def _describe_tool(self, spec: ToolSpec) -> dict[str, Any]:
        function = {"name": spec.name, "description": spec.description, "parameters": spec.parameters}
        return {"type": "function", "function": function}

    def can_send_back(self, block: Thinking, refused: frozenset[str]) -> bool:
        """True if thinking is sent back: it is the model's own, signed, and was not refused before (M-10)."""
        return bool(block.opaque) and block.model == self.ref and block.opaque not in refused

    def talk(self, request: ModelRequest) -> Talk:
        return self._talks.setdefault(request.memo, Talk())

    def drop_thinking(self, request: ModelRequest) -> bool:
        """Send none of this request's thinking again; False when none was sent."""
        talk = self.talk(request)
        blocks = (block for entry in request.entries if isinstance(entry, AssistantEntry) for block in entry.thinking)
        sent_blocks = {block.opaque for block in blocks if self.can_send_back(block, talk.refused)}
        if sent_blocks:
            talk.refused |= sent_blocks
            talk.memo = Memo()
        return bool(sent_blocks)

    def _encode_entries(self, request: ModelRequest) -> Sequence[bytes]:
        talk = self.talk(request)
        memo = talk.memo or request.memo
        return memo.encode_pieces(request.entries, lambda: self.conversation(self, talk.refused, request.pictures))

    def change(self, **way: object) -> bool:
        """Encode in another way from now on: no bytes made before are sent. False if that was so before."""
        if all(getattr(self, name) == value for name, value in way.items()):
            return False
        for name, value in way.items():
            setattr(self, name, value)
        self._tool_sets.clear()
        for talk in self._talks.values():
            talk.memo = Memo()
        return True

    def _get_encoded_tools(self, tools: tuple[ToolSpec, ...]) -> bytes:
        key = tuple(map(id, tools))
        cached = self._tool_sets.get(key)
        if cached is None:
            if len(self._tool_sets) >= _TOOL_SETS_KEPT:
                self._tool_sets.clear()
            # The tools are held, so that their ids stay theirs.
            cached = self._tool_sets[key] = (tools, self._encode_tools(tools))
        return cached[1]

    def _encode_tools(self, tools: tuple[ToolSpec, ...]) -> bytes:
        return encode_json([self._describe_tool(spec) for spec in tools])


def build_schema_format(request: ModelRequest) -> dict[str, Any] | None:
    """The schema of an answer as OpenAI's protocols have it; None if any text will do."""
    schema = request.output_schema
    return None if schema is None else {"name": "answer", "schema": schema, "strict": is_strict(schema)}


def find_output_schema(request: ModelRequest) -> dict[str, Any] | None:
    """The schema for servers whose constraint would forbid calls of tools, too."""
    return None if request.tools else request.output_schema


def is_strict(schema: Mapping[str, Any]) -> bool:
    """True if OpenAI's strict mode accepts the schema: every object is closed, and all its fields are required."""
    if schema.get("type") != "object":
        return False
    layer: list[Any] = [schema]
    while layer:
        part = layer.pop()
        if isinstance(part, list):
            layer += part
        if not isinstance(part, dict):
            continue
        if "properties" in part or part.get("type") == "object":
            fields, required = part.get("properties", {}), part.get("required", [])
            is_complete = isinstance(required, list | tuple) and set(required) == set(fields)
            if part.get("additionalProperties") is not False or not is_complete:
                return False
        layer += part.values()
    return True
