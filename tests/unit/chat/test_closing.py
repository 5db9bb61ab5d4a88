"""Every open call gets its one synthetic result, which says why (law 4, A-05)."""

import pytest

from tests.unit.chat.logs import answer, chat, make_message
from treadle.base.types import make_call_key
from treadle.chat.closing import close_calls
from treadle.chat.state import list_open_actions
from treadle.protocol import events as e

KEY = make_call_key(1, 0)
START = e.ExecutionStart(KEY, "t")


@pytest.mark.parametrize(
    ("pending_events", "completion_types"),
    [
        ((), []),
        ((e.PermissionRequested("p", KEY, hash="h"),), ["permission.completed"]),
        ((START, e.ExternalToolRequested(KEY, "t", tool_call_id=KEY)), ["external_tool.completed"]),
        ((START, e.UserInputRequested("q", "Which?", call=KEY)), ["user_input.completed"]),
        ((START,), []),
    ],
)
def test_whatever_it_waits_for(pending_events: tuple[e.Event, ...], completion_types: list[str]) -> None:
    state = chat(make_message(), *answer(1, "t"), *pending_events)
    events = close_calls(state, "interrupted")
    assert [event.TYPE for event in events] == [*completion_types, "tool.execution_complete"]
    new_state = chat(*events, state=state)
    assert new_state.calls == ()
    assert list_open_actions(new_state) == ()


def test_a_call_that_was_started_may_have_taken_effect_and_says_so() -> None:
    (completion,) = close_calls(chat(make_message(), *answer(1, "t"), START), "interrupted")
    assert isinstance(completion, e.ExecutionComplete)
    assert completion.synthetic == "interrupted"
    assert "not known" in completion.error


def test_calls_that_are_done_are_left_alone() -> None:
    state = chat(make_message(), *answer(1, "a", "b"), START, e.ExecutionComplete(KEY, True, "ok"))
    assert [event.call for event in close_calls(state, "error") if isinstance(event, e.ExecutionComplete)] == ["1.1"]


def test_the_loops_own_question_is_closed_too() -> None:
    state = chat(make_message(), e.UserInputRequested("guard.1", "On?", ("continue", "stop"), "guard"))
    assert close_calls(state, "steering") == (e.UserInputCompleted("guard.1", by="treadle", synthetic="steering"),)


@pytest.mark.parametrize(
    "reason", ["interrupted", "superseded", "steering", "deadline", "budget", "error", "turn_cap", "?"]
)
def test_every_reason_is_a_sentence_for_the_model(reason: str) -> None:
    (completion,) = close_calls(chat(make_message(), *answer(1, "t")), reason)
    assert isinstance(completion, e.ExecutionComplete)
    assert completion.error.endswith(".")
    assert not completion.success
