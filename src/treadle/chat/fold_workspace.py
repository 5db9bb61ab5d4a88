"""Folds events about the files of the project: the changes of a run, a pending restore, and the results of the checks
of a run (L-16)."""

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
    changed_paths = [path for path in state.run.changed_files if path not in touched]
    changed_paths += [path for path, action in touched.items() if action != "deleted"]
    return change_run(state, wrote=True, changed_files=tuple(changed_paths[-MAX_CHANGED:]))


def _work(file: FileChange) -> bool:
    """True if a change is part of the requested work: no build output, nothing of git's own, no folder."""
    file_state = file.after or file.before
    is_git_internal = file.path == ".git" or file.path.startswith(".git/")
    return not file.ignored and not is_git_internal and (file_state is None or file_state.kind == "file")


def _restored(state: ChatState, event: e.Restored, at: Envelope) -> ChatState:
    is_finished = state.restoring is not None and state.restoring.restore == event.restore
    return replace(state, restoring=None) if is_finished else state


def _check_started(state: ChatState, event: e.CheckStarted, at: Envelope) -> ChatState:
    open_check = OpenCheck(event.check, event.command, event.attempt, event.paths, event.plan)
    return change_run(replace(state, checks=state.checks + 1), active=True, check=open_check)


def _check_completed(state: ChatState, event: e.CheckCompleted, at: Envelope) -> ChatState:
    run = state.run
    if run is None or run.check is None or run.check.check != event.check:
        return state
    result = Checked(run.check.command, event.success, tail(event.result), event.synthetic)
    lost_count = run.checks_lost + (event.synthetic == "lost")
    again = event.synthetic == "lost" and lost_count < MAX_LOST
    return change_run(
        state, check=None, checks_lost=lost_count, checked=run.checked if again else (*run.checked, result)
    )


def record_check_message(state: ChatState) -> ChatState:
    """Verification has spoken to the model: either that nothing was written, or what failed. Either way the run is not
    complete any more."""
    run = state.run
    if run is None:
        return state
    failed = [result for result in run.checked if result.failed]
    if not failed:
        return change_run(state, reminded=True, completed=False)
    diagnostics = next((result.text for result in failed if result.command == DIAGNOSTICS), run.diagnosed)
    return change_run(state, check_rounds=run.check_rounds + 1, diagnosed=diagnostics, checked=(), completed=False)


WORKSPACE: Mapping[type[Event], Fold] = {
    e.CheckpointCreated: lambda state, event, at: change_run(state, checkpoint=True),
    e.FilesChanged: _files_changed,
    e.RestoreRequested: lambda state, event, at: replace(state, restoring=event),
    e.Undone: _restored,
    e.Redone: _restored,
    e.ChangesKept: _restored,
    e.CheckStarted: _check_started,
    e.CheckCompleted: _check_completed,
}
