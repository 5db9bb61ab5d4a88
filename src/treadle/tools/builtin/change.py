"""How a file tool changes a file so that a crash can be settled (D-02): look first and note the hashes before and
after, change only what still has the first, and tell afterwards by the hash on disk what happened."""

import hashlib
from typing import Any

import msgspec

from treadle.errors import Conflict, ToolError
from treadle.faultpoint import faultpoint
from treadle.ports.toolset import Invocation, Outcome, Settlement
from treadle.ports.workspace import Workspace, inert
from treadle.protocol.events import DiffStat, FileChange
from treadle.tools.builtin.diff import Diff, diff
from treadle.tools.builtin.text import decode

_MAX_DIFFED = 2_000_000
"""Bytes of a file that is still compared; larger ones are replaced without a diff."""


class Change(msgspec.Struct, frozen=True):
    """A change that has been thought through and not made."""

    path: str
    old: bytes | None
    """None: there is no file, or (with `pre`) one too large to be compared."""
    new: bytes
    pre: str | None
    note: str = ""
    """What the model must know beside the diff."""

    @property
    def post(self) -> str:
        return sha256(self.new)

    def plan(self) -> dict[str, Any]:
        """What the intent records."""
        stat = self.diff().stat
        return {
            "path": self.path,
            "pre": self.pre,
            "post": self.post,
            "added": stat.added,
            "removed": stat.removed,
        }

    def diff(self) -> Diff:
        shown = inert(self.path)
        if (self.pre is not None and self.old is None) or len(self.new) > _MAX_DIFFED:
            return Diff("(the file is too large for a diff)", DiffStat())
        try:
            old = None if self.old is None else decode(self.old, shown)
        except ToolError:
            return Diff("(the file was no UTF-8 text before; no diff)", DiffStat(added=self.new.count(b"\n")))
        return diff(shown, old, self.new.decode())


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def conflict(path: str) -> Conflict:
    return Conflict(f"{inert(path)} was changed by someone else meanwhile. Read it again before you change it.")


def look(workspace: Workspace, path: str) -> tuple[bytes | None, str | None]:
    """What is on disk now: the bytes (None if there is nothing or too much to compare) and their hash."""
    found = workspace.stat(path)
    if found is None:
        return None, None
    if found.kind == "file" and found.size > _MAX_DIFFED:
        return None, workspace.digest(path)
    data = workspace.read_bytes(path)
    return data, sha256(data)


def make(workspace: Workspace, change: Change, invocation: Invocation, word: str) -> Outcome:
    """Make the change, unless the file is no longer what the intent says."""
    plan = invocation.plan
    if plan is not None and (change.pre != plan["pre"] or change.post != plan["post"]):
        raise conflict(change.path)
    shown = inert(change.path)
    if change.pre == change.post:
        return Outcome(f"{shown} already has exactly this content; nothing was changed.", summary="no change")
    made = change.diff()
    faultpoint(f"tool.{word}_before")
    workspace.write_atomic(change.path, change.new, token=_token(invocation))
    faultpoint(f"tool.{word}_after")
    lead = "Created" if change.pre is None else "Changed"
    counts = f"+{made.stat.added} -{made.stat.removed}"
    text = "\n".join(part for part in (f"{lead} {shown} ({counts}).", change.note, made.text) if part)
    return Outcome(text, summary=counts, diff_stat=made.stat, files=(_file(change.path, change.pre, made.stat),))


def settle(workspace: Workspace, invocation: Invocation) -> Settlement:
    """Whether a change happened whose worker died: by the hash on disk, and nothing else."""
    plan = invocation.plan
    if plan is None:
        return "unknown"
    path, pre, post = str(plan["path"]), plan["pre"], plan["post"]
    workspace.sweep(path, _token(invocation))
    try:
        now = workspace.digest(path)
    except ToolError:  # no file any more, but something else
        return "unknown"
    if now == pre:  # also when pre == post: writing the same bytes again changes nothing
        return "run_again"
    if now != post:
        return "unknown"
    stat = DiffStat(int(plan.get("added", 0)), int(plan.get("removed", 0)))
    counts = f"+{stat.added} -{stat.removed}"
    text = f"{'Created' if pre is None else 'Changed'} {inert(path)} ({counts}). (Found done after a restart.)"
    return Outcome(text, summary=counts, diff_stat=stat, files=(_file(path, pre, stat),))


def _file(path: str, pre: str | None, stat: DiffStat) -> FileChange:
    return FileChange(path, "created" if pre is None else "modified", stat.added, stat.removed)


def _token(invocation: Invocation) -> str:
    return f"{invocation.chat}/{invocation.call}"
