"""Changes of files that have been thought through and not made (D-02): what is there now, what shall be, and the hashes
of both, by which a crash can be settled. Making them is the business of `writing`."""

import hashlib
from collections.abc import Sequence
from typing import Any

import msgspec

from treadle.errors import ToolError
from treadle.lines.diff import Diff, diff
from treadle.ports.workspace import Workspace, inert
from treadle.protocol.files import DiffStat, FileChange, FileState
from treadle.tools.builtin.text import MAX_FILE, decode, visible


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


def change(path: str, old: bytes | None, new: bytes | None, *, pre: str | None, **more: Any) -> Change:
    return Change(path, old, new, pre, None if new is None else sha256(new), **more)


def lines_in(data: bytes) -> int:
    """With the last one, whether it is ended or not."""
    return data.count(b"\n") + bool(data and not data.endswith(b"\n"))


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def look(workspace: Workspace, path: str) -> tuple[bytes | None, str | None]:
    """What is on disk now: the bytes (None if there is nothing or too much to compare) and their hash."""
    found = workspace.stat(path)
    if found is None:
        return None, None
    if found.kind == "file" and found.size > MAX_FILE:
        return None, workspace.digest(path)
    data = workspace.read_bytes(path)
    return data, sha256(data)


# -- what the intent records --------------------------------------------------------------------------------------


class Mark(msgspec.Struct, frozen=True, omit_defaults=True):
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
    mark: Mark | None = None
    """None: this Treadle keeps nothing of what was there before."""

    @property
    def made(self) -> FileChange:
        if self.post is None:
            return FileChange(self.path, "deleted", self.added, self.removed)
        return FileChange(self.path, "created" if self.pre is None else "modified", self.added, self.removed)


def step_of(change: Change, mark: Mark | None) -> Step:
    stat = change.diff().stat
    return Step(change.path, change.pre, change.post, stat.added, stat.removed, change.mode, mark)


def to_plan(steps: Sequence[Step], *, several: bool) -> dict[str, Any]:
    told = [
        {key: value for key, value in msgspec.to_builtins(step).items() if value or key not in ("mode", "mark")}
        for step in steps
    ]
    return {"files": told} if several else told[0]


def from_plan(plan: dict[str, Any]) -> tuple[Step, ...]:
    return msgspec.convert(plan.get("files", [plan]), tuple[Step, ...])


# -- in words -----------------------------------------------------------------------------------------------------

_WORDS = {"created": "Created", "modified": "Changed", "deleted": "Deleted"}


def headline(files: Sequence[FileChange]) -> str:
    """As in "Changed a.py (+2 -1)."; or how many files."""
    counts = f"(+{sum(each.added for each in files)} -{sum(each.removed for each in files)})"
    if len(files) == 1:
        return f"{_WORDS[files[0].action]} {inert(files[0].path)} {counts}."
    return f"Changed {len(files)} files {counts}."
