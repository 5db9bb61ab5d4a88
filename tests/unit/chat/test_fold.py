"""The effect of each event on the state: the cases that matter one by one. Everything else is in the property tests."""

from tests.unit.chat.logs import answer, chat, make_message, ran
from treadle.base.types import make_call_key
from treadle.chat.fold import _APPLY, NO_EFFECT
from treadle.chat.fold_calls import make_title
from treadle.chat.state import (
    ChatState,
    build_summary,
    compute_status,
    list_known_files,
    list_open_actions,
    list_runnable_calls,
    needs_action,
)
from treadle.protocol import events as e
from treadle.protocol.content import AssistantEntry, KnownFile, ResultsEntry, ToolResult, Usage, UserEntry
from treadle.protocol.options import ChatOptions

KEY = make_call_key(1, 0)


def test_every_recorded_event_has_a_meaning() -> None:
    assert {*_APPLY, *NO_EFFECT} == set(e.RECORDED.values())


def test_an_unknown_event_moves_only_the_head() -> None:
    state = chat(make_message())
    new_state = chat(e.RecordLost("x", "y"), state=state)
    assert (new_state.head, new_state.history) == (state.head + 1, state.history)


def test_results_enter_together_and_in_the_models_order() -> None:  # L-04
    state = chat(make_message(), *answer(1, "a", "b"), *ran(1, 1, "second"))
    assert isinstance(state.history[-1], AssistantEntry)
    state = chat(*ran(1, 0, "first"), state=state)
    assert state.history[-1] == ResultsEntry(
        1, (ToolResult(make_call_key(1, 0), "first"), ToolResult(make_call_key(1, 1), "second"))
    )
    assert state.calls == ()


def test_a_failure_is_the_result_that_the_model_sees() -> None:  # L-05
    state = chat(make_message(), *answer(1, "a"), *ran(1, result="no such file", success=False))
    assert state.history[-1] == ResultsEntry(1, (ToolResult(KEY, "no such file", False),))


def test_a_call_keeps_its_first_result() -> None:
    late = (e.ExecutionStart(make_call_key(1, 0), "a"), e.ExecutionComplete(make_call_key(1, 0), True, "again"))
    state = chat(make_message(), *answer(1, "a", "b"), *ran(1, 0, "first"), *late, *ran(1, 1))
    assert state.history[-1].results[0].text == "first"  # type: ignore[union-attr]


def test_a_lost_turn_end_does_not_reopen_its_turn() -> None:
    """The key of a call is its turn and position: a turn that was made twice would repeat keys (M-09)."""
    start, message, _ = answer(1, "a")
    state = chat(make_message(), start, message, *ran(1))
    assert state.open_turn is None
    assert state.turn == 1


def test_a_refusal_whose_result_was_lost_is_never_taken_for_consent() -> None:
    permission = e.PermissionRequested("p", KEY, hash="h")
    state = chat(make_message(), *answer(1, "rm"), permission, e.PermissionCompleted("p", "deny"))
    assert [call.phase for call in state.calls] == ["requested"]


def test_a_client_result_that_was_lost_does_not_wedge_the_chat() -> None:
    start, tool_request = e.ExecutionStart(KEY, "t"), e.ExternalToolRequested(KEY, "t", tool_call_id=KEY)
    state = chat(make_message(), *answer(1, "t"), start, tool_request)
    assert compute_status(state) == "requires_action"
    state = chat(e.ExternalToolCompleted(KEY), state=state)
    assert not needs_action(state)
    assert compute_status(state) == "running"


def test_an_edited_approval_replaces_the_arguments() -> None:
    permission = e.PermissionRequested("p", KEY, hash="h")
    state = chat(
        make_message(), *answer(1, "run"), permission, e.PermissionCompleted("p", "allow", arguments={"command": "ls"})
    )
    assert list_runnable_calls(state)[0].arguments == {"command": "ls"}


def test_an_approval_holds_back_the_calls_after_it_and_a_client_tool_does_not() -> None:  # L-06, A-02
    permission = e.PermissionRequested("p", make_call_key(1, 0), hash="h")
    state = chat(make_message(), *answer(1, "write", "read"), permission)
    assert list_runnable_calls(state) == ()
    tool_events = (e.ExecutionStart(KEY, "t"), e.ExternalToolRequested(KEY, "t", tool_call_id=KEY))
    state = chat(make_message(), *answer(1, "t", "read"), *tool_events)
    assert [call.request.name for call in list_runnable_calls(state)] == ["read"]
    assert compute_status(state) == "running"


def test_a_deadline_is_when_the_chat_must_be_woken() -> None:
    tool_events = (e.ExecutionStart(KEY, "t"), e.ExternalToolRequested(KEY, "t", tool_call_id=KEY, deadline_s=5))
    state = chat(make_message(), *answer(1, "t"), *tool_events)
    assert build_summary(state).wake_ms == state.updated_ms + 5_000
    assert not build_summary(state).runnable
    assert list_open_actions(state)[0].deadline_ms == build_summary(state).wake_ms


def test_what_a_dead_worker_spent_counts_even_if_the_run_was_stopped_meanwhile() -> None:  # L-11
    start = e.TurnStart(1, reserved=Usage(100, 50, usd=0.5))
    state = chat(make_message(), start, e.Interrupted(), e.RunEnd("interrupted"))
    assert state.totals.usage == Usage(100, 50, usd=0.5)


def test_a_settled_turn_counts_once() -> None:
    state = chat(make_message(), *answer(1, text="hi", usage=Usage(7, 3)), e.RunEnd("done"))
    assert (state.totals.usage, state.totals.turns) == (Usage(7, 3), 1)


def test_turn_cap_and_turn_budget_are_different_ends() -> None:  # L-03, L-11
    capped = chat(
        make_message(), *answer(1, "a"), *ran(1), e.LimitReached("turns", 1, 1), options=ChatOptions(max_turns=1)
    )
    spent = chat(make_message(), *answer(1, "a"), *ran(1), e.LimitReached("turns", 1, 1))
    whole_chat = chat(make_message(), *answer(1, "a"), *ran(1), e.LimitReached("turns", 1, 1, "chat"))
    assert [state.run and state.run.stop for state in (capped, spent, whole_chat)] == ["turn_cap", "budget", "budget"]


def test_a_second_limit_leaves_no_room_for_a_last_answer() -> None:
    reached = e.LimitReached("turns", 1, 1)
    state = chat(make_message(), *answer(1, "a"), *ran(1), reached, reached, options=ChatOptions(max_turns=1))
    assert state.run is not None
    assert state.run.stop == "budget"


def test_an_extension_lifts_the_cap_that_was_reached() -> None:  # L-03
    reached, more = e.LimitReached("turns", 1, 1), e.LimitExtended(5)
    state = chat(make_message(), *answer(1, "a"), *ran(1), reached, more, options=ChatOptions(max_turns=1))
    assert state.run is not None
    assert (state.run.stop, state.run.turn_limit) == ("", 6)


def test_an_edit_cuts_the_conversation_and_begins_anew() -> None:  # L-09
    state = chat(
        make_message("one"),
        *answer(1, text="1"),
        e.RunEnd("done"),
        make_message("two"),
        *answer(2, text="2"),
        e.RunEnd("done"),
    )
    assert state.history[0] == UserEntry("one", 2)
    state = chat(e.UserMessage("uno", edits=2), state=state)
    assert [entry.text for entry in state.history] == ["uno"]  # type: ignore[union-attr]
    assert state.turn == 2  # keys of calls never repeat, also behind an edit


def test_a_cut_takes_back_what_was_known_of_files() -> None:  # L-09, T-13
    def saw(turn: int, **files: str) -> list[e.Event]:
        file_digests = tuple(KnownFile(path, digest) for path, digest in files.items())
        return [*answer(turn, "a"), e.ExecutionComplete(make_call_key(turn, 0), True, seen=file_digests)]

    read = chat(make_message("one"), *saw(1, a="1"), e.RunEnd("done"))
    state = chat(
        make_message("two"),
        *saw(2, a="2", b="1"),
        make_message("steer"),
        *saw(3, a="3", b="2"),
        *saw(4, b="3"),
        state=read,
    )
    assert list_known_files(state) == {"a": "3", "b": "3"}
    second, third = [entry.seq for entry in state.history if isinstance(entry, UserEntry)][1:]
    assert list_known_files(chat(e.UserMessage("another", edits=third), state=state)) == {"a": "2", "b": "1"}
    assert list_known_files(chat(e.SessionRewound(second), state=state)) == list_known_files(read) == {"a": "1"}
    assert list_known_files(chat(e.SessionRewound(2), state=state)) == {}


def test_masking_ends_where_an_edit_cut() -> None:
    """Else a fresh fold and a snapshot would disagree about what the model sees (law 9)."""
    masked = e.CompactionComplete("threshold", masked=3)
    compaction_start = e.CompactionStart("threshold")
    state = chat(make_message("one"), *answer(1, "a"), *ran(1), compaction_start, masked, e.UserMessage("uno", edits=2))
    assert state.compaction.masked == 0


def test_a_compaction_never_reaches_beyond_what_there_is() -> None:
    state = chat(make_message(), e.CompactionStart("manual"), e.CompactionComplete("manual", upto=9, masked=9))
    assert (state.compaction.upto, state.compaction.masked) == (1, 1)


def test_the_queue_by_its_operations() -> None:  # L-08
    additions = [e.QueueChanged("added", name, name) for name in "abc"]
    state = chat(make_message(), *additions, e.QueueChanged("edited", "a", "A"), e.QueueChanged("deleted", "b"))
    assert [(item.id, item.content) for item in state.queue] == [("a", "A"), ("c", "c")]
    state = chat(e.QueueChanged("promoted", "c"), state=state)
    assert [(item.id, item.delivery) for item in state.queue] == [("c", "steering"), ("a", "queued")]
    state = chat(e.UserMessage("c", "steering", queue_id="c"), state=state)
    assert [item.id for item in state.queue] == ["a"]


def test_an_archived_chat_does_not_go_on_with_its_queue() -> None:
    last_events = (e.QueueChanged("added", "a", "a"), e.RunEnd("done"))
    state = chat(make_message(), *answer(1, text="hi"), *last_events)
    assert compute_status(state) == "pending"
    assert compute_status(chat(e.OptionsChanged({"archived": True}), state=state)) == "idle"


def test_options_that_no_longer_fit_are_left_alone() -> None:
    assert chat(e.OptionsChanged({"max_turns": "many"})).options.max_turns == 100


def test_another_model_counts_the_context_anew() -> None:
    state = chat(make_message(), *answer(1, text="hi", usage=Usage(100, 10)))
    assert state.context_tokens == 110
    assert chat(e.OptionsChanged({"model": "other:y"}), state=state).context_tokens == 0


def test_the_title_is_the_first_line_that_says_something() -> None:
    assert make_title("\n  Fix it \nplease") == "Fix it"
    assert len(make_title("x" * 99)) == 60
    assert make_title(" \n") == ""
    assert chat(e.TitleChanged("Mine"), make_message()).title == "Mine"


def test_a_status_while_a_worker_closes_an_action_itself() -> None:
    """No person is there to answer, so the worker answers: the chat is running all the while."""
    question = e.UserInputRequested("q", "Which?", call=KEY)
    state = chat(
        make_message(),
        *answer(1, "ask"),
        e.ExecutionStart(KEY, "ask"),
        question,
        e.UserInputCompleted("q", by="treadle"),
    )
    assert compute_status(state) == "running"


def test_the_empty_state_is_idle() -> None:
    assert compute_status(ChatState()) == "idle"


def test_an_edit_during_a_compaction_is_not_undone_by_its_summary() -> None:  # L-09, L-19
    talk = (make_message("one"), *answer(1, text="1"), e.RunEnd("done"), e.CompactionStart("manual"))
    completion = e.CompactionComplete("manual", summary="They said one.", upto=2)
    state = chat(*talk, e.UserMessage("uno", edits=2), completion)
    assert [entry.text for entry in state.transcript] == ["uno"]  # type: ignore[union-attr]
    assert state.compacting == ""
