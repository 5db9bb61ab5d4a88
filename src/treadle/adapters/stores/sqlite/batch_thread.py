"""Threads that do blocking work for an event loop. A worker thread takes all waiting jobs at once, executes them as one
batch, and delivers the outcomes with one wake-up of the loop. Knows nothing of SQL.

asyncio is never imported here: the code that submits jobs has a running loop already.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec

if TYPE_CHECKING:
    import asyncio

S = TypeVar("S")
"""The object that the thread passes to each job: its tables."""
T = TypeVar("T")


class LaneJob(msgspec.Struct, Generic[S, T], eq=False):
    """One piece of work and, later, its outcome."""

    work: Callable[[S], T]
    future: asyncio.Future[T]
    prepare: Callable[[], None] | None = None
    """Work that is done before the transaction, because it may be slow."""
    durable: bool = False
    abandoned: Callable[[T], None] | None = None
    """Receives the result if the caller was cancelled meanwhile."""
    result: T | None = None
    error: BaseException | None = None

    def settle(self) -> None:
        """Deliver the outcome to the caller; on the loop's thread."""
        if self.future.done():
            if self.error is None and self.abandoned is not None:
                self.abandoned(self.result)  # type: ignore[arg-type]  # without an error there is a result
        elif self.error is not None:
            self.future.set_exception(self.error)
        else:
            self.future.set_result(self.result)  # type: ignore[arg-type]


class Lane(Generic[S]):
    """A daemon thread, started by its first job. `execute` must leave a result or an error in every job."""

    def __init__(self, name: str, execute: Callable[[list[LaneJob[S, Any]]], None], close: Callable[[], None]) -> None:
        self._name = name
        self._execute = execute
        self._close = close
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
                _deliver(batch)
        self._close()


def _deliver(batch: list[LaneJob[S, Any]]) -> None:
    by_loop: dict[asyncio.AbstractEventLoop, list[LaneJob[S, Any]]] = {}
    for job in batch:
        by_loop.setdefault(job.future.get_loop(), []).append(job)
    for loop, jobs in by_loop.items():
        # A closed loop has no caller left to notify.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(_settle, jobs)


def _settle(jobs: list[LaneJob[S, Any]]) -> None:
    for job in jobs:
        job.settle()
