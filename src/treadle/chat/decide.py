"""decide(state) → the next step: the program counter of a chat (D-01). Pure: every worker that holds the lease arrives
at the same step, regardless of the workers before it.

A step is either an effect (call the model, run calls, check, compact, summarise), a record of something the rules
decided themselves, or the end: wait for someone, or stay idle."""

from collections.abc import Callable
from typing import Literal

import msgspec

from treadle.chat import guard
from treadle.chat.closing import RECORD_LOST, end_run, end_turn
from treadle.chat.completion import choose_continuation, needs_summary
from treadle.chat.fold_calls import CONTINUE, STOP
from treadle.chat.state import (
    Call,
    ChatState,
    OpenCheck,
    RunState,
    can_start_queue,
    choose_next_queued,
    list_runnable_calls,
    needs_action,
    to_user_message,
)
from treadle.chat.transcript import MAX_FAILURES, compute_threshold, estimate
from treadle.chat.verification import verify
from treadle.protocol import events as e
from treadle.protocol.content import AssistantEntry

WARN_TURNS = 3


class RunLimits(msgspec.Struct, frozen=True):
    """The facts about the model and the tools that the rules need; data, handed in."""

    window: int = 32_768
    max_output: int = 4_096
    overhead_chars: int = 0


class CallModel(msgspec.Struct, frozen=True):
    final: bool = False


class RunCalls(msgspec.Struct, frozen=True):
    calls: tuple[Call, ...]


class Compact(msgspec.Struct, frozen=True):
    trigger: e.Trigger


class Summarize(msgspec.Struct, frozen=True):
    pass


class RunCheck(msgspec.Struct, frozen=True):
    """See whether the work is as good as the model says (L-16); one that has begun is to be finished."""

    check: OpenCheck


class Restore(msgspec.Struct, frozen=True):
    """Undo, redo or keep what was asked for (W-02)."""

    request: e.RestoreRequested


class AppendEvents(msgspec.Struct, frozen=True):
    events: tuple[e.Event, ...]


class Wait(msgspec.Struct, frozen=True):
    """Someone outside must act first."""


class StayIdle(msgspec.Struct, frozen=True):
    pass


Step = CallModel | RunCalls | Compact | Summarize | RunCheck | Restore | AppendEvents | Wait | StayIdle


def decide(state: ChatState, limits: Callable[[], RunLimits]) -> Step:
    """`limits` is asked only where it matters: between two turns."""
    run = state.run
    if state.creation_lost:
        return StayIdle()
    if run is None:
        return _decide_idle(state)
    if (turn_end := end_turn(state)) is not None:
        return AppendEvents((turn_end,))
    if run.interrupting:
        return _append_run_end(state, "interrupted")
    if run.has_lost_record and not run.stop:
        return AppendEvents((e.SessionError("record_lost", RECORD_LOST),))
    if state.restoring is not None and not run.stop:
        return Restore(state.restoring)
    if state.compacting and not _has_failed(run):
        return Compact(state.compacting)
    # Open calls are closed instead of run if the run failed, or if a last answer without tools contains calls.
    if state.calls and not (_has_failed(run) or (run.stop == "turn_cap" and run.final_turn)):
        return Wait() if needs_action(state) else RunCalls(list_runnable_calls(state))
    if state.question is not None and not run.stop:
        return Wait()
    if run.check is not None and not run.stop:
        return RunCheck(run.check)
    if run.applies and not run.stop:
        return _append_run_end(state, "done")
    # The call for a last answer at the turn cap that has begun and not ended is still to be made.
    if state.open_turn is not None and (not run.stop or (run.stop == "turn_cap" and state.open_turn.final)):
        return CallModel(state.open_turn.final)
    return _decide_between_turns(state, run, limits)


def _decide_idle(state: ChatState) -> Step:
    if state.restoring is not None:
        return Restore(state.restoring)
    if state.compacting and state.compaction_stopped:
        return AppendEvents((e.CompactionComplete(state.compacting, False, error="interrupted"),))
    if state.compacting:
        return Compact(state.compacting)
    item = choose_next_queued(state)
    if item is not None and can_start_queue(state):
        return AppendEvents((to_user_message(item, "queued"),))
    return StayIdle()


def _has_failed(run: RunState) -> bool:
    return run.stop in ("budget", "error", "guard")


def _decide_between_turns(state: ChatState, run: RunState, limits: Callable[[], RunLimits]) -> Step:
    if run.stop == "turn_cap":
        if state.options.limit_rule == "answer" and not run.final_turn:
            return CallModel(final=True)
        return _append_run_end(state, "turn_cap")
    if run.stop:
        return _append_run_end(state, run.stop)
    if run.completed:
        return _find_verification_step(state, run) or _append_run_end(state, "task_complete")
    last = state.history.last
    if isinstance(last, AssistantEntry) and not last.calls and not run.paused:
        return _decide_after_answer(state, run)
    if (step := _find_guard_step(state, run)) is not None:
        return step
    # Steering messages are put in before the next model call (L-08).
    if messages := tuple(to_user_message(item, "steering") for item in state.queue if item.delivery == "steering"):
        return AppendEvents(messages)
    return _find_cap_step(state, run) or _find_compaction_step(state, limits()) or CallModel(final=False)


def _append_run_end(state: ChatState, reason: e.EndReason) -> AppendEvents:
    return AppendEvents(end_run(state, reason))


def _decide_after_answer(state: ChatState, run: RunState) -> Step:
    if text := choose_continuation(state, run):
        return AppendEvents((e.UserMessage(text, source="autopilot"),))
    if run.incomplete and not run.summarized and not needs_summary(state, run):
        return _append_run_end(state, "incomplete")
    if (step := _find_verification_step(state, run)) is not None:
        return step
    if needs_summary(state, run):
        return Summarize()
    return _append_run_end(state, "done")


def _find_verification_step(state: ChatState, run: RunState) -> Step | None:
    """Return the step that verification requires before the run may end; None if there is none."""
    requirement = verify(state, run)
    if requirement is None:
        return None
    return RunCheck(requirement) if isinstance(requirement, OpenCheck) else AppendEvents((requirement,))


def _find_guard_step(state: ChatState, run: RunState) -> Step | None:
    if (finding := guard.find(run.signatures)) is None:
        return None
    text = guard.describe(finding)
    action: Literal["nudge", "stop", "ask"] = "nudge"
    following: e.Event = e.UserMessage(text, source="guard")
    if finding.repeats >= guard.STOP_AT and state.options.guard_rule == "ask":
        action = "ask"
        following = _build_question(state, "guard", "The model repeats itself without progress. Go on?")
    elif finding.repeats >= guard.STOP_AT:
        action = "stop"
        following = e.SessionError("loop_guard", "Stopped: the model repeated itself without progress.")
    elif run.nudged_at > run.signature_count - finding.length * finding.repeats:
        return None  # it was nudged in this streak already
    return AppendEvents((e.GuardNotice(action, finding.length, finding.repeats, text), following))


def _build_question(state: ChatState, purpose: Literal["limit", "guard"], question: str) -> e.UserInputRequested:
    return e.UserInputRequested(f"{purpose}.{state.head + 1}", question, (CONTINUE, STOP), purpose)


def _find_cap_step(state: ChatState, run: RunState) -> Step | None:
    remaining_turns = run.turn_limit - run.turns
    if remaining_turns <= 0:
        return AppendEvents(_build_cap_events(state, run))
    if remaining_turns == WARN_TURNS < run.turn_limit and ("run", "turns") not in run.warned:
        return AppendEvents((e.LimitWarning("turns", run.turns, run.turn_limit),))
    return None


def _build_cap_events(state: ChatState, run: RunState) -> tuple[e.Event, ...]:
    reached = e.LimitReached("turns", run.turns, run.turn_limit)
    match state.options.limit_rule:
        case "ask" if state.options.extends_itself:
            return (e.LimitExtended(state.options.max_turns, "autopilot"),)
        case "ask":
            question = f"The run has used its {run.turn_limit} turns. Go on for {state.options.max_turns} more?"
            return (_build_question(state, "limit", question),)
        case "answer":
            return (reached,)
        case "error":
            return (reached, e.SessionError("turn_cap", f"The run used its {run.turn_limit} turns and is not done."))


def _find_compaction_step(state: ChatState, limits: RunLimits) -> Step | None:
    window = state.options.context_window or limits.window
    used_tokens = estimate(state, limits.overhead_chars)
    if used_tokens < compute_threshold(window, limits.max_output) or state.compaction_failures >= MAX_FAILURES:
        return None
    return None if len(state.transcript) < 4 else AppendEvents((e.CompactionStart("threshold", used_tokens),))
