"""Who may do what. The loop asks before every intent; the answer is recorded."""

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
    shown: str = ""
    """Exactly what a person is asked to allow; the tool's preview is put below it."""
    offers: tuple[Offer, ...] = ()
    network: NetworkChoice = False
    """What standing rules let the call reach, beside what the chat's options say."""
    barred: tuple[str, ...] = ()
    """What rules deny it to reach, whatever else lets it: patterns, or `all`."""
    unasked: bool = False
    """A person would have been asked, and none is there (the chat is headless)."""
    wants: tuple[str, ...] = ()
    """The hosts that an approval lets this call reach, as patterns or `all`."""


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
