"""Who may do what. The loop asks before every intent; the answer is recorded."""

from typing import Literal, Protocol

import msgspec

from treadle.ports.toolset import Invocation
from treadle.protocol.options import ChatOptions
from treadle.protocol.permissions import Offer
from treadle.protocol.tools import ToolSpec


class Verdict(msgspec.Struct, frozen=True):
    """allow · ask (as a durable action) · deny (the reason goes to the model) · review: find out first what it would
    do, and ask only if that is something (W-09)."""

    decision: Literal["allow", "ask", "deny", "review"]
    reason: str = ""
    severity: str = "none"
    shown: str = ""
    """Exactly what a person is asked to allow; the tool's preview is put below it."""
    offers: tuple[Offer, ...] = ()
    refusal: str = ""
    """For a review: what the model is told if somebody would have to be asked and nobody is there."""


class Policy(Protocol):
    async def review(self, spec: ToolSpec, invocation: Invocation, options: ChatOptions) -> Verdict: ...
