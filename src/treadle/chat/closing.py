"""Closes open calls and turns. An open call that will not run any more, because of an interrupt, an edit, a steering
message, a deadline or the end of a run, gets a synthetic result that says why (law 4, A-05)."""

from collections.abc import Sequence

from treadle.chat.budget import explain_stop
from treadle.chat.state import AnsweredTurn, Call, ChatState, is_asking_midway
from treadle.protocol import events as e
from treadle.protocol.content import Usage

_WHY = {
    "interrupted": "The user stopped the run before this call was done.",
    "superseded": "The user changed an earlier message, so this call was not carried out.",
    "steering": "The user sent a new message instead of answering, so this call was not carried out.",
    "deadline": "Nobody answered this call in time.",
    "budget": "The budget of the run was used up before this call was carried out.",
    "error": "The run ended with an error before this call was carried out.",
    "guard": "The run was stopped before this call was carried out.",
    "task_complete": "The task was completed before this call was carried out.",
    "turn_cap": "The run reached its limit of turns before this call was carried out.",
    "incomplete": "The model's answer was not complete, and the run ended before this call was carried out.",
    "record_lost": "A record of this run was lost; it is not known whether this call was carried out.",
    "fork": "The chat was copied at this point; this call was not carried out in the copy.",
    "import": "The chat was brought here from elsewhere at this point; this call was not carried out here.",
}
RECORD_LOST = (
    "A record of this run was lost, so that it is not known what it did last; it was ended, and nothing was done "
    "again. Look at the files before you go on."
)
"""Why a run is not carried on whose log has a gap: it may have been stopped there, or have begun something."""
_UNKNOWN = " It had been started; it is not known whether it took effect."
_TRIED = " It was being tried on a copy of the project, and could use the network; it is not known what it did there."


def close_call(call: Call, reason: str) -> list[e.Event]:
    events: list[e.Event] = []
    match call.phase, call.action:
        case "done", _:
            return []
        case "asking", action if action is not None:
            events.append(e.PermissionCompleted(action.action, "deny", by="treadle", synthetic=reason))
        case "waiting", action if action is not None and action.kind == "external_tool":
            events.append(e.ExternalToolCompleted(call.key, True, by="treadle", synthetic=reason))
        case "waiting", action if action is not None:
            events.append(e.UserInputCompleted(action.action, by="treadle", synthetic=reason))
    text = _WHY.get(reason, "This call was not carried out.")
    if call.phase in ("started", "answered") or (call.phase == "waiting" and is_asking_midway(call)):
        text += _UNKNOWN
    elif call.trial_began_ms and (call.trial or {}).get("network"):
        text += _TRIED
    events.append(e.ExecutionComplete(call.key, False, error=text, result_summary=reason, synthetic=reason))
    return events


def close_check(state: ChatState) -> tuple[e.Event, ...]:
    """End a check that has begun and will not be finished."""
    if state.run is None or state.run.check is None:
        return ()
    return (e.CheckCompleted(state.run.check.check, False, synthetic="stopped"),)


def close_calls(state: ChatState, reason: str) -> tuple[e.Event, ...]:
    """Close every open call, and the loop's own question if there is one."""
    events = [event for call in state.calls for event in close_call(call, reason)]
    if state.question is not None:
        events.append(e.UserInputCompleted(state.question.action, by="treadle", synthetic=reason))
    return tuple(events)


def end_run(state: ChatState, reason: e.EndReason) -> tuple[e.Event, ...]:
    """Law 4: every open call is answered on every exit, and what was begun is ended."""
    end_events: list[e.Event] = []
    if state.compacting:
        end_events.append(e.CompactionComplete(state.compacting, False, error=reason))
    end_events += close_check(state)
    if state.open_turn is not None:
        end_events.append(e.TurnEnd(state.open_turn.turn, finish_reason=reason))
    elif (turn_end := end_turn(state)) is not None:
        end_events.append(turn_end)
    run = state.run
    closing_events = close_calls(state, "record_lost" if run is not None and run.has_lost_record else reason)
    explanation = explain_stop(run.limit, reason) if run is not None and run.limit is not None else ""
    if reason == "incomplete" and run is not None:
        explanation = run.incomplete
    return (*end_events, *insert_turn_end(state, closing_events), e.RunEnd(reason, explanation))


def end_turn(state: ChatState) -> e.TurnEnd | None:
    return None if state.answered_turn is None or state.calls else _build_turn_end(state.answered_turn)


def insert_turn_end(state: ChatState, events: Sequence[e.Event]) -> tuple[e.Event, ...]:
    """The events, with the end of the turn behind the result of its last call, if they have that."""
    if state.answered_turn is None or not events or any(isinstance(event, e.TurnEnd) for event in events):
        return tuple(events)
    waited_for = {call.key for call in state.calls if call.phase != "done"}
    for place, event in enumerate(events if waited_for else (), 1):
        if isinstance(event, e.ExecutionComplete):
            waited_for.discard(event.call)
            if not waited_for:
                return (*events[:place], _build_turn_end(state.answered_turn), *events[place:])
    return tuple(events)


def _build_turn_end(answered_turn: AnsweredTurn) -> e.TurnEnd:
    return e.TurnEnd(answered_turn.turn, answered_turn.usage or Usage(), answered_turn.finish_reason)
