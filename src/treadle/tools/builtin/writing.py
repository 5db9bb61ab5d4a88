"""How the file tools change files so that a crash at any moment can be settled (D-02): look first and note the hashes
before and after, change only what still has the first, all files or none, and tell afterwards by the hashes on disk
what happened. A tool says which changes its arguments mean; everything else is here."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from treadle.errors import Conflict, NotFound, StoreError, ToolError
from treadle.faultpoint import faultpoint
from treadle.lines.diff import bounded
from treadle.ports.toolset import Invocation, Outcome, Settlement
from treadle.ports.workspace import Workspace, inert
from treadle.protocol.files import decode_path
from treadle.tools.builtin import knowledge
from treadle.tools.builtin.base import Plain, in_thread
from treadle.tools.builtin.change import Change, Mark, Step, from_plan, to_plan
from treadle.tools.builtin.context import ToolContext
from treadle.tools.builtin.footprints import Footprints
from treadle.tools.builtin.settling import AGAIN, LOOK, found_done, made_so_far, partly, settled, states_of, told


class Writing(Plain, ABC):
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
        steps = self._footprints(invocation).steps
        return await in_thread(lambda: to_plan(steps(changes), several=self.several))

    async def preview(self, invocation: Invocation) -> str:
        changes = [each for each in await self._considered(invocation) if each.pre != each.post]
        return await in_thread(lambda: _inert(bounded("\n".join(each.diff().text for each in changes))))

    async def run(self, invocation: Invocation) -> Outcome:
        workspace = self._workspace(invocation)
        steps = () if invocation.plan is None else from_plan(invocation.plan)
        if len(steps) > 1:
            states = await in_thread(states_of, workspace, steps)
            if "other" in states and "post" not in states:
                raise await self._conflict(workspace, invocation, steps, states)
            if "other" in states:
                return await in_thread(partly, workspace, self._footprints(invocation), steps, LOOK)
            if "post" in states:
                return await self._finish(workspace, invocation, steps, states)
        changes = await self._changes_as_planned(workspace, invocation, steps)
        # What the model knows from now on; of several files also what the next worker needs to finish after a crash.
        for each in changes:
            if each.new is not None and (len(changes) > 1 or len(each.new) <= knowledge.MAX_KEPT):
                await self._context.blobs.put_blob(each.new)
        footprints = self._footprints(invocation)

        def work() -> Outcome:
            kept = footprints.keep(footprints.again(changes, steps))
            try:
                _make(workspace, changes, kept, _token(invocation), self.word)
            except _LeftOver as left:
                return partly(workspace, footprints, kept, str(left))
            return told(changes, footprints.made(kept))

        return await in_thread(work)

    async def settle(self, invocation: Invocation) -> Settlement:
        if invocation.plan is None:
            return "unknown"
        workspace = self._workspace(invocation)
        steps = from_plan(invocation.plan)
        return await in_thread(settled, workspace, self._footprints(invocation), steps, _token(invocation))

    async def stop(self, invocation: Invocation) -> Outcome | None:
        if invocation.plan is None:
            return None
        steps = from_plan(invocation.plan)
        return await in_thread(made_so_far, self._workspace(invocation), self._footprints(invocation), steps)

    # -- inside -----------------------------------------------------------------------------------------------------

    def _workspace(self, invocation: Invocation) -> Workspace:
        return self._context.workspace_of(*invocation.project)

    def _footprints(self, invocation: Invocation) -> Footprints:
        of = self._context.snapshots_of
        return Footprints(self._workspace(invocation), of(*invocation.project) if of is not None else None)

    async def _considered(self, invocation: Invocation) -> list[Change]:
        """The changes, if the model knows the files they are for (T-13)."""
        workspace = self._workspace(invocation)

        def consider() -> list[Change]:
            changes = self.changes(workspace, invocation)
            knowledge.check(invocation, changes)
            return changes

        try:
            return await in_thread(consider)
        except knowledge.Stale as stale:
            paths = stale.paths
        raise await knowledge.refusal(self._context.blobs, workspace, invocation, paths)

    async def _changes_as_planned(
        self, workspace: Workspace, invocation: Invocation, steps: Sequence[Step]
    ) -> list[Change]:
        """The changes anew, from what is on disk; Conflict if they are no longer those that were planned."""
        try:
            changes = await self._considered(invocation)
        except Conflict:
            raise
        except ToolError:  # on other bytes the reason would only be that something is not found
            states = await in_thread(states_of, workspace, steps)
            if "other" in states:
                raise await self._conflict(workspace, invocation, steps, states) from None
            raise
        made = [(each.path, each.pre, each.post) for each in changes]
        if steps and made != [(step.path, step.pre, step.post) for step in steps]:
            raise await self._conflict(workspace, invocation, steps, ["other"] * len(steps))
        return changes

    async def _conflict(
        self, workspace: Workspace, invocation: Invocation, steps: Sequence[Step], states: Sequence[str]
    ) -> Conflict:
        changed = tuple(step.path for step, state in zip(steps, states, strict=True) if state == "other")
        return await knowledge.refusal(self._context.blobs, workspace, invocation, changed)

    async def _finish(
        self, workspace: Workspace, invocation: Invocation, steps: Sequence[Step], states: Sequence[str]
    ) -> Outcome:
        """Some files are done and some are not: a worker died between them. Their bytes were kept before the first."""
        left: list[Change] = []
        for step, state in zip(steps, states, strict=True):
            if state == "pre" and step.pre != step.post:
                try:
                    new = None if step.post is None else await self._context.blobs.get_blob(step.post)
                except (NotFound, StoreError):
                    rest = "The rest cannot be finished; send what is left again."
                    return await in_thread(partly, workspace, self._footprints(invocation), steps, rest)
                left.append(Change(step.path, None, new, step.pre, step.post, step.mode))
        footprints = self._footprints(invocation)

        def work() -> Outcome:
            todo = {change.path for change in left}
            kept = {step.path: step for step in footprints.keep([step for step in steps if step.path in todo])}
            all_of = [kept.get(step.path, step) for step in steps]
            try:
                _make(workspace, left, list(kept.values()), _token(invocation), self.word)
            except _LeftOver as error:
                return partly(workspace, footprints, all_of, str(error))
            files = footprints.made(all_of)
            return found_done(steps, files, AGAIN if not left else "(Finished after a restart.)")

        return await in_thread(work)


# -- making ---------------------------------------------------------------------------------------------------------


class _LeftOver(ToolError):
    """Changes failed half-way, and not all that were made could be taken back."""


def _make(workspace: Workspace, changes: Sequence[Change], steps: Sequence[Step], token: str, word: str) -> None:
    """All of them or none: first the files that are written, then those that are deleted. What fails half-way is taken
    back, as far as nobody else has changed it meanwhile."""
    marks = {step.path: step.mark for step in steps if step.mark is not None}
    places = {path: decode_path(mark.place) for path, mark in marks.items()}
    todo = sorted((each for each in changes if each.pre != each.post), key=lambda each: each.new is None)
    begun = 0
    try:
        for each in todo:
            faultpoint(f"tool.{word}_between" if begun else f"tool.{word}_before")
            begun += 1
            _apply(workspace, places.get(each.path, each.path), each, token)
    except Exception as error:
        left = _take_back(workspace, todo[:begun], marks, token)
        _remove_folders(workspace, steps)
        if left:
            names = ", ".join(inert(path) for path in left)
            raise _LeftOver(
                f"{error} These files were changed before that and could not be put back: {names}."
            ) from error
        raise
    if todo:
        faultpoint(f"tool.{word}_after")


def _apply(workspace: Workspace, path: str, change: Change, token: str) -> None:
    """`path` is the very file that was kept, whatever link led to it."""
    if change.new is not None:
        workspace.write_atomic(path, change.new, change.mode, token=token, expected=change.pre)
    else:
        workspace.remove(path, expected=change.pre)


def _remove_folders(workspace: Workspace, steps: Sequence[Step]) -> None:
    """Those that were made for files which are not there now."""
    for step in steps:
        for folder in reversed(step.mark.folders if step.mark is not None else ()):
            with suppress(ToolError):  # it was never made, or there is something in it
                workspace.remove_directory(decode_path(folder))


def _take_back(workspace: Workspace, begun: Sequence[Change], marks: Mapping[str, Mark], token: str) -> list[str]:
    """Undo what was made; returns what could not be. The last one may have been struck before it was made, or after."""
    left = []
    for each in reversed(begun):
        mark = marks.get(each.path)
        path = decode_path(mark.place) if mark is not None else each.path
        try:
            now = workspace.digest(path)
            if now == each.pre or (now != each.post and each is begun[-1]):
                continue
            if each.pre is None:
                workspace.remove(path, expected=each.post)
            elif each.old is None:
                left.append(each.path)
            else:
                mode = mark.before.mode if mark is not None and mark.before is not None else None
                workspace.write_atomic(path, each.old, mode, token=token, expected=each.post)
        except Exception:
            left.append(each.path)
    return left


def _token(invocation: Invocation) -> str:
    return f"{invocation.chat}/{invocation.call}"


def _inert(text: str) -> str:
    """Nothing that a terminal would act on, and nothing that hides what it is (S-12)."""
    return "".join(c if c.isprintable() or c in "\n\t" else c.encode("unicode_escape").decode("ascii") for c in text)
