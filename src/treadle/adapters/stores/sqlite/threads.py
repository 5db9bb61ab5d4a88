"""The store's threads: one writer that commits in groups, one reader, and one for files. A thread takes all waiting
jobs at once, executes them as one batch, and delivers the outcomes with one wake-up of the event loop.

All jobs that wait when the writer wakes share one transaction, and so one fsync. Each job checks its own fence before
it writes; one that is refused leaves nothing behind and the others go on. If the transaction itself fails, every job
gets one of its own, so that none suffers for another.

asyncio is never imported here: the code that submits jobs has a running loop already."""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec

from treadle.adapters.stores.sqlite.rows import BlobFiles
from treadle.adapters.stores.sqlite.schema import (
    REOPEN,
    Database,
    can_write,
    get_primary_code,
    make_read_only_error,
    translate_error,
)
from treadle.adapters.stores.sqlite.tables import ReadTables, WriteTables
from treadle.base.file_system import reach_faultpoint
from treadle.errors import TreadleError

if TYPE_CHECKING:
    import asyncio

S = TypeVar("S")  # The object that the thread passes to each job: its tables, or the blobs.
T = TypeVar("T")


class StoreJob(msgspec.Struct, Generic[S, T], eq=False):
    work: Callable[[S], T]
    future: asyncio.Future[T]
    prepare: Callable[[], None] | None = None  # Work that is done before the transaction, because it may be slow.
    durable: bool = False
    abandoned: Callable[[T], None] | None = None  # Receives the result if the caller was cancelled meanwhile.
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


class WorkerThread(ABC, Generic[S]):
    """A daemon thread, started by its first job."""

    def __init__(self, name: str, path: Path) -> None:
        self._name, self._path = name, path
        self._queue: SimpleQueue[StoreJob[S, Any] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None

    def submit(self, job: StoreJob[S, Any]) -> None:
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
        queue, going = self._queue, True
        while going:
            waiting = [queue.get()]
            waiting += [queue.get_nowait() for _ in range(queue.qsize())]
            batch = [job for job in waiting if job is not None]
            going = len(batch) == len(waiting)
            if batch:
                self._execute(batch)
                by_loop: dict[asyncio.AbstractEventLoop, list[StoreJob[S, Any]]] = {}
                for job in batch:
                    by_loop.setdefault(job.future.get_loop(), []).append(job)
                for loop, jobs in by_loop.items():
                    with contextlib.suppress(RuntimeError):  # a closed loop has no caller left to notify
                        loop.call_soon_threadsafe(_settle, jobs)
        self._close()

    def _execute(self, batch: list[StoreJob[S, Any]]) -> None:
        """Leave a result or an error in every job."""
        for job in batch:
            try:
                job.result = job.work(self._open())
            except BaseException as error:
                job.error = self._translate_error(error)

    @abstractmethod
    def _open(self) -> S: ...

    def _translate_error(self, error: BaseException) -> BaseException:
        return translate_error(error, self._path)

    def _close(self) -> None:  # nothing to free
        """Free what the thread holds."""


def _settle(jobs: list[StoreJob[S, Any]]) -> None:
    for job in jobs:
        job.settle()


class FileThread(WorkerThread[BlobFiles]):
    """Blobs, on a thread of their own, so that a large one delays neither writer nor reader."""

    def __init__(self, path: Path, blobs: BlobFiles) -> None:
        super().__init__("treadle-store-files", path)
        self._blobs = blobs

    def _open(self) -> BlobFiles:
        return self._blobs


class _DatabaseThread(WorkerThread[S]):
    """Has a connection that is opened when it is needed and given up when it has become useless."""

    WRITES = False

    def __init__(self, database: Database, tables: Callable[[sqlite3.Connection], S]) -> None:
        super().__init__(f"treadle-store-{'writer' if self.WRITES else 'reader'}", database.path)
        self._database, self._make_tables = database, tables
        self._connection: sqlite3.Connection | None = None
        self._tables: S | None = None

    def _open(self) -> S:
        if self._connection is None or self._tables is None:
            self._connection = self._database.connect(writes=self.WRITES)
            self._tables = self._make_tables(self._connection)
        return self._tables

    def _translate_error(self, error: BaseException) -> BaseException:
        if get_primary_code(error) in REOPEN:
            self._close()
        failure = translate_error(error, self._path)
        if get_primary_code(error) == sqlite3.SQLITE_READONLY and not can_write(self._path):
            failure = make_read_only_error(self._path)
            failure.__cause__ = error
        return failure

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection = self._tables = None


class ReaderThread(_DatabaseThread[ReadTables]):
    def _close(self) -> None:
        super()._close()
        self._database.close()


class WriterThread(_DatabaseThread[WriteTables]):
    """The only connection of this store that writes."""

    WRITES = True
    commits = 0
    _full = False

    def _execute(self, batch: list[StoreJob[WriteTables, Any]]) -> None:
        for job in batch:
            try:
                if job.prepare is not None:
                    job.prepare()
            except BaseException as error:
                job.error = self._translate_error(error)
        ready = [job for job in batch if job.error is None]
        if ready and not self._commit(ready) and len(ready) > 1:
            for job in ready:
                self._commit([job])

    def _close(self) -> None:
        super()._close()
        self._full = False

    def _commit(self, jobs: list[StoreJob[WriteTables, Any]]) -> bool:
        """One transaction for these jobs. False when it failed and each may be tried alone."""
        try:
            tables, connection = self._open(), self._connection
            assert connection is not None
            if (full := any(job.durable for job in jobs)) != self._full:
                connection.execute(f"PRAGMA synchronous = {'FULL' if full else 'NORMAL'}")
                self._full = full
            connection.execute("BEGIN IMMEDIATE")
        except BaseException as error:
            self._fail(jobs, error)
            return True  # no transaction can begin now: trying each job alone would only wait as often
        try:
            for job in jobs:
                job.error = None
                try:
                    job.result = job.work(tables)
                except TreadleError as refused:
                    job.error = refused
            reach_faultpoint("store.before_commit")
            connection.execute("COMMIT")
        except BaseException as error:
            tables.types.forget()
            try:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
            except sqlite3.Error:
                self._close()
            self._fail(jobs, error)
            return False
        self.commits += 1
        try:
            reach_faultpoint("store.after_commit")
        except BaseException as error:
            self._fail(jobs, error)
        return True

    def _fail(self, jobs: list[StoreJob[WriteTables, Any]], error: BaseException) -> None:
        for job in jobs:
            job.error = self._translate_error(error)
