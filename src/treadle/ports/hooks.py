"""Hooks that see every call before it runs and every result before it is recorded: one enforcement point for all tools
(E-03). A hook may refuse a call, change its arguments, require a person's approval or reword its result. It can never
allow a call that the policy does not: the policy judges the call after the hooks."""

from collections.abc import Sequence
from typing import Any, Protocol

import msgspec

from treadle.ports.toolset import Invocation, Outcome
from treadle.protocol.tools import ToolSpec


class Instead(msgspec.Struct, frozen=True):
    """The arguments that a call is to have in place of the model's; they are checked like those."""

    arguments: dict[str, Any]


class AskPerson(msgspec.Struct, frozen=True):
    """A person must approve the call, also where the policy would let it pass."""

    reason: str
    arguments: dict[str, Any] | None = None  # those that the call is to have in place of the model's


HookVerdict = str | Instead | AskPerson


class Hooks(Protocol):
    async def before_call(self, spec: ToolSpec, invocation: Invocation) -> HookVerdict:
        """Why the call must not run, for the model (empty: it may); other arguments; or that a person must be asked."""

    async def after_call(self, spec: ToolSpec, invocation: Invocation, outcome: Outcome) -> Outcome:
        """The outcome as it is recorded."""


class Chain:
    """Any number of hooks as one: the first refusal counts, and each sees what the one before it left."""

    def __init__(self, hooks: Sequence[Hooks] = ()) -> None:
        self._hooks = tuple(hooks)

    async def before_call(self, spec: ToolSpec, invocation: Invocation) -> HookVerdict:
        arguments: dict[str, Any] | None = None
        reasons: list[str] = []
        for hook in self._hooks:
            if not (verdict := await hook.before_call(spec, invocation)):
                continue
            if isinstance(verdict, str):
                return verdict
            if isinstance(verdict, AskPerson):
                reasons.append(verdict.reason)
            if verdict.arguments is not None:
                arguments = verdict.arguments
                invocation = msgspec.structs.replace(invocation, arguments=arguments)
        if reasons:
            return AskPerson("; ".join(reasons), arguments)
        return Instead(arguments) if arguments is not None else ""

    async def after_call(self, spec: ToolSpec, invocation: Invocation, outcome: Outcome) -> Outcome:
        for hook in self._hooks:
            outcome = await hook.after_call(spec, invocation, outcome)
        return outcome
