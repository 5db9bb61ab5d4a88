"""What may look at every call before it runs and at every result before it is recorded: one enforcement point for all
tools (E-03). A hook may refuse a call, change its arguments or reword its result; it can never allow what the policy
did not, which judges what the hooks leave."""

from collections.abc import Sequence
from typing import Any, Protocol

import msgspec

from treadle.ports.toolset import Invocation, Outcome
from treadle.protocol.tools import ToolSpec


class Instead(msgspec.Struct, frozen=True):
    """The arguments that a call is to have in place of the model's; they are checked like those."""

    arguments: dict[str, Any]


class Hooks(Protocol):
    async def before(self, spec: ToolSpec, invocation: Invocation) -> str | Instead:
        """Why the call must not run, as the model will read it; empty: it may; or other arguments for it."""

    async def after(self, spec: ToolSpec, invocation: Invocation, outcome: Outcome) -> Outcome:
        """The outcome as it is recorded."""


class Chain:
    """Any number of hooks as one: the first refusal counts, and each sees what the one before it left."""

    def __init__(self, hooks: Sequence[Hooks] = ()) -> None:
        self._hooks = tuple(hooks)

    async def before(self, spec: ToolSpec, invocation: Invocation) -> str | Instead:
        said: str | Instead = ""
        for hook in self._hooks:
            found = await hook.before(spec, invocation)
            if isinstance(found, Instead):
                said, invocation = found, msgspec.structs.replace(invocation, arguments=found.arguments)
            elif found:
                return found
        return said

    async def after(self, spec: ToolSpec, invocation: Invocation, outcome: Outcome) -> Outcome:
        for hook in self._hooks:
            outcome = await hook.after(spec, invocation, outcome)
        return outcome
