"""Folding what happened to the files of the project: what a run changed, and what is being taken back."""

from collections.abc import Mapping

from msgspec.structs import replace

from treadle.chat.folding import Fold, change_run
from treadle.chat.state import ChatState
from treadle.protocol import events as e
from treadle.protocol.events import Envelope, Event, FileChange

MAX_CHANGED = 200


def _checkpoint(state: ChatState, event: e.CheckpointCreated, at: Envelope) -> ChatState:
    return change_run(state, checkpoint=True)


def _files_changed(state: ChatState, event: e.FilesChanged, at: Envelope) -> ChatState:
    if state.run is None:
        return state
    touched = {file.path: file.action for file in event.files if _work(file)}
    if not touched:
        return state
    kept = [path for path in state.run.changed if path not in touched]
    kept += [path for path, action in touched.items() if action != "deleted"]
    return change_run(state, wrote=True, changed=tuple(kept[-MAX_CHANGED:]))


def _work(file: FileChange) -> bool:
    """Whether a change is part of what was asked for: no build output, nothing of git's own, no folder."""
    shown = file.after or file.before
    own = file.path == ".git" or file.path.startswith(".git/")
    return not file.ignored and not own and (shown is None or shown.kind == "file")


def _restore_requested(state: ChatState, event: e.RestoreRequested, at: Envelope) -> ChatState:
    return replace(state, restoring=event)


def _restored(state: ChatState, event: e.Restored, at: Envelope) -> ChatState:
    done = state.restoring is not None and state.restoring.restore == event.restore
    return replace(state, restoring=None) if done else state


WORKSPACE: Mapping[type[Event], Fold] = {
    e.CheckpointCreated: _checkpoint,
    e.FilesChanged: _files_changed,
    e.RestoreRequested: _restore_requested,
    e.Undone: _restored,
    e.Redone: _restored,
    e.Kept: _restored,
}
