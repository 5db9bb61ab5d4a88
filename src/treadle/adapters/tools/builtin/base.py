"""Shared parts of the built-in tools: short schemas, work in threads that a cancellation waits for, and texts that fit
into a result. Knows no tool."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any, ParamSpec, TypeVar

from treadle.errors import ToolError, Unfinished
from treadle.protocol.content import JsonSchema

MAX_LINES = 2_000
MAX_BYTES = 50_000  # The most lines and bytes of one result that the model gets (T-11)

PATH: JsonSchema = {
    "type": "string",
    "minLength": 1,
    "description": "Relative to the project root, or absolute inside it.",
}

P = ParamSpec("P")
R = TypeVar("R")


def parameters(required: tuple[str, ...] = (), **properties: JsonSchema) -> JsonSchema:
    """The schema of an object with these fields and no others."""
    return {"type": "object", "properties": properties, "required": list(required), "additionalProperties": False}


async def run_to_end(work: Awaitable[R], stop: Callable[[], None] = lambda: None) -> R:
    """Wait for work to its end even when cancelled (`stop` is called then): no effect comes after the call is over."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        stop()
        await wait_for_end(task)
        raise


async def in_thread(work: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Run blocking work in a thread. A cancellation waits until the thread is done."""
    return await run_to_end(asyncio.to_thread(work, *args, **kwargs))


async def in_stoppable_thread(work: Callable[[threading.Event], R]) -> R:
    """Like `in_thread`, for work that ends early when the event it gets is set; a cancellation sets it."""
    stop = threading.Event()
    return await run_to_end(asyncio.to_thread(work, stop), stop.set)


async def carried_out(step: Callable[[], R], has_begun: Callable[[], bool], subject: str) -> R:
    """Complete a decided change of the project in spite of failures: complete it or take it back, now or when the next
    worker takes the chat up (Unfinished). ToolError: nothing was changed, and nothing is decided."""
    try:
        return await in_thread(step)
    except ToolError:
        if not await in_thread(has_begun):
            raise
    try:
        return await in_thread(step)
    except ToolError as error:
        if not await in_thread(has_begun):
            raise
        raise Unfinished(
            f"{subject} could not be committed entirely: {error} It is completed when the chat is taken up again."
        ) from error


async def wait_for_end(task: "asyncio.Future[Any]") -> None:
    """Wait for the end of a task through any number of cancellations; its result and failure are dropped."""
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError:
            continue
    if not task.cancelled():
        task.exception()


def truncate_utf8(text: str, most: int = MAX_BYTES) -> str:
    """At most so many bytes of UTF-8, ending at a whole character."""
    data = text.encode(errors="replace")
    return text if len(data) <= most else data[:most].decode(errors="ignore")
