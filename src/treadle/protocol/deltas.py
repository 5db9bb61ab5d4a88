"""The deltas of a model's stream, in no vendor's format and in the order of arrival. Live data, never recorded as such;
`treadle.chat.assembly` adds them up to a message."""

import msgspec

from treadle.protocol.content import Thinking, Usage


class TextDelta(msgspec.Struct, frozen=True, gc=False):
    text: str


class ThinkingDelta(msgspec.Struct, frozen=True, gc=False):
    text: str


class ThinkingBlock(msgspec.Struct, frozen=True):
    """A finished block that must go back byte-exact; its `text` replaces the deltas since the last block."""

    block: Thinking


class CallDelta(msgspec.Struct, frozen=True, gc=False):
    """A fragment of a call as the server labelled it. Labels may lie (M-08): `None` means the server sent none."""

    id: str | None = None
    index: int | None = None
    name: str | None = None
    arguments: str = ""
    repaired: bool = False  # the call was cut off and completed by guessing (P-04)


class UsageDelta(msgspec.Struct, frozen=True):
    """The provider's count so far; a later one replaces an earlier one. `usd` is filled in by the engine where the
    provider does not tell it."""

    usage: Usage


class FinishDelta(msgspec.Struct, frozen=True):
    """The stream ended well. A stream that stops without one was cut."""

    reason: str = "stop"  # stop, tool_calls, length, content_filter, or the provider's own word
    response_id: str = ""  # the provider's id of the answer
    response_model: str = ""  # the model that answered, in the provider's word
    server_address: str = ""
    server_port: int = 0


class NoticeDelta(msgspec.Struct, frozen=True):
    """Something the user should know: a lower rung of the ladder, a dropped parameter."""

    kind: str
    text: str


Delta = TextDelta | ThinkingDelta | ThinkingBlock | CallDelta | UsageDelta | FinishDelta | NoticeDelta
