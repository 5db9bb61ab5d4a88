"""A language model, free of any vendor. An adapter turns a request into one provider's bytes and its stream into
neutral deltas; it never retries, never records and never runs a call. What a stream adds up to is decided by
`treadle.chat.assembly`."""

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Literal, Protocol

import msgspec

from treadle.protocol.content import Entry
from treadle.protocol.deltas import (
    CallDelta,
    Delta,
    FinishDelta,
    NoticeDelta,
    TextDelta,
    ThinkingBlock,
    ThinkingDelta,
    UsageDelta,
)
from treadle.protocol.events import Purpose
from treadle.protocol.tools import ToolSpec

__all__ = [
    "CallDelta",
    "Delta",
    "FinishDelta",
    "Memo",
    "Model",
    "ModelInfo",
    "ModelRequest",
    "Models",
    "NoticeDelta",
    "TextDelta",
    "ThinkingBlock",
    "ThinkingDelta",
    "UsageDelta",
]


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
    memo: Memo = msgspec.field(default_factory=Memo)
    purpose: Purpose | Literal["turn"] = "turn"
    """What the call is for (L-02). Nothing of it goes to the provider; scripts answer by it."""


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
