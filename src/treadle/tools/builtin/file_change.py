"""Changes of files by the file tools (D-02): thought through first, with the hashes before and after; made only where
the file still has the first hash, all files or none; and settled after a crash by the hashes on disk. What lies at a
path is kept in the history of the project before it is changed (W-01). Knows no tool and no call."""

import hashlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import msgspec
from msgspec.structs import replace

from treadle.errors import Conflict, ToolError
from treadle.faultpoint import faultpoint
from treadle.lines.diff import Diff, bounded, diff
from treadle.ports.snapshots import Snapshots
from treadle.ports.toolset import Outcome, Settlement
from treadle.ports.workspace import Workspace, inert
from treadle.protocol.content import Seen
from treadle.protocol.files import DiffStat, FileChange, FileState, change_of, decode_path, encode_path
from treadle.tools.builtin.text import MAX_FILE, decode, visible

AGAIN = "(Found done after a restart.)"
FINISHED = "(Finished after a restart.)"
LOOK = "Look at them before you go on."
_ACTIONS = {"created": "Created", "modified": "Changed", "deleted": "Deleted"}
_STATES = {"pre": "not changed", "post": "changed as asked", "other": "changed by someone else"}


class Change(msgspec.Struct, frozen=True):
    """One file: from the bytes it has (`old`, `pre`) to those it shall have (`new`, `post`)."""

    path: str
    old: bytes | None
    """None: there is no file, or (with `pre`) one too large to be compared."""
    new: bytes | None
    """None: the file is deleted."""
    pre: str | None
    post: str | None
    mode: int | None = None
    """The mode of a file that is moved here."""
    note: str = ""
    """What the model must know beside the diff."""

    def diff(self) -> Diff:
        shown = inert(self.path)
        large = len(self.new or b"") > MAX_FILE or (self.pre is not None and self.old is None)
        if large:
            return Diff("(the file is too large for a diff)", DiffStat())
        try:
            old = None if self.old is None else decode(self.old, shown).text
            new = None if self.new is None else decode(self.new, shown).text
        except ToolError:
            added = 0 if self.new is None else lines_in(self.new)
            return Diff("(the file was no text before; no diff)", DiffStat(added=added))
        made = diff(shown, old, new)
        return Diff(visible(made.text), made.stat)


class HistoryMark(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a change leaves in the history of the project, as far as it is known beforehand."""

    place: str
    """The file itself, links resolved, in the form of `encode_path`."""
    before: FileState | None = None
    folders: tuple[str, ...] = ()
    """Folders that come into being with it, outermost first."""


class Step(msgspec.Struct, frozen=True):
    """A change as the intent records it: everything but the bytes."""

    path: str
    pre: str | None
    post: str | None
    added: int = 0
    removed: int = 0
    mode: int | None = None
    mark: HistoryMark | None = None
    """None: this Treadle keeps nothing of what was there before."""

    @property
    def made(self) -> FileChange:
        if self.post is None:
            return FileChange(self.path, "deleted", self.added, self.removed)
        return FileChange(self.path, "created" if self.pre is None else "modified", self.added, self.removed)


def change(path: str, old: bytes | None, new: bytes | None, *, pre: str | None, **more: Any) -> Change:
    return Change(path, old, new, pre, None if new is None else sha256(new), **more)


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def lines_in(data: bytes) -> int:
    """With the last one, whether it is ended or not."""
    return data.count(b"\n") + bool(data and not data.endswith(b"\n"))


def look(workspace: Workspace, path: str) -> tuple[bytes | None, str | None]:
    """What is on disk now: the bytes (None if there is nothing or too much to compare) and their hash."""
    found = workspace.stat(path)
    if found is None:
        return None, None
    if found.kind == "file" and found.size > MAX_FILE:
        return None, workspace.digest(path)
    data = workspace.read_bytes(path)
    return data, sha256(data)


def to_plan(steps: Sequence[Step], *, several: bool) -> dict[str, Any]:
    told = [
        {key: value for key, value in msgspec.to_builtins(step).items() if value or key not in ("mode", "mark")}
        for step in steps
    ]
    return {"files": told} if several else told[0]


def from_plan(plan: dict[str, Any]) -> tuple[Step, ...]:
    return msgspec.convert(plan.get("files", [plan]), tuple[Step, ...])


class LeftOver(ToolError):
    """Changes failed half-way, and not all that were made could be taken back."""


class FileChanges:
    """The changes of one call to one workspace. `token` names the call, `word` its fault points. All methods block."""

    def __init__(self, workspace: Workspace, snapshots: Snapshots | None, token: str, word: str) -> None:
        self._workspace = workspace
        self._snapshots = snapshots
        self._token = token
        self._word = word

    # -- before -----------------------------------------------------------------------------------------------------

    def steps(self, changes: Sequence[Change]) -> list[Step]:
        """Changes as they are recorded before they are made. Looks, and keeps nothing."""
        steps = []
        for each in changes:
            stat = each.diff().stat
            mark = self._mark(each.path)
            steps.append(Step(each.path, each.pre, each.post, stat.added, stat.removed, each.mode, mark))
        return steps

    def steps_again(self, changes: Sequence[Change], planned: Sequence[Step]) -> list[Step]:
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

    def _mark(self, path: str) -> HistoryMark | None:
        if self._snapshots is None:
            return None
        there = self._workspace.locate(path)
        folders = tuple(encode_path(folder) for folder in there.missing)
        return HistoryMark(encode_path(there.path), self._snapshots.state(there.path), folders)

    # -- making -----------------------------------------------------------------------------------------------------

    def make(self, changes: Sequence[Change], steps: Sequence[Step]) -> None:
        """All of them or none: first the files that are written, then those that are deleted. What fails half-way is
        taken back, as far as nobody else has changed it meanwhile; LeftOver if that did not succeed."""
        marks = {step.path: step.mark for step in steps if step.mark is not None}
        todo = sorted((each for each in changes if each.pre != each.post), key=lambda each: each.new is None)
        begun = 0
        try:
            for each in todo:
                faultpoint(f"tool.{self._word}_between" if begun else f"tool.{self._word}_before")
                begun += 1
                self._make(_place(each, marks), each)
        except Exception as error:
            left = self._take_back(todo[:begun], marks)
            self._remove_folders(steps)
            if left:
                names = ", ".join(inert(path) for path in left)
                raise LeftOver(
                    f"{error} These files were changed before that and could not be put back: {names}."
                ) from error
            raise
        if todo:
            faultpoint(f"tool.{self._word}_after")

    def _make(self, path: str, change: Change) -> None:
        """`path` is the very file that was kept, whatever link led to it."""
        if change.new is not None:
            self._workspace.write_atomic(path, change.new, change.mode, token=self._token, expected=change.pre)
        else:
            self._workspace.remove(path, expected=change.pre)

    def _take_back(self, begun: Sequence[Change], marks: Mapping[str, HistoryMark]) -> list[str]:
        """Undo what was made; returns what could not be. The last one may have been struck before it was made, or
        after."""
        left = []
        for each in reversed(begun):
            path, mark = _place(each, marks), marks.get(each.path)
            try:
                now = self._workspace.digest(path)
                if now == each.pre or (now != each.post and each is begun[-1]):
                    continue
                if each.pre is None:
                    self._workspace.remove(path, expected=each.post)
                elif each.old is None:
                    left.append(each.path)
                else:
                    mode = mark.before.mode if mark is not None and mark.before is not None else None
                    self._workspace.write_atomic(path, each.old, mode, token=self._token, expected=each.post)
            except Exception:
                left.append(each.path)
        return left

    def _remove_folders(self, steps: Sequence[Step]) -> None:
        """Those that were made for files which are not there now."""
        for step in steps:
            for folder in reversed(step.mark.folders if step.mark is not None else ()):
                with suppress(ToolError):  # it was never made, or there is something in it
                    self._workspace.remove_directory(decode_path(folder))

    # -- after ------------------------------------------------------------------------------------------------------

    def states(self, steps: Sequence[Step]) -> list[str]:
        """For each file whether it is as before, as after, or neither."""
        states = []
        for step in steps:
            try:
                now = self._workspace.digest(step.path)
            except ToolError:  # no file any more, but something else
                states.append("other")
                continue
            states.append("pre" if now == step.pre else "post" if now == step.post else "other")
        return states

    def settle(self, steps: Sequence[Step]) -> Settlement:
        """Whether changes happened whose worker died: by the hashes on disk, and nothing else. If a part of them did,
        the rest can still be made; the tool's `run` does that."""
        for step in steps:
            self._workspace.sweep(step.path, self._token)
        states = self.states(steps)
        if "other" in states:
            return "unknown" if len(steps) == 1 else self.partly(steps, LOOK)
        still = [step for step, state in zip(steps, states, strict=True) if state == "pre" and step.pre != step.post]
        if still or all(step.pre == step.post for step in steps):  # writing the same bytes again changes nothing
            return "run_again"
        return self.found_done(steps, AGAIN)

    def made(self, steps: Sequence[Step], begun: Sequence[Step] = ()) -> tuple[FileChange, ...]:
        """What these steps, which were taken, did: folders first, also those of others that were only begun."""
        taken = [step for step in steps if step.pre != step.post]
        folders = {path: None for step in (*taken, *begun) if step.mark is not None for path in step.mark.folders}
        found = [self._folder(path) for path in folders]
        made = (*(each for each in found if each is not None), *(self._file(step) for step in taken))
        if self._snapshots is not None:
            self._snapshots.remember(made)
        return made

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

    # -- in words ---------------------------------------------------------------------------------------------------

    def done(self, changes: Sequence[Change], steps: Sequence[Step]) -> Outcome:
        """The outcome of changes that were made."""
        seen = tuple(Seen(each.path, each.post or "") for each in changes)
        made = [(each, each.diff()) for each in changes if each.pre != each.post]
        files = self.made(steps)
        if not made:
            names = ", ".join(inert(each.path) for each in changes)
            has = "has" if len(changes) == 1 else "have"
            text = f"{names} already {has} exactly this content; nothing was changed."
            return Outcome(text, summary="no change", seen=seen)
        named = tuple(Step(e.path, e.pre, e.post, d.stat.added, d.stat.removed).made for e, d in made)
        notes = [each.note for each in changes if each.note]
        text = "\n".join([_headline(named), *notes, bounded("\n".join(diff.text for _, diff in made))])
        return _outcome(text, named, files, seen)

    def found_done(self, steps: Sequence[Step], note: str, kept: Sequence[Step] = ()) -> Outcome:
        """The same after a crash, without the bytes from before; `kept` are the steps with what was kept."""
        named = tuple(step.made for step in steps if step.pre != step.post)
        seen = tuple(Seen(step.path, step.post or "") for step in steps)
        return _outcome(f"{_headline(named)} {note}", named, self.made(kept or steps), seen)

    def partly(self, steps: Sequence[Step], advice: str) -> Outcome:
        """The outcome of changes of which some were made, and the others cannot be."""
        states = self.states(steps)
        lines = [f"{inert(step.path)}: {_STATES[state]}" for step, state in zip(steps, states, strict=True)]
        text = "\n".join([f"The call was cut off while the files were written. {advice}", *lines])
        return Outcome(text, success=False, files=self._made_by(steps, states))

    def stopped(self, steps: Sequence[Step]) -> Outcome | None:
        """What a call that was stopped had changed by then."""
        files = self._made_by(steps, self.states(steps))
        return Outcome("It was stopped while the files were written.", success=False, files=files) if files else None

    def _made_by(self, steps: Sequence[Step], states: Sequence[str]) -> tuple[FileChange, ...]:
        return self.made([step for step, state in zip(steps, states, strict=True) if state == "post"], steps)


def _place(change: Change, marks: Mapping[str, HistoryMark]) -> str:
    mark = marks.get(change.path)
    return change.path if mark is None else decode_path(mark.place)


def _outcome(text: str, named: Sequence[FileChange], files: tuple[FileChange, ...], seen: tuple[Seen, ...]) -> Outcome:
    stat = DiffStat(sum(each.added for each in named), sum(each.removed for each in named))
    return Outcome(text, f"+{stat.added} -{stat.removed}", diff_stat=stat, files=files, seen=seen)


def _headline(files: Sequence[FileChange]) -> str:
    """As in "Changed a.py (+2 -1)."; or how many files."""
    counts = f"(+{sum(each.added for each in files)} -{sum(each.removed for each in files)})"
    if len(files) == 1:
        return f"{_ACTIONS[files[0].action]} {inert(files[0].path)} {counts}."
    return f"Changed {len(files)} files {counts}."
