"""How the file tools change files so that a crash at any moment can be settled (D-02): look first and note the hashes
before and after, change only what still has the first, all files or none, and tell afterwards by the hashes on disk
what happened. A tool says which changes its arguments mean; everything else is here."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from treadle.errors import Conflict, NotFound, StoreError, ToolError
from treadle.faultpoint import faultpoint
from treadle.lines.diff import bounded
from treadle.ports.toolset import Invocation, Outcome, Settlement
from treadle.ports.workspace import Workspace, inert
from treadle.protocol.events import DiffStat, FileChange
from treadle.protocol.traces import Seen
from treadle.tools.builtin import knowledge
from treadle.tools.builtin.base import Plain, in_thread
from treadle.tools.builtin.change import Change, Step, from_plan, headline, to_plan
from treadle.tools.builtin.means import Means

AGAIN = "(Found done after a restart.)"


class Writing(Plain, ABC):
    """A tool that writes files. `word` names its fault points."""

    word = "write"
    several = False
    """Whether one call may change several files."""

    def __init__(self, means: Means) -> None:
        self._means = means

    @abstractmethod
    def changes(self, workspace: Workspace, invocation: Invocation) -> list[Change]:
        """What the call would change, from what is on disk. Reads only; ToolError if it cannot be done."""

    async def prepare(self, invocation: Invocation) -> dict[str, Any] | None:
        changes = await self._considered(invocation)
        return await in_thread(to_plan, changes, several=self.several)

    async def preview(self, invocation: Invocation) -> str:
        changes = [each for each in await self._considered(invocation) if each.pre != each.post]
        return await in_thread(lambda: _inert(bounded("\n".join(each.diff().text for each in changes))))

    async def run(self, invocation: Invocation) -> Outcome:
        workspace = self._workspace(invocation)
        steps = () if invocation.plan is None else from_plan(invocation.plan)
        if len(steps) > 1:
            states = await in_thread(_states, workspace, steps)
            if "other" in states:
                raise await self._conflict(workspace, invocation, steps, states)
            if "post" in states:
                return await self._finish(workspace, invocation, steps, states)
        changes = await self._changes_as_planned(workspace, invocation, steps)
        # What the model knows from now on; of several files also what the next worker needs to finish after a crash.
        for each in changes:
            if each.new is not None and (len(changes) > 1 or len(each.new) <= knowledge.MAX_KEPT):
                await self._means.blobs.put_blob(each.new)
        await in_thread(_make, workspace, changes, _token(invocation), self.word)
        return await in_thread(_outcome, changes)

    async def settle(self, invocation: Invocation) -> Settlement:
        if invocation.plan is None:
            return "unknown"
        workspace = self._workspace(invocation)
        steps = from_plan(invocation.plan)
        return await in_thread(_settle, workspace, steps, _token(invocation))

    # -- inside -----------------------------------------------------------------------------------------------------

    def _workspace(self, invocation: Invocation) -> Workspace:
        return self._means.workspace_of(invocation.root)

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
        raise await knowledge.refusal(self._means.blobs, workspace, invocation, paths)

    async def _changes_as_planned(
        self, workspace: Workspace, invocation: Invocation, steps: Sequence[Step]
    ) -> list[Change]:
        """The changes anew, from what is on disk; Conflict if they are no longer those that were planned."""
        try:
            changes = await self._considered(invocation)
        except Conflict:
            raise
        except ToolError:  # on other bytes the reason would only be that something is not found
            states = await in_thread(_states, workspace, steps)
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
        return await knowledge.refusal(self._means.blobs, workspace, invocation, changed)

    async def _finish(
        self, workspace: Workspace, invocation: Invocation, steps: Sequence[Step], states: Sequence[str]
    ) -> Outcome:
        """Some files are done and some are not: a worker died between them. Their bytes were kept before the first."""
        left: list[Change] = []
        for step, state in zip(steps, states, strict=True):
            if state == "pre" and step.pre != step.post:
                try:
                    new = None if step.post is None else await self._means.blobs.get_blob(step.post)
                except (NotFound, StoreError):
                    raise Conflict(
                        _listed(steps, states, "The rest cannot be finished; send what is left again.")
                    ) from None
                left.append(Change(step.path, None, new, step.pre, step.post, step.mode))
        await in_thread(_make, workspace, left, _token(invocation), self.word)
        return _found_done(steps, AGAIN if not left else "(Finished after a restart.)")


# -- making ---------------------------------------------------------------------------------------------------------


def _make(workspace: Workspace, changes: Sequence[Change], token: str, word: str) -> None:
    """All of them or none: first the files that are written, then those that are deleted. What fails half-way is taken
    back, as far as nobody else has changed it meanwhile."""
    todo = sorted((each for each in changes if each.pre != each.post), key=lambda each: each.new is None)
    done: list[Change] = []
    try:
        for each in todo:
            faultpoint(f"tool.{word}_between" if done else f"tool.{word}_before")
            _apply(workspace, each, token)
            done.append(each)
    except Exception as error:
        left = _take_back(workspace, done, token)
        if left:
            names = ", ".join(inert(path) for path in left)
            raise ToolError(
                f"{error} These files were changed before that and could not be put back: {names}."
            ) from error
        raise
    if todo:
        faultpoint(f"tool.{word}_after")


def _apply(workspace: Workspace, change: Change, token: str) -> None:
    if change.new is not None:
        workspace.write_atomic(change.path, change.new, change.mode, token=token, expected=change.pre)
    else:
        workspace.remove(change.path, expected=change.pre)


def _take_back(workspace: Workspace, done: Sequence[Change], token: str) -> list[str]:
    """Undo what was made; returns what could not be."""
    left = []
    for each in reversed(done):
        try:
            if each.pre is None:
                workspace.remove(each.path, expected=each.post)
            elif each.old is None:
                left.append(each.path)
            else:
                workspace.write_atomic(each.path, each.old, token=token, expected=each.post)
        except (ToolError, OSError):
            left.append(each.path)
    return left


# -- telling --------------------------------------------------------------------------------------------------------


def _outcome(changes: Sequence[Change]) -> Outcome:
    seen = tuple(Seen(each.path, each.post or "") for each in changes)
    made = [(each, each.diff()) for each in changes if each.pre != each.post]
    if not made:
        names = ", ".join(inert(each.path) for each in changes)
        has = "has" if len(changes) == 1 else "have"
        return Outcome(
            f"{names} already {has} exactly this content; nothing was changed.", summary="no change", seen=seen
        )
    files = tuple(Step(e.path, e.pre, e.post, d.stat.added, d.stat.removed).made for e, d in made)
    stat = _total(files)
    notes = [each.note for each in changes if each.note]
    text = "\n".join([headline(files), *notes, bounded("\n".join(diff.text for _, diff in made))])
    return Outcome(text, f"+{stat.added} -{stat.removed}", diff_stat=stat, files=files, seen=seen)


def _total(files: Sequence[FileChange]) -> DiffStat:
    return DiffStat(sum(each.added for each in files), sum(each.removed for each in files))


# -- settling -------------------------------------------------------------------------------------------------------


def _states(workspace: Workspace, steps: Sequence[Step]) -> list[str]:
    """For each file whether it is as before, as after, or neither."""
    states = []
    for step in steps:
        try:
            now = workspace.digest(step.path)
        except ToolError:  # no file any more, but something else
            states.append("other")
            continue
        states.append("pre" if now == step.pre else "post" if now == step.post else "other")
    return states


def _settle(workspace: Workspace, steps: Sequence[Step], token: str) -> Settlement:
    """Whether changes happened whose worker died: by the hashes on disk, and nothing else. If a part of them did, the
    rest can still be made; `run` does that."""
    for step in steps:
        workspace.sweep(step.path, token)
    states = _states(workspace, steps)
    if "other" in states:
        if len(steps) == 1:
            return "unknown"
        made = tuple(step.made for step, state in zip(steps, states, strict=True) if state == "post")
        return Outcome(_listed(steps, states, "Look at them before you go on."), success=False, files=made)
    open_steps = [step for step, state in zip(steps, states, strict=True) if state == "pre" and step.pre != step.post]
    if open_steps or all(step.pre == step.post for step in steps):  # writing the same bytes again changes nothing
        return "run_again"
    return _found_done(steps, AGAIN)


def _found_done(steps: Sequence[Step], note: str) -> Outcome:
    files = tuple(step.made for step in steps if step.pre != step.post)
    stat = _total(files)
    seen = tuple(Seen(step.path, step.post or "") for step in steps)
    return Outcome(
        f"{headline(files)} {note}", f"+{stat.added} -{stat.removed}", diff_stat=stat, files=files, seen=seen
    )


def _listed(steps: Sequence[Step], states: Sequence[str], advice: str) -> str:
    words = {"pre": "not changed", "post": "changed as asked", "other": "changed by someone else"}
    lines = [f"{inert(step.path)}: {words[state]}" for step, state in zip(steps, states, strict=True)]
    return "\n".join([f"The worker was lost while the files were written. {advice}", *lines])


def _token(invocation: Invocation) -> str:
    return f"{invocation.chat}/{invocation.call}"


def _inert(text: str) -> str:
    """Nothing that a terminal would act on, and nothing that hides what it is (S-12)."""
    return "".join(c if c.isprintable() or c in "\n\t" else c.encode("unicode_escape").decode("ascii") for c in text)
