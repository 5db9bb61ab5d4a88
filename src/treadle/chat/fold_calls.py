"""Folding what tools and people do: intents, results, approvals, clients' tools, questions, jobs. A call goes from
request to its one result; when all of a turn have theirs, they enter the conversation together."""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from treadle.base.host_patterns import join_choices, make_choice
from treadle.base.types import CallKey
from treadle.chat.guard import WINDOW, compute_signature
from treadle.chat.history import weigh
from treadle.chat.state import ELICITATION, Call, ChatState, OpenJob, SeenFile, is_asking_midway
from treadle.chat.transcript import attach
from treadle.protocol import events as e
from treadle.protocol.content import Entry, ResultsEntry, ToolResult, Usage, UserEntry
from treadle.protocol.events import Envelope, Event, OpenAction
from treadle.protocol.options import NetworkChoice
from treadle.protocol.permissions import NETWORK_TOOL
from treadle.protocol.tools import JOB_TOOL, STOP_TOOL, parse_job_handle

KEPT = 2_000  # Most files and outputs that are remembered. An evicted one counts as never seen.
MAX_SIGHTS = 16  # how many messages back it is remembered how a file was seen before them
MAX_JOBS = 100
STOP = "stop"
CONTINUE = "continue"  # the answer that a person may give to a question of the loop itself
T = TypeVar("T")
PICTURES = "The pictures of the results above, in their order."
TITLE_LENGTH = 60
Fold = Callable[[ChatState, Any, Envelope], ChatState]  # the function that applies one type of event


def change_run(state: ChatState, **changes: Any) -> ChatState:
    return state if state.run is None else replace(state, run=replace(state.run, **changes))


def change_call(state: ChatState, key: CallKey, **changes: Any) -> ChatState:
    """Change an open call. A call that has its result does not change any more: later events about it are ignored."""
    position = find_place(state, key)
    if position is None or state.calls[position].phase == "done":
        return state
    new_call = replace(state.calls[position], **changes)
    return replace(state, calls=(*state.calls[:position], new_call, *state.calls[position + 1 :]))


def find_place(state: ChatState, key: CallKey) -> int | None:
    """Where an open call stands. Its key tells: a turn may have hundreds of calls, and each has several events."""
    place = key.rpartition(".")[2]
    position = int(place) if place.isdecimal() and len(place) < 10 else len(state.calls)
    return position if position < len(state.calls) and state.calls[position].key == key else None


def spend(state: ChatState, usage: Usage) -> ChatState:
    if usage == Usage():
        return state
    state = replace(state, totals=replace(state.totals, usage=state.totals.usage + usage))
    return state if state.run is None else change_run(state, usage=state.run.usage + usage)


def say(state: ChatState, entry: Entry) -> ChatState:
    history, transcript = state.history.append(entry), attach(state.transcript, entry)
    return replace(state, history=history, transcript=transcript, context_chars=state.context_chars + weigh(entry))


def make_title(content: str) -> str:
    first = next((line.strip() for line in content.splitlines() if line.strip()), "")
    return first if len(first) <= TITLE_LENGTH else first[: TITLE_LENGTH - 1].rstrip() + "…"


def _close_action(state: ChatState, action: str, at: Envelope) -> ChatState:
    """An action is no longer open; if a command closed it, some worker must take the chat up again. A call that
    waited becomes one whose outcome is unknown until its result follows: its record may be lost."""
    if state.question is not None and state.question.action == action:
        state = replace(state, question=None)
    for call in state.calls:
        if call.action is not None and call.action.action == action:
            phase = "started" if call.phase == "waiting" else call.phase
            state = change_call(state, call.key, action=None, phase=phase)
    return change_run(state, active=at.epoch > 0)


def _fold_execution_start(state: ChatState, event: e.ExecutionStart, at: Envelope) -> ChatState:
    more = 0 if any(call.key == event.call and call.phase == "answered" for call in state.calls) else 1
    state = replace(state, totals=replace(state.totals, tool_calls=state.totals.tool_calls + more))
    writes = event.effect not in ("read", "edit")  # changes by file tools are recorded as such
    state = _fold_trial_over(state, event.call, at)
    state = change_call(state, event.call, phase="started", arguments=event.arguments, plan=event.plan, writes=writes)
    return change_run(state, active=True, tool_calls=state.run.tool_calls + more if state.run else 0)


def _fold_trial_start(state: ChatState, event: e.TrialStart, at: Envelope) -> ChatState:
    state = _fold_trial_over(state, event.call, at)
    return change_run(change_call(state, event.call, trial=event.plan or {}, trial_began_ms=at.time_ms), active=True)


def _fold_trial_over(state: ChatState, key: CallKey, at: Envelope) -> ChatState:
    """End the trial of a call, because its result was asked about or is carried out, and add up its time."""
    place = find_place(state, key)
    if place is None or not state.calls[place].trial_began_ms:
        return state
    return change_call(state, key, tried_ms=state.calls[place].compute_trial_ms(at.time_ms), trial_began_ms=0)


def _fold_execution_complete(state: ChatState, event: e.ExecutionComplete, at: Envelope) -> ChatState:
    result = ToolResult(event.call, event.result if event.success else event.result or event.error, event.success)
    # A refused call ran in no sandbox. For a command on a view, or in a compared tree, the next event has the effect.
    happened = not event.effect and (event.success or bool(event.sandbox) or event.synthetic == "unknown")
    if happened and any(call.key == event.call and call.writes for call in state.calls):
        state = change_run(state, wrote=True)
    state = change_call(state, event.call, phase="done", result=result, action=None, images=event.images)
    state = _note_left_behind(state, event, at)
    return _finish_calls(state) if state.calls and all(call.phase == "done" for call in state.calls) else state


def _note_left_behind(state: ChatState, event: e.ExecutionComplete, at: Envelope) -> ChatState:
    if event.shell is not None:
        state = replace(state, shell=event.shell)
    if event.output:
        state = replace(state, outputs=_keep_newest({**state.outputs, event.call: event.output}))
    if event.seen:
        seen_files = dict(state.seen_files)
        message_seq = state.run.last_message_seq if state.run else at.seq
        for file in event.seen:
            older_versions = (sight for sight in seen_files.pop(file.path, ()) if sight.seq < message_seq)
            seen_files[file.path] = (*older_versions, SeenFile(file.digest, at.seq))[-MAX_SIGHTS:]
        state = replace(state, seen_files=_keep_newest(seen_files))
    return state


def select_seen_before(seen_files: dict[str, tuple[SeenFile, ...]], seq: int) -> dict[str, tuple[SeenFile, ...]]:
    """Return the files that were known when the message `seq` came. Files shown after it have left the conversation."""
    older_versions = {path: tuple(sight for sight in sights if sight.seq < seq) for path, sights in seen_files.items()}
    return {path: sights for path, sights in older_versions.items() if sights}


def _keep_newest(entries: dict[str, T]) -> dict[str, T]:
    for key in list(entries)[: max(0, len(entries) - KEPT)]:
        del entries[key]
    return entries


def _finish_calls(state: ChatState) -> ChatState:
    """Every call has its result: they enter the conversation together, in the model's order (L-04)."""
    done = [(call.request, call.result) for call in state.calls if call.result is not None]
    if state.run is not None:
        new = tuple(compute_signature(request.name, request.arguments, result.text) for request, result in done)
        signatures = (*state.run.signatures, *new)[-WINDOW:]
        state = change_run(state, signatures=signatures, signature_count=state.run.signature_count + len(new))
    number = state.calls[0].key.partition(".")[0]
    turn, results = int(number) if number.isdecimal() else state.turn, tuple(result for _, result in done)
    new_state = say(state, ResultsEntry(turn, results))
    if images := tuple(image for call in state.calls for image in call.images):
        new_state = say(new_state, UserEntry(PICTURES, source="tool", images=images))
    return replace(new_state, calls=())


def _fold_permission_requested(state: ChatState, event: e.PermissionRequested, at: Envelope) -> ChatState:
    call = next((call for call in state.calls if call.key == event.call), None)
    name, arguments = ("", {}) if call is None else (call.request.name, decode_arguments(call))
    action = OpenAction(event.action, "permission", event.call, name, arguments, event.shown, ("allow", "deny"))
    fields = ("hash", "severity", "reason", "offers", "network")
    action = replace(action, **{field: getattr(event, field) for field in fields})
    state = change_run(_fold_trial_over(state, event.call, at), active=True)
    return change_call(state, event.call, phase="asking", action=action)


def decode_arguments(call: Call) -> dict[str, Any]:
    """The arguments of a call as the model sent or a person changed them; empty if they are no JSON object."""
    if call.arguments is not None:
        return call.arguments
    try:
        return msgspec.json.decode(call.request.arguments, type=dict[str, Any])
    except (msgspec.MsgspecError, RecursionError, ValueError):
        return {}


def _fold_permission_completed(state: ChatState, event: e.PermissionCompleted, at: Envelope) -> ChatState:
    for call in state.calls:
        if call.phase == "asking" and call.action is not None and call.action.action == event.action:
            arguments = event.arguments if event.arguments is not None else call.arguments
            # After a refusal comes the call's result. If that record was lost, the call is asked for again, not run.
            phase = "approved" if event.decision == "allow" else "requested"
            seal = call.action.hash if event.arguments is None else ""
            network = _grant_network(call.network, call.action, event)
            state = change_call(state, call.key, phase=phase, arguments=arguments, seal=seal, network=network)
            if event.decision == "deny" and event.by not in ("policy", "treadle"):
                state = _note_refusal(state, call)
    if event.rule is not None and event.rule.scope == "chat":
        state = replace(state, options=replace(state.options, rules=(*state.options.rules, event.rule)))
    return _close_action(state, event.action, at)


def _note_refusal(state: ChatState, call: Call) -> ChatState:
    """A person who refuses a call that commits the changes of a job refuses these changes (W-09)."""
    if call.request.name not in (JOB_TOOL, STOP_TOOL):
        return state
    handle = parse_job_handle(decode_arguments(call))
    jobs, pending = (
        tuple(replace(job, refused=call.key) if job.job == handle else job for job in group)
        for group in (state.jobs, state.pending_jobs)
    )
    return replace(state, jobs=jobs, pending_jobs=pending)


def _grant_network(previous_choice: NetworkChoice, action: OpenAction, answer: e.PermissionCompleted) -> NetworkChoice:
    if answer.decision == "deny":
        return previous_choice
    hosts = (answer.rule.pattern,) if answer.rule is not None and answer.rule.tool == NETWORK_TOOL else ()
    return join_choices(previous_choice, make_choice((*action.network, *hosts)))


def _fold_external_requested(state: ChatState, event: e.ExternalToolRequested, at: Envelope) -> ChatState:
    key, due = event.call, at.time_ms + round(event.deadline_s * 1000) if event.deadline_s else 0
    action = OpenAction(key, "external_tool", key, event.name, event.arguments)
    action = replace(action, tool_call_id=event.tool_call_id, deadline_ms=due)
    return change_call(state, key, phase="waiting", action=action)


def _fold_input_requested(state: ChatState, event: e.UserInputRequested, at: Envelope) -> ChatState:
    question, options = event.question, event.options
    action = OpenAction(event.action, "user_input", event.call, event.purpose, text=question, options=options)
    if event.call:
        plan = {"plan": event.plan} if event.purpose == ELICITATION else {}
        return change_call(state, event.call, phase="waiting", action=action, **plan)
    return change_run(replace(state, question=action), active=True)


def _fold_input_completed(state: ChatState, event: e.UserInputCompleted, at: Envelope) -> ChatState:
    question = state.question
    going_on = next((call for call in state.calls if is_asking_midway(call, event.action)), None)
    state = _close_action(state, event.action, at)
    if going_on is not None and not event.synthetic:
        return change_call(state, going_on.key, phase="answered", answers=(*going_on.answers, event.answer))
    if question is None or question.action != event.action or state.run is None:
        return state
    if event.answer == STOP:
        return change_run(state, stop="turn_cap" if question.name == "limit" else "guard")
    return change_run(state, signatures=()) if question.name == "guard" else state


def _fold_subagent_completed(state: ChatState, event: e.SubagentCompleted, at: Envelope) -> ChatState:
    """Add the usage of a sub-agent to its parent's (L-11)."""
    calls = state.totals.tool_calls + event.tool_calls
    state = spend(replace(state, totals=replace(state.totals, tool_calls=calls)), event.usage)
    return change_run(state, tool_calls=state.run.tool_calls + event.tool_calls if state.run else 0)


def _fold_job_started(state: ChatState, event: e.JobStarted, at: Envelope) -> ChatState:
    job = OpenJob(event.job, event.command, event.place, event.host, at.time_ms)
    return replace(state, jobs=(*_remove_job(state.jobs, event.job), job)[-MAX_JOBS:])


def _remove_job(jobs: tuple[OpenJob, ...], job: str) -> tuple[OpenJob, ...]:
    return tuple(each for each in jobs if each.job != job)


def _fold_job_ended(state: ChatState, event: e.JobEnded, at: Envelope) -> ChatState:
    pending = _remove_job(state.pending_jobs, event.job)
    if event.pending:
        open_job = next((job for job in state.jobs if job.job == event.job), OpenJob(event.job, began_ms=at.time_ms))
        pending = (*pending, replace(open_job, pending=event.pending))[-MAX_JOBS:]
    return replace(state, jobs=_remove_job(state.jobs, event.job), pending_jobs=pending)


CALLS: Mapping[type[Event], Fold] = {
    e.TrialStart: _fold_trial_start,
    e.ExecutionStart: _fold_execution_start,
    e.ExecutionComplete: _fold_execution_complete,
    e.PermissionRequested: _fold_permission_requested,
    e.PermissionCompleted: _fold_permission_completed,
    e.ExternalToolRequested: _fold_external_requested,
    e.ExternalToolCompleted: lambda state, event, at: _close_action(state, event.call, at),
    e.UserInputRequested: _fold_input_requested,
    e.UserInputCompleted: _fold_input_completed,
    e.SubagentCompleted: _fold_subagent_completed,
    e.JobStarted: _fold_job_started,
    e.JobEnded: _fold_job_ended,
    e.JobSettled: lambda state, event, at: replace(state, pending_jobs=_remove_job(state.pending_jobs, event.job)),
}
