"""The plot of an evaluation: for each model the rate of solved attempts with its interval, and each task as a cell."""

from collections.abc import Sequence
from html import escape

from treadle.base.inert import inert_line
from treadle.library.evaluation.report import solved
from treadle.library.evaluation.results import Result, models_of

_LEFT, _WIDTH, _ROW, _CELL, _TOP = 230, 360, 34, 16, 46
_INK, _SOFT, _BAR = "#24292f", "#8c959f", "#4c8bf5"


def svg_plot(results: Sequence[Result], title: str) -> str:
    models = models_of(results)
    tasks = list(dict.fromkeys(result.task for result in results))
    grid = _TOP + _ROW * len(models) + 60
    height = grid + _CELL * len(tasks) + 20
    width = _LEFT + max(_WIDTH + 90, 60 * len(models))
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="12">',
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
        _text(12, 22, title, size=15),
        *(_scale(share, _TOP, _TOP + _ROW * len(models)) for share in (0.0, 0.25, 0.5, 0.75, 1.0)),
    ]
    for number, model in enumerate(models):
        rows = [result for result in results if result.model == model]
        label = model if len(model) <= 30 else f"…{model[-29:]}"
        parts += _bar(f"{number + 1} · {label}", rows, _TOP + _ROW * number)
        parts.append(_text(_LEFT + number * 60 + 22, grid - 4, str(number + 1), size=11))
        parts += [_cell(rows, task, _LEFT + number * 60, grid + _CELL * at) for at, task in enumerate(tasks)]
    parts += [_text(12, grid + _CELL * at + 12, task, size=11) for at, task in enumerate(tasks)]
    return "\n".join([*parts, "</svg>", ""])


def _bar(label: str, rows: Sequence[Result], top: int) -> list[str]:
    rate = solved(rows)
    low, high = (_LEFT + share * _WIDTH for share in rate.bounds)
    middle = top + _ROW / 2
    return [
        _text(12, middle + 4, label),
        f'<rect x="{_LEFT}" y="{top + 8}" width="{rate.value * _WIDTH:.1f}" height="{_ROW - 16}" fill="{_BAR}"/>',
        f'<path d="M{low:.1f} {middle}H{high:.1f}M{low:.1f} {middle - 5}v10M{high:.1f} {middle - 5}v10" '
        f'stroke="{_INK}" fill="none"/>',
        _text(_LEFT + _WIDTH + 12, middle + 4, f"{rate.hits}/{rate.of} = {rate.value:.0%}"),
    ]


def _cell(rows: Sequence[Result], task: str, left_edge: int, top: int) -> str:
    rate = solved([result for result in rows if result.task == task])
    return (
        f'<rect x="{left_edge}" y="{top + 2}" width="52" height="{_CELL - 4}" fill="{_BAR}" stroke="{_SOFT}" '
        f'fill-opacity="{rate.value:.2f}"><title>{escape(inert_line(task))}: {rate.hits} of {rate.of}</title></rect>'
    )


def _scale(share: float, top: int, bottom: int) -> str:
    at = _LEFT + share * _WIDTH
    line = f'<path d="M{at} {top}V{bottom}" stroke="{_SOFT}" stroke-width="0.5" fill="none"/>'
    return line + _text(at - 10, bottom + 14, f"{share:.0%}", size=10)


def _text(x: float, y: float, text: str, size: int = 12) -> str:
    return f'<text x="{x}" y="{y}" font-size="{size}" fill="{_INK}">{escape(inert_line(text))}</text>'
