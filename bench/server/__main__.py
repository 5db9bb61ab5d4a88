"""`python -m bench.server [--quick]`: what `treadle serve` carries and how soon it goes on. Prints tables and keeps the
results in bench/results/server.json."""

import argparse
import asyncio
import resource
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TypeVar

import msgspec

from bench.processes import REPOSITORY, Failed
from bench.report import describe_machine, today
from bench.server import postgres
from bench.server.appends import Appends, on_postgres, on_sqlite
from bench.server.capacity import Level, level, most_carried, search
from bench.server.going_on import GoingOn, going_on
from bench.server.idle import Idle, idle
from bench.server.report import Outcome, text, write_section

T = TypeVar("T")


class Sizes(msgspec.Struct, frozen=True):
    """How much is measured."""

    first: int
    """Chats to begin with; 0 of `step` measures these and no others."""
    step: int
    seconds: float
    chats: int
    """For the time until a run goes on, each of 15 rounds."""
    append_s: float
    idle: int


FULL = Sizes(first=50, step=10, seconds=8.0, chats=15, append_s=8.0, idle=1000)
QUICK = Sizes(first=10, step=0, seconds=1.0, chats=1, append_s=0.3, idle=30)


class Run:
    """One run of the benchmark. `url` is a PostgreSQL server, or empty for none."""

    def __init__(self, sizes: Sizes, url: str) -> None:
        self._sizes = sizes
        self._url = url
        self.failures: list[str] = []
        self.levels: list[Level] = []
        self.postgres_level: Level | None = None
        self.going_on: dict[str, GoingOn] = {}
        self.appends: dict[str, Appends] = {}
        self.idle: Idle | None = None
        self.event_bytes = 0.0

    def measure(self) -> None:
        sizes = self._sizes
        self.levels = self._try("chats per core", self._search) or []
        self.idle = self._try("memory per idle chat", lambda: idle(sizes.idle))
        self._keep(self.going_on, "SQLite", "going on, SQLite", lambda: going_on(sizes.chats))
        self._keep(self.appends, "SQLite", "appends, SQLite", lambda: on_sqlite(sizes.append_s))
        if self._url:
            self._on_postgres()

    def _search(self) -> list[Level]:
        sizes = self._sizes
        if not sizes.step:
            return [level(sizes.first, sizes.seconds)]
        levels = search(lambda chats: level(chats, sizes.seconds), sizes.first, sizes.step, say)
        if not all(each.sound for each in levels):
            self.failures.append("the machine was too busy for some of the levels; run it again when it is quiet")
        return levels

    def _on_postgres(self) -> None:
        sizes = self._sizes
        half = max(sizes.first, most_carried(self.levels) // 2)
        with postgres.schema(self._url, "treadle_bench_chats") as store:
            self.postgres_level = self._try("chats per core, PostgreSQL", lambda: level(half, sizes.seconds, store))
        with postgres.schema(self._url, "treadle_bench_going_on") as store:
            self._keep(self.going_on, "PostgreSQL", "going on, PostgreSQL", lambda: going_on(sizes.chats, store))
            name = "PostgreSQL, apart"
            self._keep(self.going_on, name, f"going on, {name}", lambda: going_on(sizes.chats, store, apart=True))
            self.event_bytes = asyncio.run(postgres.bytes_per_event(store))
        with postgres.schema(self._url, "treadle_bench_appends") as store:
            self._keep(self.appends, "PostgreSQL", "appends, PostgreSQL", lambda: on_postgres(store, sizes.append_s))

    def _keep(self, results: dict[str, T], key: str, title: str, work: Callable[[], T]) -> None:
        if (result := self._try(title, work)) is not None:
            results[key] = result

    def _try(self, title: str, work: Callable[[], T]) -> T | None:
        say(title)
        try:
            return work()
        except (Failed, TimeoutError) as error:
            self.failures.append(f"{title}: {error or 'it took too long'}")
            say(f"  {self.failures[-1]}")
            return None


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parse(arguments)
    machine = describe_machine()
    if machine.is_busy:
        say(f"the machine is busy (load {machine.load} on {machine.cores} cores): the figures will be too bad")
        if options.write_docs:
            print("the page is for figures of a quiet machine; nothing was measured", file=sys.stderr)
            return 1
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # a socket for every chat, here and in the server
    with ExitStack() as stack:
        url = "" if options.no_postgres else stack.enter_context(postgres.server())
        run = Run(QUICK if options.quick else FULL, url)
        run.measure()
    outcome = Outcome(
        today(), options.quick, machine, run.levels, run.postgres_level, run.going_on, run.appends, run.idle,
        run.event_bytes, run.failures,
    )  # fmt: skip
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_bytes(msgspec.json.format(msgspec.json.encode(outcome)))
    print(f"\n{text(outcome)}")
    if options.write_docs:
        write_section(outcome, REPOSITORY / "docs")
    return 1 if run.failures else 0


def say(line: str) -> None:
    print(line, flush=True)


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.server", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a smoke run: small numbers, no search")
    parser.add_argument("--no-postgres", action="store_true", help="measure on SQLite only")
    results = REPOSITORY / "bench" / "results" / "server.json"
    parser.add_argument("--json", type=Path, default=results, metavar="FILE")
    parser.add_argument("--write-docs", action="store_true", help="write the section and the picture of performance.md")
    options = parser.parse_args(arguments)
    if options.quick and options.write_docs:
        parser.error("a smoke run is not for the page; leave --quick out")
    return options


if __name__ == "__main__":
    sys.exit(main())
