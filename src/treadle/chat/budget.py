"""The budget (L-11): an estimate is reserved before each model call and settled after it. A call that never settled
counts as spent, so that a crash cannot hide a cost. Time comes in as data."""

from collections.abc import Iterator

import msgspec

from treadle.chat.state import ChatState, RunState, Totals
from treadle.protocol.content import Usage
from treadle.protocol.events import EndReason, Event, LimitKind, LimitReached, LimitWarning, Scope, TurnStart
from treadle.protocol.options import Budget

WARN_AT = 0.8


class Account(msgspec.Struct, frozen=True):
    """One limit: the amount used, the amount that the next call may add, and the amount allowed."""

    scope: Scope
    kind: LimitKind
    used_amount: float
    next: float
    limit: float


def iterate_accounts(state: ChatState, run: RunState | None, estimate: Usage, now_ms: int) -> Iterator[Account]:
    """Every limit that is set, for the run, if there is one, and for the whole chat."""
    run_wall = run.compute_worked_ms(now_ms) / 1000 if run is not None else 0.0
    if run is not None:
        yield from _iterate_budget_accounts("run", state.options.run_budget, run, run_wall, estimate)
    yield from _iterate_budget_accounts(
        "chat", state.options.chat_budget, state.totals, state.totals.wall_ms / 1000 + run_wall, estimate
    )


def _iterate_budget_accounts(
    scope: Scope, budget: Budget, spent: RunState | Totals, wall_s: float, estimate: Usage
) -> Iterator[Account]:
    rows: tuple[tuple[LimitKind, float, float, float], ...] = (
        ("turns", spent.turns, 1, budget.turns),
        ("tokens", spent.usage.tokens, estimate.tokens, budget.tokens),
        ("usd", spent.usage.usd, estimate.usd, budget.usd),
        ("wall_s", wall_s, 0, budget.wall_s),
        ("tool_calls", spent.tool_calls, 0, budget.tool_calls),
    )
    for kind, used_amount, following, limit in rows:
        if limit:
            yield Account(scope, kind, used_amount, following, limit)


def is_exhausted(account: Account) -> bool:
    """True if the next call would exceed the limit. One to which a call adds nothing is exhausted when used up."""
    total = account.used_amount + account.next
    return total > account.limit if account.next else total >= account.limit


def find_broken_limit(state: ChatState, run: RunState | None, estimate: Usage, now_ms: int) -> LimitReached | None:
    """The limit that a call of this size would break. For calls that open no turn: an attempt made again, a
    compaction (also of an idle chat, without a run), a summary."""
    reached = (
        each for each in iterate_accounts(state, run, estimate, now_ms) if each.kind != "turns" and is_exhausted(each)
    )
    return next(map(_make_limit_reached, reached), None)


def _make_limit_reached(account: Account) -> LimitReached:
    return LimitReached(account.kind, account.used_amount, account.limit, account.scope)


def admit(state: ChatState, run: RunState, start: TurnStart, now_ms: int) -> tuple[Event, ...]:
    """The events that begin a model call, with warnings at 80 %; or the limit that forbids it."""
    events: list[Event] = []
    for account in iterate_accounts(state, run, start.reserved, now_ms):
        if is_exhausted(account):
            return (_make_limit_reached(account),)
        if account.used_amount >= WARN_AT * account.limit and (account.scope, account.kind) not in run.warned:
            events.append(LimitWarning(account.kind, account.used_amount, account.limit, account.scope))
    return (*events, start)


def find_exhausted_limit(state: ChatState, run: RunState, now_ms: int) -> LimitReached | None:
    """The limit that is used up already, before any further call: checked before tools run."""
    kinds = ("tool_calls", "wall_s")
    reached = (
        each for each in iterate_accounts(state, run, Usage(), now_ms) if each.kind in kinds and is_exhausted(each)
    )
    return next(map(_make_limit_reached, reached), None)


def format_spent(limit: LimitReached | LimitWarning) -> str:
    """How much of a limit is used, for people: `$0.52 of $0.50`, `5,210 of 5,000 tokens`."""
    match limit.kind:
        case "usd":
            # In cents, and more precisely only where there is more to say.
            used, most = (f"${amount:,.4f}".removesuffix("00") for amount in (limit.used, limit.limit))
            return f"{used} of {most}"
        case "wall_s":
            return f"{limit.used:,.4g} s of {limit.limit:,.4g} s"
        case "turns" | "tokens" | "tool_calls" as kind:
            return f"{limit.used:,.0f} of {limit.limit:,.0f} {kind.replace('_', ' ')}"


def explain_stop(limit: LimitReached, reason: EndReason) -> str:
    """Why a run ended at a limit, in words; empty if it ended for another reason."""
    if reason == "turn_cap":
        return f"stopped at the turn cap: {format_spent(limit)}"
    if reason != "budget":
        return ""
    budget_name = "budget" if limit.scope == "run" else "chat's budget"
    over = "" if limit.used >= limit.limit else "; the next model call might go over it"
    return f"stopped at the {budget_name}: {format_spent(limit)}{over}"
