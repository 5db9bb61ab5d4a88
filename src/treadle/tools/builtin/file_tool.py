"""What write_file, edit_file and apply_patch have in common: look first and record the plan, make exactly what was
planned, settle what a dead worker left (D-02). A tool says what its arguments change; `file_change` makes it."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from treadle.errors import Conflict, NotFound, StoreError, ToolError
from treadle.inert import printable
from treadle.lines.diff import bounded
from treadle.ports.toolset import Invocation, Outcome, Rehearsal, Settlement
from treadle.ports.workspace import Workspace
from treadle.tools.builtin import knowledge
from treadle.tools.builtin.base import Plain, in_thread
from treadle.tools.builtin.context import ToolContext
from treadle.tools.builtin.file_change import (
    AGAIN,
    FINISHED,
    LOOK,
    Change,
    FileChanges,
    LeftOver,
    Step,
    from_plan,
    to_plan,
)
from treadle.tools.builtin.planned_changes import planned, refuse_never_committed


class FileTool(Plain, ABC):
    """A tool that writes files. `word` names its fault points."""

    word = "write"
    several = False
    """Whether one call may change several files."""

    def __init__(self, context: ToolContext) -> None:
        self._context = context

    @abstractmethod
    def changes(self, workspace: Workspace, invocation: Invocation) -> list[Change]:
        """What the call would change, from what is on disk. Reads only; ToolError if it cannot be done."""

    async def prepare(self, invocation: Invocation) -> dict[str, Any] | None:
        changes = await self._considered(invocation)
        files = self._files(invocation)
        return await in_thread(lambda: to_plan(files.steps(changes), several=self.several))

    async def preview(self, invocation: Invocation) -> str:
        changes = [each for each in await self._considered(invocation) if each.pre != each.post]
        return await in_thread(lambda: printable(bounded("\n".join(each.diff().text for each in changes))))

    async def rehearse(self, invocation: Invocation) -> Rehearsal | None:
        changes = await self._considered(invocation)
        files = await in_thread(planned, self._workspace(invocation), changes)
        lost = await in_thread(self._context.unrecoverable, invocation.project, files)
        return Rehearsal(
            "", files, unrecoverable=tuple(path for path in lost if path not in invocation.changed)
        )  # `preview` shows it, if somebody is asked

    async def run(self, invocation: Invocation) -> Outcome:
        files = self._files(invocation)
        steps = () if invocation.plan is None else from_plan(invocation.plan)
        if len(steps) > 1:
            states = await in_thread(files.states, steps)
            if "other" in states and "post" not in states:
                raise await self._conflict(invocation, steps, states)
            if "other" in states:
                return await in_thread(files.partly, steps, LOOK)
            if "post" in states:
                return await self._finish(files, steps, states)
        changes = await self._changes_as_planned(files, invocation, steps)
        # What the model knows from now on; of several files also what the next worker needs to finish after a crash.
        for each in changes:
            if each.new is not None and (len(changes) > 1 or len(each.new) <= knowledge.MAX_KEPT):
                await self._context.blobs.put_blob(each.new)

        def work() -> Outcome:
            kept = files.keep(files.steps_again(changes, steps))
            try:
                files.make(changes, kept)
            except LeftOver as left:
                return files.partly(kept, str(left))
            return files.done(changes, kept)

        return await in_thread(work)

    async def settle(self, invocation: Invocation) -> Settlement:
        if invocation.plan is None:
            return "unknown"
        return await in_thread(self._files(invocation).settle, from_plan(invocation.plan))

    async def stop(self, invocation: Invocation) -> Outcome | None:
        if invocation.plan is None:
            return None
        return await in_thread(self._files(invocation).stopped, from_plan(invocation.plan))

    def _workspace(self, invocation: Invocation) -> Workspace:
        return self._context.workspace_of(*invocation.project)

    def _files(self, invocation: Invocation) -> FileChanges:
        of = self._context.snapshots_of
        snapshots = of(*invocation.project) if of is not None else None
        token = f"{invocation.chat}/{invocation.call}"
        return FileChanges(self._workspace(invocation), snapshots, token, self.word)

    async def _considered(self, invocation: Invocation) -> list[Change]:
        """The changes, if the model knows the files they are for (T-13)."""
        workspace = self._workspace(invocation)

        def consider() -> list[Change]:
            changes = self.changes(workspace, invocation)
            refuse_never_committed(workspace, changes)
            knowledge.check(invocation, changes)
            return changes

        try:
            return await in_thread(consider)
        except knowledge.Stale as stale:
            paths = stale.paths
        raise await knowledge.refusal(self._context.blobs, workspace, invocation, paths)

    async def _changes_as_planned(
        self, files: FileChanges, invocation: Invocation, steps: Sequence[Step]
    ) -> list[Change]:
        """The changes anew, from what is on disk; Conflict if they are no longer those that were planned."""
        try:
            changes = await self._considered(invocation)
        except Conflict:
            raise
        except ToolError:  # on other bytes the reason would only be that something is not found
            states = await in_thread(files.states, steps)
            if "other" in states:
                raise await self._conflict(invocation, steps, states) from None
            raise
        made = [(each.path, each.pre, each.post) for each in changes]
        if steps and made != [(step.path, step.pre, step.post) for step in steps]:
            raise await self._conflict(invocation, steps, ["other"] * len(steps))
        return changes

    async def _conflict(self, invocation: Invocation, steps: Sequence[Step], states: Sequence[str]) -> Conflict:
        changed = tuple(step.path for step, state in zip(steps, states, strict=True) if state == "other")
        return await knowledge.refusal(self._context.blobs, self._workspace(invocation), invocation, changed)

    async def _finish(self, files: FileChanges, steps: Sequence[Step], states: Sequence[str]) -> Outcome:
        """Some files are done and some are not: a worker died between them. Their bytes were kept before the first."""
        left: list[Change] = []
        for step, state in zip(steps, states, strict=True):
            if state == "pre" and step.pre != step.post:
                try:
                    new = None if step.post is None else await self._context.blobs.get_blob(step.post)
                except (NotFound, StoreError):
                    rest = "The rest cannot be finished; send what is left again."
                    return await in_thread(files.partly, steps, rest)
                left.append(Change(step.path, None, new, step.pre, step.post, step.mode))

        def work() -> Outcome:
            todo = {change.path for change in left}
            kept = {step.path: step for step in files.keep([step for step in steps if step.path in todo])}
            all_of = [kept.get(step.path, step) for step in steps]
            try:
                files.make(left, list(kept.values()))
            except LeftOver as error:
                return files.partly(all_of, str(error))
            return files.found_done(steps, FINISHED if left else AGAIN, all_of)

        return await in_thread(work)
