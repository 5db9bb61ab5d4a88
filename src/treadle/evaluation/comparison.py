"""What got better and what got worse from one evaluation to another."""

from collections.abc import Sequence

from treadle.evaluation.measures import Rate, middle
from treadle.evaluation.report import solved, table
from treadle.evaluation.results import Result, models_of

_MEDIANS = (("turns", "turns"), ("tokens", "tokens"), ("wall, s", "wall_s"))
_SUMS = (
    ("cost, $", "usd"),
    ("tool errors", "tool_errors"),
    ("repaired", "repaired"),
    ("rejected", "rejected"),
    ("approvals", "approvals"),
)


def compare(before: Sequence[Result], after: Sequence[Result]) -> str:
    """For each model that both have; if each has only one, these two. Only tasks that both tried are counted."""
    parts = [_compared(name, old, new) for name, old, new in _pairs(before, after)]
    return "\n\n".join(parts) or "The two have no model in common, and more than one each: nothing to compare."


def _pairs(before: Sequence[Result], after: Sequence[Result]) -> list[tuple[str, list[Result], list[Result]]]:
    old, new = models_of(before), models_of(after)
    names = [(name, name) for name in old if name in new]
    if not names and len(old) == len(new) == 1:
        names = [(old[0], new[0])]
    return [
        (a if a == b else f"{a} → {b}", [r for r in before if r.model == a], [r for r in after if r.model == b])
        for a, b in names
    ]


def _compared(name: str, before: list[Result], after: list[Result]) -> str:
    common = {result.task for result in before} & {result.task for result in after}
    old, new = ([result for result in rows if result.task in common] for rows in (before, after))
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
    left = len({result.task for result in (*before, *after)} - common)
    return "\n".join([*lines, f"Left out: {left} tasks that only one of them tried"] if left else lines)


def _change(task: str, before: list[Result], after: list[Result]) -> tuple[Rate, Rate]:
    return solved([r for r in before if r.task == task]), solved([r for r in after if r.task == task])


def _verdict(before: Rate, after: Rate) -> str:
    if before.value == after.value:
        return "Neither solved more."
    (low, high), (other_low, other_high) = before.bounds, after.bounds
    apart = other_low > high or other_high < low
    more = "more" if after.value > before.value else "less"
    sure = "and the intervals lie apart" if apart else "but the intervals overlap: it may be chance"
    return f"The second solved {more}, {sure}."
