"""Compares two evaluations: improvements and regressions."""

from collections.abc import Sequence

from treadle.library.evaluation.measures import Rate, middle
from treadle.library.evaluation.report import solved, table
from treadle.library.evaluation.results import Result, models_of

_MEDIANS = (("turns", "turns"), ("tokens", "tokens"), ("wall, s", "wall_s"))
_SUMS = (
    ("cost, $", "usd"),
    ("tool errors", "tool_errors"),
    ("repaired", "repaired"),
    ("rejected", "rejected"),
    ("approvals", "approvals"),
)


def compare(old_results: Sequence[Result], new_results: Sequence[Result]) -> str:
    """For each model that both have; if each has only one, these two. Only tasks that both tried are counted."""
    parts = [_compared(name, old, new) for name, old, new in _pairs(old_results, new_results)]
    return "\n\n".join(parts) or "The two have no model in common, and more than one each: nothing to compare."


def _pairs(
    old_results: Sequence[Result], new_results: Sequence[Result]
) -> list[tuple[str, list[Result], list[Result]]]:
    old, new = models_of(old_results), models_of(new_results)
    names = [(name, name) for name in old if name in new]
    if not names and len(old) == len(new) == 1:
        names = [(old[0], new[0])]
    return [
        (
            a if a == b else f"{a} → {b}",
            [r for r in old_results if r.model == a],
            [r for r in new_results if r.model == b],
        )
        for a, b in names
    ]


def _compared(name: str, old_results: list[Result], new_results: list[Result]) -> str:
    common = {result.task for result in old_results} & {result.task for result in new_results}
    old, new = ([result for result in rows if result.task in common] for rows in (old_results, new_results))
    first, second = solved(old), solved(new)
    rows = [["", "before", "after"], ["solved", str(first), str(second)]]
    rows += [
        [label, *(f"{middle([getattr(r, field) for r in each]):g}" for each in (old, new))] for label, field in _MEDIANS
    ]
    rows += [[label, *(f"{sum(getattr(r, field) for r in each):g}" for each in (old, new))] for label, field in _SUMS]
    changes = {task: _change(task, old, new) for task in sorted(common)}
    better = [f"  {task}: {a.hits}/{a.of} → {b.hits}/{b.of}" for task, (a, b) in changes.items() if b.value > a.value]
    worse = [f"  {task}: {a.hits}/{a.of} → {b.hits}/{b.of}" for task, (a, b) in changes.items() if b.value < a.value]
    lines = [name, *table(rows), _verdict(first, second), f"Better: {len(better)} of {len(common)} tasks", *better]
    lines += [f"Worse: {len(worse)} of {len(common)} tasks", *worse]
    skipped = len({result.task for result in (*old_results, *new_results)} - common)
    return "\n".join([*lines, f"Left out: {skipped} tasks that only one of them tried"] if skipped else lines)


def _change(task: str, old_results: list[Result], new_results: list[Result]) -> tuple[Rate, Rate]:
    return solved([r for r in old_results if r.task == task]), solved([r for r in new_results if r.task == task])


def _verdict(old_rate: Rate, new_rate: Rate) -> str:
    if old_rate.value == new_rate.value:
        return "Neither solved more."
    (low, high), (other_low, other_high) = old_rate.bounds, new_rate.bounds
    is_disjoint = other_low > high or other_high < low
    more = "more" if new_rate.value > old_rate.value else "less"
    sure = "and the intervals lie apart" if is_disjoint else "but the intervals overlap: it may be chance"
    return f"The second solved {more}, {sure}."
