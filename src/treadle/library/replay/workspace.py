"""Effects on files, taken from the record: the log itself is the disk of a replay."""

from collections.abc import Sequence

from msgspec.structs import replace

from treadle.base.types import CallKey, ChatId
from treadle.engine.effects import Spilled
from treadle.errors import RootChanged, ToolError
from treadle.library.replay.store import ReplayStore
from treadle.ports.snapshots import Effect, Plan
from treadle.ports.toolset import Outcome
from treadle.protocol import events as e
from treadle.protocol.files import FileChange
from treadle.protocol.options import Project


class RecordedRestorer:
    """Implements `treadle.engine.deps.Restorer`."""

    def __init__(self, stage: ReplayStore) -> None:
        self._stage = stage

    async def carry_out(self, chat: ChatId, project: Project, request: e.RestoreRequested) -> Effect:
        due = (await self._stage.turn()).data
        if not isinstance(due, e.Restored):
            return Effect(())
        if due.error:
            raise ToolError(due.error)
        return Effect(due.files, due.conflicts, git=due.git)

    async def is_apply_decided(self, chat: ChatId, project: Project, request: e.RestoreRequested) -> bool:
        return False

    async def preview(self, chat: ChatId, project: Project, request: e.RestoreRequested) -> Plan:
        return Plan(())

    async def texts(self, project: Project, changes: Sequence[FileChange]) -> list[tuple[bytes | None, bytes | None]]:
        return [(None, None) for _ in changes]

    async def release(self, chat: ChatId, project: Project, request: e.RestoreRequested) -> None:
        pass


async def recorded_branch(stage: ReplayStore) -> e.GitBranchCreated | None:
    due = (await stage.turn()).data
    return due if isinstance(due, e.GitBranchCreated) else None


def recorded_root(stage: ReplayStore) -> str:
    """Which folder a worker found the root to be, where it looked for the first time or found another one."""
    due = stage.due()
    event = due.data if due is not None else None
    if isinstance(event, e.SessionError) and event.error_class == RootChanged.code:
        raise RootChanged(event.message)
    if isinstance(event, e.OptionsChanged) and event.by == "treadle":
        return str(event.changes.get("root_id", ""))
    return ""


async def recorded_spill(stage: ReplayStore, files: Sequence[FileChange]) -> Spilled:
    """Where the log has only the first of many changes, so has the replay."""
    for envelope in stage.recording.events[stage.now :]:
        event = envelope.data
        if isinstance(event, e.FilesChanged | e.Restored) and event.files == tuple(files):
            return Spilled(event.files, event.manifest, event.total)
    return Spilled(tuple(files))


def before_a_change(stage: ReplayStore) -> bool:
    """True if this worker has yet to record the events before a run's first change; calls that only read may end before
    them."""
    coming = (envelope for envelope in stage.recording.outputs(stage.now) if envelope.epoch == stage.epoch)
    return any(isinstance(envelope.data, e.CheckpointCreated | e.GitBranchCreated) for envelope in coming)


def left_behind(stage: ReplayStore, call: CallKey) -> Outcome | None:
    """Return the changes that a stopped call had made by then, or None."""
    outcome = Outcome("")
    for envelope in stage.recording.outputs(stage.now):
        match envelope.data:
            case e.FilesChanged(call=key) as done if key == call:
                outcome = replace(
                    outcome, files=done.files, source=done.source, uncaptured=done.uncaptured, git=done.git
                )
            case e.WorkspaceConflict(call=key, conflicts=conflicts) if key == call:
                outcome = replace(outcome, conflicts=conflicts)
            case e.SubagentCompleted(call=key) as fact if key == call:
                outcome = replace(outcome, facts=(*outcome.facts, fact))
            case _:
                break
    return outcome if outcome != Outcome("") else None
