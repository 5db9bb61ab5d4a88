"""A language model, free of any vendor. An adapter turns a request into one provider's bytes and its stream into
neutral deltas; it never retries, never records and never runs a call. What a stream adds up to is decided by
`treadle.chat.assembly`."""

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Protocol

import msgspec

from treadle.protocol.content import Entry, Thinking, Usage
from treadle.protocol.tools import ToolSpec


class TextDelta(msgspec.Struct, frozen=True):
    text: str


class ThinkingDelta(msgspec.Struct, frozen=True):
    text: str


class ThinkingBlock(msgspec.Struct, frozen=True):
    """A finished block that must go back byte-exact; its `text` replaces the deltas since the last block."""

    block: Thinking


class CallDelta(msgspec.Struct, frozen=True):
    """A fragment of a call as the server labelled it. Labels may lie (M-08): `None` means the server sent none."""

    id: str | None = None
    index: int | None = None
    name: str | None = None
    arguments: str = ""


class UsageDelta(msgspec.Struct, frozen=True):
    """The provider's count so far; a later one replaces an earlier one. `usd` is filled in by the engine."""

    usage: Usage


class FinishDelta(msgspec.Struct, frozen=True):
    """The stream ended well. A stream that stops without one was cut."""

    reason: str = "stop"
    """stop, tool_calls, length, content_filter, or the provider's own word."""


class NoticeDelta(msgspec.Struct, frozen=True):
    """Something the user should know: a lower rung of the ladder, a dropped parameter."""

    kind: str
    text: str


Delta = TextDelta | ThinkingDelta | ThinkingBlock | CallDelta | UsageDelta | FinishDelta | NoticeDelta


class ModelInfo(msgspec.Struct, frozen=True):
    """What the catalogue knows of a model; the defaults are safe for one that nobody knows (M-12)."""

    provider: str
    name: str
    window: int = 32_768
    max_output: int = 4_096
    usd_per_million_input: float = 0.0
    usd_per_million_cached: float = 0.0
    usd_per_million_output: float = 0.0
    temperature: float | None = 0.1
    native_tools: bool = True

    @property
    def ref(self) -> str:
        return f"{self.provider}:{self.name}"


class Memo:
    """Keeps the bytes of every entry that was encoded once, for one wire format (law 13). Entries are compared by
    identity: the same object has the same bytes."""

    def __init__(self) -> None:
        self._kept: dict[int, tuple[Entry, bytes]] = {}

    def bytes_of(self, entry: Entry, encode: Callable[[Entry], bytes]) -> bytes:
        kept = self._kept.get(id(entry))
        if kept is None:
            kept = self._kept[id(entry)] = (entry, encode(entry))
        return kept[1]


class ModelRequest(msgspec.Struct, frozen=True):
    """Everything a provider must know for one call."""

    system: str
    entries: Sequence[Entry]
    """Repaired: every call is followed by exactly one result, in order (L-20)."""
    tools: tuple[ToolSpec, ...] = ()
    temperature: float | None = None
    max_tokens: int = 0
    purpose: str = "turn"
    """turn, or what else the call is for (L-02): compaction, summary, title."""
    memo: Memo = msgspec.field(default_factory=Memo)


class Model(Protocol):
    """One model of one provider."""

    @property
    def info(self) -> ModelInfo: ...

    def stream(self, request: ModelRequest) -> AsyncIterator[Sequence[Delta]]:
        """Make one call. Each item is what one read from the network brought, in order. Raises ModelError with
        its class; ends without FinishDelta only by raising. Closing the iterator drops the connection."""
        ...

    async def close(self) -> None: ...


class Models(Protocol):
    """Finds a model by its `provider:name`."""

    def get(self, ref: str) -> Model:
        """ConfigError with a sentence that says what to set when the model cannot be used."""
        ...

    async def close(self) -> None: ...
