"""How a program that served us is ended: politely, then for good, and whatever happens to whoever ends it."""

import asyncio
import os
import signal
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any

from treadle.subprocesses import kill_group

LEAVE_S = 0.7
"""How long it has to leave after its input has ended, and after it was asked to."""


async def whatever_happens(work: Coroutine[Any, Any, None]) -> None:
    """See it through, however often the task is cancelled meanwhile; that it was is not forgotten."""
    task, cancelled = asyncio.create_task(work), False
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            cancelled = True
    if cancelled:
        raise asyncio.CancelledError


async def see_out(process: asyncio.subprocess.Process) -> None:
    """Its input ends, then it is asked to leave, then it is made to; with all that it started, in a session of its
    own."""
    if process.stdin is not None:
        process.stdin.close()
    for sign in (signal.SIGTERM, None):
        with suppress(TimeoutError):
            async with asyncio.timeout(LEAVE_S):
                await _left(process)
                break
        if sign is not None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, sign)
    kill_group(process.pid)
    with suppress(TimeoutError):
        async with asyncio.timeout(LEAVE_S):
            await _left(process)
    transport = getattr(process, "_transport", None)  # what a survivor holds open is not waited for
    if transport is not None:
        with suppress(PermissionError):
            transport.close()


async def _left(process: asyncio.subprocess.Process) -> None:
    """Not `wait`, which may also wait for pipes that something else holds."""
    while process.returncode is None:  # noqa: ASYNC110 - nothing tells of it
        await asyncio.sleep(0.01)
