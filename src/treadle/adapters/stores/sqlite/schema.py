"""Opening the file: connections, errors explained to people, and the numbered migrations in `migrations/`. A migration
runs in one IMMEDIATE transaction, so that one of several processes makes it; one with content is copied first."""

import errno
import os
import shutil
import sqlite3
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

from treadle.adapters.stores import number_migrations
from treadle.adapters.stores.packing import fold_case
from treadle.base.file_system import reach_faultpoint
from treadle.base.process_folders import make_folder_prefix
from treadle.errors import Damaged, InvalidInput, NewerSchema, StoreBusy, StoreError

_SENTENCES = {
    sqlite3.SQLITE_BUSY: "the database {path} stayed locked by another process for too long; nothing was changed, "
    "try again or end what holds it",
    sqlite3.SQLITE_LOCKED: "the database {path} is locked; nothing was changed, try again",
    sqlite3.SQLITE_FULL: "there is no space left for the database {path}; nothing was changed, "
    "free some space and try again",
    sqlite3.SQLITE_READONLY: "the database {path} is read-only; nothing was changed, allow writing and try again",
    sqlite3.SQLITE_CANTOPEN: "the database {path} cannot be opened; check that its folder exists and may be written",
    sqlite3.SQLITE_IOERR: "reading or writing the database {path} failed ({error}); check the disk and try again",
    sqlite3.SQLITE_PERM: "the database {path} may not be accessed; check its permissions",
}
BROKEN = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}
REOPEN = {sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_IOERR, *BROKEN}
"""A connection that failed like this may stay useless even when the cause is gone."""
_NO_SPACE = {errno.ENOSPC, errno.EDQUOT}


def get_primary_code(error: BaseException) -> int:
    return (getattr(error, "sqlite_errorcode", 0) or 0) & 0xFF


def make_read_only_error(path: Path) -> StoreError:
    return StoreError(
        f"the database {path} is read-only, or its folder is; nothing was changed, allow writing and try again "
        "(chats, show, export, diff and pending work all the same)"
    )


def translate_error(error: BaseException, path: Path) -> BaseException:
    """The error to raise in its place; one that is not the database's or the disk's stays what it is."""
    if isinstance(error, OSError):
        is_full = error.errno in _NO_SPACE
        problem = "there is no space left" if is_full else f"a file could not be used ({error.strerror})"
        text = f"{problem}: {error.filename or path}; nothing was changed, mend it and try again"
        failure: BaseException = StoreError(text)
    elif isinstance(error, OverflowError | UnicodeEncodeError):
        failure = InvalidInput(f"the database cannot keep this value: {error}; nothing was changed")
    elif not isinstance(error, sqlite3.Error):
        return error
    elif (code := get_primary_code(error)) in BROKEN:
        failure = Damaged(f"the database {path} is damaged ({error}); run `treadle fsck`, or restore a backup")
    else:
        sentence = _SENTENCES.get(code, "the database {path} refused: {error}")
        kind = StoreBusy if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED) else StoreError
        failure = kind(sentence.format(path=path, error=error))
    failure.__cause__ = error
    return failure


MIGRATIONS = Path(__file__).with_name("migrations")
MIGRATION_BUSY_S = 60.0


def connect(path: Path, *, busy_s: float) -> sqlite3.Connection:
    """A connection to an existing file, in WAL mode, with transactions begun by hand."""
    connection = sqlite3.connect(path, timeout=busy_s, isolation_level=None, check_same_thread=False)
    try:
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute("PRAGMA journal_size_limit = 16777216")
    except BaseException:
        connection.close()
        raise
    return connection


def prepare(path: Path, *, busy_s: float, migrations: Path = MIGRATIONS) -> None:
    """Make the file, or bring it up to date. NewerSchema when a newer Treadle wrote it."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not path.exists():
        # SQLite gives its side files the mode of the database; conversations are private.
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    steps = number_migrations(migrations)
    with closing(connect(path, busy_s=busy_s)) as connection:
        if not _is_up_to_date(connection, path, steps):
            _use_wal(connection, busy_s)
            connection.execute(f"PRAGMA busy_timeout = {int(MIGRATION_BUSY_S * 1000)}")
            _migrate(connection, path, steps)


def make_backup_path(path: Path, version: int) -> Path:
    return path.with_name(f"{path.name}.v{version}.backup")


def _is_up_to_date(connection: sqlite3.Connection, path: Path, steps: dict[int, Path]) -> bool:
    if (version := read_version(connection)) > len(steps):
        raise NewerSchema(
            f"{path} was written by a newer Treadle (its schema is {version}, this one knows {len(steps)}); "
            "upgrade Treadle, or use another database"
        )
    return version == len(steps)


def _migrate(connection: sqlite3.Connection, path: Path, steps: dict[int, Path]) -> None:
    connection.create_function("folded", 1, fold_case, deterministic=True)
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("BEGIN IMMEDIATE")
    try:
        if not _is_up_to_date(connection, path, steps):
            if version := read_version(connection):
                _back_up(path, make_backup_path(path, version))
            elif connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
                raise StoreError(f"{path} is a database, but not Treadle's; choose another path")
            for number in range(version + 1, len(steps) + 1):
                for statement in split_statements(steps[number].read_text(encoding="utf-8")):
                    connection.execute(statement)
                reach_faultpoint("store.migrating")
            connection.execute(f"PRAGMA user_version = {len(steps)}")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    reach_faultpoint("store.migrated")


def split_statements(script: str) -> Iterator[str]:
    """The statements of a script, one by one: `executescript` would end the transaction that they belong to."""
    pending = ""
    for line in script.splitlines(keepends=True):
        pending += line
        if sqlite3.complete_statement(pending):
            yield pending
            pending = ""
    if pending.strip():
        yield pending


def _back_up(path: Path, target: Path) -> None:
    """Copy through a second connection, which still sees the state before the transaction that waits for it."""
    temporary = target.with_name(target.name + ".new")
    temporary.unlink(missing_ok=True)
    with (
        closing(sqlite3.connect(path, isolation_level=None)) as source,
        closing(sqlite3.connect(temporary, isolation_level=None)) as copy,
    ):
        source.backup(copy)
        copy.execute("PRAGMA journal_mode = DELETE")
    with open(temporary, "rb") as file:
        os.fsync(file.fileno())
    temporary.replace(target)
    reach_faultpoint("store.backed_up")


def _use_wal(connection: sqlite3.Connection, busy_s: float) -> None:
    """SQLite does not wait for the lock that this needs, and two first starts may meet here."""
    deadline = time.monotonic() + busy_s
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if get_primary_code(error) != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(0.01)


def read_version(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def can_write(path: Path) -> bool:
    """True if a database can be made, or changed, at this path."""
    return os.access(path.parent, os.W_OK) and (not path.exists() or os.access(path, os.W_OK))


class Database:
    """The file, made or migrated by whichever thread comes first."""

    def __init__(self, path: Path, *, busy_s: float, migrations: Path) -> None:
        self.path, self._busy_s, self._migrations = path, busy_s, migrations
        self._prepared, self._guard = False, threading.Lock()
        self._copied: ReadOnly | None = None

    def connect(self, *, writes: bool) -> sqlite3.Connection:
        try:
            with self._guard:
                if not self._prepared:
                    prepare(self.path, busy_s=self._busy_s, migrations=self._migrations)
                    self._prepared = True
            return connect(self.path, busy_s=self._busy_s)
        except (sqlite3.OperationalError, OSError) as error:
            if can_write(self.path):
                raise
            if writes:
                raise make_read_only_error(self.path) from error
        with self._guard:
            self._copied = self._copied or ReadOnly(self.path, self._busy_s, self._migrations)
            return self._copied.connect()

    def close(self) -> None:
        """Remove the copy from which a database is read that cannot be written, if there is one."""
        with self._guard:
            if self._copied is not None:
                self._copied.close()
                self._copied = None


class ReadOnly:
    """Connections to a database that can be read but not written: it is on a read-only file system, or belongs to
    another user. SQLite opens one in WAL mode only if it can make files beside it, or finds them there. So these go to
    the file itself if it is complete and up to date, else to a copy, which exists until `close`."""

    def __init__(self, path: Path, busy_s: float, migrations: Path) -> None:
        self._path = path
        self._log = path.with_name(f"{path.name}-wal")
        self._busy_s, self._migrations = busy_s, migrations
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    def connect(self) -> sqlite3.Connection:
        if self._folder is None:
            if not (self._log.exists() and self._log.stat().st_size):
                name = f"file:{quote(str(self._path.absolute()))}?immutable=1"
                connection = sqlite3.connect(name, uri=True, isolation_level=None, check_same_thread=False)
                if read_version(connection) == len(number_migrations(self._migrations)):
                    return connection
                connection.close()
            folder = tempfile.TemporaryDirectory(prefix=make_folder_prefix(), ignore_cleanup_errors=True)
            for file in (self._path, self._log):
                if file.exists():
                    shutil.copyfile(file, Path(folder.name, file.name))
            prepare(Path(folder.name, self._path.name), busy_s=self._busy_s, migrations=self._migrations)
            self._folder = folder
        return connect(Path(self._folder.name, self._path.name), busy_s=self._busy_s)

    def close(self) -> None:
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None
