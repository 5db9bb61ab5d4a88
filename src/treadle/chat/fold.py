"""fold(state, envelope) → state: the meaning of each event. The only writer of a chat's state.

It never raises and never refuses: the log is what happened. An event that refers to something unknown (its record was
lost) changes what it can and no more. Folding any prefix and then the rest gives the same state as folding all; that is
why snapshots are only caches."""

from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec.structs import replace

from treadle.chat.fold_calls import CALLS, Fold, change_run, make_title, say, select_seen_before, spend
from treadle.chat.history import weigh
from treadle.chat.state import (
    MAX_CHANGED,
    AnsweredTurn,
    Call,
    ChatState,
    Checked,
    Compaction,
    OpenCheck,
    OpenTurn,
    RunState,
    needs_person,
)
from treadle.chat.transcript import rebuild
from treadle.chat.verification import take_tail
from treadle.errors import PROVIDER_DOWN
from treadle.protocol import events as e
from treadle.protocol.content import AssistantEntry, Failure, Shell, Usage, UserEntry
from treadle.protocol.events import DIAGNOSTICS, Envelope, Event, FileChange
from treadle.protocol.options import ChatOptions
from treadle.protocol.views import QueueItem


def fold(state: ChatState, envelope: Envelope) -> ChatState:
    event = envelope.data
    apply = _APPLY.get(type(event))
    if apply is not None:
        state = apply(state, event, envelope)
    state = replace(state, head=envelope.seq, updated_ms=envelope.time_ms or state.updated_ms)
    run = state.run
    if run is None or not (run.waits_since_ms or state.calls or state.question):
        return state
    # Waiting for a person is no working time: it begins and ends with what was recorded then (L-11).
    if (waits := needs_person(state)) == bool(run.waits_since_ms):
        return state
    now_ms, waited_ms = envelope.time_ms, run.waited_ms
    if waits:
        return change_run(state, waits_since_ms=now_ms)
    return change_run(state, waits_since_ms=0, waited_ms=waited_ms + max(0, now_ms - run.waits_since_ms))


def fold_all(state: ChatState, envelopes: Iterable[Envelope]) -> ChatState:
    for envelope in envelopes:
        state = fold(state, envelope)
    return state


# -- the conversation ---------------------------------------------------------------------------------------------


def _fold_user_message(state: ChatState, event: e.UserMessage, at: Envelope) -> ChatState:
    if event.edits:
        state = _truncate_history(state, event.edits)
    if event.queue_id:
        state = replace(state, queue=tuple(item for item in state.queue if item.id != event.queue_id))
    run = state.run
    if run is None:
        applies = event.source == "apply"
        trace, most = event.traceparent, state.options.max_turns
        new_run = RunState(at.time_ms, most, first=at.seq, last_message_seq=at.seq, applies=applies, traceparent=trace)
        state = replace(state, run=new_run, question=None)
        if not applies:
            state = _clear_last_run(state)
    elif event.source == "autopilot":
        stalled = run.stalled + 1 if run.tool_calls == run.calls_at_continuation else 0
        count, calls = run.continuations + 1, run.tool_calls
        state = change_run(state, continuations=count, stalled=stalled, calls_at_continuation=calls)
    elif event.source == "check":  # that nothing was written, or what failed; the run is not complete any more
        failed = [result for result in run.checked if result.failed]
        if failed:
            texts = (result.text for result in failed if result.command == DIAGNOSTICS)
            last_text, rounds = next(texts, run.diagnosed), run.check_rounds + 1
            state = change_run(state, check_rounds=rounds, diagnosed=last_text, checked=(), completed=False)
        else:
            state = change_run(state, reminded=True, completed=False)
    elif event.source == "person":
        if run.applies:
            state = _clear_last_run(state)
        state = change_run(state, active=at.epoch > 0, completed=False, applies=False, last_message_seq=at.seq)
    if not state.title and event.source == "person":
        state = replace(state, title=make_title(event.content))
    return say(state, UserEntry(event.content, at.seq, event.source, event.images))


def _clear_last_run(state: ChatState) -> ChatState:
    """The model is asked again: how its last run ended is history."""
    return replace(state, last_end="", last_why="", last_error=None)


def find_position(state: ChatState, seq: int) -> int | None:
    for index, entry in enumerate(state.history):
        if isinstance(entry, UserEntry) and entry.seq == seq and entry.source == "person":
            return index
    return None


def _truncate_history(state: ChatState, seq: int) -> ChatState:
    """Truncate the conversation before the user message `seq` (L-09)."""
    index = find_position(state, seq)
    if index is None:
        return state
    history = state.history.take_first(index)
    compaction = state.compaction if state.compaction.upto <= index else Compaction()
    compaction = replace(compaction, masked=min(compaction.masked, index))
    # A compaction that is under way is about what was cut: its summary must not bring that back.
    state = replace(state, history=history, calls=(), open_turn=None, answered_turn=None, question=None)
    state = replace(state, seen_files=select_seen_before(state.seen_files, seq))
    return _apply_compaction(replace(state, run=None, compacting=""), compaction)


def _apply_compaction(state: ChatState, compaction: Compaction) -> ChatState:
    return _recount(replace(state, compaction=compaction, transcript=rebuild(state.history, compaction)))


def _recount(state: ChatState) -> ChatState:
    return replace(state, context_tokens=0, context_chars=sum(weigh(entry) for entry in state.transcript))


def _fold_turn_start(state: ChatState, event: e.TurnStart, at: Envelope) -> ChatState:
    open_turn = OpenTurn(event.turn, event.reserved, event.final, epoch=at.epoch)
    state = replace(state, open_turn=open_turn, answered_turn=None, turn=max(state.turn, event.turn))
    if state.run is not None and state.run.applies:  # no model call to count, and no worker has begun
        return state
    state = replace(state, totals=replace(state.totals, turns=state.totals.turns + 1))
    turns, final = state.run.turns + 1 if state.run else 0, event.final
    state = change_run(state, active=True, turns=turns, final_turn=final, checked=(), has_lost_record=False)
    return change_run(state, incomplete="", paused=False)


def _fold_assistant_message(state: ChatState, event: e.AssistantMessage, at: Envelope) -> ChatState:
    entry = AssistantEntry(event.turn, event.content, event.reasoning, event.tool_requests)
    calls = tuple(Call(request) for request in event.tool_requests)
    finish = event.finish_reason or ("interrupted" if event.partial else "stop")
    answered_turn = AnsweredTurn(event.turn, event.usage, finish)
    state = replace(say(state, entry), calls=calls, open_turn=None, answered_turn=answered_turn)
    if event.usage is not None:
        state = _record_usage(state, event.usage)
    return change_run(state, spoke=True) if event.content.strip() else state


def _fold_turn_end(state: ChatState, event: e.TurnEnd, at: Envelope) -> ChatState:
    """The cost is spent with the message, or here: after an interrupt without one, and in logs of version 1."""
    answered_turn = state.answered_turn
    spent = answered_turn is not None and answered_turn.turn == event.turn and answered_turn.usage is not None
    state = replace(state, open_turn=None, answered_turn=None)
    return state if spent else _record_usage(state, event.usage)


def _record_usage(state: ChatState, usage: Usage) -> ChatState:
    """Record the cost of a model call, and the provider's own token count of the conversation."""
    state = spend(state, usage)
    if usage.input and not usage.estimated:
        state = replace(state, context_tokens=usage.input + usage.output - usage.reasoning, context_chars=0)
    return state


def _fold_turn_retry(state: ChatState, event: e.TurnRetry, at: Envelope) -> ChatState:
    state = spend(state, event.usage)
    open_turn = state.open_turn
    if open_turn is None:
        return state
    failures = open_turn.failures + (event.error_class != "worker_lost")
    down_s = open_turn.down_s + (event.delay_s if event.error_class in PROVIDER_DOWN else 0.0)
    open_turn = replace(open_turn, failures=failures, attempts=open_turn.attempts + 1, down_s=down_s)
    return replace(state, open_turn=open_turn)


def _fold_error(state: ChatState, event: e.SessionError, at: Envelope) -> ChatState:
    state = replace(state, last_error=Failure(event.error_class, event.message))
    if state.run is None:  # a compaction or an undo of an idle chat; made again and again it would never end
        return replace(state, compacting="", restoring=None)
    failed = not state.run.stop or (state.run.stop == "turn_cap" and state.open_turn is not None)
    return change_run(state, stop="error") if failed else state  # also if it was the last answer at the turn cap


def _fold_run_end(state: ChatState, event: e.RunEnd, at: Envelope) -> ChatState:
    if state.open_turn is not None:  # it was cut off and never settled: a crash must not hide its cost
        state = spend(state, state.open_turn.reserved)
    wall = state.run.compute_worked_ms(at.time_ms) if state.run else 0
    totals = replace(state.totals, wall_ms=state.totals.wall_ms + wall)
    aside = state.run is not None and state.run.applies and event.reason == "done" and state.last_end != ""
    state = replace(state, run=None, open_turn=None, answered_turn=None, calls=(), question=None)
    state = replace(state, compacting="", totals=totals)
    if aside:  # an applied change says nothing about how the model's last run ended, nor that its queue may go on
        return state
    failure = state.last_error if event.reason == "error" else None
    return replace(state, last_end=event.reason, last_why=event.why, last_error=failure)


def _fold_compaction_start(state: ChatState, event: e.CompactionStart, at: Envelope) -> ChatState:
    if state.open_turn is not None and event.trigger == "context_limit":
        state = replace(state, open_turn=replace(state.open_turn, forced_compaction=True))
    return change_run(replace(state, compacting=event.trigger, compaction_stopped=False), active=True)


def _fold_interrupted(state: ChatState, event: e.Interrupted, at: Envelope) -> ChatState:
    if state.run is None:
        return replace(state, compaction_stopped=bool(state.compacting))
    return change_run(state, interrupting=True, stop="interrupted")


def _fold_compaction_complete(state: ChatState, event: e.CompactionComplete, at: Envelope) -> ChatState:
    was_compacting, state = bool(state.compacting), replace(state, compacting="")
    if not event.success:
        return replace(state, compaction_failures=state.compaction_failures + 1)
    if not was_compacting:
        return state
    longest = len(state.history)
    compaction = Compaction(min(event.upto, longest), event.summary, event.kept, min(event.masked, longest))
    return replace(_apply_compaction(state, compaction), compaction_failures=0)


def _fold_model_call(state: ChatState, event: e.ModelCall, at: Envelope) -> ChatState:
    state = spend(state, event.usage)
    if event.purpose == "title":
        return replace(state, titled=True)
    return change_run(state, summarized=True) if event.purpose == "summary" else state


# -- the rest -----------------------------------------------------------------------------------------------------


def _fold_queue_changed(state: ChatState, event: e.QueueChanged, at: Envelope) -> ChatState:
    queue = list(state.queue)
    target_item = next((item for item in queue if item.id == event.id), None)
    match event.op:
        case "added":
            stopped = state.run is not None and state.run.interrupting
            item = QueueItem(event.id, event.content, event.delivery, event.images, stopped, event.traceparent)
            queue.append(item)
        case "edited":
            queue = [replace(item, content=event.content) if item is target_item else item for item in queue]
        case "deleted":
            queue = [item for item in queue if item is not target_item]
        case "promoted" if target_item is not None:
            queue.remove(target_item)
            queue.insert(0, replace(target_item, delivery="steering"))
    return replace(state, queue=tuple(queue))


def change_options(options: ChatOptions, changes: dict[str, Any]) -> ChatOptions:
    """The options with some of them changed; msgspec.ValidationError if a value does not fit. Another root is another
    folder: which one has to be said again, and so has the world of it."""
    if "root" in changes:
        changes = {"root_id": "", "world": "", **changes}
    return msgspec.convert(msgspec.to_builtins({**msgspec.to_builtins(options), **changes}), ChatOptions)


def _fold_options_changed(state: ChatState, event: e.OptionsChanged, at: Envelope) -> ChatState:
    try:
        options = change_options(state.options, event.changes)
    except msgspec.ValidationError:
        return state
    if options.model != state.options.model:
        state = _recount(state)
    return replace(state, options=options)


def _fold_limit_reached(state: ChatState, event: e.LimitReached, at: Envelope) -> ChatState:
    """The turn cap leaves room for a last answer; a budget does not, and neither does a second limit."""
    is_turn_cap = False
    if (run := state.run) is not None and not run.stop:
        is_turn_cap = event.kind == "turns" and event.scope == "run" and run.turns >= run.turn_limit
    return change_run(state, stop="turn_cap" if is_turn_cap else "budget", limit=event)


def _fold_limit_extended(state: ChatState, event: e.LimitExtended, at: Envelope) -> ChatState:
    if state.run is None:
        return state
    warned = tuple(item for item in state.run.warned if item != ("run", "turns"))
    goes_on = state.run.stop == "turn_cap" and state.last_error is None  # after an error only the end comes (L-12)
    stop = "" if goes_on else state.run.stop
    return change_run(state, turn_limit=state.run.turn_limit + event.turns, warned=warned, stop=stop)


def _fold_guard_notice(state: ChatState, event: e.GuardNotice, at: Envelope) -> ChatState:
    if event.action == "stop":
        return change_run(state, stop="guard")
    return change_run(state, nudged_at=state.run.signature_count if state.run else -1)


def _fold_record_lost(state: ChatState, event: e.RecordLost, at: Envelope) -> ChatState:
    """Unknown options are never the default ones: a chat that was made read-only must not reopen as one that edits."""
    if at.seq == 1:
        locked = replace(state.options, mode="read-only")
        failure = Failure("damaged", f"The first record of this chat cannot be read: {event.reason}")
        return replace(state, chat=at.chat, options=locked, creation_lost=True, last_error=failure)
    if event.lost_type in ("", e.OptionsChanged.TYPE):  # of a record that is missing, the type is not known
        state = replace(state, options=replace(state.options, mode="read-only"))
    return change_run(state, has_lost_record=True)


def _fold_model_notice(state: ChatState, event: e.ModelNotice, at: Envelope) -> ChatState:
    """Most notices are only for readers; some say how the model's answer ended."""
    if event.kind in ("incomplete", "empty_answer"):
        return change_run(state, incomplete=event.text)
    return change_run(state, paused=True) if event.kind == "paused" else state


MAX_LOST = 3  # a check that takes its worker with it this often is not tried again


def _fold_files_changed(state: ChatState, event: e.FilesChanged, at: Envelope) -> ChatState:
    if state.run is None:
        return state

    def is_work(file: FileChange) -> bool:
        """True if a change is part of the requested work: no build output, nothing of git's own, no folder."""
        file_state = file.after or file.before
        is_git_internal = file.path == ".git" or file.path.startswith(".git/")
        return not file.ignored and not is_git_internal and (file_state is None or file_state.kind == "file")

    touched = {file.path: file.action for file in event.files if is_work(file)}
    if not touched:
        return state
    changed_paths = [path for path in state.run.changed_files if path not in touched]
    changed_paths += [path for path, action in touched.items() if action != "deleted"]
    return change_run(state, wrote=True, changed_files=tuple(changed_paths[-MAX_CHANGED:]))


def _end_restore(state: ChatState, event: e.Restored, at: Envelope) -> ChatState:
    is_finished = state.restoring is not None and state.restoring.restore == event.restore
    return replace(state, restoring=None) if is_finished else state


def _fold_check_started(state: ChatState, event: e.CheckStarted, at: Envelope) -> ChatState:
    open_check = OpenCheck(event.check, event.command, event.attempt, event.paths, event.plan)
    return change_run(replace(state, checks=state.checks + 1), active=True, check=open_check)


def _fold_check_completed(state: ChatState, event: e.CheckCompleted, at: Envelope) -> ChatState:
    run = state.run
    if run is None or run.check is None or run.check.check != event.check:
        return state
    result = Checked(run.check.command, event.success, take_tail(event.result), event.synthetic)
    lost_count = run.checks_lost + (event.synthetic == "lost")
    again = event.synthetic == "lost" and lost_count < MAX_LOST
    checked = run.checked if again else (*run.checked, result)
    return change_run(state, check=None, checks_lost=lost_count, checked=checked)


_APPLY: dict[type[Event], Fold] = {
    e.SessionCreated: lambda state, event, at: replace(
        state, chat=at.chat, options=event.options, owner=event.owner, parent=event.parent, created_ms=at.time_ms
    ),
    # Seen files and the shell of the other machine do not apply here: exported variables could even change commands.
    e.SessionImported: lambda state, event, at: replace(state, shell=Shell(), seen_files={}),
    e.UserMessage: _fold_user_message,
    e.TurnStart: _fold_turn_start,
    e.AssistantMessage: _fold_assistant_message,
    e.TurnEnd: _fold_turn_end,
    e.TurnRetry: _fold_turn_retry,
    e.TaskComplete: lambda state, event, at: change_run(
        state, completed=True, spoke=bool(event.summary or (state.run and state.run.spoke))
    ),
    e.SessionError: _fold_error,
    e.Interrupted: _fold_interrupted,
    e.RunEnd: _fold_run_end,
    e.SessionRewound: lambda state, event, at: _truncate_history(state, event.message),
    e.CompactionStart: _fold_compaction_start,
    e.CompactionComplete: _fold_compaction_complete,
    e.ModelCall: _fold_model_call,
    e.QueueChanged: _fold_queue_changed,
    e.OptionsChanged: _fold_options_changed,
    e.TitleChanged: lambda state, event, at: replace(state, title=event.title, titled=True),
    e.LimitWarning: lambda state, event, at: change_run(
        state, warned=(*(state.run.warned if state.run else ()), (event.scope, event.kind))
    ),
    e.LimitReached: _fold_limit_reached,
    e.LimitExtended: _fold_limit_extended,
    e.GuardNotice: _fold_guard_notice,
    e.ModelNotice: _fold_model_notice,
    e.SandboxNotice: lambda state, event, at: replace(state, sandbox_notice=event.text),
    e.PlanUpdated: lambda state, event, at: replace(state, plan=event.steps),
    e.RecordLost: _fold_record_lost,
    **CALLS,
    e.CheckpointCreated: lambda state, event, at: change_run(state, checkpoint=True),
    e.FilesChanged: _fold_files_changed,
    e.RestoreRequested: lambda state, event, at: replace(state, restoring=event),
    **dict.fromkeys((e.Undone, e.Redone, e.ChangesKept), _end_restore),
    e.CheckStarted: _fold_check_started,
    e.CheckCompleted: _fold_check_completed,
}
NO_EFFECT: tuple[type[Event], ...] = (e.WorkspaceConflict, e.GitBranchCreated)
"""Recorded events that are facts for readers and change no state; a test holds both lists against the union."""
