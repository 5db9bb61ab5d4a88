"""Undoes, redoes and keeps the changes of a chat to its project (W-02, W-03). The new content of each file is derived
from the log and from the disk; the snapshots write it. A worker that dies meanwhile leaves a journal, and the next one
completes it: the request stays open until its outcome is recorded."""

import asyncio
from collections.abc import Sequence

from msgspec.structs import replace

from treadle.base.file_system import reach_faultpoint
from treadle.base.types import ChatId
from treadle.chat.ledger import (
    LedgerEntry,
    find_git_fingerprint,
    find_redo_trails,
    find_unnamed_paths,
    list_standing_paths,
    select_trails,
)
from treadle.diff.diff import build_file_diff
from treadle.engine.deps import Deps, Restorer
from treadle.engine.effects import Ledger, read_ledger
from treadle.engine.tenure import Tenure
from treadle.engine.tool_calls import record_outcome
from treadle.errors import ToolError, TreadleError, Unfinished
from treadle.ports.snapshots import UNCLEAR, Effect, Plan, Snapshots, SnapshotsOf, UndoRequest
from treadle.ports.store import Store
from treadle.ports.workspace import escape_name
from treadle.protocol.events import Event, RestoreRequested
from treadle.protocol.files import DiffStat, FileChange, FileConflict, Trail, make_file_change
from treadle.protocol.options import Project
from treadle.protocol.workspace_events import RESTORED

NO_SNAPSHOTS = "This Treadle keeps no snapshots of files, so nothing can be taken back."
NO_ROOT = "This chat has no project root, so there are no files to take back."
OBSERVED = (
    "it was found changed while a background process ran, and another program may have changed it: name it to undo it"
)


async def restore(tenure: Tenure, request: RestoreRequested, deps: Deps) -> None:
    chat, project = tenure.state.chat, tenure.state.options.project
    error, effect = "", Effect(())
    try:
        if deps.restorer is None:
            raise ToolError(NO_SNAPSHOTS)
        effect = await _carry_out(deps.restorer, chat, project, request)
    except Unfinished:
        raise
    except Exception as failed:  # nothing was changed, and the chat goes on
        error = deps.redact(str(failed) if isinstance(failed, TreadleError) else f"{type(failed).__name__}: {failed}")

    async def build_events() -> list[Event]:
        reach_faultpoint("restore.after")
        all_of, conflicts = await deps.spill(effect.files), effect.conflicts
        fields = (request.restore, all_of.files, all_of.manifest, all_of.total, conflicts, error, effect.git)
        return [RESTORED[request.kind](*fields)]

    await record_outcome(tenure, build_events)
    if deps.restorer is not None:
        await deps.restorer.release(chat, project, request)


async def _carry_out(restorer: Restorer, chat: ChatId, project: Project, request: RestoreRequested) -> Effect:
    """Carry out a request. After an error, begun changes are completed or taken back; if neither is possible now, the
    request stays open (Unfinished). Any other error: nothing was changed."""
    try:
        return await restorer.carry_out(chat, project, request)
    except Exception:
        if not await restorer.is_apply_decided(chat, project, request):
            raise
    try:
        return await restorer.carry_out(chat, project, request)
    except Exception as failed:
        if not await restorer.is_apply_decided(chat, project, request):
            raise
        raise Unfinished(
            f"The {request.kind} could not be completed: {failed} It is completed when the chat is taken up again."
        ) from failed


class SnapshotRestorer:
    """Implements `treadle.engine.deps.Restorer` with the log of a chat and the snapshots of its root."""

    def __init__(self, store: Store, snapshots_of: SnapshotsOf) -> None:
        self._store = store
        self._of = snapshots_of

    async def carry_out(self, chat: ChatId, project: Project, request: RestoreRequested) -> Effect:
        snapshots, ledger = self._open_snapshots(project), await read_ledger(self._store, chat)
        undo_request = _build_undo_request(ledger, request)
        if request.kind == "keep":
            return await asyncio.to_thread(_keep_changes, snapshots, undo_request.trails, request)
        effect = await asyncio.to_thread(snapshots.apply, _make_name(chat, request), undo_request)
        return replace(effect, conflicts=(*effect.conflicts, *_find_unnamed_conflicts(ledger.entries, request)))

    async def is_apply_decided(self, chat: ChatId, project: Project, request: RestoreRequested) -> bool:
        return bool(project[0]) and await asyncio.to_thread(
            self._of(*project).is_apply_decided, _make_name(chat, request)
        )

    async def preview(self, chat: ChatId, project: Project, request: RestoreRequested) -> Plan:
        snapshots, ledger = self._open_snapshots(project), await read_ledger(self._store, chat)
        plan = await asyncio.to_thread(snapshots.plan, _build_undo_request(ledger, request))
        return replace(plan, conflicts=(*plan.conflicts, *_find_unnamed_conflicts(ledger.entries, request)))

    async def read_texts(
        self, project: Project, changes: Sequence[FileChange]
    ) -> list[tuple[bytes | None, bytes | None]]:
        snapshots = self._open_snapshots(project)
        return await asyncio.to_thread(lambda: [snapshots.read_texts(change) for change in changes])

    async def release(self, chat: ChatId, project: Project, request: RestoreRequested) -> None:
        if request.kind != "keep" and project[0]:
            await asyncio.to_thread(self._of(*project).release, _make_name(chat, request))

    def _open_snapshots(self, project: Project) -> Snapshots:
        if not project[0]:
            raise ToolError(NO_ROOT)
        return self._of(*project)


def _make_name(chat: ChatId, request: RestoreRequested) -> str:
    return f"{chat}/{request.restore}"


def _build_undo_request(ledger: Ledger, request: RestoreRequested) -> UndoRequest:
    entries, runs = ledger.entries, ledger.checkpoints
    selected_trails = (
        find_redo_trails(entries, request.of, runs) if request.kind == "redo" else select_trails(entries, request, runs)
    )
    if request.kind == "redo" and not selected_trails:
        raise ToolError(f"There is no undo {request.of!r} in this chat that changed something.")
    for path in request.hunks:
        if all(trail.path != path for trail in selected_trails):
            raise ToolError(
                f"Nothing of this chat is left to {request.kind} in {escape_name(path)}, so it has no hunks."
            )
    known = find_git_fingerprint(entries), list_standing_paths(entries)
    return UndoRequest(selected_trails, request.hunks, request.merge, *known, gated=request.kind == "redo")


def _find_unnamed_conflicts(entries: Sequence[LedgerEntry], request: RestoreRequested) -> Sequence[FileConflict]:
    """Return the paths that only observed changes touch, and that are therefore left alone."""
    if request.kind != "undo" or request.paths or request.hunks:
        return ()
    return [FileConflict(path, OBSERVED) for path in sorted(find_unnamed_paths(entries, request))]


def _keep_changes(snapshots: Snapshots, selected_trails: Sequence[Trail], request: RestoreRequested) -> Effect:
    changes, unclear = list[FileChange](), list[FileConflict]()
    for trail in selected_trails:
        if not trail.links:
            unclear.append(FileConflict(trail.path, UNCLEAR))
        elif hunks := request.hunks.get(trail.path):
            changes.append(snapshots.keep_hunks(trail, hunks))
        elif not request.hunks:
            ends = trail.links[0].before, trail.links[-1].after
            changes.append(make_file_change(trail.path, *ends, DiffStat(), ignored=trail.ignored))
    counted = [build_file_diff(change, snapshots.read_texts(change)).change for change in changes]
    return Effect(tuple(counted), tuple(unclear))
