"""How many chats a core carries: chats that stream 50 chunks a second, each with a reader. The server has one core for
itself; provider and readers share the others. A number of chats is carried if chunks reach their readers in time."""

import asyncio
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec

from bench.processes import REPOSITORY, Failed, environment
from bench.server.postgres import DISK
from bench.server.readers import WAIT_S, Lags, quantile, read
from bench.server.site import Site, each, site
from bench.server.stamps import EVERY_S

IN_TIME_MS = 100.0
"""Nineteen of twenty chunks must be with their readers by then; a reader sees no difference."""
SETTLE_S = 2.0
HIGHEST = 4000


class Level(msgspec.Struct, frozen=True):
    """What a number of chats took, and whether they were carried."""

    chats: int
    lag_ms: float
    """From the provider's write to the reader, the median."""
    lag_95_ms: float
    cpu_us: float
    """CPU of the server for a chunk, from the provider's socket to the reader's."""
    busy: float
    """The part of its core that the server took."""
    others_busy: float
    """The part of the other cores that provider and readers took."""
    sent: float
    """The part of the chunks due that the provider wrote; below 1 it was itself too slow."""

    @property
    def carried(self) -> bool:
        return self.lag_95_ms <= IN_TIME_MS

    @property
    def sound(self) -> bool:
        """Whether the figures are the server's. It is too slow only if it had no time left, and others had."""
        return self.sent > 0.95 and (self.carried or (self.busy > 0.9 and self.others_busy < 0.9))


Measure = Callable[[int], Level]


def search(measure: Measure, first: int, step: int, say: Callable[[str], None]) -> list[Level]:
    """Twice as many chats each time until they are too many, then halves between; ends when less than `step` lies
    between what was carried and what was not. Every level that was measured, by number of chats."""
    levels: list[Level] = []

    def carried(chats: int) -> bool:
        level = measure(chats)
        if not level.sound:
            level = measure(chats)  # other work on the machine may be over
        levels.append(level)
        say(f"  {chats} chats: 95 % within {level.lag_95_ms:.0f} ms, {level.busy:.0%} of a core, {level.cpu_us:.0f} µs")
        return level.carried

    good, bad = 0, first
    while bad <= HIGHEST and carried(bad):
        good, bad = bad, bad * 2
    if bad > HIGHEST:
        return levels
    while bad - good > step:
        middle = (good + bad) // 2
        good, bad = (middle, bad) if carried(middle) else (good, middle)
    return sorted(levels, key=lambda level: level.chats)


def most_carried(levels: Sequence[Level]) -> int:
    """The highest number below the first that was too many."""
    carried = 0
    for level in levels:
        if not level.carried:
            break
        carried = level.chats
    return carried


def level(chats: int, seconds: float, store: str = "") -> Level:
    """Measure one number of chats on a fresh server."""
    own, others = _cores()
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, others)
    try:
        with (
            tempfile.TemporaryDirectory(prefix="treadle-bench-", dir=DISK) as folder,
            _provider() as (url, pid),
            site(Path(folder), url, store, chats=chats, cores=own) as place,
        ):
            return asyncio.run(_measure(place, chats, seconds, pid, len(others)))
    finally:
        os.sched_setaffinity(0, before)


def _cores() -> tuple[set[int], set[int]]:
    """One for the server, and the rest. On a machine with a single core they share it."""
    first, *rest = sorted(os.sched_getaffinity(0))
    return {first}, set(rest) or {first}


@contextmanager
def _provider() -> Iterator[tuple[str, int]]:
    """On the cores of this process."""
    command = [sys.executable, "-m", "bench.server.stamps"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment(), cwd=REPOSITORY, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip(), process.pid
        finally:
            process.stdin.close()


async def _measure(place: Site, chats: int, seconds: float, provider: int, others: int) -> Level:
    lags = [Lags() for _ in range(chats)]
    async with place:
        ids = await each(chats, place.create)
        readers = await each(chats, lambda n: read(place.address, ids[n], place.token(n), lags[n].got))
        await each(chats, lambda n: place.post(n, f"/api/chats/{ids[n]}/messages", {"content": "Go on."}))
        try:
            async with asyncio.timeout(WAIT_S):
                await asyncio.gather(*(lag.begun.wait() for lag in lags))
        except TimeoutError as error:
            raise Failed(f"of {chats} chats {sum(not lag.begun.is_set() for lag in lags)} never began") from error
        await asyncio.sleep(SETTLE_S)
        began, server, other = time.monotonic(), place.process.cpu_s, _cpu_s(provider)
        await asyncio.sleep(seconds)
        ended = time.monotonic()
        server, other = place.process.cpu_s - server, _cpu_s(provider) - other
        arrived = sum(began <= written + lag < ended for chat in lags for written, lag in chat.seen)
        await asyncio.sleep(min(seconds, 1.0))  # for chunks that are late
        for reader in readers:
            reader.close()
    found = [lag * 1e3 for chat in lags for written, lag in chat.seen if began <= written < ended]
    if not found:
        raise Failed(f"none of {chats} chats had a chunk in {seconds} s")
    took = ended - began
    return Level(
        chats,
        statistics.median(found),
        quantile(found, 0.95),
        server / max(1, arrived) * 1e6,
        server / took,
        other / took / others,
        _sent(lags, began),
    )


def _sent(lags: Sequence[Lags], began: float) -> float:
    """By the times that chunks bear, wherever the later ones are."""
    times = [[written for written, _ in chat.seen if written >= began] for chat in lags]
    took = sum(written[-1] - written[0] for written in times if written)
    return sum(len(written) - 1 for written in times if written) * EVERY_S / took if took else 0.0


def _cpu_s(provider: int) -> float:
    """CPU of provider and readers so far."""
    fields = Path(f"/proc/{provider}/stat").read_text().rpartition(")")[2].split()
    return time.process_time() + (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
