"""Turns results into tables, a page and a picture. Computes ratios, measures nothing."""

import datetime
import os
import platform
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from bench.adapters import Comparisons, comparisons_table, sdk_versions
from bench.chart import Bar, Panel, draw
from bench.contest import CONTESTANTS, Contestant
from bench.environments import versions
from bench.figures import BY_KEY, CHARTED, FIGURES, SUMMARY, Figure
from bench.measure import Results
from bench.section import section

Row = Sequence[str]


class Machine(msgspec.Struct, frozen=True):
    cpu: str
    cores: int
    python: str
    system: str
    load: float
    """The load average when the run began: what else the machine was doing."""

    @property
    def is_busy(self) -> bool:
        """Whether times by the clock say more about the other work than about a contestant."""
        return self.load > self.cores / 2


class Outcome(msgspec.Struct, frozen=True):
    """One run of the benchmark, as it is written to disk."""

    date: str
    quick: bool
    machine: Machine
    results: Results
    adapters: Comparisons
    failures: list[str]


def describe_machine() -> Machine:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return Machine(
        names[0] if names else platform.processor() or platform.machine(),
        os.cpu_count() or 1,
        f"{platform.python_implementation()} {platform.python_version()}",
        f"{platform.system()} {platform.machine()}",
        round(os.getloadavg()[0], 2),
    )


def today() -> str:
    return datetime.datetime.now(datetime.UTC).date().isoformat()


def figures_table(results: Results) -> list[Row]:
    """Every figure of every contestant, with the target and whether Treadle reaches it."""
    present = _present(results)
    rows: list[Row] = [("figure", *(each.title for each in present), "target", "reached")]
    for figure in _measured(results):
        values = results[figure.key]
        cells = (figure.show(values[each.name]) if each.name in values else "-" for each in present)
        target = f"≤ {figure.target:g}" if figure.target else ""
        rows.append((figure.label, *cells, target, reached(figure, results)))
    return rows


def ratios_table(results: Results) -> list[Row]:
    """Treadle as a multiple of each floor; each peer as a multiple of Treadle."""
    others = [each for each in _present(results) if each.kind != "treadle"]
    heads = (f"Treadle ÷ {each.title}" if each.kind == "floor" else f"{each.title} ÷ Treadle" for each in others)
    rows: list[Row] = [("figure", *heads)]
    for figure in _measured(results):
        values = results[figure.key]
        own = values.get("treadle")
        if own is not None and len(values) > 1 and figure.unit:
            rows.append((figure.title, *(_ratio(each, own, values.get(each.name)) for each in others)))
    return rows


def summary_table(outcome: Outcome) -> list[Row]:
    """Treadle's important figures, with the command that measures each."""
    measured = f"{outcome.date}, {outcome.machine.system.rpartition(' ')[2]}"
    rows: list[Row] = [("figure", "Treadle", "target", "reached", "command", "measured")]
    for key, scenario in SUMMARY.items():
        figure, own = BY_KEY[key], outcome.results.get(key, {}).get("treadle")
        if own is not None:
            target = f"≤ {figure.target:g}" if figure.target else ""
            command = f"`python -m bench {scenario}`"
            rows.append((figure.label, figure.show(own), target, reached(figure, outcome.results), command, measured))
    return rows


def reached(figure: Figure, results: Results) -> str:
    own = results[figure.key].get("treadle")
    if figure.target is None or own is None:
        return ""
    return "yes" if own <= figure.target else "no"


def align(rows: Iterable[Row]) -> str:
    """A table for the terminal."""
    rows = list(rows)
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = []
    for row in rows:
        cells = [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
        lines.append("  ".join(cells))
    return "\n".join(lines)


def write_page(outcome: Outcome, template: Path, docs: Path) -> None:
    """performance.md and its picture."""
    machine = outcome.machine
    peers = ", ".join(versions(each) for each in _present(outcome.results) if each.kind == "peer")
    written = docs / "performance.md"
    before = written.read_text() if written.exists() else ""  # with sections by hand, or by other benches
    page = template.read_text().format(
        date=outcome.date,
        machine=f"{machine.cpu}, {machine.cores} cores, {machine.system}, {machine.python}",
        load=machine.load,
        peers=peers or "none",
        figures=markdown(figures_table(outcome.results)),
        ratios=markdown(ratios_table(outcome.results)),
        adapters=markdown(comparisons_table(outcome.adapters)),
        sdks=sdk_versions(outcome.adapters) or "none",
        missing="".join(f"\nNot measured: {failure}.\n" for failure in outcome.failures),
        summary=_summary(outcome, section(before, "summary")),
        **{name: section(before, name) for name in ("server", "terminal", "web", "parts", "doubts", "earlier")},
    )
    written.write_text(page)
    picture = docs / "images" / "performance.svg"
    picture.parent.mkdir(parents=True, exist_ok=True)
    picture.write_text(draw(panels(outcome.results)))


def _summary(outcome: Outcome, before: str) -> str:
    """The summary with the figures of this run; the rows of other benches are kept."""
    kept = [line for line in before.splitlines()[2:] if "`python -m bench " not in line]
    return "\n".join([markdown(summary_table(outcome)), *kept, ""])


def panels(results: Results) -> list[Panel]:
    made = []
    for figure in (BY_KEY[key] for key in CHARTED if key in results):
        values = results[figure.key]
        bars = [
            Bar(each.title, each.kind, values[each.name], f"{figure.show(values[each.name])} {figure.unit}")
            for each in CONTESTANTS
            if each.name in values
        ]
        made.append(Panel(figure.title, bars, figure.target))
    return made


def _present(results: Results) -> list[Contestant]:
    names = {name for values in results.values() for name in values}
    return [each for each in CONTESTANTS if each.name in names]


def _measured(results: Results) -> list[Figure]:
    return [figure for figure in FIGURES if figure.key in results]


def _ratio(other: Contestant, own: float, value: float | None) -> str:
    if value is None or value <= 0 or own <= 0:
        return "-"
    ratio = own / value if other.kind == "floor" else value / own
    return f"{ratio:.1f}" if ratio < 10 else f"{ratio:.0f}"


def markdown(rows: Sequence[Row]) -> str:
    """A table for a page."""
    head, *rest = rows
    lines = [head, ["---", *("---:" for _ in head[1:])], *rest]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
