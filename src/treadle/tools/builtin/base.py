"""What the built-in tools share: schemas in few words, work in threads that a cancellation waits for, and texts
that fit into a result. Knows no tool."""

import asyncio
import threading
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from treadle.errors import ToolError, Unfinished
from treadle.ports.toolset import ReadOnlyTool
from treadle.ports.workspace import WorkspaceOf
from treadle.protocol.content import JsonSchema

MAX_LINES = 2_000
MAX_BYTES = 50_000
"""What the model gets of one result (T-11)."""

PATH: JsonSchema = {
    "type": "string",
    "minLength": 1,
    "description": "Relative to the project root, or absolute inside it.",
}

P = ParamSpec("P")
R = TypeVar("R")


def parameters(required: tuple[str, ...] = (), **properties: JsonSchema) -> JsonSchema:
    """The schema of an object with these fields and no others."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }


class WorkspaceReader(ReadOnlyTool):
    """A tool that looks at the files of the project."""

    def __init__(self, workspace_of: WorkspaceOf) -> None:
        self._workspace_of = workspace_of


async def in_thread(work: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Run blocking work in a thread. A cancellation waits until the thread is done, so that no effect happens after
    the loop believes the call is over."""
    task = asyncio.ensure_future(asyncio.to_thread(work, *args, **kwargs))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await settled(task)
        raise


async def in_stoppable_thread(work: Callable[[threading.Event], R]) -> R:
    """Like `in_thread`, for work that ends early when the event it gets is set; a cancellation sets it."""
    stop = threading.Event()
    task = asyncio.ensure_future(asyncio.to_thread(work, stop))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        stop.set()
        await settled(task)
        raise


async def carried_out(step: Callable[[], R], begun: Callable[[], bool], what: str) -> R:
    """Carry out what is decided about changes of the project, whatever strikes on the way: completed or taken back, now
    or by whoever takes the chat up next (Unfinished). ToolError: nothing was changed, and nothing is decided."""
    try:
        return await in_thread(step)
    except ToolError:
        if not await in_thread(begun):
            raise
    try:
        return await in_thread(step)
    except ToolError as error:
        if not await in_thread(begun):
            raise
        raise Unfinished(
            f"{what} could not be committed entirely: {error} It is completed when the chat is taken up again."
        ) from error


async def settled(task: "asyncio.Future[Any]") -> None:
    """Wait for the end of a task through any number of cancellations; its result and failure are dropped."""
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError:
            continue
    if not task.cancelled():
        task.exception()


def cut(text: str, most: int = MAX_BYTES) -> str:
    """At most so many bytes of UTF-8, ending at a whole character."""
    data = text.encode(errors="replace")
    return text if len(data) <= most else data[:most].decode(errors="ignore")
