"""Budgets (L-11): what is refused, when it is said, and what counts."""

import pytest

from tests.unit.chat.logs import answer, chat, ran, said
from treadle.chat.budget import admit, forbidden, over_budget
from treadle.chat.state import ChatState
from treadle.protocol import events as e
from treadle.protocol.content import Usage
from treadle.protocol.options import Budget, ChatOptions

ESTIMATE = Usage(80, 20, usd=0.1)
START = e.TurnStart(2, reserved=ESTIMATE)


def spent(run: Budget = Budget(), whole: Budget = Budget(), usage: Usage = Usage(500, 100, usd=1.0)) -> ChatState:  # noqa: B008
    """A chat whose second run has used one turn, one call and some tokens; so had its first."""
    first = (said(), *answer(1, text="hi", usage=Usage(50, 50, usd=0.5)), e.RunEnd("done"))
    options = ChatOptions(run_budget=run, chat_budget=whole)
    return chat(*first, said(), *answer(2, "a", usage=usage), *ran(2), options=options)


def admitted(state: ChatState, now_ms: int = 0) -> tuple[e.Event, ...]:
    assert state.run is not None
    return admit(state, state.run, START, now_ms or state.updated_ms)


def test_without_a_budget_everything_passes() -> None:
    assert admitted(spent()) == (START,)


@pytest.mark.parametrize(
    ("budget", "kind", "used"),
    [
        (Budget(turns=1), "turns", 1),
        (Budget(tokens=699), "tokens", 600),
        (Budget(usd=1.05), "usd", 1.0),
        (Budget(tool_calls=1), "tool_calls", 1),
        (Budget(wall_s=4), "wall_s", 5),
    ],
)
def test_a_call_that_would_go_over_is_refused(budget: Budget, kind: str, used: float) -> None:
    state = spent(budget)
    assert state.run is not None
    found = admitted(state, state.run.started_ms + 5_000)
    assert [(x.kind, x.used, x.scope) for x in found if isinstance(x, e.LimitReached)] == [(kind, used, "run")]
    assert len(found) == 1


@pytest.mark.parametrize("budget", [Budget(turns=2), Budget(tokens=700), Budget(usd=1.1), Budget(tool_calls=2)])
def test_a_call_that_fits_exactly_passes(budget: Budget) -> None:
    assert admitted(spent(budget))[-1] == START


def test_the_whole_chat_counts_its_earlier_runs() -> None:
    assert admitted(spent(whole=Budget(tokens=799)))[-1] == e.LimitReached("tokens", 700, 799, "chat")
    assert admitted(spent(whole=Budget(tokens=800)))[-1] == START
    assert admitted(spent(whole=Budget(turns=2)))[-1] == e.LimitReached("turns", 2, 2, "chat")


def test_a_warning_at_80_percent_and_only_one() -> None:
    state = spent(Budget(tokens=750))
    assert admitted(state) == (e.LimitWarning("tokens", 600, 750), START)
    assert admitted(chat(e.LimitWarning("tokens", 600, 750), state=state)) == (START,)


def test_an_attempt_made_again_counts_all_but_its_turn() -> None:
    for budget, refused in ((Budget(turns=1), False), (Budget(tokens=650), True), (Budget(tokens=700), False)):
        state = spent(budget)
        assert state.run is not None
        assert (forbidden(state, state.run, ESTIMATE, state.updated_ms) is not None) is refused


def test_what_retries_side_calls_and_dead_workers_cost_counts() -> None:  # fault 30
    state = spent()
    lost = e.TurnRetry(3, 1, "worker_lost", usage=Usage(100, 0))
    cut = e.TurnRetry(3, 2, "network", usage=Usage(10, 1))
    made = e.ModelCall("compaction", Usage(1_000, 200))
    after = chat(e.TurnStart(3, reserved=Usage(100, 0)), lost, cut, made, state=state)
    assert after.run is not None
    assert state.run is not None
    assert after.run.usage.tokens == state.run.usage.tokens + 100 + 11 + 1_200
    assert after.totals.usage.tokens == state.totals.usage.tokens + 100 + 11 + 1_200


def test_before_tools_run_only_calls_and_time_are_looked_at() -> None:
    for budget, kind in ((Budget(tool_calls=1), "tool_calls"), (Budget(wall_s=1), "wall_s"), (Budget(tokens=1), None)):
        state = spent(budget)
        assert state.run is not None
        found = over_budget(state, state.run, state.run.started_ms + 2_000)
        assert (found.kind if found else None) == kind
