"""Sub-agents and races as their tools need them: a call that begins other chats and makes their work its own (L-22,
L-23)."""

from typing import Any, Protocol

from treadle.ports.toolset import Invocation, Outcome


class Subagents(Protocol):
    """`delegate` and `race` can be called again with the same call: they find the chats that were begun, and what was
    committed."""

    async def plan(self, invocation: Invocation) -> dict[str, Any]:
        """Which chats the call begins. ToolError if it may not."""

    async def delegate(self, invocation: Invocation) -> Outcome: ...

    async def race(self, invocation: Invocation) -> Outcome: ...

    async def stop(self, invocation: Invocation) -> Outcome | None:
        """End the chats of the call. Return their usage and the changes committed by then."""
