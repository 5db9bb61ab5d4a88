"""Reports of an evaluation: rates with intervals, medians, as text, as a plot; and the comparison of two."""

from collections.abc import Callable, Sequence
from html import escape
from math import sqrt
from statistics import median

import msgspec

from treadle.base.inert import make_inert_line
from treadle.library.evaluation.tasks import ERRORS, Result

_Z = 1.96  # of a normal distribution, for 95 %


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


def compute_solve_rate(rows: Sequence[Result]) -> Rate:
    return Rate(sum(row.solved for row in rows), len(rows))


def _compute_median(rows: Sequence[Result], field: str) -> float:
    return median([getattr(row, field) for row in rows]) if rows else 0.0


def _sum_values(rows: Sequence[Result], field: str) -> str:
    return f"{sum(getattr(row, field) for row in rows)} of {sum(row.tool_calls for row in rows)}"


def list_model_names(results: Sequence[Result]) -> list[str]:
    return list(dict.fromkeys(result.model for result in results))


def _select_rows(results: Sequence[Result], model: str | None = None, task: str | None = None) -> list[Result]:
    return [each for each in results if model in (None, each.model) and task in (None, each.task)]


_COLUMNS: dict[str, Callable[[Sequence[Result]], str]] = {
    "solved": lambda rows: str(compute_solve_rate(rows)), "turns": lambda rows: f"{_compute_median(rows, 'turns'):g}",
    "tokens": lambda rows: f"{_compute_median(rows, 'tokens'):,.0f}",
    "cost": lambda rows: f"${sum(row.usd for row in rows):.4f}",
    "wall": lambda rows: f"{_compute_median(rows, 'wall_s'):.1f} s",
    "tool errors": lambda rows: _sum_values(rows, "tool_errors"), 
    "repaired": lambda rows: _sum_values(rows, "repaired"),
    "rejected": lambda rows: _sum_values(rows, "rejected"), "approvals": lambda rows: _sum_values(rows, "approvals"),
    "run errors": lambda rows: str(sum(row.ended in ERRORS for row in rows)),
}  # fmt: skip
NOTE = "turns, tokens and wall time: median of an attempt · the rest: sum of all · in parentheses: 95 % interval"


def text_report(results: Sequence[Result]) -> str:
    """Each model in a line, then each task with every model."""

    def format_task_cell(rows: Sequence[Result]) -> str:
        rate, turns, wall = compute_solve_rate(rows), _compute_median(rows, "turns"), _compute_median(rows, "wall_s")
        return f"{rate.hits}/{rate.of}  {turns:g} turns, {wall:.1f} s" if rows else "-"

    models = list_model_names(results)
    lines = [
        [model, *(format_cell(_select_rows(results, model)) for format_cell in _COLUMNS.values())] for model in models
    ]
    tasks = list(dict.fromkeys(result.task for result in results))
    cells = [[task, *(format_task_cell(_select_rows(results, model, task)) for model in models)] for task in tasks]
    model_table = format_table([["model", *_COLUMNS], *lines])
    return "\n".join([*model_table, NOTE, "", *format_table([["task", *models], *cells])])


def format_table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows in columns; the first is the head."""
    clean = [[make_inert_line(cell) for cell in row] for row in rows]
    widths = [max(len(row[at]) for row in clean) for at in range(len(clean[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in clean]
    return [lines[0], "─" * max(map(len, lines)), *lines[1:]]


# -- as a plot: for each model the rate of solved attempts with its interval, and each task as a cell -----------------

_LEFT, _WIDTH, _ROW, _CELL, _TOP = 230, 360, 34, 16, 46
_INK, _SOFT, _BAR = "#24292f", "#8c959f", "#4c8bf5"


def render_svg_plot(results: Sequence[Result], title: str) -> str:
    models = list_model_names(results)
    tasks = list(dict.fromkeys(result.task for result in results))
    grid = _TOP + _ROW * len(models) + 60
    height = grid + _CELL * len(tasks) + 20
    width = _LEFT + max(_WIDTH + 90, 60 * len(models))
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="12">',
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
        _render_text(12, 22, title, size=15),
    ]
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        at, bottom = _LEFT + share * _WIDTH, _TOP + _ROW * len(models)
        line = f'<path d="M{at} {_TOP}V{bottom}" stroke="{_SOFT}" stroke-width="0.5" fill="none"/>'
        parts.append(line + _render_text(at - 10, bottom + 14, f"{share:.0%}", size=10))
    for number, model in enumerate(models):
        rows = _select_rows(results, model)
        label = model if len(model) <= 30 else f"…{model[-29:]}"
        parts += _render_bar(f"{number + 1} · {label}", rows, _TOP + _ROW * number)
        parts.append(_render_text(_LEFT + number * 60 + 22, grid - 4, str(number + 1), size=11))
        parts += [_render_cell(rows, task, _LEFT + number * 60, grid + _CELL * at) for at, task in enumerate(tasks)]
    parts += [_render_text(12, grid + _CELL * at + 12, task, size=11) for at, task in enumerate(tasks)]
    return "\n".join([*parts, "</svg>", ""])


def _render_bar(label: str, rows: Sequence[Result], top: int) -> list[str]:
    rate = compute_solve_rate(rows)
    low, high = (_LEFT + share * _WIDTH for share in rate.bounds)
    middle = top + _ROW / 2
    return [
        _render_text(12, middle + 4, label),
        f'<rect x="{_LEFT}" y="{top + 8}" width="{rate.value * _WIDTH:.1f}" height="{_ROW - 16}" fill="{_BAR}"/>',
        f'<path d="M{low:.1f} {middle}H{high:.1f}M{low:.1f} {middle - 5}v10M{high:.1f} {middle - 5}v10" '
        f'stroke="{_INK}" fill="none"/>',
        _render_text(_LEFT + _WIDTH + 12, middle + 4, f"{rate.hits}/{rate.of} = {rate.value:.0%}"),
    ]


def _render_cell(rows: Sequence[Result], task: str, left_edge: int, top: int) -> str:
    rate = compute_solve_rate(_select_rows(rows, task=task))
    return (
        f'<rect x="{left_edge}" y="{top + 2}" width="52" height="{_CELL - 4}" fill="{_BAR}" stroke="{_SOFT}" '
        f'fill-opacity="{rate.value:.2f}"><title>{escape(make_inert_line(task))}: '
        f"{rate.hits} of {rate.of}</title></rect>"
    )


def _render_text(x: float, y: float, text: str, size: int = 12) -> str:
    return f'<text x="{x}" y="{y}" font-size="{size}" fill="{_INK}">{escape(make_inert_line(text))}</text>'


_MEDIANS = {"turns": "turns", "tokens": "tokens", "wall, s": "wall_s"}
_SUMS = {"cost, $": "usd", "tool errors": "tool_errors"} | {
    name: name for name in ("repaired", "rejected", "approvals")
}


def compare(old_results: Sequence[Result], new_results: Sequence[Result]) -> str:
    """For each model that both have; if each has only one, these two. Only tasks that both tried are counted."""
    old, new = list_model_names(old_results), list_model_names(new_results)
    names = [(name, name) for name in old if name in new]
    if not names and len(old) == len(new) == 1:
        names = [(old[0], new[0])]
    parts = [
        _compare(a if a == b else f"{a} → {b}", _select_rows(old_results, a), _select_rows(new_results, b))
        for a, b in names
    ]
    return "\n\n".join(parts) or "The two have no model in common, and more than one each: nothing to compare."


def _compare(name: str, old_results: list[Result], new_results: list[Result]) -> str:
    common = {result.task for result in old_results} & {result.task for result in new_results}
    old, new = ([result for result in rows if result.task in common] for rows in (old_results, new_results))
    first, second = compute_solve_rate(old), compute_solve_rate(new)
    rows = [["", "before", "after"], ["solved", str(first), str(second)]]
    rows += [
        [label, *(f"{_compute_median(each, field):g}" for each in (old, new))] for label, field in _MEDIANS.items()
    ]
    for label, field in _SUMS.items():
        rows.append([label, *(f"{sum(getattr(r, field) for r in each):g}" for each in (old, new))])
    changes = {
        task: [compute_solve_rate(_select_rows(each, task=task)) for each in (old, new)] for task in sorted(common)
    }
    better = [f"  {task}: {a.hits}/{a.of} → {b.hits}/{b.of}" for task, (a, b) in changes.items() if b.value > a.value]
    worse = [f"  {task}: {a.hits}/{a.of} → {b.hits}/{b.of}" for task, (a, b) in changes.items() if b.value < a.value]
    verdict = "Neither solved more."
    if first.value != second.value:
        (low, high), (other_low, other_high) = first.bounds, second.bounds
        is_disjoint = other_low > high or other_high < low
        more = "more" if second.value > first.value else "less"
        sure = "and the intervals lie apart" if is_disjoint else "but the intervals overlap: it may be chance"
        verdict = f"The second solved {more}, {sure}."
    lines = [name, *format_table(rows), verdict, f"Better: {len(better)} of {len(common)} tasks", *better]
    lines += [f"Worse: {len(worse)} of {len(common)} tasks", *worse]
    skipped = len({result.task for result in (*old_results, *new_results)} - common)
    return "\n".join([*lines, f"Left out: {skipped} tasks that only one of them tried"] if skipped else lines)
