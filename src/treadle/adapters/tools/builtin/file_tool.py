"""The common base of write_file, edit_file and apply_patch: look first and record the plan, make exactly the planned
changes, settle the plan of a dead worker (D-02). A tool computes the changes from its arguments; the snapshots make
them."""

from abc import ABC, abstractmethod
from typing import Any

import msgspec

from treadle.adapters.tools.builtin import file_change, stale_files
from treadle.adapters.tools.builtin.base import carried_out, in_thread
from treadle.adapters.tools.builtin.context import WithContext
from treadle.adapters.tools.builtin.file_change import Change, Planned, files_of, plan, recorded, standings
from treadle.base.faultpoint import faultpoint
from treadle.base.inert import printable
from treadle.diff.diff import bounded
from treadle.errors import Conflict, ToolError
from treadle.ports.snapshots import Effect, Snapshots
from treadle.ports.toolset import Invocation, Outcome, PlainTool, Rehearsal, Settlement
from treadle.ports.workspace import Workspace


class FileTool(WithContext, PlainTool, ABC):
    """A tool that writes files. `word` names its fault points."""

    word = "write"

    @abstractmethod
    def changes(self, workspace: Workspace, invocation: Invocation) -> list[Change]:
        """The changes that the call would make to the files on disk. Reads only; ToolError if they are impossible."""

    async def prepare(self, invocation: Invocation) -> dict[str, Any] | None:
        _, planned = await self._considered(invocation, counted=True)
        return {"files": [msgspec.to_builtins(each) for each in planned]}

    async def preview(self, invocation: Invocation) -> str:
        changes = [each for each in (await self._considered(invocation))[0] if each.alters]
        return await in_thread(lambda: printable(bounded("\n".join(each.diff().text for each in changes))))

    async def rehearse(self, invocation: Invocation) -> Rehearsal | None:
        _, planned = await self._considered(invocation)
        files = [each.file for each in planned if each.alters]
        effect = await in_thread(self._snapshots(invocation).judged, files)
        unrecoverable = await in_thread(self._context.unrecoverable, invocation.project, effect.files)
        preexisting = tuple(path for path in unrecoverable if path not in invocation.changed_paths)
        return Rehearsal("", effect.files, unrecoverable=preexisting, history=effect.history)  # `preview` shows it

    async def run(self, invocation: Invocation) -> Outcome:
        recorded_plan, snapshots = recorded(invocation.plan), self._snapshots(invocation)
        is_unfinished = bool(recorded_plan) and await in_thread(snapshots.unfinished, name_of(invocation))
        if is_unfinished:
            effect = await self._make(invocation, recorded_plan, [])
            return file_change.found_done(recorded_plan, effect.files, file_change.FINISHED)
        changes, now = await self._as_planned(invocation, recorded_plan)
        if recorded_plan:
            now = tuple(each.begun_as(old) for each, old in zip(now, recorded_plan, strict=True))
        effect = await self._make(invocation, now, changes)
        return await in_thread(file_change.build_outcome, changes, effect.files)

    async def settle(self, invocation: Invocation) -> Settlement:
        planned, snapshots = recorded(invocation.plan), self._snapshots(invocation)
        if not planned:
            return "unknown"
        if await in_thread(snapshots.unfinished, name_of(invocation)):
            return "run_again"
        standing = await in_thread(standings, snapshots, planned)
        states = {standing[each.file.path] for each in planned if each.alters}
        if states <= {"before"}:  # none at all: writing the same bytes again changes nothing
            return "run_again"
        if len(planned) == 1 and "other" in states:
            return "unknown"
        files = await in_thread(file_change.made_of, snapshots, planned, standing)
        if states == {"after"}:
            return file_change.found_done(planned, files, file_change.AGAIN)
        return file_change.partly(planned, standing, files)

    async def stop(self, invocation: Invocation) -> Outcome | None:
        planned, snapshots = recorded(invocation.plan), self._snapshots(invocation)
        if not planned:
            return None
        if await in_thread(snapshots.unfinished, name_of(invocation)):
            await self._make(invocation, planned, [])
        standing = await in_thread(standings, snapshots, planned)
        files = await in_thread(file_change.made_of, snapshots, planned, standing)
        return Outcome("It was stopped while the files were written.", success=False, files=files) if files else None

    def _snapshots(self, invocation: Invocation) -> Snapshots:
        if self._context.snapshots_of is None:
            raise ToolError("This Treadle keeps nothing of what files were, so it changes none.")
        return self._context.snapshots_of(*invocation.project)

    async def _make(self, invocation: Invocation, planned: Planned, changes: list[Change]) -> Effect:
        """Make the planned changes. Conflict, with the current content, if another program changed a file first."""
        snapshots, name = self._snapshots(invocation), name_of(invocation)
        contents = {each.post or "": each.new for each in changes if each.new is not None}

        def make() -> Effect:
            if not (files := files_of(planned)):
                return Effect(())
            faultpoint(f"tool.{self.word}_before")
            effect = snapshots.change(name, files, contents)
            faultpoint(f"tool.{self.word}_after")
            return effect

        effect = await carried_out(make, lambda: snapshots.is_apply_decided(name), "What the call changed")
        if effect.conflicts:
            places = {each.path for each in effect.conflicts}
            changed_paths = tuple(each.path for each in planned if each.file.path in places)
            raise await stale_files.refusal(
                self._context, invocation, changed_paths or tuple(each.path for each in planned)
            )
        return effect

    async def _considered(self, invocation: Invocation, *, counted: bool = False) -> tuple[list[Change], Planned]:
        """The changes and their plan, if the model knows the files they are for (T-13)."""
        workspace = self._context.workspace_of(*invocation.project)

        def consider() -> tuple[list[Change], Planned]:
            changes = self.changes(workspace, invocation)
            planned = plan(workspace, changes, counted=counted)
            file_change.refuse_never_committed(planned, workspace)
            stale_files.check(invocation, changes)
            return changes, planned

        try:
            return await in_thread(consider)
        except stale_files.Stale as stale:
            paths = stale.paths
        raise await stale_files.refusal(self._context, invocation, paths)

    async def _as_planned(self, invocation: Invocation, planned: Planned) -> tuple[list[Change], Planned]:
        """The changes anew, from what is on disk; Conflict if they are no longer those that were planned."""
        try:
            changes, now = await self._considered(invocation, counted=not planned)
        except Conflict:
            raise
        except ToolError:  # on other bytes the reason would only be that something is not found
            standing = await in_thread(standings, self._snapshots(invocation), planned)
            if "other" in standing.values():
                changed_paths = tuple(each.path for each in planned if standing[each.file.path] == "other")
                raise await stale_files.refusal(self._context, invocation, changed_paths) from None
            raise
        if planned and [(each.path, each.pre, each.post) for each in changes] != [each.key for each in planned]:
            raise await stale_files.refusal(self._context, invocation, tuple(each.path for each in planned))
        return changes, now


def name_of(invocation: Invocation) -> str:
    """By which the changes of a call are found again."""
    return f"{invocation.chat}/{invocation.call}"
