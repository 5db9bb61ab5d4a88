"""Who may do what. The loop asks before every intent; the answer is recorded."""

from typing import Literal, Protocol

import msgspec

from treadle.ports.toolset import Invocation
from treadle.protocol.options import ChatOptions
from treadle.protocol.permissions import Offer
from treadle.protocol.tools import ToolSpec


class Verdict(msgspec.Struct, frozen=True):
    """allow · ask (as a durable action) · deny (the reason goes to the model)."""

    decision: Literal["allow", "ask", "deny"]
    reason: str = ""
    severity: str = "none"
    shown: str = ""
    """Exactly what a person is asked to allow; the tool's preview is put below it."""
    offers: tuple[Offer, ...] = ()


class Policy(Protocol):
    async def review(self, spec: ToolSpec, invocation: Invocation, options: ChatOptions) -> Verdict: ...
