"""The figures of an attempt, from its chat's log, and what can be said of many: rates with intervals, medians."""

from collections.abc import Iterable, Sequence
from math import sqrt
from statistics import median

import msgspec

from treadle.chat.state import ChatState
from treadle.protocol import events as e

_Z = 1.96  # of a normal distribution, for 95 %


def counts(events: Iterable[e.Envelope]) -> dict[str, int]:
    """By field of a Result."""
    counters = {"tool_errors": 0, "repaired": 0, "rejected": 0, "approvals": 0}
    has_arguments: dict[str, bool] = {}
    for envelope in events:
        match envelope.data:
            case e.AssistantMessage(tool_requests=requests):
                counters["repaired"] += sum(request.repaired for request in requests)
            case e.ExecutionStart(call=call, arguments=arguments):
                has_arguments[call] = bool(arguments)
            case e.ExecutionComplete(call=call, success=False):
                counters["tool_errors"] += 1
                counters["rejected"] += not has_arguments.get(call, False)  # arguments that do not fit are not recorded
            case e.PermissionRequested() | e.PermissionCompleted(by="policy", auto_approved=False):  # or discarded
                counters["approvals"] += 1
    return counters


def figures(state: ChatState, events: Iterable[e.Envelope]) -> dict[str, int | float]:
    """By field of a Result."""
    totals = state.totals
    return {
        "turns": totals.turns,
        "input_tokens": totals.usage.input,
        "output_tokens": totals.usage.output,
        "usd": round(totals.usage.usd, 6),
        "wall_s": round(totals.wall_ms / 1000, 3),
        "tool_calls": totals.tool_calls,
        **counts(events),
    }


class Rate(msgspec.Struct, frozen=True):
    """So many of so many, and between which bounds the true rate lies in 19 of 20 cases (Wilson's interval)."""

    hits: int
    of: int

    @property
    def value(self) -> float:
        return self.hits / self.of if self.of else 0.0

    @property
    def bounds(self) -> tuple[float, float]:
        if not self.of:
            return 0.0, 1.0
        p, n, z = self.value, self.of, _Z
        middle = (p + z * z / (2 * n)) / (1 + z * z / n)
        half = z / (1 + z * z / n) * sqrt(p * (1 - p) / n + z * z / (4 * n * n))
        return max(0.0, middle - half), min(1.0, middle + half)

    def __str__(self) -> str:
        low, high = self.bounds
        return f"{self.hits}/{self.of} = {self.value:.0%} ({low:.0%}\N{EN DASH}{high:.0%})"


def middle(values: Sequence[float]) -> float:
    return median(values) if values else 0.0
