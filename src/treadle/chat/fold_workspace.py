"""Folding what happened to the files of the project: what a run changed, what is being taken back, and what the checks
of a run came to (L-16)."""

from collections.abc import Mapping

from msgspec.structs import replace

from treadle.chat.fold_helpers import Fold, change_run
from treadle.chat.state import MAX_CHANGED, ChatState, Checked, OpenCheck
from treadle.chat.verification import tail
from treadle.protocol import events as e
from treadle.protocol.events import DIAGNOSTICS, Envelope, Event, FileChange

MAX_LOST = 3
"""A check that takes its worker with it this often is not tried again."""


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


def _restored(state: ChatState, event: e.Restored, at: Envelope) -> ChatState:
    done = state.restoring is not None and state.restoring.restore == event.restore
    return replace(state, restoring=None) if done else state


def _check_started(state: ChatState, event: e.CheckStarted, at: Envelope) -> ChatState:
    begun = OpenCheck(event.check, event.command, event.attempt, event.paths, event.plan)
    return change_run(replace(state, checks=state.checks + 1), active=True, check=begun)


def _check_completed(state: ChatState, event: e.CheckCompleted, at: Envelope) -> ChatState:
    run = state.run
    if run is None or run.check is None or run.check.check != event.check:
        return state
    result = Checked(run.check.command, event.success, tail(event.result), event.synthetic)
    lost = run.checks_lost + (event.synthetic == "lost")
    again = event.synthetic == "lost" and lost < MAX_LOST
    return change_run(state, check=None, checks_lost=lost, checked=run.checked if again else (*run.checked, result))


def told(state: ChatState) -> ChatState:
    """Verification has spoken to the model: either that nothing was written, or what failed. Either way the run is not
    complete any more."""
    run = state.run
    if run is None:
        return state
    failed = [result for result in run.checked if result.failed]
    if not failed:
        return change_run(state, reminded=True, completed=False)
    found = next((result.text for result in failed if result.command == DIAGNOSTICS), run.diagnosed)
    return change_run(state, check_rounds=run.check_rounds + 1, diagnosed=found, checked=(), completed=False)


WORKSPACE: Mapping[type[Event], Fold] = {
    e.CheckpointCreated: lambda state, event, at: change_run(state, checkpoint=True),
    e.FilesChanged: _files_changed,
    e.RestoreRequested: lambda state, event, at: replace(state, restoring=event),
    e.Undone: _restored,
    e.Redone: _restored,
    e.Kept: _restored,
    e.CheckStarted: _check_started,
    e.CheckCompleted: _check_completed,
}
