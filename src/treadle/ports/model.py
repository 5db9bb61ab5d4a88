"""A language model, independent of vendors. An adapter converts a request to one provider's bytes and its stream to
neutral deltas; it never retries, never records and never runs a call. `treadle.chat.assembly` assembles the deltas."""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Literal, Protocol

import msgspec

from treadle.protocol.content import Entry, JsonSchema
from treadle.protocol.deltas import CallDelta as CallDelta
from treadle.protocol.deltas import Delta as Delta
from treadle.protocol.deltas import FinishDelta as FinishDelta
from treadle.protocol.deltas import NoticeDelta as NoticeDelta
from treadle.protocol.deltas import TextDelta as TextDelta
from treadle.protocol.deltas import ThinkingBlock as ThinkingBlock
from treadle.protocol.deltas import ThinkingDelta as ThinkingDelta
from treadle.protocol.deltas import UsageDelta as UsageDelta
from treadle.protocol.events import Purpose
from treadle.protocol.options import EFFORTS, ReasoningEffort, Rung
from treadle.protocol.tools import ToolSpec

LONGEST_WAIT_S = 120.0  # a provider that asks for a longer wait is not waited for (M-11)


class ModelInfo(msgspec.Struct, frozen=True):
    """The facts about a model. The defaults are safe for a model that the catalogue does not have (M-12)."""

    provider: str
    name: str
    window: int = 32_768
    max_output: int = 4_096
    usd_per_million_input: float = 0.0
    usd_per_million_cached: float = 0.0
    usd_per_million_output: float = 0.0
    temperature: float | None = 0.1
    native_tools: bool = True
    thinking: bool = False  # True if the model is asked to think and to show it, where the protocol supports that
    vision: bool = False  # True if it accepts pictures
    free: bool = False  # True if its tokens cost nothing: it runs on the user's machine, or by subscription
    efforts: tuple[ReasoningEffort, ...] | None = None  # accepted reasoning efforts (M-16); None: unknown

    limit_assumed: bool = False
    """True if the true output limit is unknown: `max_output` is then only the space reserved for an answer, and no
    limit is sent unless the user sets one."""
    tells_cost: bool = False  # True if its server reports the cost of each answer

    @property
    def has_price(self) -> bool:
        return self.free or self.usd_per_million_input > 0 or self.usd_per_million_output > 0

    @property
    def offered_efforts(self) -> tuple[ReasoningEffort, ...]:
        """The levels of reasoning effort that people can choose for it: all, where its own are not known."""
        return EFFORTS if self.efforts is None else self.efforts

    @property
    def is_unknown(self) -> bool:
        """True if all of this is assumed."""
        assumed = ModelInfo(self.provider, self.name, efforts=self.efforts, free=self.free, tells_cost=self.tells_cost)
        return self.limit_assumed or self == assumed

    @property
    def output_limit(self) -> int:
        """The limit that is sent when the user asks for none; 0: none is."""
        return 0 if self.limit_assumed else self.max_output

    @property
    def ref(self) -> str:
        return f"{self.provider}:{self.name}"


Pictures = Mapping[str, bytes]  # the bytes of pictures, by what entries call them
Encode = Callable[[Entry], bytes]  # encodes the entries of one conversation in order; no bytes: left out


class Memo:
    """Keeps the bytes of a growing conversation for one wire format, so that a turn costs what is new in it (law 13).
    As long as a request begins with the entries of the one before, only the rest is encoded; otherwise, after a
    compaction or an edit, everything is encoded anew."""

    def __init__(self) -> None:
        self._entries: list[Entry] = []
        self._pieces: list[bytes] = []
        self._encode: Encode | None = None
        self.pictures: dict[str, bytes] = {}  # those of the conversation, read once
        self._seen: tuple[int, Entry | None] = (0, None)  # how many entries were searched for pictures, and the last

    def select_unseen(self, entries: Sequence[Entry]) -> Sequence[Entry]:
        """The entries that were not searched for pictures yet; all, after a compaction or an edit."""
        count, last = self._seen
        grown = 0 < count <= len(entries) and entries[count - 1] is last
        return entries[count:] if grown else entries

    def see(self, entries: Sequence[Entry]) -> None:
        self._seen = (len(entries), entries[-1] if entries else None)

    def encode_pieces(self, entries: Sequence[Entry], begin: Callable[[], Encode]) -> Sequence[bytes]:
        """The bytes of each entry; `begin` makes the encoder of a conversation from its first entry on."""
        encoded_count = len(self._entries)
        if self._encode is None or self._entries != entries[:encoded_count]:
            self._entries, self._pieces, self._encode, encoded_count = [], [], begin(), 0
        for entry in entries[encoded_count:]:
            piece = self._encode(entry)
            self._entries.append(entry)
            if piece:
                self._pieces.append(piece)
        return self._pieces


NOTHING_WITHHELD: frozenset[str] = frozenset()


class ModelRequest(msgspec.Struct, frozen=True):
    system: str
    entries: Sequence[Entry]  # repaired: every call is followed by exactly one result, in order (L-20)
    tools: tuple[ToolSpec, ...] = ()
    withheld: frozenset[str] = NOTHING_WITHHELD
    """Tools that would be called in vain now, and `WORDS` where words would be: where an answer can be held to a form,
    it is none of them. They are told all the same, so that the beginning of the request stays what it was."""
    withdrawn: tuple[ToolSpec, ...] = ()
    """Tools that it was told of and can call no more, in the last words at a limit. Where they stand at the beginning
    of what it reads they stay there, so that all behind them is not read anew."""
    temperature: float | None = None
    max_tokens: int = 0
    window: int = 0  # the context window that the user chose, for servers that must be told; 0 leaves it to the model
    effort: ReasoningEffort | Literal[""] = ""  # how much the model thinks; empty leaves it to its server (M-16)
    rung: Rung | Literal[""] = ""  # the way of calling tools; empty: decided by the facts about the model
    marker: bool = False  # True if a model that calls tools in its text is told about the marker (L-15)
    memo: Memo = msgspec.field(default_factory=Memo)
    pictures: Pictures = msgspec.field(default_factory=dict)
    """The pictures that can be shown. Encoded entries are cached: a later request with the same memo still has them."""
    output_schema: JsonSchema | None = None  # of the answer, for providers that can enforce it; None: any text
    purpose: Purpose | Literal["turn"] = "turn"  # of the call (L-02); no provider is sent it


class Model(Protocol):
    @property
    def info(self) -> ModelInfo: ...

    def stream(self, request: ModelRequest) -> AsyncIterator[Sequence[Delta]]:
        """Make one call. Each item is what one read from the network brought to the answer, in order; one without
        deltas says that the answer goes on, with nothing to tell of it yet. Raises ModelError with its class; ends
        without FinishDelta only by raising. Closing the iterator drops the connection."""

    async def close(self) -> None: ...


class Models(Protocol):
    def get(self, ref: str) -> Model:
        """ConfigError with a sentence that says what to set when the model cannot be used."""

    async def close(self) -> None: ...
