"""Opening the file: connections, and the numbered migrations in `migrations/`. Knows nothing of chats.

A migration happens once, however many processes start: it runs in one IMMEDIATE transaction, and a later process finds
the new number when it gets the lock. A database that has content is copied beside itself first.
"""

import os
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path

from treadle.adapters.stores.listing import folded
from treadle.adapters.stores.sqlite.failures import primary_code
from treadle.base.faultpoint import faultpoint
from treadle.errors import NewerSchema, StoreError

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
    steps = numbered(migrations)
    connection = connect(path, busy_s=busy_s)
    try:
        if not _up_to_date(connection, path, steps):
            _use_wal(connection, busy_s)
            connection.execute(f"PRAGMA busy_timeout = {int(MIGRATION_BUSY_S * 1000)}")
            _migrate(connection, path, steps)
    finally:
        connection.close()


def numbered(folder: Path) -> dict[int, Path]:
    """The migrations by number: 1, 2, 3 … without a gap."""
    steps = {int(file.name.split("_")[0]): file for file in sorted(folder.glob("[0-9]*.sql"))}
    if list(steps) != list(range(1, len(steps) + 1)):
        raise StoreError(f"the migrations in {folder} are not numbered without a gap; reinstall Treadle")
    return steps


def backup_path(path: Path, version: int) -> Path:
    return path.with_name(f"{path.name}.v{version}.backup")


def _up_to_date(connection: sqlite3.Connection, path: Path, steps: dict[int, Path]) -> bool:
    version = version_of(connection)
    if version > len(steps):
        raise NewerSchema(
            f"{path} was written by a newer Treadle (its schema is {version}, this one knows {len(steps)}); "
            "upgrade Treadle, or use another database"
        )
    return version == len(steps)


def _migrate(connection: sqlite3.Connection, path: Path, steps: dict[int, Path]) -> None:
    connection.create_function("folded", 1, folded, deterministic=True)
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("BEGIN IMMEDIATE")
    try:
        if not _up_to_date(connection, path, steps):
            version = version_of(connection)
            if version:
                _back_up(path, backup_path(path, version))
            elif connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
                raise StoreError(f"{path} is a database, but not Treadle's; choose another path")
            for number in range(version + 1, len(steps) + 1):
                for statement in statements(steps[number].read_text(encoding="utf-8")):
                    connection.execute(statement)
                faultpoint("store.migrating")
            connection.execute(f"PRAGMA user_version = {len(steps)}")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    faultpoint("store.migrated")


def statements(script: str) -> Iterator[str]:
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
    source = sqlite3.connect(path, isolation_level=None)
    try:
        copy = sqlite3.connect(temporary, isolation_level=None)
        try:
            source.backup(copy)
            copy.execute("PRAGMA journal_mode = DELETE")
        finally:
            copy.close()
    finally:
        source.close()
    with open(temporary, "rb") as file:
        os.fsync(file.fileno())
    temporary.replace(target)
    faultpoint("store.backed_up")


def _use_wal(connection: sqlite3.Connection, busy_s: float) -> None:
    """SQLite does not wait for the lock that this needs, and two first starts may meet here."""
    deadline = time.monotonic() + busy_s
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if primary_code(error) != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(0.01)


def version_of(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])
