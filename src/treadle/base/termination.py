"""Termination of programs that served Treadle: a request to end, then a kill, even if the terminating task is
cancelled."""

import asyncio
import os
import signal
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any

from treadle.base.subprocesses import kill_group

EXIT_S = 0.7
"""How long it has to exit after its input has ended, and after SIGTERM."""


async def uncancelled(work: Coroutine[Any, Any, None]) -> None:
    """Finish the work, however often the task is cancelled meanwhile; the cancellation comes after it."""
    task, cancelled = asyncio.create_task(work), False
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            cancelled = True
    if cancelled:
        raise asyncio.CancelledError


async def terminate(process: asyncio.subprocess.Process) -> None:
    """Close its input, then send SIGTERM, then SIGKILL, to it and all that it started in its session, until it has
    exited."""
    if process.stdin is not None:
        process.stdin.close()
    for sign in (signal.SIGTERM, None):
        with suppress(TimeoutError):
            async with asyncio.timeout(EXIT_S):
                await _exited(process)
                break
        if sign is not None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, sign)
    kill_group(process.pid)
    with suppress(TimeoutError):
        async with asyncio.timeout(EXIT_S):
            await _exited(process)
    transport = getattr(process, "_transport", None)  # do not wait for pipes that a survivor holds open
    if transport is not None:
        with suppress(PermissionError):
            transport.close()


async def _exited(process: asyncio.subprocess.Process) -> None:
    """Not `wait`, which may also wait for pipes that something else holds."""
    while process.returncode is None:  # noqa: ASYNC110 - nothing tells of it
        await asyncio.sleep(0.01)
