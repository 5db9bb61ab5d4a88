"""Ending what a call has started."""

import asyncio
import logging

from treadle.errors import ToolError
from treadle.ports.toolset import Invocation, Outcome, Tool


async def stop(tool: Tool, invocation: Invocation) -> Outcome | None:
    """The run is over for the call, whether that works or not. What it had changed by then, if that is known."""
    try:
        return await asyncio.shield(tool.stop(invocation))
    except (ToolError, OSError) as error:
        logging.getLogger("treadle").warning("call %s could not be stopped: %s", invocation.call, error)
        return None
