"""The work of the store's threads: one writer that commits in groups, and one reader. Knows nothing of event loops.

All jobs that wait when the writer wakes share one transaction, and so one fsync. Each job checks its own fence before
it writes; one that is refused leaves nothing behind and the others go on. If the transaction itself fails, every job
gets one of its own, so that none suffers for another.
"""

import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Generic, TypeVar

from treadle.adapters.stores.sqlite import schema
from treadle.adapters.stores.sqlite.batch_thread import LaneJob
from treadle.adapters.stores.sqlite.blobs import BlobFiles
from treadle.adapters.stores.sqlite.failures import explained, needs_reopening, primary_code, read_only
from treadle.adapters.stores.sqlite.read_only import ReadOnly, may_write
from treadle.adapters.stores.sqlite.tables import ReadTables, WriteTables
from treadle.base.faultpoint import faultpoint
from treadle.errors import TreadleError

S = TypeVar("S")


class Database:
    """The file, made or migrated by whichever thread comes first."""

    def __init__(self, path: Path, *, busy_s: float, migrations: Path) -> None:
        self.path = path
        self._busy_s = busy_s
        self._migrations = migrations
        self._prepared = False
        self._guard = threading.Lock()
        self._copied: ReadOnly | None = None

    def connect(self, *, writes: bool) -> sqlite3.Connection:
        try:
            with self._guard:
                if not self._prepared:
                    schema.prepare(self.path, busy_s=self._busy_s, migrations=self._migrations)
                    self._prepared = True
            return schema.connect(self.path, busy_s=self._busy_s)
        except (sqlite3.OperationalError, OSError) as error:
            if may_write(self.path):
                raise
            if writes:
                raise read_only(self.path) from error
        with self._guard:
            self._copied = self._copied or ReadOnly(self.path, self._busy_s, self._migrations)
            return self._copied.connect()

    def close(self) -> None:
        """Remove the copy from which a database is read that cannot be written, if there is one."""
        with self._guard:
            if self._copied is not None:
                self._copied.close()
                self._copied = None


class _Connected(Generic[S]):
    """A connection that is opened when it is needed and given up when it has become useless."""

    WRITES = False

    def __init__(self, database: Database, tables: Callable[[sqlite3.Connection], S]) -> None:
        self._database = database
        self._make_tables = tables
        self._connection: sqlite3.Connection | None = None
        self._tables: S | None = None

    def _open(self) -> tuple[sqlite3.Connection, S]:
        if self._connection is None or self._tables is None:
            self._connection = self._database.connect(writes=self.WRITES)
            self._tables = self._make_tables(self._connection)
        return self._connection, self._tables

    def _explained(self, error: BaseException) -> BaseException:
        if needs_reopening(error):
            self.close()
        if primary_code(error) == sqlite3.SQLITE_READONLY and not may_write(self._database.path):
            failure = read_only(self._database.path)
            failure.__cause__ = error
            return failure
        return explained(error, self._database.path)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection = self._tables = None


class ReaderThread(_Connected[ReadTables]):
    def close(self) -> None:
        super().close()
        self._database.close()

    def execute(self, batch: list[LaneJob[ReadTables, Any]]) -> None:
        for job in batch:
            try:
                job.result = job.work(self._open()[1])
            except BaseException as error:
                job.error = self._explained(error)


class Files:
    """Blobs, on a thread of their own, so that a large one delays neither writer nor reader."""

    def __init__(self, path: Path, blobs: BlobFiles) -> None:
        self._path = path
        self._blobs = blobs

    def execute(self, batch: list[LaneJob[BlobFiles, Any]]) -> None:
        for job in batch:
            try:
                job.result = job.work(self._blobs)
            except BaseException as error:
                job.error = explained(error, self._path)


class WriterThread(_Connected[WriteTables]):
    """The only connection of this store that writes."""

    WRITES = True
    commits = 0
    _full = False

    def execute(self, batch: list[LaneJob[WriteTables, Any]]) -> None:
        ready = [job for job in batch if self._prepared(job)]
        if ready and not self._commit(ready) and len(ready) > 1:
            for job in ready:
                self._commit([job])

    def close(self) -> None:
        super().close()
        self._full = False

    def _prepared(self, job: LaneJob[WriteTables, Any]) -> bool:
        try:
            if job.prepare is not None:
                job.prepare()
        except BaseException as error:
            job.error = self._explained(error)
        return job.error is None

    def _commit(self, jobs: list[LaneJob[WriteTables, Any]]) -> bool:
        """One transaction for these jobs. False when it failed and each may be tried alone."""
        try:
            connection, tables = self._open()
            self._synchronous(connection, any(job.durable for job in jobs))
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
            faultpoint("store.before_commit")
            connection.execute("COMMIT")
        except BaseException as error:
            tables.types.forget()
            self._roll_back(connection)
            self._fail(jobs, error)
            return False
        self.commits += 1
        try:
            faultpoint("store.after_commit")
        except BaseException as error:
            self._fail(jobs, error)
        return True

    def _synchronous(self, connection: sqlite3.Connection, full: bool) -> None:
        if full != self._full:
            connection.execute(f"PRAGMA synchronous = {'FULL' if full else 'NORMAL'}")
            self._full = full

    def _roll_back(self, connection: sqlite3.Connection) -> None:
        try:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
        except sqlite3.Error:
            self.close()

    def _fail(self, jobs: list[LaneJob[WriteTables, Any]], error: BaseException) -> None:
        for job in jobs:
            job.error = self._explained(error)
