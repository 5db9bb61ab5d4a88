"""What a file tool changes (D-02, S-16): thought through first, as changes of the project with the states before and
after, which the intent records; and what became of it, in words. Making it is the business of the snapshots: all files
or none, what was there kept before (W-01). Knows no tool and no call."""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import msgspec
from msgspec.structs import replace

from treadle.chat.change_rules import left_out
from treadle.errors import ToolError
from treadle.lines.diff import Diff, bounded, diff
from treadle.lines.encodings import visible
from treadle.ports.snapshots import Snapshots
from treadle.ports.toolset import Outcome
from treadle.ports.workspace import Workspace, inert
from treadle.protocol.content import Seen
from treadle.protocol.files import DiffStat, FileChange, FileState, change_of, decode_path, encode_path
from treadle.tools.builtin.text import MAX_FILE, decode

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
    """What the model must know beside the diff."""

    @property
    def alters(self) -> bool:
        return self.pre != self.post or self.mode is not None

    def diff(self) -> Diff:
        shown = inert(self.path)
        mode = "" if self.mode is None else f"{shown}: mode {self.mode:o}\n"
        if self.pre == self.post:
            return Diff(mode, DiffStat())
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
        return Diff(mode + visible(made.text), made.stat)


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

    def begun_as(self, then: "PlannedChange") -> "PlannedChange":
        """As it is now, if it was planned before: a try before this one may have made its folders already."""
        stat = then.file
        return replace(self, file=replace(self.file, added=stat.added, removed=stat.removed), folders=then.folders)


Planned = tuple[PlannedChange, ...]


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


# -- before -----------------------------------------------------------------------------------------------------------


def plan(workspace: Workspace, changes: Iterable[Change], *, counted: bool = True) -> Planned:
    """The changes as they are recorded and judged. Looks, and keeps nothing. ToolError if a file may not be written."""
    return tuple(_planned(workspace, each, counted) for each in changes)


def _planned(workspace: Workspace, change: Change, counted: bool) -> PlannedChange:
    there = workspace.locate(change.path, write=change.alters and change.new is not None)
    found = workspace.inspect(there.path)
    before = after = None
    if found is not None and change.pre is not None:
        before = FileState("file", found.mode, change.pre, found.size)
    if not change.alters:
        after = before
    elif change.new is not None:
        mode = there.mode if change.mode is None else change.mode
        after = FileState("file", mode, change.post or "", len(change.new))
    made = FileState("directory", there.folder_mode)
    folders = tuple(change_of(encode_path(folder), None, made, DiffStat()) for folder in there.missing)
    stat = change.diff().stat if counted and change.alters else DiffStat()
    return PlannedChange(change.path, change_of(encode_path(there.path), before, after, stat), folders)


def refuse_never_committed(planned: Planned, workspace: Workspace) -> None:
    """ToolError for what no project gets, whoever asks for it. A path counts as it is given, and as links lead on."""
    made = [each for each in planned if each.alters]
    spelled = [replace(each.file, path=encode_path(each.path)) for each in made]
    reasons = left_out((*(each.file for each in made), *spelled), lambda path: workspace.inspect(path) is not None)
    for path, reason in reasons.items():
        raise ToolError(f"Nothing was changed. {inert(decode_path(path))} is never written: {reason}.")


def recorded(plan: dict[str, Any] | None) -> Planned:
    """What an intent recorded; nothing, if it was an older Treadle's."""
    try:
        return () if plan is None else msgspec.convert(plan.get("files", ()), Planned)
    except msgspec.ValidationError:
        return ()


def files_of(planned: Planned) -> tuple[FileChange, ...]:
    """What is changed in the project: folders first, each once."""
    made = [each for each in planned if each.alters]
    folders = {folder.path: folder for each in made for folder in each.folders}
    return (*folders.values(), *(each.file for each in made))


# -- after ------------------------------------------------------------------------------------------------------------


def standings(snapshots: Snapshots, planned: Planned) -> dict[str, Standing]:
    """For each file, by the path in the project, whether it has the bytes from before, from after, or others."""
    return {each.file.path: _standing(snapshots.state(decode_path(each.file.path)), each.file) for each in planned}


def _standing(now: FileState | None, file: FileChange) -> Standing:
    if _bytes(now) == _bytes(file.before):
        return "before"
    return "after" if _bytes(now) == _bytes(file.after) else "other"


def _bytes(state: FileState | None) -> str | None:
    """What counts of a state: its mode may be somebody else's affair."""
    return None if state is None else state.digest or state.kind


def made_of(snapshots: Snapshots, planned: Planned, standing: Mapping[str, Standing]) -> tuple[FileChange, ...]:
    """What is found made of a plan, as it is on disk now: folders that were begun with it, too."""
    found = []
    for file in files_of(planned):
        now = snapshots.state(decode_path(file.path))
        if file.path in standing:
            found += [replace(file, after=now)] if standing[file.path] == "after" else []
        elif now is not None and now.kind == "directory":
            found.append(replace(file, after=now))
    snapshots.remember(found)
    return tuple(found)


# -- in words ---------------------------------------------------------------------------------------------------------


def done(changes: Sequence[Change], files: tuple[FileChange, ...]) -> Outcome:
    """The outcome of changes that were made."""
    diffs = [(each, each.diff()) for each in changes if each.alters]
    seen = tuple(Seen(each.path, each.post or "") for each in changes)
    if not diffs:
        names = ", ".join(inert(each.path) for each in changes)
        has = "has" if len(changes) == 1 else "have"
        text = f"{names} already {has} exactly this content; nothing was changed."
        return Outcome(text, summary="no change", seen=seen)
    named = [_named(each.path, each.pre, each.post, diff.stat) for each, diff in diffs]
    notes = [each.note for each in changes if each.note]
    text = "\n".join([_headline(named), *notes, bounded("\n".join(diff.text for _, diff in diffs))])
    return _outcome(text, named, files, seen)


def found_done(planned: Planned, files: tuple[FileChange, ...], note: str) -> Outcome:
    """The same after a crash, without the bytes from before."""
    made = [each for each in planned if each.alters]
    named = [_named(*each.key, DiffStat(each.file.added, each.file.removed)) for each in made]
    seen = tuple(Seen(each.path, each.post or "") for each in planned)
    return _outcome(f"{_headline(named)} {note}", named, files, seen)


def partly(planned: Planned, standing: Mapping[str, Standing], files: tuple[FileChange, ...]) -> Outcome:
    """Somebody else changed some of the files before it was recorded that they were changed."""
    lines = [f"{inert(each.path)}: {_STANDINGS[standing[each.file.path]]}" for each in planned]
    text = "The call was cut off while the files were written. Look at them before you go on."
    return Outcome("\n".join([text, *lines]), success=False, files=files)


def _named(path: str, pre: str | None, post: str | None, stat: DiffStat) -> FileChange:
    """As the call names it."""
    action: Literal["created", "modified", "deleted"] = "modified"
    if pre is None or post is None:
        action = "created" if pre is None else "deleted"
    return FileChange(path, action, stat.added, stat.removed)


def _outcome(text: str, named: Sequence[FileChange], files: tuple[FileChange, ...], seen: tuple[Seen, ...]) -> Outcome:
    stat = DiffStat(sum(each.added for each in named), sum(each.removed for each in named))
    return Outcome(text, f"+{stat.added} -{stat.removed}", diff_stat=stat, files=files, seen=seen)


def _headline(files: Sequence[FileChange]) -> str:
    """As in "Changed a.py (+2 -1)."; or how many files."""
    counts = f"(+{sum(each.added for each in files)} -{sum(each.removed for each in files)})"
    if len(files) == 1:
        return f"{_ACTIONS[files[0].action]} {inert(files[0].path)} {counts}."
    return f"Changed {len(files)} files {counts}."
