"""Permissions. The loop asks the policy before every intent, and records the verdict."""

from typing import Literal, Protocol

import msgspec

from treadle.ports.toolset import Invocation, Rehearsal
from treadle.protocol.options import ChatOptions, NetworkChoice
from treadle.protocol.permissions import Offer
from treadle.protocol.tools import ToolSpec


class Verdict(msgspec.Struct, frozen=True):
    """allow · ask (as a durable action) · deny (the reason goes to the model) · review: find out first what it would
    change, which is then judged (W-09) · discard: a command runs, and nothing of what it changes is committed."""

    decision: Literal["allow", "ask", "deny", "review", "discard"]
    reason: str = ""
    severity: str = "none"
    approval_text: str = ""  # exactly the text that a person is asked to approve; the tool's preview is shown below it
    offers: tuple[Offer, ...] = ()
    network: NetworkChoice = False  # the hosts that standing rules allow, in addition to the chat's options
    barred: tuple[str, ...] = ()  # the hosts that rules deny, which no other setting can allow: patterns, or `all`
    unasked: bool = False  # True if a person would have been asked but none is present (the chat is headless)
    wants: tuple[str, ...] = ()  # the hosts that an approval lets this call reach, as patterns or `all`


class Policy(Protocol):
    async def review(self, spec: ToolSpec, invocation: Invocation, options: ChatOptions) -> Verdict:
        """By the words and arguments of a call, before anything runs."""

    async def judge(
        self,
        spec: ToolSpec,
        invocation: Invocation,
        options: ChatOptions,
        rehearsal: Rehearsal | None,
        verdict: Verdict,
    ) -> Verdict:
        """By what the call would change, after a verdict `review`; never `review` again. None: that cannot be had."""
