"""L-18: which fenced block of the last answer is meant, and what the rules make of applying it."""

import pytest

from tests.unit.chat.logs import chat, make_message
from treadle.chat.applying import parse_fenced_blocks
from treadle.chat.decide import AppendEvents, RunCalls, RunLimits, decide
from treadle.chat.fold import fold
from treadle.chat.state import ChatState, compute_status
from treadle.chat.transitions import transition
from treadle.errors import InvalidInput, Refused
from treadle.protocol import commands as c
from treadle.protocol import events as e
from treadle.protocol.content import Usage


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("No code.", []),
        ("```\n```", [""]),
        ("Here:\n```python\nx = 1\n\ny = 2\n```\nDone.", ["x = 1\n\ny = 2\n"]),
        ("~~~\na\n~~~\n```\nb\n```", ["a\n", "b\n"]),
        ("````md\n```\ninner\n```\n````", ["```\ninner\n```\n"]),
        ("```\n~~~\n```", ["~~~\n"]),
        ("```\na\n``` not closed\n```", ["a\n``` not closed\n"]),
        ("1. So:\n   ```sh\n   make\n     test\n   ```\n", ["make\n  test\n"]),
        ('```py\n"""\n        ```\n"""\n```', ['"""\n        ```\n"""\n']),
        ("```\nwhole\n```\n```\ncut off", ["whole\n"]),
        ("Say ```x``` here.\n```a`b\nnone", []),
        ("```\r\na\r\n```\r\n", ["a\r\n"]),
        ("```\nform\x0cfeed\u2028line\n```", ["form\x0cfeed\u2028line\n"]),
    ],
)
def test_the_fenced_blocks_of_a_text(text: str, expected: list[str]) -> None:
    assert parse_fenced_blocks(text) == expected


def build_chat(text: str, *more: e.Event) -> ChatState:
    turn = (e.TurnStart(1), e.AssistantMessage(1, text, usage=Usage(10, 5)), e.TurnEnd(1, Usage(10, 5)))
    return chat(make_message(), *turn, e.RunEnd("done"), *more)


def request_of(state: ChatState, command: c.Apply) -> tuple[str, str]:
    message, start, answer = transition(state, command)
    assert isinstance(message, e.UserMessage)
    assert isinstance(start, e.TurnStart)
    assert isinstance(answer, e.AssistantMessage)
    assert (message.source, start.model, start.turn, answer.turn) == ("apply", "", 2, 2)
    (request,) = answer.tool_requests
    assert (request.call, request.name) == ("2.0", "write_file")
    return message.content, request.arguments


TWO = "```\none\n```\nor\n```\ntwo\n```"


def test_the_block_that_is_meant() -> None:
    content, arguments = request_of(build_chat(TWO), c.Apply("a.txt", block=2))
    assert content == "Write block 2 of your last answer to a.txt."
    assert arguments == '{"path":"a.txt","content":"two\\n"}'
    assert request_of(build_chat("```\nx\n```"), c.Apply("a.txt"))[1] == '{"path":"a.txt","content":"x\\n"}'
    assert request_of(build_chat("Hm."), c.Apply("a.txt", ""))[1] == '{"path":"a.txt","content":""}'


@pytest.mark.parametrize(
    ("text", "command", "code", "words"),
    [
        ("Hm.", c.Apply("a"), "no_such_block", "no fenced block"),
        ("```\nx", c.Apply("a"), "no_such_block", "no fenced block that is closed"),
        (TWO, c.Apply("a", block=3), "no_such_block", "2 fenced blocks"),
        (TWO, c.Apply("a"), "", "has 2 fenced blocks; say which one (block=1 to 2)"),
        (TWO, c.Apply("a", block=-1), "", "counted from 1"),
        (TWO, c.Apply("a", "text", 1), "", "not both"),
        (TWO, c.Apply(" ", "text"), "", "Name the file"),
        (TWO, c.Apply("a", "\ud800"), "", "no valid Unicode"),
    ],
)
def test_what_cannot_be_applied_says_why(text: str, command: c.Apply, code: str, words: str) -> None:
    with pytest.raises(Refused if code else InvalidInput) as refused:
        transition(build_chat(text), command)
    assert words in str(refused.value)
    assert getattr(refused.value, "reason", "") == code


def grow(state: ChatState, *events: e.Event, epoch: int = 0) -> ChatState:
    for event in events:
        state = fold(state, e.Envelope(state.head + 1, state.chat, 1_000, event, epoch))
    return state


def carry_out_call(state: ChatState) -> ChatState:
    """Its one call is carried out, and the rules say the rest."""
    step = decide(state, RunLimits)
    assert isinstance(step, RunCalls)
    key = step.calls[0].key
    state = grow(state, e.ExecutionStart(key, "write_file"), e.ExecutionComplete(key, True, "ok"), epoch=1)
    while isinstance(step := decide(state, RunLimits), AppendEvents):
        state = grow(state, *step.events, epoch=1)
    return state


def test_no_model_is_asked_and_no_turn_is_counted() -> None:
    old_state = build_chat(TWO)
    new_state = grow(old_state, *transition(old_state, c.Apply("a.txt", block=1)))
    assert compute_status(new_state) == "pending"
    new_state = carry_out_call(new_state)
    assert (compute_status(new_state), new_state.last_end) == ("idle", "done")
    assert (new_state.totals.turns, new_state.totals.usage, new_state.totals.tool_calls) == (1, Usage(10, 5), 1)


@pytest.mark.parametrize(
    ("events", "expected_status"), [((e.Interrupted(),), "idle"), ((e.SessionError("network"),), "error")]
)
def test_what_waits_since_a_stop_or_an_error_still_waits(events: tuple[e.Event, ...], expected_status: str) -> None:
    """Applying something does not say that the queue may go on."""
    reason: e.EndReason = "error" if expected_status == "error" else "interrupted"
    queued = e.QueueChanged("added", "q1", "next")
    old_state = build_chat("Hm.", e.UserMessage("more"), queued, *events, e.RunEnd(reason))
    new_state = carry_out_call(grow(old_state, *transition(old_state, c.Apply("a.txt", "text"))))
    assert (compute_status(new_state), new_state.last_end, len(new_state.queue)) == (expected_status, reason, 1)
    assert new_state.last_error == old_state.last_error


def test_a_message_in_place_of_an_approval_goes_to_the_model() -> None:
    old_state = build_chat("Hm.")
    waiting_state = grow(old_state, *transition(old_state, c.Apply("a.txt", "text")))
    waiting_state = grow(waiting_state, e.PermissionRequested("2.0", "2.0", hash="h"), epoch=1)
    assert compute_status(waiting_state) == "requires_action"
    steered = grow(waiting_state, *transition(waiting_state, c.Send("Not there.", "steering")))
    assert type(decide(steered, RunLimits)).__name__ == "CallModel"
