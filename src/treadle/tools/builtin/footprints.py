"""What the file tools leave in the history of the project (W-01): what lies at a path is kept before it is changed, and
afterwards it is said exactly what became of which file, and which folders came into being. Where nothing is kept, only
names and counts are said."""

from collections.abc import Sequence

from msgspec.structs import replace

from treadle.errors import Conflict
from treadle.ports.snapshots import Snapshots
from treadle.ports.workspace import Workspace, inert
from treadle.protocol.files import DiffStat, FileChange, FileState, change_of, decode_path, encode_path
from treadle.tools.builtin.change import Change, Mark, Step, step_of


class Footprints:
    """Of one workspace. All methods block."""

    def __init__(self, workspace: Workspace, snapshots: Snapshots | None) -> None:
        self._workspace = workspace
        self._snapshots = snapshots

    def steps(self, changes: Sequence[Change]) -> list[Step]:
        """Changes as they are recorded before they are made. Looks, and keeps nothing."""
        return [step_of(change, self._mark(change.path)) for change in changes]

    def again(self, changes: Sequence[Change], planned: Sequence[Step]) -> list[Step]:
        """The same, when they are about to be made. A try before this one may have made their folders already."""
        steps = self.steps(changes)
        for number, plan in enumerate(planned):
            mark = steps[number].mark
            if mark is not None and plan.mark is not None:
                steps[number] = replace(steps[number], mark=replace(mark, folders=plan.mark.folders))
        return steps

    def keep(self, steps: Sequence[Step]) -> list[Step]:
        """Keep what will be overwritten or removed, durably; ToolError if that cannot be done. The steps, with what was
        kept."""
        if self._snapshots is None:
            return list(steps)
        marks = [step.mark for step in steps if step.mark is not None and step.pre != step.post]
        kept = self._snapshots.keep([decode_path(mark.place) for mark in marks])
        made = []
        for step in steps:
            if step.mark is not None and step.mark.place in kept:
                before = kept[step.mark.place]
                if (before.digest if before is not None else None) != step.pre:
                    raise Conflict(f"{inert(step.path)} was changed by someone else at this moment. Read it again.")
                step = replace(step, mark=replace(step.mark, before=before))
            made.append(step)
        return made

    def made(self, steps: Sequence[Step], begun: Sequence[Step] = ()) -> tuple[FileChange, ...]:
        """What these steps, which were taken, did: folders first, also those of others that were only begun."""
        taken = [step for step in steps if step.pre != step.post]
        folders = {path: None for step in (*taken, *begun) if step.mark is not None for path in step.mark.folders}
        found = [self._folder(path) for path in folders]
        made = (*(each for each in found if each is not None), *(self._file(step) for step in taken))
        if self._snapshots is not None:
            self._snapshots.remember(made)
        return made

    def _mark(self, path: str) -> Mark | None:
        if self._snapshots is None:
            return None
        there = self._workspace.locate(path)
        folders = tuple(encode_path(folder) for folder in there.missing)
        return Mark(encode_path(there.path), self._snapshots.state(there.path), folders)

    def _file(self, step: Step) -> FileChange:
        if step.mark is None:
            return step.made
        after = None
        if step.post is not None and (found := self._workspace.inspect(decode_path(step.mark.place))) is not None:
            after = FileState("file", found.mode, step.post, found.size)
        return change_of(step.mark.place, step.mark.before, after, DiffStat(step.added, step.removed))

    def _folder(self, path: str) -> FileChange | None:
        found = self._workspace.inspect(decode_path(path))
        if found is None or found.kind != "directory":
            return None
        return change_of(path, None, FileState("directory", found.mode), DiffStat())
