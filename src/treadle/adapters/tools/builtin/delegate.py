"""`delegate`: parts of the work for sub-agents, each a chat with a context and a world of its own (L-23); and `race`,
which people call: several attempts at one task, of which the best is kept (L-22). `treadle.library.subagents` carries
both out."""

from typing import Any

from treadle.adapters.tools.builtin.base import parameters
from treadle.adapters.tools.builtin.context import WithContext
from treadle.errors import ToolError
from treadle.ports.toolset import Invocation, Outcome, PlainTool, Settlement, Subagents
from treadle.protocol.content import JsonSchema
from treadle.protocol.tools import DELEGATE_TOOL, RACE_TOOL, ToolSpec

MOST = 16
_TASK: JsonSchema = parameters(
    required=("task",),
    task={"type": "string", "minLength": 1, "description": "All that it must know: it sees nothing of this chat."},
    title={"type": "string", "description": "A few words."},
    agent={"type": "string", "description": "The custom agent to work as."},
    read_only={"type": "boolean", "default": False, "description": "It only looks, and changes nothing."},
)


class _Begins(WithContext, PlainTool):
    """After a crash it is run again, and finds what it had begun."""

    async def prepare(self, invocation: Invocation) -> dict[str, Any] | None:
        return await self._subagents().plan(invocation)

    async def settle(self, invocation: Invocation) -> Settlement:
        return "run_again"

    async def stop(self, invocation: Invocation) -> Outcome | None:
        return await self._subagents().stop(invocation)

    def _subagents(self) -> Subagents:
        if self._context.subagents is None:
            raise ToolError("This Treadle has no sub-agents.")
        return self._context.subagents()


class Delegate(_Begins):
    spec = ToolSpec(
        name=DELEGATE_TOOL,
        description=(
            "Give parts of the work to sub-agents, which do them at the same time, each in a copy of the project. You "
            "get their reports, and what they changed is in the project then. For parts that do not touch the same "
            "files, and for long searches whose answer is short."
        ),
        dispensable=True,
        parameters=parameters(
            required=("tasks",), tasks={"type": "array", "minItems": 1, "maxItems": MOST, "items": _TASK}
        ),
        idempotent=True,
        parallel=True,
        effect="none",
        timeout_s=0.0,
    )

    async def run(self, invocation: Invocation) -> Outcome:
        return await self._subagents().delegate(invocation)


class RunRace(_Begins):
    spec = ToolSpec(
        name=RACE_TOOL,
        description="Let several attempts at a task run at once, and keep the best.",
        parameters=parameters(
            required=("task", "models"),
            task={"type": "string", "minLength": 1},
            models={"type": "array", "minItems": 1, "maxItems": MOST, "items": {"type": "string"}},
            check={"type": "string"},
            judge={"type": "string"},
            all={"type": "boolean"},
        ),
        idempotent=True,
        effect="none",
        timeout_s=0.0,
        summary_argument="task",
    )

    async def run(self, invocation: Invocation) -> Outcome:
        if not invocation.by_person:
            raise ToolError("Only people begin races. Use delegate, or do it yourself.")
        return await self._subagents().race(invocation)
