"""Threads that do blocking work for an event loop. A lane takes everything that waits for it at once, works on it as
one batch, and hands the outcomes back with one ring of the bell. Knows nothing of SQL.

asyncio is never imported here: whoever submits work has a running loop already.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec

if TYPE_CHECKING:
    import asyncio

S = TypeVar("S")
"""What the lane's thread lends to each job: its tables."""
T = TypeVar("T")


class LaneJob(msgspec.Struct, Generic[S, T], eq=False):
    """One piece of work and, later, its outcome."""

    work: Callable[[S], T]
    future: asyncio.Future[T]
    prepare: Callable[[], None] | None = None
    """What can be done before the transaction, and should be: it may be slow."""
    durable: bool = False
    abandoned: Callable[[T], None] | None = None
    """Gets the result if whoever asked was cancelled meanwhile."""
    result: T | None = None
    error: BaseException | None = None

    def settle(self) -> None:
        """Tell whoever asked; on the loop's thread."""
        if self.future.done():
            if self.error is None and self.abandoned is not None:
                self.abandoned(self.result)  # type: ignore[arg-type]  # without an error there is a result
        elif self.error is not None:
            self.future.set_exception(self.error)
        else:
            self.future.set_result(self.result)  # type: ignore[arg-type]


class Bell:
    """How lanes wake the event loop: by a pipe that it reads. Its own way, `call_soon_threadsafe`, goes through a pair
    of sockets and takes twice as long, and each turn of a chat waits for two commits."""

    def __init__(self) -> None:
        self._done: deque[list[LaneJob[Any, Any]]] = deque()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ends: tuple[int, int] | None = None

    def future(self) -> asyncio.Future[Any]:
        """A future of the running loop, which hears the bell from now on."""
        import asyncio

        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            self._listen(loop)
        return loop.create_future()

    def _listen(self, loop: asyncio.AbstractEventLoop) -> None:
        self._leave()
        if self._ends is None:
            self._ends = os.pipe()
            for end in self._ends:
                os.set_blocking(end, False)
        loop.add_reader(self._ends[0], self._hear)
        self._loop = loop

    def _leave(self) -> None:
        if self._loop is not None and self._ends is not None and not self._loop.is_closed():
            self._loop.remove_reader(self._ends[0])

    def ring(self, batch: list[LaneJob[S, Any]]) -> None:
        """These jobs are done; told by the thread that did them."""
        self._done.append(batch)
        assert self._ends is not None  # whoever asked has a future
        with contextlib.suppress(BlockingIOError):  # it rings already, and nobody came yet
            os.write(self._ends[1], b"\0")

    def _hear(self) -> None:
        assert self._ends is not None
        with contextlib.suppress(BlockingIOError):
            os.read(self._ends[0], 4096)
        while self._done:
            for job in self._done.popleft():
                if (loop := job.future.get_loop()) is self._loop:
                    job.settle()
                else:
                    # Asked before another loop came. One that is closed has nobody left who could be told.
                    with contextlib.suppress(RuntimeError):
                        loop.call_soon_threadsafe(job.settle)

    def close(self) -> None:
        """Tell what is still to be told; no lane rings any more."""
        if self._ends is not None:
            if self._loop is not None and not self._loop.is_closed():
                self._hear()
            self._leave()
            for end in self._ends:
                os.close(end)
            self._ends = self._loop = None


class Lane(Generic[S]):
    """A daemon thread, started by its first job. `execute` must leave a result or an error in every job."""

    def __init__(
        self, name: str, execute: Callable[[list[LaneJob[S, Any]]], None], close: Callable[[], None], bell: Bell
    ) -> None:
        self._name = name
        self._execute = execute
        self._close = close
        self._bell = bell
        self._queue: SimpleQueue[LaneJob[S, Any] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None

    def submit(self, job: LaneJob[S, Any]) -> None:
        self._queue.put(job)
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Finish what was submitted, free what the thread holds, and wait for its end."""
        if self._thread is not None:
            self._queue.put(None)
            self._thread.join()
            self._thread = None

    def _run(self) -> None:
        queue = self._queue
        going = True
        while going:
            waiting = [queue.get()]
            waiting += [queue.get_nowait() for _ in range(queue.qsize())]
            batch = [job for job in waiting if job is not None]
            going = len(batch) == len(waiting)
            if batch:
                self._execute(batch)
                self._bell.ring(batch)
        self._close()
