"""`commit_world`: commits the changes of a world to the project, as one transaction (W-12). A person calls it (L-18);
models do not know it. It takes the same steps as every call: rules, checkpoint, intent, outcome, undo."""

from typing import Any

from treadle.adapters.tools.builtin.base import in_thread, parameters
from treadle.adapters.tools.builtin.command.project import CommandProject, ProjectChange
from treadle.adapters.tools.builtin.context import WithContext
from treadle.errors import ToolError
from treadle.ports.toolset import Invocation, Outcome, PlainTool, Rehearsal, Settlement
from treadle.ports.workspace import WorldPlaces
from treadle.protocol.tools import WORLD_TOOL, ToolSpec

_ELSEWHERE = "The world {} is not one of the place in which this chat works; commit it in a chat that works there."


class _Committed(CommandProject):
    not_made = "nothing of the world was committed"
    mend = "rebase the world, look at it, and commit it again"


class CommitWorld(WithContext, PlainTool):
    spec = ToolSpec(
        name=WORLD_TOOL,
        description="Make what was changed in a world the project's own.",
        parameters=parameters(required=("world",), world={"type": "string", "minLength": 1}),
        effect="edit",
        timeout_s=600.0,
        summary_argument="world",
    )

    async def prepare(self, invocation: Invocation) -> dict[str, Any] | None:
        # A call with a plan changes files: a checkpoint precedes it.
        return {"view": await in_thread(self._view, invocation)}

    async def preview(self, invocation: Invocation) -> str:
        return (await self._project(invocation).preview(await in_thread(self._view, invocation)))[1]

    async def rehearse(self, invocation: Invocation) -> Rehearsal | None:
        project = self._project(invocation)
        effect = await project.effect(await in_thread(self._view, invocation))
        unrecoverable = await project.unrecoverable(effect)
        return Rehearsal("", effect.files, effect.uncaptured, unrecoverable, history=effect.history)

    async def run(self, invocation: Invocation) -> Outcome:
        worlds, world = self._places(), str(invocation.arguments["world"])
        view = await in_thread(self._view, invocation)
        alone = worlds.alone(world)
        await in_thread(alone.__enter__)
        try:
            change = await self._project(invocation).commit(view)
            if change.success:
                await in_thread(worlds.committed, world, change.files)
        finally:
            await in_thread(alone.__exit__, None, None, None)
        return self._outcome(world, change)

    async def settle(self, invocation: Invocation) -> Settlement:
        return "run_again"  # a decided commit is completed, by its name, and reported

    async def stop(self, invocation: Invocation) -> Outcome | None:
        change = await self._project(invocation).discard()
        return self._outcome(str(invocation.arguments["world"]), change) if change.files else None

    def _view(self, invocation: Invocation) -> str:
        worlds, world = self._places(), str(invocation.arguments["world"])
        if worlds.beneath(world) != invocation.project:
            raise ToolError(_ELSEWHERE.format(world))
        return worlds.view(world)

    def _places(self) -> WorldPlaces:
        if self._context.worlds is None or self._context.snapshots_of is None:
            raise ToolError("This Treadle has no worlds.")
        return self._context.worlds()

    def _project(self, invocation: Invocation) -> CommandProject:
        place = invocation.project, invocation.options, invocation.changed_paths
        return _Committed(self._context, f"{invocation.chat}/{invocation.call}", *place)

    def _outcome(self, world: str, change: ProjectChange) -> Outcome:
        headline = f"Committed the world {world}." if change.files else f"The world {world} changes nothing."
        lines = (headline, *change.lines) if change.success else change.lines
        return change.added_to(Outcome("\n".join(lines), success=change.success, effect="view"))
