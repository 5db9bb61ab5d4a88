"""Turns the server's figures into tables, a section of the page and a picture. Measures nothing."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from bench.chart import Bar, Panel, draw
from bench.figures import show
from bench.report import Machine, Row, align, markdown
from bench.section import with_section
from bench.server.appends import MANY, Appends
from bench.server.capacity import IN_TIME_MS, Level, most_carried
from bench.server.going_on import GoingOn
from bench.server.idle import Idle

SECTION = "server"
IMAGE = "images/server.svg"


class Outcome(msgspec.Struct, frozen=True):
    """One run, as it is written to disk. By store, where there are several."""

    date: str
    quick: bool
    machine: Machine
    levels: Sequence[Level]
    postgres_level: Level | None
    going_on: Mapping[str, GoingOn]
    appends: Mapping[str, Appends]
    idle: Idle | None
    event_bytes: float
    """Of an event in PostgreSQL, with its indexes; 0 if that was not measured."""
    failures: Sequence[str]


def levels_table(outcome: Outcome) -> list[Row]:
    rows: list[Row] = [
        ("chats, 50 chunks/s each", "median, ms", "95 % within, ms", "CPU per chunk, µs", "of a core", "carried")
    ]
    rows += [_level_row(str(each.chats), each) for each in outcome.levels]
    if outcome.postgres_level is not None:
        rows.append(_level_row(f"{outcome.postgres_level.chats}, PostgreSQL", outcome.postgres_level))
    return rows


def _level_row(name: str, level: Level) -> Row:
    carried = ("yes" if level.carried else "no") + ("" if level.sound else " (machine too busy)")
    return name, show(level.lag_ms), show(level.lag_95_ms), show(level.cpu_us), f"{level.busy:.0%}", carried


def going_on_table(outcome: Outcome) -> list[Row]:
    rows: list[Row] = [("store", "POST answered, ms", "next request, median, ms", "95 % within, ms")]
    return rows + [
        (name, show(each.answered), show(each.median), show(each.p95)) for name, each in outcome.going_on.items()
    ]


def appends_table(outcome: Outcome) -> list[Row]:
    rows: list[Row] = [("durable events a second", "Treadle", "plain inserts", "Treadle ÷ plain")]
    for name, each in outcome.appends.items():
        for title, own, floor in (
            (f"{name}, one chat", each.one, each.floor_one),
            (f"{name}, {MANY} chats at once", each.many, each.floor_many),
        ):
            rows.append((title, show(own), show(floor), show(own / floor)))
    return rows


def memory_table(outcome: Outcome) -> list[Row]:
    if outcome.idle is None:
        return []
    return [
        ("memory per idle chat", "KB"),
        ("without a reader", show(outcome.idle.alone)),
        ("with an open stream", show(outcome.idle.streamed)),
    ]


def tables(outcome: Outcome) -> Iterator[list[Row]]:
    made = (levels_table(outcome), going_on_table(outcome), appends_table(outcome), memory_table(outcome))
    return (rows for rows in made if len(rows) > 1)


def text(outcome: Outcome) -> str:
    """For the terminal."""
    parts = [align(rows) for rows in tables(outcome)]
    if outcome.event_bytes:
        parts.append(f"an event takes {outcome.event_bytes:.0f} bytes in PostgreSQL")
    return "\n\n".join(parts)


_PAGE = """
Measured on {date} by `python -m bench.server`: {machine}, load average {load} before the run. The fake provider and
the readers are separate processes on other cores.

![Delay by number of chats, CPU per chunk, time to the next request, events a second, memory](images/server.svg)

**A core carries {carried} chats** that stream 50 chunks a second each. Each chat has a reader over SSE. One server
process runs on one core, with chats in SQLite. A number of chats is carried if 19 of 20 chunks reach their reader
within {in_time:g} ms after the provider wrote them. CPU is that of the server with all threads, from the provider's
socket to the reader's. On a nearly full core several chunks arrive together, so each chunk costs less.

{levels}

**Time to the next model request**: from the POST of a tool's result until the provider has the next request, on a
server without other work. *Apart* means that the server has no worker: the worker is a separate process, and learns
of the result through the database.

{going_on}

**Throughput of a store**: each event is a separate durable commit, beside plain inserts with the same driver. The
sync time of the disk limits the throughput; many chats share one sync.{event_bytes}

{appends}

**Memory of an idle chat**: the growth of the server's memory with many chats whose run is over. Each open stream also
uses buffers of the kernel, which are not counted.

{memory}
{missing}
"""


def section_text(outcome: Outcome) -> str:
    machine = outcome.machine
    size = f" In PostgreSQL an event of these chats takes {outcome.event_bytes:.0f} bytes with its index."
    return _PAGE.format(
        date=outcome.date,
        machine=f"{machine.cpu}, {machine.cores} cores, {machine.system}, {machine.python}",
        load=machine.load,
        carried=most_carried(outcome.levels),
        in_time=IN_TIME_MS,
        levels=markdown(levels_table(outcome)),
        going_on=markdown(going_on_table(outcome)),
        event_bytes=size if outcome.event_bytes else "",
        appends=markdown(appends_table(outcome)),
        memory=markdown(memory_table(outcome) or [("memory per idle chat", "KB")]),
        missing="".join(f"\nNot measured: {failure}.\n" for failure in outcome.failures),
    )


def write_section(outcome: Outcome, docs: Path) -> None:
    """The section of performance.md and its picture; nothing else of the page."""
    page = docs / "performance.md"
    page.write_text(with_section(page.read_text(), SECTION, section_text(outcome)))
    picture = docs / IMAGE
    picture.parent.mkdir(parents=True, exist_ok=True)
    picture.write_text(draw(panels(outcome)))


def panels(outcome: Outcome) -> list[Panel]:
    levels = [(f"{each.chats} chats", each) for each in outcome.levels]
    made = [
        Panel(
            "95 % of chunks are with their reader within, ms",
            [_bar(name, each.lag_95_ms, "ms") for name, each in levels],
            IN_TIME_MS,
        ),
        Panel("CPU of the server per chunk, µs", [_bar(name, each.cpu_us, "µs") for name, each in levels]),
        Panel(
            "from a tool's result to the next request, ms",
            [
                bar
                for name, each in outcome.going_on.items()
                for bar in (_bar(name, each.median, "ms"), _bar("95 % within", each.p95, "ms"))
            ],
        ),
        Panel(
            "durable events a second (grey: plain inserts)",
            [
                bar
                for name, each in outcome.appends.items()
                for bar in (
                    _bar(name, each.one, ""),
                    _bar("", each.floor_one, "", "floor"),
                    _bar(f"{MANY} chats", each.many, ""),
                    _bar("", each.floor_many, "", "floor"),
                )
            ],
        ),
    ]
    if outcome.idle is not None:
        bars = [_bar("nobody reads", outcome.idle.alone, "KB"), _bar("open stream", outcome.idle.streamed, "KB")]
        made.append(Panel("memory per idle chat, KB", bars))
    return [panel for panel in made if panel.bars]


def _bar(label: str, value: float, unit: str, kind: str = "treadle") -> Bar:
    return Bar(label, kind, value, f"{show(value)} {unit}".strip())
