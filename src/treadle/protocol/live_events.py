"""Events that are shown as they happen and never recorded (V-05)."""

from typing import Any, Literal

import msgspec

from treadle.base.types import CallKey
from treadle.protocol.content import Fingerprint, Value
from treadle.protocol.envelope import EndReason, Live
from treadle.protocol.permissions import Offer


class SessionIdle(Live, frozen=True):
    """The run is over; exactly once behind every `session.run_end` (L-12)."""

    TYPE = "session.idle"
    VERSION = 3
    reason: EndReason
    why: str = ""
    """As in `session.run_end`."""


class MessageDelta(Live, frozen=True):
    """A piece of the answer."""

    TYPE = "assistant.message_delta"
    turn: int
    text: str


class ReasoningDelta(Live, frozen=True):
    """A piece of the model's thinking."""

    TYPE = "assistant.reasoning_delta"
    turn: int
    text: str


class ToolCallDelta(Live, frozen=True):
    """A piece of a call in the making."""

    TYPE = "assistant.tool_call_delta"
    turn: int
    position: int
    name: str = ""
    arguments: str = ""


class AssistantReset(Live, frozen=True):
    """Drop the partial text of this turn: the call is made again."""

    TYPE = "assistant.reset"
    turn: int


class ExecutionOutput(Live, frozen=True):
    """A piece of a running tool's output."""

    TYPE = "tool.execution_output"
    call: CallKey
    text: str


class UsageInfo(Live, frozen=True):
    """How full the context is, and what the chat has cost."""

    TYPE = "session.usage_info"
    tokens: int
    window: int
    cost: float


class OpenAction(Value, frozen=True):
    """One thing the chat waits for."""

    action: str
    kind: Literal["permission", "external_tool", "user_input"]
    call: CallKey = CallKey("")
    name: str = ""
    arguments: dict[str, Any] = msgspec.field(default_factory=dict)
    text: str = ""
    options: tuple[str, ...] = ()
    hash: Fingerprint = ""
    tool_call_id: str = ""
    severity: str = ""
    deadline_ms: int = 0
    reason: str = ""
    offers: tuple[Offer, ...] = ()
    network: tuple[str, ...] = ()

    @property
    def of_person(self) -> bool:
        """True if a person must answer; a client's tool answers by itself."""
        return self.kind != "external_tool"


class ActionRequired(Live, frozen=True):
    """The loop has left and waits for these; published after the commit (A-02)."""

    TYPE = "session.action_required"
    actions: tuple[OpenAction, ...]
