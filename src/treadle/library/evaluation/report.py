"""The report of an evaluation, as text."""

from collections.abc import Callable, Sequence

from treadle.base.inert import inert_line
from treadle.library.evaluation.measures import Rate, middle
from treadle.library.evaluation.results import ERRORS, Result, models_of

_COLUMNS: tuple[tuple[str, Callable[[Sequence[Result]], str]], ...] = (
    ("solved", lambda rows: str(solved(rows))),
    ("turns", lambda rows: f"{middle([row.turns for row in rows]):g}"),
    ("tokens", lambda rows: f"{middle([row.tokens for row in rows]):,.0f}"),
    ("cost", lambda rows: f"${sum(row.usd for row in rows):.4f}"),
    ("wall", lambda rows: f"{middle([row.wall_s for row in rows]):.1f} s"),
    ("tool errors", lambda rows: _of(rows, "tool_errors")),
    ("repaired", lambda rows: _of(rows, "repaired")),
    ("rejected", lambda rows: _of(rows, "rejected")),
    ("approvals", lambda rows: _of(rows, "approvals")),
    ("run errors", lambda rows: str(sum(row.ended in ERRORS for row in rows))),
)
NOTE = "turns, tokens and wall time: median of an attempt · the rest: sum of all · in parentheses: 95 % interval"


def solved(rows: Sequence[Result]) -> Rate:
    return Rate(sum(row.solved for row in rows), len(rows))


def _of(rows: Sequence[Result], field: str) -> str:
    return f"{sum(getattr(row, field) for row in rows)} of {sum(row.tool_calls for row in rows)}"


def text_report(results: Sequence[Result]) -> str:
    """Each model in a line, then each task with every model."""
    models = models_of(results)
    heads = ["model", *(name for name, _ in _COLUMNS)]
    lines = [[model, *(format_cell(_rows(results, model)) for _, format_cell in _COLUMNS)] for model in models]
    tasks = list(dict.fromkeys(result.task for result in results))
    cells = [[task, *(_cell(_rows(results, model, task)) for model in models)] for task in tasks]
    return "\n".join([*table([heads, *lines]), NOTE, "", *table([["task", *models], *cells])])


def _rows(results: Sequence[Result], model: str, task: str | None = None) -> list[Result]:
    return [result for result in results if result.model == model and task in (None, result.task)]


def _cell(rows: Sequence[Result]) -> str:
    if not rows:
        return "-"
    rate = solved(rows)
    turns, wall = middle([row.turns for row in rows]), middle([row.wall_s for row in rows])
    return f"{rate.hits}/{rate.of}  {turns:g} turns, {wall:.1f} s"


def table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows in columns; the first is the head."""
    clean = [[inert_line(cell) for cell in row] for row in rows]
    widths = [max(len(row[at]) for row in clean) for at in range(len(clean[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in clean]
    return [lines[0], "─" * max(map(len, lines)), *lines[1:]]
