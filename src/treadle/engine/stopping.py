"""Ending what a call has started, and steps that are taken once more when something strikes them."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

from treadle.errors import StoreError
from treadle.ports.toolset import Invocation, Outcome, Tool

T = TypeVar("T")


async def stop(tool: Tool, invocation: Invocation) -> Outcome | None:
    """The run is over for the call, whether that works or not. What it had changed by then, if that is known.
    StoreError: a set of changes is begun, and can be neither completed nor taken back now."""
    try:
        return await twice(lambda: asyncio.shield(tool.stop(invocation)))
    except StoreError:
        raise
    except Exception as error:
        logging.getLogger("treadle").warning("call %s could not be stopped: %s", invocation.call, error)
        return None


async def twice(step: Callable[[], Awaitable[T]]) -> T:
    """Take a step that can be repeated, once more if it fails: what struck it may strike only once. A store that fails
    is not asked again: whoever holds the lease next goes on from what it has."""
    try:
        return await step()
    except StoreError:
        raise
    except Exception:
        return await step()
