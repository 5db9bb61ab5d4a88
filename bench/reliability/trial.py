"""One trial from beginning to end: start everything, let chats run while it is shaken, and look at what came of it."""

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import msgspec

from bench.reliability.chats import Verdict, judge, script, see_through
from bench.reliability.places import MARK, Chaos, Deployment
from treadle.testing.checker import check_processes


class Trial(msgspec.Struct, frozen=True):
    chats: int
    seconds: float
    """How long workers are killed and paused; the chats may take longer."""
    lease_s: float
    seed: int
    concurrency: int = 25


class Outcome(msgspec.Struct):
    found: Verdict
    done: Counter[str]
    took_s: float


def run(
    folder: Path, store: str, seed: Callable[[Path], object], trial: Trial, restart: Callable[[], None] | None = None
) -> Outcome:
    place = Deployment(folder, store, seed, lease_s=trial.lease_s, concurrency=trial.concurrency)
    chaos = Chaos(place, restart, trial.lease_s, trial.seed)
    raging = threading.Thread(target=chaos.rage, args=(trial.seconds,))
    try:
        addresses = place.start()
        began = time.monotonic()
        raging.start()
        seen = asyncio.run(see_through(addresses, place.token, script(folder / "script.toml"), folder, trial.chats))
        took = time.monotonic() - began
        raging.join()
        codes = place.end()
        found = asyncio.run(judge(store, seen, folder / "looked_up"))
        found.problems += check_processes(f"{MARK}={place.mark}")
        found.problems += [f"a process ended with {code}" for code in codes if code]
        return Outcome(found, chaos.done, took)
    finally:
        chaos.over = True
        place.kill()
