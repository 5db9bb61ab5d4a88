"""Commands: the whole table of statuses and commands by eye, and what a single cell cannot show."""

import pytest

from scripts.state_table import SHORT, commands, grow, situations, table
from tests.unit.chat.logs import answer, chat, make_message, ran
from treadle.base.types import make_call_key
from treadle.chat import snapshot
from treadle.chat.state import MAX_QUEUE, ChatState, compute_status, list_open_actions
from treadle.chat.transitions import transition
from treadle.errors import InvalidInput, Refused
from treadle.protocol import commands as c
from treadle.protocol import events as e
from treadle.protocol.content import Image, ResultsEntry, UserEntry
from treadle.protocol.options import ChatOptions

# For every command: in these statuses, this is recorded, and the status is then that. Without an arrow the status
# stays; "nothing" means that it is so already; *slanted* is the code of a refusal. Words: scripts/state_table.py.
TABLE = {
    "Send": {
        "idle, error": "message → pending",
        "pending, running, interrupting, approval, client tool, question": "queue",
        "archived": "*archived*",
    },
    "Send, steering": {
        "idle, error": "message → pending",
        "pending, running, interrupting": "queue",
        "approval": "permission result turn message → pending",
        "client tool": "client result turn message → pending",
        "question": "answer result turn message → pending",
        "archived": "*archived*",
    },
    "SubmitResults": {
        "idle, pending, running, interrupting, approval, question, error": "*not_awaiting_action*",
        "client tool": "client result turn → pending",
        "archived": "*archived*",
    },
    "Decide, allow": {
        "idle, pending, running, interrupting, client tool, question, error": "*no_such_action*",
        "approval": "permission → pending",
        "archived": "*archived*",
    },
    "Decide, deny": {
        "idle, pending, running, interrupting, client tool, question, error": "*no_such_action*",
        "approval": "permission result turn → pending",
        "archived": "*archived*",
    },
    "Answer": {
        "idle, pending, running, interrupting, approval, client tool, error": "*no_such_action*",
        "question": "answer result turn → pending",
        "archived": "*archived*",
    },
    "Interrupt": {
        "idle, error": "*not_running*",
        "pending, running": "stop → interrupting",
        "interrupting": "nothing",
        "approval": "stop permission result turn end → idle",
        "client tool": "stop client result turn end → idle",
        "question": "stop answer result turn end → idle",
        "archived": "*archived*",
    },
    "Edit": {
        "idle, error": "message → pending",
        "pending, running, interrupting": "*busy*",
        "approval": "permission result turn end message → pending",
        "client tool": "client result turn end message → pending",
        "question": "answer result turn end message → pending",
        "archived": "*archived*",
    },
    "Edit, files too": {
        "idle, error": "restore message → pending",
        "pending, running, interrupting": "*busy*",
        "approval": "permission result turn end restore message → pending",
        "client tool": "client result turn end restore message → pending",
        "question": "answer result turn end restore message → pending",
        "archived": "*archived*",
    },
    "Rewind": {
        "idle, error": "restore rewind → pending",
        "pending, running, interrupting": "*busy*",
        "approval, client tool, question": "*awaiting_action*",
        "archived": "*archived*",
    },
    "Restore": {
        "idle, error": "restore → pending",
        "pending, running, interrupting": "*busy*",
        "approval, client tool, question": "*awaiting_action*",
        "archived": "*archived*",
    },
    "EditQueued": {
        "idle, pending, running, interrupting, approval, client tool, question, error": "queue",
        "archived": "*archived*",
    },
    "DeleteQueued": {
        "idle, pending, running, interrupting, approval, client tool, question, error": "queue",
        "archived": "*archived*",
    },
    "Promote": {
        "idle, error": "message → pending",
        "pending, running, interrupting": "queue",
        "approval": "permission result turn message → pending",
        "client tool": "client result turn message → pending",
        "question": "answer result turn message → pending",
        "archived": "*archived*",
    },
    "ExtendTurns": {
        "idle, error": "*not_running*",
        "pending, running, interrupting, approval, client tool, question": "extend",
        "archived": "*archived*",
    },
    "ChangeOptions": {
        "idle, pending, running, interrupting, approval, client tool, question, error, archived": "options",
    },
    "ChangeOptions, archive": {
        "idle, error": "options → archived",
        "pending, running, interrupting": "*busy*",
        "approval, client tool, question": "*awaiting_action*",
        "archived": "options → idle",
    },
    "Rename": {
        "idle, pending, running, interrupting, approval, client tool, question, error, archived": "title",
    },
    "Compact": {
        "idle, error": "compact → pending",
        "pending, running, interrupting": "*busy*",
        "approval, client tool, question": "*awaiting_action*",
        "archived": "*archived*",
    },
    "Apply": {
        "idle, error": "message start call → pending",
        "pending, running, interrupting": "*busy*",
        "approval, client tool, question": "*awaiting_action*",
        "archived": "*archived*",
    },
    "RecordTitle": {
        "idle, pending, running, interrupting, approval, client tool, question, error, archived": "model call title"
    },
    "CloseJob": {"idle, pending, running, interrupting, approval, client tool, question, error, archived": "job"},
    "Expire, late": {
        "idle, pending, running, interrupting, approval, question, error, archived": "nothing",
        "client tool": "client result turn → pending",
    },
}
KEY = make_call_key(1, 0)


def refusal(state: ChatState, command: c.Command) -> str:
    old_bytes = snapshot.encode(state)
    with pytest.raises(Refused) as caught:
        transition(state, command)
    assert snapshot.encode(state) == old_bytes
    assert str(caught.value).endswith(".")
    return caught.value.reason


def types(events: tuple[e.Event, ...]) -> list[str]:
    return [SHORT.get(event.TYPE, event.TYPE) for event in events]


def test_every_status_with_every_command() -> None:
    expected = {
        command: {status: cell for statuses, cell in row.items() for status in statuses.split(", ")}
        for command, row in TABLE.items()
    }
    assert table() == expected


def test_the_table_is_complete() -> None:
    every = {type(command) for state in situations().values() for command in commands(state).values()}
    assert every == set(c.Command.__args__)
    statuses = {name: compute_status(state) for name, state in situations().items()}
    actions = dict.fromkeys(("approval", "client tool", "question"), "requires_action")
    plain_statuses = {name: name for name in ("idle", "pending", "running", "interrupting", "error")}
    assert statuses == {**plain_statuses, **actions, "archived": "idle"}


# -- sending (L-08) ---------------------------------------------------------------------------------------------------


def test_nothing_said_is_refused_unless_it_is_a_picture() -> None:
    assert refusal(chat(), c.Send(" \n")) == "empty"
    assert types(transition(chat(), c.Send("", images=(Image("image/png", "h"),)))) == ["message"]


def test_the_queue_has_a_limit() -> None:
    queue = [e.QueueChanged("added", f"q{n}", "x") for n in range(MAX_QUEUE)]
    assert refusal(chat(make_message(), *queue), c.Send("more", queue_id="q99")) == "queue_full"
    assert transition(chat(make_message(), *queue[1:]), c.Send("more", queue_id="q99"))


@pytest.mark.parametrize("queue_id", ["", "q1"])
def test_a_queued_message_needs_an_id_of_its_own(queue_id: str) -> None:
    with pytest.raises(InvalidInput):
        transition(chat(make_message(), e.QueueChanged("added", "q1", "x")), c.Send("more", queue_id=queue_id))


def test_a_message_between_two_runs_does_not_jump_the_queue() -> None:
    """The run has ended and the queued message is about to start the next one."""
    state = chat(make_message(), e.QueueChanged("added", "q1", "x"), *answer(1, text="hi"), e.RunEnd("done"))
    events = transition(state, c.Send("later", queue_id="q2"))
    assert [item.id for item in chat(*events, state=state).queue] == ["q1", "q2"]


# -- client tools (A-03, A-04, A-05) ----------------------------------------------------------------------------------


def two_clients(**options: object) -> ChatState:
    tool_events = [
        event
        for position in (0, 1)
        for event in (
            e.ExecutionStart(make_call_key(1, position), "t"),
            e.ExternalToolRequested(make_call_key(1, position), "t", {}, make_call_key(1, position), 1.0 + position),
        )
    ]
    return chat(make_message(), *answer(1, "t", "t"), *tool_events, options=ChatOptions(**options))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "ids", [(), ("1.0",), ("1.0", "1.0"), ("1.0", "1.1", "1.2"), ("1.0", "9.9"), ("1.0", "1.1", "1.1")]
)
def test_results_must_match_the_open_calls_exactly(ids: tuple[str, ...]) -> None:
    assert refusal(two_clients(), c.SubmitResults(tuple(c.Result(each) for each in ids))) == "results_mismatch"


def test_all_results_enter_together_in_the_models_order() -> None:
    state = two_clients()
    submission = c.SubmitResults((c.Result("1.1", {"n": 1}), c.Result("1.0", "text", is_error=True)))
    state = chat(*transition(state, submission), state=state)
    last = state.history[-1]
    assert isinstance(last, ResultsEntry)
    assert [(result.text, result.success) for result in last.results] == [("text", False), ('{"n":1}', True)]
    assert refusal(state, submission) == "not_awaiting_action"


def test_an_output_that_is_no_json_is_refused() -> None:
    with pytest.raises(InvalidInput, match="no JSON"):
        transition(two_clients(), c.SubmitResults((c.Result("1.0", object()), c.Result("1.1"))))


def test_only_what_is_due_expires() -> None:
    state = two_clients()
    due = list_open_actions(state)[0].deadline_ms
    assert transition(state, c.Expire(due - 1)) == ()
    assert types(transition(state, c.Expire(due))) == ["client", "result"]
    state = chat(*transition(state, c.Expire(due)), state=state)
    assert [action.tool_call_id for action in list_open_actions(state)] == ["1.1"]


def test_a_deadline_may_be_an_error() -> None:
    state = two_clients(on_deadline="error")
    events = transition(state, c.Expire(10**12))
    assert types(events) == ["client", "result", "client", "result", "session.error", "end"]
    assert compute_status(chat(*events, state=state)) == "error"


# -- approvals and questions (S-08) -----------------------------------------------------------------------------------


def test_an_approval_is_bound_to_what_was_shown() -> None:
    state = situations()["approval"]
    assert refusal(state, c.Decide("a1", "allow", "other")) == "hash_mismatch"
    assert refusal(state, c.Decide("a2", "allow", "h")) == "no_such_action"


def test_an_approval_is_answered_once() -> None:
    state = situations()["approval"]
    once = grow(state, *transition(state, c.Decide("a1", "deny", "h", "not there")))
    assert refusal(once, c.Decide("a1", "allow", "h")) == "no_such_action"
    last = once.history[-1]
    assert isinstance(last, ResultsEntry)
    assert "not there" in last.results[0].text


def test_edited_arguments_count_only_with_consent() -> None:
    state = situations()["approval"]
    for decision, expected_arguments in (("allow", {"x": 1}), ("deny", None)):
        completion = transition(state, c.Decide("a1", decision, "h", arguments={"x": 1}))[0]  # type: ignore[arg-type]
        assert isinstance(completion, e.PermissionCompleted)
        assert completion.arguments == expected_arguments


def test_the_loops_own_questions_have_fixed_answers() -> None:
    state = chat(make_message(), e.UserInputRequested("limit.3", "On?", ("continue", "stop"), "limit"))
    with pytest.raises(InvalidInput):
        transition(state, c.Answer("limit.3", "perhaps"))
    assert types(transition(state, c.Answer("limit.3", "continue"))) == ["answer", "extend"]
    assert types(transition(state, c.Answer("limit.3", "stop"))) == ["answer"]
    assert types(transition(state, c.ExtendTurns(3))) == ["answer", "extend"]


def test_an_answer_may_not_be_empty() -> None:
    assert refusal(situations()["question"], c.Answer("a1", " ")) == "empty"


# -- the rest ---------------------------------------------------------------------------------------------------------


def test_only_a_persons_message_that_still_stands_can_be_edited() -> None:  # L-09
    nudge = e.UserMessage("go on", source="autopilot")
    state = chat(make_message("one"), *answer(1, "a"), *ran(1), nudge, *answer(2, text="hi"), e.RunEnd("done"))
    seqs = [event for event in range(1, state.head + 1) if _editable(state, event)]
    assert seqs == [2]
    edited = chat(e.UserMessage("uno", edits=2), e.RunEnd("done"), state=state)
    assert refusal(edited, c.Edit(2, "again")) == "no_such_message"
    assert refusal(state, c.Edit(2, " ")) == "empty"


def _editable(state: ChatState, seq: int) -> bool:
    try:
        return bool(transition(state, c.Edit(seq, "better")))
    except Refused:
        return False


def test_options_are_checked_before_they_are_recorded() -> None:
    for changes in ({"nonsense": 1}, {"max_turns": "many"}, {"mode": "yolo"}):
        with pytest.raises(InvalidInput):
            transition(chat(), c.ChangeOptions(changes))
    assert transition(chat(), c.ChangeOptions({"max_turns": ChatOptions().max_turns})) == ()


def test_small_refusals() -> None:
    assert refusal(chat(), c.Rename(" ")) == "empty"
    assert refusal(chat(), c.Compact()) == "empty"
    assert refusal(chat(), c.DeleteQueued("q")) == "no_such_queued"
    with pytest.raises(InvalidInput):
        transition(chat(make_message()), c.ExtendTurns(0))


# -- going back (W-03, L-09) ------------------------------------------------------------------------------------------

IDLE = (make_message(), *answer(1, text="hi"), e.RunEnd("done"))


def test_files_are_restored_one_request_at_a_time() -> None:
    restoring_state = chat(*IDLE, e.RestoreRequested("u1", "undo"))
    assert compute_status(restoring_state) == "pending"
    assert refusal(restoring_state, c.Restore("u2")) == "busy"
    assert refusal(restoring_state, c.Rewind(2, restore="u2")) == "busy"
    assert refusal(restoring_state, c.Edit(2, "better", True, "u2")) == "busy"
    assert refusal(restoring_state, c.ChangeOptions({"archived": True})) == "busy"
    restored_state = chat(e.Undone("u1"), state=restoring_state)
    assert compute_status(restored_state) == "idle"
    assert transition(restored_state, c.Restore("u2"))


def test_only_the_answer_to_a_request_ends_it() -> None:
    restoring_state = chat(*IDLE, e.RestoreRequested("u1", "undo"))
    assert chat(e.Undone("u0"), state=restoring_state).restoring is not None


@pytest.mark.parametrize(
    "command",
    [
        c.Restore(""),
        c.Restore("u1", "redo"),
        c.Restore("u1", since=-1),
        c.Rewind(2),
        c.Rewind(2, False, False, "u1"),
        c.Edit(2, "better", True),
    ],
)
def test_a_request_that_says_too_little_is_refused(command: c.Command) -> None:
    with pytest.raises(InvalidInput):
        transition(chat(*IDLE), command)


def test_going_back_cuts_the_conversation_and_starts_nothing() -> None:
    state = chat(*IDLE, make_message("and more"), *answer(2, text="more"), e.RunEnd("done"))
    second = [entry.seq for entry in state.history if isinstance(entry, UserEntry)][1]
    back = chat(*transition(state, c.Rewind(second, files=False)), state=state)
    assert compute_status(back) == "idle"
    assert [entry.text for entry in back.history if isinstance(entry, UserEntry)] == ["do it"]
    assert refusal(back, c.Rewind(second, files=False)) == "no_such_message"
    assert types(transition(back, c.Rewind(second, conversation=False, restore="u1"))) == ["restore"]


def test_a_job_is_closed_once_and_what_it_changed_stands_behind_it() -> None:
    # S-14, W-10
    file_changes = e.FilesChanged((), make_call_key(1, 0), "observed")
    state = grow(ChatState(), e.SessionCreated(ChatOptions()), e.JobStarted("1.0", "make serve"), e.JobStarted("2.0"))
    close = c.CloseJob("1.0", "stopped", -15, "person", ("why",), file_changes)
    events = transition(state, close)
    assert events == (e.JobEnded("1.0", "stopped", -15, "person", ("why",)), file_changes)
    state = grow(state, *events)
    assert [job.job for job in state.jobs] == ["2.0"]
    assert transition(state, close) == ()
