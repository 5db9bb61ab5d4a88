"""Migrations: numbered, once, backed up, and never backwards (D-06, fault 3)."""

import shutil
import sqlite3
import stat
import threading
from contextlib import closing
from pathlib import Path

import pytest

from treadle.adapters.stores.sqlite import SqliteStore, schema
from treadle.adapters.stores.sqlite.schema import ReadOnly
from treadle.base import file_system
from treadle.errors import NewerSchema, StoreError
from treadle.ports.store import ChatFilter
from treadle.testing.store_contract.helpers import A, begin


@pytest.fixture
def newer(tmp_path: Path) -> Path:
    """The migrations of a Treadle to come."""
    folder = tmp_path / "migrations"
    shutil.copytree(schema.MIGRATIONS, folder)
    number = len(schema.number_migrations(folder)) + 1
    script = "-- a comment; with a semicolon\nCREATE TABLE added (\n  a INTEGER\n);\nINSERT INTO added VALUES (1);\n"
    (folder / f"{number:04d}_add.sql").write_text(script)
    return folder


def test_a_database_that_cannot_be_written_is_read_as_a_newer_treadle_sees_it(newer: Path, tmp_path: Path) -> None:
    path = tmp_path / "old.db"
    schema.prepare(path, busy_s=1)
    old_bytes = path.read_bytes()
    read = ReadOnly(path, 1, newer)
    with closing(read.connect()) as connection:
        assert connection.execute("SELECT a FROM added").fetchall() == [(1,)]
    assert path.read_bytes() == old_bytes
    assert not list(tmp_path.glob("old.db?*"))
    read.close()
    with closing(ReadOnly(path, 1, schema.MIGRATIONS).connect()) as connection:
        assert connection.execute("SELECT count(*) FROM chats").fetchall() == [(0,)]
        with pytest.raises(sqlite3.OperationalError, match="readonly"):
            connection.execute("DELETE FROM chats")


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def content(path: Path) -> bytes:
    return path.read_bytes()


def query(path: Path, sql: str) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(sql).fetchall()


async def test_a_new_database_needs_no_backup_and_is_private(store: SqliteStore, path: Path) -> None:
    await begin(store, A)
    assert list(path.parent.glob("*.backup")) == []
    assert mode(path) == 0o600
    assert query(path, "PRAGMA journal_mode") == [("wal",)]


async def test_a_migration_keeps_a_copy_of_what_was(path: Path, newer: Path) -> None:
    old = SqliteStore(path)
    await begin(old, A, title="kept")
    await old.close()
    new = SqliteStore(path, migrations=newer)
    assert (await new.get(A)).summary.title == "kept"
    await new.close()
    assert query(path, "SELECT a FROM added") == [(1,)]
    backup = schema.make_backup_path(path, len(schema.number_migrations(schema.MIGRATIONS)))
    assert query(backup, "SELECT id FROM chats") == [(A,)]
    assert query(backup, "SELECT name FROM sqlite_master WHERE name = 'added'") == []
    restored = path.with_name("restored.db")
    shutil.copy(backup, restored)
    again = SqliteStore(restored)
    assert (await again.get(A)).summary.title == "kept"
    await again.close()


async def test_lists_find_the_chats_of_an_older_file(path: Path, tmp_path: Path) -> None:
    """A-06, A-07: the columns for lists are made from the summaries, damaged ones left aside."""
    first = tmp_path / "first"
    first.mkdir()
    shutil.copy(schema.MIGRATIONS / "0001_begin.sql", first)
    schema.prepare(path, busy_s=1, migrations=first)
    rows = [
        (1, "c_a", 20, '{"chat":"c_a","head":0,"title":"Ä title","labels":["x","y"],"updated_ms":20}'.encode()),
        (2, "c_b", 10, b'{"chat":"c_b","head":0,"updated_ms":10}'),
        (3, "c_c", 30, b"{broken"),
    ]
    with closing(sqlite3.connect(path)) as connection:
        connection.executemany(
            "INSERT INTO chats (no, id, head, status, runnable, wake_ms, archived, owner, updated_ms, summary) "
            "VALUES (?, ?, 0, 'idle', 0, 0, 0, '', ?, ?)",
            rows,
        )
        connection.commit()
    store = SqliteStore(path)
    assert [one.summary.chat for one in await store.list(ChatFilter(query="ä TITLE", label="y"))] == ["c_a"]
    assert [one.summary.chat for one in await store.list(ChatFilter(label=""))] == []
    assert [(one.summary.chat, one.change_number) for one in await store.list_changes()] == [
        ("c_b", 1),
        ("c_a", 2),
        ("c_c", 3),
    ]
    await store.close()
    assert query(schema.make_backup_path(path, 1), "SELECT count(*) FROM chats") == [(3,)]


async def test_of_many_starters_one_migrates(path: Path, newer: Path) -> None:
    old = SqliteStore(path)
    await begin(old, A)
    await old.close()
    fault_points: list[str] = []
    file_system.install_fault_hook(fault_points.append)
    errors: list[BaseException] = []

    def start() -> None:
        try:
            schema.prepare(path, busy_s=10, migrations=newer)
        except BaseException as error:
            errors.append(error)

    starters = [threading.Thread(target=start) for _ in range(6)]
    try:
        for starter in starters:
            starter.start()
        for starter in starters:
            starter.join()
    finally:
        file_system.install_fault_hook(None)
    assert errors == []
    assert fault_points.count("store.migrating") == 1
    assert fault_points.count("store.backed_up") == 1
    assert query(path, "SELECT a FROM added") == [(1,)]


@pytest.mark.parametrize("point", ["store.backed_up", "store.migrating"])
async def test_a_migration_that_fails_changes_nothing(path: Path, newer: Path, point: str) -> None:
    old = SqliteStore(path)
    await begin(old, A)
    await old.close()

    def strike(name: str) -> None:
        if name == point:
            raise RuntimeError("struck")

    file_system.install_fault_hook(strike)
    try:
        with pytest.raises(RuntimeError):
            schema.prepare(path, busy_s=1, migrations=newer)
    finally:
        file_system.install_fault_hook(None)
    assert query(path, "SELECT name FROM sqlite_master WHERE name = 'added'") == []
    still = SqliteStore(path)
    assert await still.read_head(A) == 1
    await still.close()
    schema.prepare(path, busy_s=1, migrations=newer)
    assert query(path, "SELECT a FROM added") == [(1,)]


async def test_a_newer_schema_is_refused_with_a_sentence(path: Path, newer: Path) -> None:
    new = SqliteStore(path, migrations=newer)
    await begin(new, A)
    await new.close()
    old_content = content(path)
    old = SqliteStore(path)
    with pytest.raises(NewerSchema, match=r"newer Treadle.*upgrade"):
        await old.list()
    await old.close()
    assert content(path) == old_content


async def test_somebody_elses_database_is_left_alone(path: Path) -> None:
    path.parent.mkdir()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE theirs (a)")
    store = SqliteStore(path)
    with pytest.raises(StoreError, match="not Treadle's"):
        await store.list()
    await store.close()
    assert query(path, "SELECT name FROM sqlite_master") == [("theirs",)]


def test_migrations_without_a_gap(tmp_path: Path) -> None:
    (tmp_path / "0001_a.sql").write_text("")
    (tmp_path / "0003_c.sql").write_text("")
    with pytest.raises(StoreError, match="gap"):
        schema.number_migrations(tmp_path)


def test_a_script_is_split_where_statements_end() -> None:
    trigger = "CREATE TRIGGER t AFTER INSERT ON a BEGIN\n  DELETE FROM a;\n  SELECT ';';\nEND;\n"
    script = "-- one; two\nCREATE TABLE a (b);\n" + trigger + "SELECT 1"
    assert list(schema.split_statements(script)) == ["-- one; two\nCREATE TABLE a (b);\n", trigger, "SELECT 1"]
