"""What may look at every call before it runs and at every result before it is recorded: one enforcement point for all
tools (E-03). A hook may refuse a call or reword its result; it can never allow what the policy did not."""

from collections.abc import Sequence
from typing import Protocol

from treadle.ports.toolset import Invocation, Outcome
from treadle.protocol.tools import ToolSpec


class Hooks(Protocol):
    async def before(self, spec: ToolSpec, invocation: Invocation) -> str:
        """Why the call must not run, as the model will read it; empty: it may."""
        ...

    async def after(self, spec: ToolSpec, invocation: Invocation, outcome: Outcome) -> Outcome:
        """The outcome as it is recorded."""
        ...


class NoHooks:
    async def before(self, spec: ToolSpec, invocation: Invocation) -> str:
        return ""

    async def after(self, spec: ToolSpec, invocation: Invocation, outcome: Outcome) -> Outcome:
        return outcome


class Chain:
    """Several hooks as one: the first refusal counts, and each sees the outcome that the one before it left."""

    def __init__(self, hooks: Sequence[Hooks]) -> None:
        self._hooks = tuple(hooks)

    async def before(self, spec: ToolSpec, invocation: Invocation) -> str:
        for hook in self._hooks:
            if reason := await hook.before(spec, invocation):
                return reason
        return ""

    async def after(self, spec: ToolSpec, invocation: Invocation, outcome: Outcome) -> Outcome:
        for hook in self._hooks:
            outcome = await hook.after(spec, invocation, outcome)
        return outcome


def chained(hooks: Hooks | Sequence[Hooks]) -> Hooks:
    if not isinstance(hooks, Sequence):
        return hooks
    return Chain(hooks) if hooks else NoHooks()
