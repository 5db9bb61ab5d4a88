"""The program counter (D-01): which step follows from which state."""

import pytest

from tests.unit.chat.logs import answer, chat, make_message, ran
from treadle.base.types import make_call_key
from treadle.chat.decide import AppendEvents, CallModel, Compact, RunCalls, RunLimits, StayIdle, Summarize, Wait, decide
from treadle.chat.state import ChatState
from treadle.protocol import events as e
from treadle.protocol.content import Usage
from treadle.protocol.options import ChatOptions

LIMITS = RunLimits(window=100_000, max_output=1_000)
KEY = make_call_key(1, 0)


def step(state: ChatState, limits: RunLimits = LIMITS) -> object:
    return decide(state, lambda: limits)


def list_recorded_types(state: ChatState) -> list[str]:
    """The types of what the rules record themselves, with the reason of an end."""
    next_step = decide(state, lambda: LIMITS)
    assert isinstance(next_step, AppendEvents), next_step
    return [f"{x.TYPE}:{x.reason}" if isinstance(x, e.RunEnd) else x.TYPE for x in next_step.events]


def make_capped_chat(rule: str, *more: e.Event) -> ChatState:
    options = ChatOptions(max_turns=1, on_limit=rule)  # type: ignore[arg-type]
    return chat(make_message(), *answer(1, "a"), *ran(1), *more, options=options)


def test_the_plain_course_of_a_run() -> None:  # L-01
    assert step(chat()) == StayIdle()
    assert step(chat(make_message())) == CallModel()
    state = chat(make_message(), *answer(1, "a"))
    assert step(state) == RunCalls(state.calls)
    assert step(chat(*ran(1), state=state)) == CallModel()
    assert list_recorded_types(chat(make_message(), *answer(1, text="hi"))) == ["session.run_end:done"]


def test_a_model_call_that_a_dead_worker_began_is_made_again() -> None:
    assert step(chat(make_message(), e.TurnStart(1, final=True))) == CallModel(final=True)


def test_an_intent_without_outcome_is_left_to_recovery() -> None:  # D-02
    assert step(chat(make_message(), *answer(1, "a"), e.ExecutionStart(KEY, "a"))) == RunCalls(())


def test_an_interrupt_closes_everything_at_once() -> None:  # L-07
    state = chat(
        make_message(), *answer(1, "a", "b"), *ran(1, 0), e.ExecutionStart(make_call_key(1, 1), "b"), e.Interrupted()
    )
    assert list_recorded_types(state) == ["tool.execution_complete", "session.run_end:interrupted"]


def test_an_error_ends_the_run_and_answers_open_calls() -> None:  # L-12, law 4
    state = chat(make_message(), *answer(1, "a"), e.SessionError("internal", "x"))
    assert list_recorded_types(state) == ["tool.execution_complete", "session.run_end:error"]


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ("ask", ["user_input.requested"]),
        ("answer", ["session.limit_reached"]),
        ("error", ["session.limit_reached", "session.error"]),
    ],
)
def test_at_the_turn_cap(rule: str, expected: list[str]) -> None:  # L-03
    assert list_recorded_types(make_capped_chat(rule)) == expected


def test_a_last_answer_is_asked_for_once_and_its_calls_are_not_run() -> None:  # L-03
    state = make_capped_chat("answer", e.LimitReached("turns", 1, 1))
    assert step(state) == CallModel(final=True)
    state = chat(e.TurnStart(2, final=True), *answer(2, "a", "b")[1:], state=state)
    assert list_recorded_types(state) == [
        "tool.execution_complete",
        "tool.execution_complete",
        "session.run_end:turn_cap",
    ]


def test_an_error_at_the_cap_ends_as_a_turn_cap() -> None:
    state = make_capped_chat("error", e.LimitReached("turns", 1, 1), e.SessionError("turn_cap"))
    assert list_recorded_types(state) == ["session.run_end:turn_cap"]


def test_a_warning_when_three_rounds_remain_and_only_one() -> None:  # L-03
    state = chat(make_message(), *answer(1, "a"), *ran(1), options=ChatOptions(max_turns=4))
    assert list_recorded_types(state) == ["session.limit_warning"]
    assert step(chat(e.LimitWarning("turns", 1, 4), state=state)) == CallModel()


def test_stop_at_the_cap_ends_and_continue_goes_on() -> None:  # L-03
    question = e.UserInputRequested("limit.9", "On?", ("continue", "stop"), "limit")
    waiting = make_capped_chat("ask", question)
    assert step(waiting) == Wait()
    assert list_recorded_types(chat(e.UserInputCompleted("limit.9", "stop"), state=waiting)) == [
        "session.run_end:turn_cap"
    ]
    assert step(chat(e.UserInputCompleted("limit.9", "continue"), e.LimitExtended(5), state=waiting)) != Wait()


def test_steering_goes_in_before_the_next_model_call() -> None:  # L-08
    steer = e.QueueChanged("added", "q", "left!", "steering")
    assert list_recorded_types(chat(make_message(), *answer(1, "a"), *ran(1), steer)) == ["user.message"]


def test_unused_steering_is_the_next_run() -> None:  # L-08
    queue = (e.QueueChanged("added", "a", "a"), e.QueueChanged("added", "b", "b", "steering"))
    state = chat(make_message(), *answer(1, text="hi"), *queue)
    assert list_recorded_types(state) == ["session.run_end:done"]
    next_step = step(chat(e.RunEnd("done"), state=state))
    assert next_step == AppendEvents((e.UserMessage("b", "queued", queue_id="b"),))


@pytest.mark.parametrize("reason", ["interrupted", "error", "budget"])
def test_after_a_stop_the_queue_waits_for_a_person(reason: e.EndReason) -> None:
    assert step(chat(make_message(), e.QueueChanged("added", "a", "a"), e.RunEnd(reason))) == StayIdle()


def test_five_identical_calls_stop_and_three_nudge() -> None:  # L-10
    state = chat(make_message())
    for turn in range(1, 4):
        assert step(state) == CallModel()
        state = chat(*answer(turn, "a"), *ran(turn), state=state)
    assert list_recorded_types(state) == ["guard.notice", "user.message"]
    nudge = e.UserMessage("stop that", source="guard")
    state = chat(e.GuardNotice("nudge", 1, 3), nudge, *answer(4, "a"), *ran(4), state=state)
    assert step(state) == CallModel()
    state = chat(*answer(5, "a"), *ran(5), state=state)
    assert list_recorded_types(state) == ["guard.notice", "session.error"]


def test_a_person_may_let_the_guard_pass() -> None:  # L-10
    state = chat(make_message(), options=ChatOptions(interactive=True))
    for turn in range(1, 6):
        state = chat(*answer(turn, "a"), *ran(turn), state=state)
    assert list_recorded_types(state) == ["guard.notice", "user_input.requested"]
    question = e.UserInputRequested("guard.1", "On?", ("continue", "stop"), "guard")
    state = chat(e.GuardNotice("ask", 1, 5), question, state=state)
    assert step(chat(e.UserInputCompleted("guard.1", "continue"), state=state)) == CallModel()
    assert list_recorded_types(chat(e.UserInputCompleted("guard.1", "stop"), state=state)) == ["session.run_end:guard"]


def test_autopilot_nudges_until_two_in_a_row_bring_nothing() -> None:  # L-14
    state = chat(make_message(), options=ChatOptions(mode="autopilot"))
    nudges = 0
    for turn in range(1, 10):
        state = chat(*answer(turn, text="done?"), state=state)
        next_step = decide(state, lambda: LIMITS)
        assert isinstance(next_step, AppendEvents)
        if isinstance(next_step.events[-1], e.RunEnd):
            break
        nudges += 1
        state = chat(*next_step.events, state=state)
    assert nudges == 2


def test_autopilot_stops_after_five_continuations_with_progress() -> None:  # L-14
    state, turn, nudges = chat(make_message(), options=ChatOptions(mode="autopilot", max_turns=50)), 1, 0
    while nudges < 9:
        state = chat(*answer(turn, "a", arguments=f"[{turn}]"), *ran(turn), *answer(turn + 1, text="?"), state=state)
        turn += 2
        next_step = decide(state, lambda: LIMITS)
        assert isinstance(next_step, AppendEvents)
        if isinstance(next_step.events[-1], e.RunEnd):
            break
        nudges += 1
        state = chat(*next_step.events, state=state)
    assert nudges == 5


def test_task_complete_ends_the_run_in_autopilot() -> None:  # L-13, L-14
    events = (*answer(1, "task_complete"), *ran(1), e.TaskComplete("all"))
    assert list_recorded_types(chat(make_message(), *events, options=ChatOptions(mode="autopilot"))) == [
        "session.run_end:task_complete"
    ]


def test_a_silent_run_is_summarised_once() -> None:  # L-17
    state = chat(make_message(), *answer(1, "a"), *ran(1), *answer(2))
    assert step(state) == Summarize()
    assert list_recorded_types(chat(e.ModelCall("summary", text="did it"), state=state)) == ["session.run_end:done"]
    spoke = chat(make_message(), *answer(1, "a", text="I look"), *ran(1), *answer(2))
    assert list_recorded_types(spoke) == ["session.run_end:done"]


def build_turn(kind: str, turn: int, *names: str, text: str = "") -> list[e.Event]:
    """A turn whose answer ended in a way that its adapter had to say."""
    start, *later_events = answer(turn, *names, text=text)
    return [start, e.ModelNotice(kind, f"{kind}: why"), *later_events]


def test_an_incomplete_answer_is_no_end_of_the_work() -> None:  # L-01, M-08
    for kind in ("incomplete", "empty_answer"):
        assert list_recorded_types(chat(make_message(), *build_turn(kind, 1, text="ha"))) == [
            "session.run_end:incomplete"
        ]
    next_step = step(chat(make_message(), *build_turn("incomplete", 1, text="ha")))
    assert isinstance(next_step, AppendEvents)
    assert next_step.events == (e.RunEnd("incomplete", "incomplete: why"),)
    # In autopilot the model is asked to go on, and its calls are answered as ever.
    autopilot = chat(make_message(), *build_turn("incomplete", 1, text="ha"), options=ChatOptions(mode="autopilot"))
    assert list_recorded_types(autopilot) == ["user.message"]
    state = chat(make_message(), *build_turn("incomplete", 1, "a"), *ran(1))
    assert step(state) == CallModel()
    assert list_recorded_types(chat(*answer(2, text="done"), state=state)) == ["session.run_end:done"]


def test_a_log_from_before_has_no_such_notice_and_ends_as_it_did() -> None:  # V-06
    turn_events = [
        e.TurnStart(1),
        e.AssistantMessage(1, "ha", finish_reason="length"),
        e.TurnEnd(1, finish_reason="length"),
    ]
    assert list_recorded_types(chat(make_message(), *turn_events)) == ["session.run_end:done"]


def test_a_silent_end_after_work_is_summarised_and_done() -> None:  # L-17
    state = chat(make_message(), *answer(1, "a"), *ran(1), *build_turn("empty_answer", 2))
    assert step(state) == Summarize()
    assert list_recorded_types(chat(e.ModelCall("summary", text="did it"), state=state)) == ["session.run_end:done"]


def test_a_paused_answer_goes_on() -> None:  # M-02
    assert step(chat(make_message(), *build_turn("paused", 1, text="so far"))) == CallModel()


def test_compaction_begins_at_the_threshold_and_stops_after_three_failures() -> None:  # L-19
    small = RunLimits(window=1_000, max_output=100)
    state = chat(make_message(), *answer(1, "a"), *ran(1), *answer(2, "a", usage=Usage(600, 10)), *ran(2))
    assert step(state, small) == AppendEvents((e.CompactionStart("threshold", 616),))
    assert step(chat(e.CompactionStart("threshold"), state=state), small) == Compact("threshold")
    for _ in range(3):
        state = chat(e.CompactionStart("threshold"), e.CompactionComplete("threshold", False), state=state)
    assert step(state, small) == CallModel()


def test_an_idle_chat_can_be_compacted() -> None:
    assert step(chat(make_message(), *answer(1, text="hi"), e.RunEnd("done"), e.CompactionStart("manual"))) == Compact(
        "manual"
    )


def test_a_compaction_that_fails_by_our_own_fault_is_not_made_for_ever() -> None:  # L-12, L-19
    compaction_start = e.CompactionStart("threshold")
    state = chat(make_message(), *answer(1, "a"), *ran(1), compaction_start, e.SessionError("internal", "x"))
    assert list_recorded_types(state) == ["session.compaction_complete", "session.run_end:error"]
    idle = chat(
        make_message(), *answer(1, text="hi"), e.RunEnd("done"), e.CompactionStart("manual"), e.SessionError("internal")
    )
    assert step(idle) == StayIdle()


def test_a_budget_that_is_gone_ends_the_turn_that_was_begun() -> None:  # L-02, L-11
    state = chat(make_message(), e.TurnStart(1), e.TurnRetry(1, 1, "network"), e.LimitReached("tokens", 9, 9))
    assert list_recorded_types(state) == ["assistant.turn_end", "session.run_end:budget"]


def test_a_last_answer_that_is_too_long_is_compacted_for_like_any_other() -> None:  # L-03, L-19
    state = make_capped_chat("answer", e.LimitReached("turns", 1, 1), e.TurnStart(2, final=True))
    state = chat(e.TurnRetry(2, 1, "context_limit"), e.CompactionStart("context_limit"), state=state)
    assert step(state) == Compact("context_limit")
    assert step(chat(e.CompactionComplete("context_limit", False), state=state)) == CallModel(final=True)


def test_a_last_answer_that_fails_ends_the_run() -> None:  # L-03, L-12
    state = make_capped_chat(
        "answer", e.LimitReached("turns", 1, 1), e.TurnStart(2, final=True), e.SessionError("auth")
    )
    assert list_recorded_types(state) == ["assistant.turn_end", "session.run_end:error"]
