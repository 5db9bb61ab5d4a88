"""The changes of a file tool (D-02, S-16): planned first, as changes of the project with the states before and after,
which the intent records; and their outcome in words. The snapshots apply them: all files or none, with the earlier
content kept (W-01). Knows no tool and no call."""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import msgspec
from msgspec.structs import replace

from treadle.adapters.tools.builtin.text import MAX_FILE, decode
from treadle.chat.change_rules import left_out
from treadle.diff.diff import Diff, bounded, diff
from treadle.diff.encodings import visible
from treadle.errors import ToolError
from treadle.ports.snapshots import Snapshots
from treadle.ports.toolset import Outcome
from treadle.ports.workspace import Workspace, inert
from treadle.protocol.content import KnownFile
from treadle.protocol.files import DiffStat, FileChange, FileState, change_of, decode_path, encode_path

AGAIN = "(Found done after a restart.)"
FINISHED = "(Finished after a restart.)"
_ACTIONS = {"created": "Created", "modified": "Changed", "deleted": "Deleted"}
Standing = Literal["before", "after", "other"]
_STANDINGS = {"before": "not changed", "after": "changed as asked", "other": "changed by someone else"}


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
    """The mode of a file that is moved here, or gets another one; None: it keeps its own."""
    note: str = ""
    """A remark for the model beside the diff."""

    @property
    def alters(self) -> bool:
        return self.pre != self.post or self.mode is not None

    def diff(self) -> Diff:
        shown_path = inert(self.path)
        mode = "" if self.mode is None else f"{shown_path}: mode {self.mode:o}\n"
        if self.pre == self.post:
            return Diff(mode, DiffStat())
        large = len(self.new or b"") > MAX_FILE or (self.pre is not None and self.old is None)
        if large:
            return Diff("(the file is too large for a diff)", DiffStat())
        try:
            old = None if self.old is None else decode(self.old, shown_path).text
            new = None if self.new is None else decode(self.new, shown_path).text
        except ToolError:
            added_count = 0 if self.new is None else lines_in(self.new)
            return Diff("(the file was no text before; no diff)", DiffStat(added=added_count))
        text_diff = diff(shown_path, old, new)
        return Diff(mode + visible(text_diff.text), text_diff.stat)


class PlannedChange(msgspec.Struct, frozen=True, omit_defaults=True):
    """A change as the intent records it: everything but the bytes."""

    path: str
    """As the call names it."""
    file: FileChange
    """The file itself, wherever links lead. It stays as it is, if it is the same before and after."""
    folders: tuple[FileChange, ...] = ()
    """Folders that come into being with it, outermost first."""

    @property
    def post(self) -> str | None:
        return None if self.file.after is None else self.file.after.digest

    @property
    def key(self) -> tuple[str, str | None, str | None]:
        return self.path, None if self.file.before is None else self.file.before.digest, self.post

    @property
    def alters(self) -> bool:
        return self.file.before != self.file.after

    def begun_as(self, recorded_change: "PlannedChange") -> "PlannedChange":
        """As it is now, if it was planned before: a try before this one may have made its folders already."""
        stat = recorded_change.file
        return replace(
            self, file=replace(self.file, added=stat.added, removed=stat.removed), folders=recorded_change.folders
        )


Planned = tuple[PlannedChange, ...]


def change(path: str, old: bytes | None, new: bytes | None, *, pre: str | None, **more: Any) -> Change:
    return Change(path, old, new, pre, None if new is None else sha256(new), **more)


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def lines_in(data: bytes) -> int:
    """With the last one, whether it is ended or not."""
    return data.count(b"\n") + bool(data and not data.endswith(b"\n"))


def look(workspace: Workspace, path: str) -> tuple[bytes | None, str | None]:
    """Return the bytes that are on disk now (None if there is no file, or it is too large to compare) and their
    hash.
    """
    status = workspace.stat(path)
    if status is None:
        return None, None
    if status.kind == "file" and status.size > MAX_FILE:
        return None, workspace.digest(path)
    data = workspace.read_bytes(path)
    return data, sha256(data)


# -- before -----------------------------------------------------------------------------------------------------------


def plan(workspace: Workspace, changes: Iterable[Change], *, counted: bool = True) -> Planned:
    """The changes as they are recorded and judged. Looks, and keeps nothing. ToolError if a file may not be written."""
    return tuple(_planned(workspace, each, counted) for each in changes)


def _planned(workspace: Workspace, change: Change, counted: bool) -> PlannedChange:
    there = workspace.locate(change.path, write=change.alters and change.new is not None)
    status = workspace.inspect(there.path)
    old_state = new_state = None
    if status is not None and change.pre is not None:
        old_state = FileState("file", status.mode, change.pre, status.size)
    if not change.alters:
        new_state = old_state
    elif change.new is not None:
        mode = there.mode if change.mode is None else change.mode
        new_state = FileState("file", mode, change.post or "", len(change.new))
    folder_state = FileState("directory", there.folder_mode)
    folders = tuple(change_of(encode_path(folder), None, folder_state, DiffStat()) for folder in there.missing)
    stat = change.diff().stat if counted and change.alters else DiffStat()
    return PlannedChange(change.path, change_of(encode_path(there.path), old_state, new_state, stat), folders)


def refuse_never_committed(planned: Planned, workspace: Workspace) -> None:
    """ToolError for a path that is never written in any project, for any caller. A path is checked as it is given, and
    as links resolve it."""
    altered = [each for each in planned if each.alters]
    spelled = [replace(each.file, path=encode_path(each.path)) for each in altered]
    reasons = left_out((*(each.file for each in altered), *spelled), lambda path: workspace.inspect(path) is not None)
    for path, reason in reasons.items():
        raise ToolError(f"Nothing was changed. {inert(decode_path(path))} is never written: {reason}.")


def recorded(plan: dict[str, Any] | None) -> Planned:
    """The plan that an intent recorded; empty if an older Treadle wrote it."""
    try:
        return () if plan is None else msgspec.convert(plan.get("files", ()), Planned)
    except msgspec.ValidationError:
        return ()


def files_of(planned: Planned) -> tuple[FileChange, ...]:
    """The planned changes of the project: folders first, each once."""
    altered = [each for each in planned if each.alters]
    folders = {folder.path: folder for each in altered for folder in each.folders}
    return (*folders.values(), *(each.file for each in altered))


# -- after ------------------------------------------------------------------------------------------------------------


def standings(snapshots: Snapshots, planned: Planned) -> dict[str, Standing]:
    """For each file, by the path in the project, whether it has the bytes from before, from after, or others."""
    return {each.file.path: _standing(snapshots.state(decode_path(each.file.path)), each.file) for each in planned}


def _standing(now: FileState | None, file: FileChange) -> Standing:
    if _bytes(now) == _bytes(file.before):
        return "before"
    return "after" if _bytes(now) == _bytes(file.after) else "other"


def _bytes(state: FileState | None) -> str | None:
    """The part of a state that is compared. The mode is not: another program may have changed it."""
    return None if state is None else state.digest or state.kind


def made_of(snapshots: Snapshots, planned: Planned, standing: Mapping[str, Standing]) -> tuple[FileChange, ...]:
    """The changes of a plan that were made, with their state on disk now; including folders that were created for
    it.
    """
    changes = []
    for file in files_of(planned):
        now = snapshots.state(decode_path(file.path))
        if file.path in standing:
            changes += [replace(file, after=now)] if standing[file.path] == "after" else []
        elif now is not None and now.kind == "directory":
            changes.append(replace(file, after=now))
    snapshots.remember(changes)
    return tuple(changes)


# -- in words ---------------------------------------------------------------------------------------------------------


def build_outcome(changes: Sequence[Change], files: tuple[FileChange, ...]) -> Outcome:
    """The outcome of changes that were made."""
    diffs = [(each, each.diff()) for each in changes if each.alters]
    known_files = tuple(KnownFile(each.path, each.post or "") for each in changes)
    if not diffs:
        names = ", ".join(inert(each.path) for each in changes)
        has = "has" if len(changes) == 1 else "have"
        text = f"{names} already {has} exactly this content; nothing was changed."
        return Outcome(text, summary="no change", known_files=known_files)
    file_changes = [_make_file_change(each.path, each.pre, each.post, diff.stat) for each, diff in diffs]
    notes = [each.note for each in changes if each.note]
    text = "\n".join([_headline(file_changes), *notes, bounded("\n".join(diff.text for _, diff in diffs))])
    return _outcome(text, file_changes, files, known_files)


def found_done(planned: Planned, files: tuple[FileChange, ...], note: str) -> Outcome:
    """The same after a crash, without the bytes from before."""
    altered = [each for each in planned if each.alters]
    file_changes = [_make_file_change(*each.key, DiffStat(each.file.added, each.file.removed)) for each in altered]
    known_files = tuple(KnownFile(each.path, each.post or "") for each in planned)
    return _outcome(f"{_headline(file_changes)} {note}", file_changes, files, known_files)


def partly(planned: Planned, standing: Mapping[str, Standing], files: tuple[FileChange, ...]) -> Outcome:
    """The outcome if some of the files were changed by another program before the call's own change was recorded."""
    lines = [f"{inert(each.path)}: {_STANDINGS[standing[each.file.path]]}" for each in planned]
    text = "The call was cut off while the files were written. Look at them before you go on."
    return Outcome("\n".join([text, *lines]), success=False, files=files)


def _make_file_change(path: str, pre: str | None, post: str | None, stat: DiffStat) -> FileChange:
    """As the call names it."""
    action: Literal["created", "modified", "deleted"] = "modified"
    if pre is None or post is None:
        action = "created" if pre is None else "deleted"
    return FileChange(path, action, stat.added, stat.removed)


def _outcome(
    text: str, file_changes: Sequence[FileChange], files: tuple[FileChange, ...], known_files: tuple[KnownFile, ...]
) -> Outcome:
    stat = DiffStat(sum(each.added for each in file_changes), sum(each.removed for each in file_changes))
    return Outcome(text, f"+{stat.added} -{stat.removed}", diff_stat=stat, files=files, known_files=known_files)


def _headline(files: Sequence[FileChange]) -> str:
    """As in "Changed a.py (+2 -1)."; or how many files."""
    counts = f"(+{sum(each.added for each in files)} -{sum(each.removed for each in files)})"
    if len(files) == 1:
        return f"{_ACTIONS[files[0].action]} {inert(files[0].path)} {counts}."
    return f"Changed {len(files)} files {counts}."
