"""Budgets (L-11): the calls that are refused, the time of the notice, and the costs that count."""

import pytest

from tests.unit.chat.logs import answer, chat, make_message, ran
from treadle.base.types import make_call_key
from treadle.chat.budget import admit, explain_stop, find_broken_limit, find_exhausted_limit
from treadle.chat.fold import fold
from treadle.chat.state import ChatState
from treadle.protocol import events as e
from treadle.protocol.content import Usage
from treadle.protocol.options import Budget, ChatOptions

ESTIMATE = Usage(80, 20, usd=0.1)
START = e.TurnStart(2, reserved=ESTIMATE)


def spent(run: Budget = Budget(), chat_budget: Budget = Budget(), usage: Usage = Usage(500, 100, usd=1.0)) -> ChatState:  # noqa: B008
    """A chat whose second run has used one turn, one call and some tokens; so had its first."""
    first = (make_message(), *answer(1, text="hi", usage=Usage(50, 50, usd=0.5)), e.RunEnd("done"))
    options = ChatOptions(run_budget=run, chat_budget=chat_budget)
    return chat(*first, make_message(), *answer(2, "a", usage=usage), *ran(2), options=options)


def admit_turn(state: ChatState, now_ms: int = 0) -> tuple[e.Event, ...]:
    assert state.run is not None
    return admit(state, state.run, START, now_ms or state.updated_ms)


def test_without_a_budget_everything_passes() -> None:
    assert admit_turn(spent()) == (START,)


@pytest.mark.parametrize(
    ("budget", "kind", "amount"),
    [
        (Budget(turns=1), "turns", 1),
        (Budget(tokens=699), "tokens", 600),
        (Budget(usd=1.05), "usd", 1.0),
        (Budget(tool_calls=1), "tool_calls", 1),
        (Budget(wall_s=4), "wall_s", 5),
    ],
)
def test_a_call_that_would_go_over_is_refused(budget: Budget, kind: str, amount: float) -> None:
    state = spent(budget)
    assert state.run is not None
    events = admit_turn(state, state.run.started_ms + 5_000)
    assert [(x.kind, x.used, x.scope) for x in events if isinstance(x, e.LimitReached)] == [(kind, amount, "run")]
    assert len(events) == 1


@pytest.mark.parametrize("budget", [Budget(turns=2), Budget(tokens=700), Budget(usd=1.1), Budget(tool_calls=2)])
def test_a_call_that_fits_exactly_passes(budget: Budget) -> None:
    assert admit_turn(spent(budget))[-1] == START


def test_the_whole_chat_counts_its_earlier_runs() -> None:
    assert admit_turn(spent(chat_budget=Budget(tokens=799)))[-1] == e.LimitReached("tokens", 700, 799, "chat")
    assert admit_turn(spent(chat_budget=Budget(tokens=800)))[-1] == START
    assert admit_turn(spent(chat_budget=Budget(turns=2)))[-1] == e.LimitReached("turns", 2, 2, "chat")


def test_the_whole_chat_counts_the_time_of_its_earlier_runs_and_of_this_one() -> None:  # L-11
    limited = ChatOptions(chat_budget=Budget(wall_s=10))
    first_run = at(ChatState(), 1_000, e.SessionCreated(limited), make_message())
    idle = at(first_run, 5_000, *answer(1, text="hi"), e.RunEnd("done"))
    state = at(idle, 60_000, make_message(), *answer(2, "a"))
    assert state.run is not None
    assert find_exhausted_limit(state, state.run, 65_999) is None
    assert find_exhausted_limit(state, state.run, 66_000) == e.LimitReached("wall_s", 10, 10, "chat")
    assert admit_turn(state, 66_000) == (e.LimitReached("wall_s", 10, 10, "chat"),)


def test_a_warning_at_80_percent_and_only_one() -> None:
    state = spent(Budget(tokens=750))
    assert admit_turn(state) == (e.LimitWarning("tokens", 600, 750), START)
    assert admit_turn(chat(e.LimitWarning("tokens", 600, 750), state=state)) == (START,)


def test_an_attempt_made_again_counts_all_but_its_turn() -> None:
    for budget, refused in ((Budget(turns=1), False), (Budget(tokens=650), True), (Budget(tokens=700), False)):
        state = spent(budget)
        assert state.run is not None
        assert (find_broken_limit(state, state.run, ESTIMATE, state.updated_ms) is not None) is refused


def test_what_retries_side_calls_and_dead_workers_cost_counts() -> None:  # fault 30
    state = spent()
    lost_turn = e.TurnRetry(3, 1, "worker_lost", usage=Usage(100, 0))
    broken_turn = e.TurnRetry(3, 2, "network", usage=Usage(10, 1))
    side_call = e.ModelCall("compaction", Usage(1_000, 200))
    new_state = chat(e.TurnStart(3, reserved=Usage(100, 0)), lost_turn, broken_turn, side_call, state=state)
    assert new_state.run is not None
    assert state.run is not None
    assert new_state.run.usage.tokens == state.run.usage.tokens + 100 + 11 + 1_200
    assert new_state.totals.usage.tokens == state.totals.usage.tokens + 100 + 11 + 1_200


def test_before_tools_run_only_calls_and_time_are_looked_at() -> None:
    for budget, kind in ((Budget(tool_calls=1), "tool_calls"), (Budget(wall_s=1), "wall_s"), (Budget(tokens=1), None)):
        state = spent(budget)
        assert state.run is not None
        limit_event = find_exhausted_limit(state, state.run, state.run.started_ms + 2_000)
        assert (limit_event.kind if limit_event else None) == kind


# -- waiting for a person is not working time (L-11) ------------------------------------------------------------------


ASKED = e.PermissionRequested("p1", make_call_key(1, 0), "shown")
ALLOWED = e.PermissionCompleted("p1", "allow")
QUESTION = e.UserInputRequested("q1", "Which?", call=make_call_key(1, 0), purpose="ask")


def at(state: ChatState, now_ms: int, *events: e.Event) -> ChatState:
    """The same state after these events, all of them at this time."""
    for event in events:
        state = fold(state, e.Envelope(state.head + 1, state.chat, now_ms, event, 1))
    return state


def begin_run(*names: str) -> ChatState:
    """A run that began at 0:01 and whose model has asked for these calls."""
    start = at(ChatState(), 1_000, e.SessionCreated(ChatOptions(run_budget=Budget(wall_s=10))), make_message())
    return at(start, 2_000, *answer(1, *names))


def get_worked_ms(state: ChatState, now_ms: int) -> int:
    assert state.run is not None
    return state.run.compute_worked_ms(now_ms)


def test_the_time_in_which_an_approval_was_waited_for_is_not_spent() -> None:  # L-11
    waiting_state = at(begin_run("a"), 3_000, ASKED)
    assert get_worked_ms(waiting_state, 3_600_000) == 2_000
    allowed = at(waiting_state, 3_600_000, ALLOWED)
    assert get_worked_ms(allowed, 3_604_000) == 6_000
    assert allowed.run is not None
    assert find_exhausted_limit(allowed, allowed.run, 3_607_999) is None
    assert find_exhausted_limit(allowed, allowed.run, 3_608_000) == e.LimitReached("wall_s", 10, 10)
    end_state = at(allowed, 3_604_000, *ran(1), e.RunEnd("done"))
    assert end_state.totals.wall_ms == 6_000


@pytest.mark.parametrize("end", [e.Interrupted(), e.UserInputCompleted("q1", "this")])
def test_a_question_is_waited_for_until_it_is_answered_or_the_run_is_stopped(end: e.Event) -> None:  # L-11
    waiting_state = at(begin_run("a"), 3_000, QUESTION)
    assert get_worked_ms(at(waiting_state, 9_000, end), 10_000) == 3_000


def test_the_question_of_the_loop_itself_is_one_for_a_person() -> None:  # L-03, L-11
    waiting_state = at(begin_run(), 3_000, e.UserInputRequested("limit.5", "Go on?", ("continue", "stop"), "limit"))
    assert get_worked_ms(waiting_state, 900_000) == 2_000


def test_it_works_while_another_call_runs_and_while_a_client_works() -> None:  # L-11, A-02
    running = at(begin_run("a", "b"), 3_000, e.ExecutionStart(make_call_key(1, 0), "a"))
    waiting_state = at(running, 3_000, e.PermissionRequested("p1", make_call_key(1, 1), "shown"))
    assert get_worked_ms(waiting_state, 8_000) == 7_000
    approval_only = at(waiting_state, 8_000, e.ExecutionComplete(make_call_key(1, 0), True, "ok"))
    assert get_worked_ms(approval_only, 90_000) == 7_000  # from here on nothing but the person is waited for
    client = at(begin_run("a"), 3_000, e.ExternalToolRequested(make_call_key(1, 0), "a"))
    assert get_worked_ms(client, 8_000) == 7_000


def test_a_clock_that_goes_back_gives_no_time_back() -> None:  # fault 15
    waiting_state = at(begin_run("a"), 3_000, ASKED)
    assert get_worked_ms(at(waiting_state, 2_000, ALLOWED), 3_000) == 2_000


# -- the end says which budget, with the sum (L-11) -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("limit", "reason", "words"),
    [
        (e.LimitReached("usd", 0.52, 0.5), "budget", "stopped at the budget: $0.52 of $0.50"),
        (e.LimitReached("usd", 0.00123, 0.001), "budget", "stopped at the budget: $0.0012 of $0.0010"),
        (
            e.LimitReached("usd", 0.48, 0.5),
            "budget",
            "stopped at the budget: $0.48 of $0.50; the next model call might go over it",
        ),
        (
            e.LimitReached("tokens", 5_210, 5_000, "chat"),
            "budget",
            "stopped at the chat's budget: 5,210 of 5,000 tokens",
        ),
        (e.LimitReached("wall_s", 12.34, 10), "budget", "stopped at the budget: 12.34 s of 10 s"),
        (e.LimitReached("tool_calls", 3, 3), "budget", "stopped at the budget: 3 of 3 tool calls"),
        (e.LimitReached("turns", 20, 20), "turn_cap", "stopped at the turn cap: 20 of 20 turns"),
        (e.LimitReached("turns", 20, 20), "error", ""),
    ],
)
def test_a_run_that_ended_at_a_limit_says_which_and_how_much(
    limit: e.LimitReached, reason: e.EndReason, words: str
) -> None:
    assert explain_stop(limit, reason) == words
