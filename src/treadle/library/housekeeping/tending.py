"""Background housekeeping of long-running processes, stopped when the process ends. Data stored for undo is collected
once an hour; ended jobs are closed once a minute. Unfinished work is left to the next pass of any process."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from treadle.base.logs import log_warning
from treadle.errors import TreadleError
from treadle.library.housekeeping.collecting import collect_some
from treadle.library.housekeeping.retention import Retention, is_due
from treadle.library.jobs import JobRegistry
from treadle.ports.store import Store

HOUR_S = 3600.0
_LOOK_S = 60.0
"""So often it is looked whether an hour has passed, or a pass is left to go on with."""
_SELDOM = 60
"""Every so many looks at jobs are at those of all chats."""
_LEAVE_S = 5.0


@asynccontextmanager
async def tended(store: Store, home: Path, retention: Retention, jobs: JobRegistry) -> AsyncIterator[None]:
    """While the block lasts, no more is kept for undoing than may be, and jobs that have ended are closed."""
    ending = asyncio.Event()
    tasks = [asyncio.create_task(_tend(store, home, retention, ending)), asyncio.create_task(_close_jobs(jobs, ending))]
    try:
        yield
    finally:
        ending.set()
        await asyncio.wait(tasks, timeout=_LEAVE_S)  # a thread that removes must see it; a database may hang
        for task in tasks:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task


async def _close_jobs(jobs: JobRegistry, ending: asyncio.Event) -> None:
    """Jobs of chats that this process knows, often; those of all chats of the home, seldom."""
    looks = 0
    while not ending.is_set():
        try:
            await jobs.sweep(everything=looks % _SELDOM == 0)
        except (OSError, TreadleError) as error:
            log_warning("background commands were not looked through: %s", error)
        looks += 1
        await _pause(ending, _LOOK_S)


async def _pause(ending: asyncio.Event, seconds: float) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await ending.wait()


async def _tend(store: Store, home: Path, retention: Retention, ending: asyncio.Event) -> None:
    pause = _LOOK_S
    while not ending.is_set():
        try:
            if await asyncio.to_thread(is_due, home, HOUR_S):
                await collect_some(store, home, retention, going=lambda: not ending.is_set())
            pause = _LOOK_S
        except (OSError, TreadleError) as error:
            log_warning("the undo data was not cleaned up: %s", error)
            pause = HOUR_S
        await _pause(ending, pause)
