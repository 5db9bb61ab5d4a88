"""The common base of write_file, edit_file and apply_patch (D-02, S-16): look first and record the plan, make exactly
the planned changes, settle the plan of a dead worker. A tool computes the changes from its arguments; the snapshots
apply them: all files or none, with the earlier content kept (W-01).

Read before write (T-13, fault 21): a file that has changed since the model last saw it is not written, and the refusal
shows the difference; after that the new content counts as seen. The log has the hashes of the content that the model
saw; the blob store has the bytes, if they were not too many; bytes that a call of the model wrote are in the history of
the project."""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Literal

import msgspec
from msgspec.structs import replace

from treadle.adapters.tools.builtin.base import Blobs, WithContext, complete_change, run_in_thread
from treadle.adapters.tools.builtin.text import MAX_FILE, decode
from treadle.base.file_system import reach_faultpoint
from treadle.base.inert import escape_unprintable
from treadle.chat.change_rules import explain_left_out
from treadle.diff.diff import Diff, diff_texts, shorten_diff
from treadle.diff.encodings import escape_broken_bytes
from treadle.errors import Conflict, NotFound, StoreError, ToolError
from treadle.ports.snapshots import Effect, Snapshots
from treadle.ports.toolset import Invocation, Outcome, PlainTool, Rehearsal, Settlement
from treadle.ports.workspace import Workspace, escape_name
from treadle.protocol.content import KnownFile
from treadle.protocol.files import DiffStat, FileChange, FileState, decode_path, encode_path, make_file_change

MAX_KEPT = 1_000_000  # Bytes of a file that are kept to show later what changed
_AGAIN = "(Found done after a restart.)"
_FINISHED = "(Finished after a restart.)"
Standing = Literal["before", "after", "other"]
_STANDINGS = {"before": "not changed", "after": "changed as asked", "other": "changed by someone else"}


class Change(msgspec.Struct, frozen=True):
    """One file: from the bytes it has (`old`, `pre`) to those it shall have (`new`, `post`)."""

    path: str
    old: bytes | None  # None: there is no file, or (with `pre`) one too large to be compared
    new: bytes | None  # None: the file is deleted
    pre: str | None
    post: str | None
    mode: int | None = None  # The mode of a file that is moved here, or gets another one; None: it keeps its own
    note: str = ""  # A remark for the model beside the diff

    @property
    def alters(self) -> bool:
        return self.pre != self.post or self.mode is not None

    def compute_diff(self) -> Diff:
        shown_path = escape_name(self.path)
        mode = "" if self.mode is None else f"{shown_path}: mode {self.mode:o}\n"
        if self.pre == self.post:
            return Diff(mode, DiffStat())
        if len(self.new or b"") > MAX_FILE or (self.pre is not None and self.old is None):
            return Diff("(the file is too large for a diff)", DiffStat())
        try:
            text_diff = _diff_bytes(shown_path, self.old, self.new)
        except ToolError:
            return Diff("(the file was no text before; no diff)", DiffStat(added=count_lines(self.new or b"")))
        return Diff(mode + text_diff.text, text_diff.stat)


class PlannedChange(msgspec.Struct, frozen=True, omit_defaults=True):
    path: str  # As the call names it
    file: FileChange  # The file itself, wherever links lead. It stays as it is, if it is the same before and after.
    folders: tuple[FileChange, ...] = ()  # Folders that come into being with it, outermost first

    @property
    def post(self) -> str | None:
        return None if self.file.after is None else self.file.after.digest

    @property
    def key(self) -> tuple[str, str | None, str | None]:
        return self.path, None if self.file.before is None else self.file.before.digest, self.post

    @property
    def alters(self) -> bool:
        return self.file.before != self.file.after


Planned = tuple[PlannedChange, ...]
msgspec.json.Decoder(Planned)  # for `convert`: see `protocol.wire`


class Stale(Exception):
    """Files that are not what the model believes. Caught where the difference can be shown; never leaves the tools."""

    def __init__(self, paths: tuple[str, ...]) -> None:
        super().__init__(*paths)
        self.paths = paths


class FileTool(WithContext, PlainTool, ABC):
    """A tool that writes files. `word` names its fault points."""

    word = "write"

    @abstractmethod
    def compute_changes(self, workspace: Workspace, invocation: Invocation) -> list[Change]:
        """The changes that the call would make to the files on disk. Reads only; ToolError if they are impossible."""

    async def prepare(self, invocation: Invocation) -> dict[str, Any] | None:
        _, planned = await self._consider(invocation, counted=True)
        return {"files": [msgspec.to_builtins(each) for each in planned]}

    async def preview(self, invocation: Invocation) -> str:
        changes, _ = await self._consider(invocation)
        altered = [each for each in changes if each.alters]
        return await run_in_thread(
            lambda: escape_unprintable(shorten_diff("\n".join(each.compute_diff().text for each in altered)))
        )

    async def rehearse(self, invocation: Invocation) -> Rehearsal | None:
        _, planned = await self._consider(invocation)
        altered = [each.file for each in planned if each.alters]
        effect = await run_in_thread(self._require_snapshots(invocation).assess, altered)
        unrecoverable = await run_in_thread(self._context.unrecoverable, invocation.project, effect.files)
        preexisting = tuple(path for path in unrecoverable if path not in invocation.changed_paths)
        return Rehearsal("", effect.files, unrecoverable=preexisting, history=effect.history)  # `preview` shows it

    async def run(self, invocation: Invocation) -> Outcome:
        recorded, snapshots = read_plan(invocation.plan), self._require_snapshots(invocation)
        name = make_call_name(invocation)
        if bool(recorded) and await run_in_thread(snapshots.is_unfinished, name, list_file_changes(recorded)):
            effect = await self._make(invocation, recorded, [])
            return _report_done(recorded, effect.files, _FINISHED)
        try:
            changes, planned = await self._consider(invocation, counted=not recorded)
        except Conflict:
            raise
        except ToolError:  # on other bytes the reason would only be that something is not found
            standing = await run_in_thread(find_standings, snapshots, recorded)
            if not (changed_paths := tuple(each.path for each in recorded if standing[each.file.path] == "other")):
                raise
            raise await self._refuse(invocation, changed_paths) from None
        if recorded:
            if [(each.path, each.pre, each.post) for each in changes] != [each.key for each in recorded]:
                raise await self._refuse(invocation, tuple(each.path for each in recorded))
            # An earlier attempt may have made the folders already.
            pairs = zip(planned, recorded, strict=True)
            rows = [(now, replace(now.file, added=old.file.added, removed=old.file.removed), old) for now, old in pairs]
            planned = tuple(replace(now, file=file, folders=old.folders) for now, file, old in rows)
        effect = await self._make(invocation, planned, changes)
        return await run_in_thread(_report_changes, changes, effect.files)

    async def settle(self, invocation: Invocation) -> Settlement:
        planned, snapshots = read_plan(invocation.plan), self._require_snapshots(invocation)
        name = make_call_name(invocation)

        def settle_plan() -> Settlement:
            if snapshots.is_unfinished(name, list_file_changes(planned)):
                return "run_again"
            standing = find_standings(snapshots, planned)
            states = {standing[each.file.path] for each in planned if each.alters}
            if states <= {"before"}:  # none at all: writing the same bytes again changes nothing
                return "run_again"
            if len(planned) == 1 and "other" in states:
                return "unknown"
            files = _find_made(snapshots, planned, standing)
            if states == {"after"}:
                return _report_done(planned, files, _AGAIN)
            text = "The call was cut off while the files were written. Look at them before you go on."
            lines = [f"{escape_name(each.path)}: {_STANDINGS[standing[each.file.path]]}" for each in planned]
            return Outcome("\n".join([text, *lines]), success=False, files=files)

        return await run_in_thread(settle_plan) if planned else "unknown"

    async def stop(self, invocation: Invocation) -> Outcome | None:
        planned, snapshots = read_plan(invocation.plan), self._require_snapshots(invocation)
        if not planned:
            return None
        if await run_in_thread(snapshots.is_unfinished, make_call_name(invocation), list_file_changes(planned)):
            await self._make(invocation, planned, [])
        files = await run_in_thread(lambda: _find_made(snapshots, planned, find_standings(snapshots, planned)))
        return Outcome("It was stopped while the files were written.", success=False, files=files) if files else None

    def _require_snapshots(self, invocation: Invocation) -> Snapshots:
        if self._context.snapshots_of is None:
            raise ToolError("This Treadle keeps nothing of what files were, so it changes none.")
        return self._context.snapshots_of(*invocation.project)

    async def _consider(self, invocation: Invocation, *, counted: bool = False) -> tuple[list[Change], Planned]:
        workspace = self._context.workspace_of(*invocation.project)

        def consider() -> tuple[list[Change], Planned]:
            changes = self.compute_changes(workspace, invocation)
            planned = plan_changes(workspace, changes, counted=counted)
            # A path that is never written in any project is checked as it is given, and as links resolve it.
            altered = [each for each in planned if each.alters]
            spelled = [replace(each.file, path=encode_path(each.path)) for each in altered]
            files = (*(each.file for each in altered), *spelled)
            for path, reason in explain_left_out(files, lambda path: workspace.inspect(path) is not None).items():
                raise ToolError(f"Nothing was changed. {escape_name(decode_path(path))} is never written: {reason}.")
            known = invocation.known_files
            writes = [(each.path, each.pre or "") for each in changes if each.pre != each.post]
            if stale := tuple(path for path, pre in writes if known.get(path, pre) != pre):
                raise Stale(stale)
            return changes, planned

        try:
            return await run_in_thread(consider)
        except Stale as stale:
            refusal = await self._refuse(invocation, stale.paths)
        raise refusal

    async def _make(self, invocation: Invocation, planned: Planned, changes: list[Change]) -> Effect:
        """Make the planned changes. Conflict, with the current content, if another program changed a file first."""
        snapshots, name = self._require_snapshots(invocation), make_call_name(invocation)
        contents = {each.post or "": each.new for each in changes if each.new is not None}

        def make() -> Effect:
            if not (files := list_file_changes(planned)):
                return Effect(())
            reach_faultpoint(f"tool.{self.word}_before")
            effect = snapshots.change(name, files, contents)
            reach_faultpoint(f"tool.{self.word}_after")
            return effect

        effect = await complete_change(make, lambda: snapshots.is_apply_decided(name), "What the call changed")
        if effect.conflicts:
            places = {each.path for each in effect.conflicts}
            changed = [each for each in planned if each.file.path in places] or planned
            raise await self._refuse(invocation, tuple(each.path for each in changed))
        return effect

    async def _refuse(self, invocation: Invocation, paths: tuple[str, ...]) -> Conflict:
        """The refusal: for each file the difference from what the model saw. Content that is shown counts as seen."""
        workspace = self._context.workspace_of(*invocation.project)
        texts: list[str] = []
        known_digests: dict[str, str] = {}
        for path in paths:
            data, digest = await run_in_thread(read_current_bytes, workspace, path)
            known_digest = invocation.known_files.get(path)
            known_bytes = await self._read_known(invocation, known_digest)
            text, is_shown = _describe_difference(escape_name(path), known_digest, known_bytes, data, digest)
            texts.append(text)
            if is_shown:
                known_digests[path] = digest or ""
                await keep(self._context.blobs, data)
        return Conflict("Nothing was written. " + "\n".join(texts), known_digests)

    async def _read_known(self, invocation: Invocation, digest: str | None) -> bytes | None:
        """The content that the model saw: it read it, or a call of its own wrote it."""
        if not digest:
            return None if digest is None else b""
        with suppress(NotFound, StoreError):
            return await self._context.blobs.get_blob(digest)
        with suppress(NotFound, ToolError):
            return await run_in_thread(lambda: self._require_snapshots(invocation).read_content(digest, MAX_KEPT))
        return None


def make_call_name(invocation: Invocation) -> str:
    return f"{invocation.chat}/{invocation.call}"


async def keep(blobs: Blobs, data: bytes | None) -> None:
    """Keep what the model sees now, to be able to show later what changed since."""
    if data is not None and len(data) <= MAX_KEPT:
        await blobs.put_blob(data)


def build_change(path: str, old: bytes | None, new: bytes | None, *, pre: str | None, **more: Any) -> Change:
    return Change(path, old, new, pre, None if new is None else compute_sha256(new), **more)


def compute_sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def count_lines(data: bytes) -> int:
    """With the last one, whether it is ended or not."""
    return data.count(b"\n") + bool(data and not data.endswith(b"\n"))


def read_current_bytes(workspace: Workspace, path: str) -> tuple[bytes | None, str | None]:
    """The bytes that are on disk now (None if there is no file, or it is too large to compare) and their hash."""
    if (status := workspace.stat(path)) is None:
        return None, None
    is_large = status.kind == "file" and status.size > MAX_FILE
    data = None if is_large else workspace.read_bytes(path)
    return data, workspace.hash_file(path) if data is None else compute_sha256(data)


def _diff_bytes(shown_path: str, old: bytes | None, new: bytes | None) -> Diff:
    """ToolError if the bytes are no text."""
    old_text, new_text = (None if data is None else decode(data, shown_path).text for data in (old, new))
    text_diff = diff_texts(shown_path, old_text, new_text)
    return Diff(escape_broken_bytes(text_diff.text), text_diff.stat)


def _describe_difference(
    shown_path: str, known_digest: str | None, old: bytes | None, data: bytes | None, digest: str | None
) -> tuple[str, bool]:
    if digest is None:
        return f"{shown_path} was deleted by someone else. Send the call again if it shall be created anew.", True
    sentence = f"{shown_path} was changed on disk since you last saw it."
    try:
        if known_digest is None or old is None or data is None:
            raise ToolError
        diff_text = _diff_bytes(shown_path, old if known_digest else None, data).text
    except ToolError:
        lines = "" if data is None else f" (lines 1 to {max(1, count_lines(data)):,})"
        return f"{sentence} Read it again{lines} before you change it.", False
    return (
        f"{sentence} What changed (- is as you saw it, + as it is now):\n{shorten_diff(diff_text)}\n"
        "If your change still fits, send it again; otherwise adapt it.",
        True,
    )


# -- the plan ---------------------------------------------------------------------------------------------------------
def plan_changes(workspace: Workspace, changes: Iterable[Change], *, counted: bool = True) -> Planned:
    """The changes as they are recorded and judged. Looks, and keeps nothing. ToolError if a file may not be written."""
    planned = []
    for change in changes:
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
        folders = tuple(
            make_file_change(encode_path(folder), None, folder_state, DiffStat()) for folder in there.missing
        )
        stat = change.compute_diff().stat if counted and change.alters else DiffStat()
        file = make_file_change(encode_path(there.path), old_state, new_state, stat)
        planned.append(PlannedChange(change.path, file, folders))
    return tuple(planned)


def read_plan(plan: dict[str, Any] | None) -> Planned:
    """The plan that an intent recorded; empty if an older Treadle wrote it."""
    try:
        return () if plan is None else msgspec.convert(plan.get("files", ()), Planned)
    except msgspec.ValidationError:
        return ()


def list_file_changes(planned: Planned) -> tuple[FileChange, ...]:
    altered = [each for each in planned if each.alters]
    folders = {folder.path: folder for each in altered for folder in each.folders}
    return (*folders.values(), *(each.file for each in altered))


def find_standings(snapshots: Snapshots, planned: Planned) -> dict[str, Standing]:
    """For each file, by the path in the project, whether it has the bytes from before, from after, or others."""

    def identify_content(state: FileState | None) -> str | None:
        """The mode is not compared: another program may have changed it."""
        return None if state is None else state.digest or state.kind

    standings: dict[str, Standing] = {}
    for file in (each.file for each in planned):
        now = identify_content(snapshots.read_state(decode_path(file.path)))
        is_after = now == identify_content(file.after)
        standings[file.path] = "before" if now == identify_content(file.before) else "after" if is_after else "other"
    return standings


def _find_made(snapshots: Snapshots, planned: Planned, standing: Mapping[str, Standing]) -> tuple[FileChange, ...]:
    """The changes of a plan that were made, with their state on disk now; including folders that were created."""
    changes = []
    for file in list_file_changes(planned):
        now = snapshots.read_state(decode_path(file.path))
        is_folder = now is not None and now.kind == "directory"
        if standing[file.path] == "after" if file.path in standing else is_folder:
            changes.append(replace(file, after=now))
    snapshots.remember(changes)
    return tuple(changes)


# -- the outcome in words ---------------------------------------------------------------------------------------------
def _report_changes(changes: Sequence[Change], files: tuple[FileChange, ...]) -> Outcome:
    diffs = [(each, each.compute_diff()) for each in changes if each.alters]
    known_files = tuple(KnownFile(each.path, each.post or "") for each in changes)
    if not diffs:
        names, has = ", ".join(escape_name(each.path) for each in changes), "has" if len(changes) == 1 else "have"
        text = f"{names} already {has} exactly this content; nothing was changed."
        return Outcome(text, summary="no change", known_files=known_files)
    rows = [(each.path, each.pre, each.post, diff.stat) for each, diff in diffs]
    notes = [each.note for each in changes if each.note]
    text = "\n".join(["", *notes, shorten_diff("\n".join(diff.text for _, diff in diffs))])
    return _report_rows(rows, text, files, known_files)


def _report_done(planned: Planned, files: tuple[FileChange, ...], note: str) -> Outcome:
    """The same after a crash, without the bytes from before."""
    rows = [(*each.key, DiffStat(each.file.added, each.file.removed)) for each in planned if each.alters]
    return _report_rows(rows, f" {note}", files, tuple(KnownFile(each.path, each.post or "") for each in planned))


_Row = tuple[str, str | None, str | None, DiffStat]


def _report_rows(
    rows: Sequence[_Row], text: str, files: tuple[FileChange, ...], known: tuple[KnownFile, ...]
) -> Outcome:
    """`rows`: path, hashes before and after, counts. As in "Changed a.py (+2 -1)."; or the number of files."""
    stat = DiffStat(sum(row[3].added for row in rows), sum(row[3].removed for row in rows))
    counts = f"+{stat.added} -{stat.removed}"
    subject = f"Changed {len(rows)} files"
    if len(rows) == 1:
        path, pre, post, _ = rows[0]
        subject = f"{'Created' if pre is None else 'Deleted' if post is None else 'Changed'} {escape_name(path)}"
    return Outcome(f"{subject} ({counts}).{text}", counts, diff_stat=stat, files=files, known_files=known)
