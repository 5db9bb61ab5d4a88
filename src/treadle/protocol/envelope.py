"""The base of all events: a frozen value with a type and a version, and the envelope with its place in a chat's log."""

from typing import ClassVar, Literal

import msgspec

from treadle.base.types import ChatId
from treadle.protocol.content import Value

EndReason = Literal[
    "done", "task_complete", "interrupted", "error", "turn_cap", "budget", "guard", "superseded", "incomplete"
]


class Event(Value, frozen=True):
    """The base of everything recorded."""

    TYPE: ClassVar[str] = ""
    VERSION: ClassVar[int] = 1


class Live(Event, frozen=True):
    """The base of what is shown and never recorded."""


class Envelope(msgspec.Struct, frozen=True):
    """An event with its place in a chat's log. A live one has no place: its seq is 0."""

    seq: int
    chat: ChatId
    time_ms: int
    data: Event
    epoch: int = 0  # the lease under which a worker wrote it; 0 for what a command wrote

    @property
    def type(self) -> str:
        return self.data.TYPE

    @property
    def ephemeral(self) -> bool:
        return self.seq == 0

    @property
    def id(self) -> str:
        return f"{self.chat}:{self.seq}"
