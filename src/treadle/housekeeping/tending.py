"""Collecting in processes that stay: once an hour beside their work, and at once given up when they end. What is not
done then, the next pass does, in whichever process."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from treadle.errors import TreadleError
from treadle.housekeeping.collecting import collect_some
from treadle.housekeeping.retention import Retention, is_due
from treadle.ports.store import Store

HOUR_S = 3600.0
_LOOK_S = 60.0
"""So often it is looked whether an hour has passed, or a pass is left to go on with."""
_LEAVE_S = 5.0


@asynccontextmanager
async def tended(store: Store, home: Path, retention: Retention) -> AsyncIterator[None]:
    """While the block lasts, no more is kept for undoing than may be."""
    ending = asyncio.Event()
    task = asyncio.create_task(_tend(store, home, retention, ending))
    try:
        yield
    finally:
        ending.set()
        await asyncio.wait({task}, timeout=_LEAVE_S)  # a thread that removes must see it; a database may hang
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def _tend(store: Store, home: Path, retention: Retention, ending: asyncio.Event) -> None:
    pause = _LOOK_S
    while not ending.is_set():
        try:
            if await asyncio.to_thread(is_due, home, HOUR_S):
                await collect_some(store, home, retention, going=lambda: not ending.is_set())
            pause = _LOOK_S
        except (OSError, TreadleError) as error:
            logging.getLogger("treadle").warning("what is kept for undoing was not looked through: %s", error)
            pause = HOUR_S
        with suppress(TimeoutError):
            async with asyncio.timeout(pause):
                await ending.wait()
