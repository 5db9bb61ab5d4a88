"""Migrations: numbered, once, and never backwards (D-06, fault 3); and numbers of changes that survive a move."""

import asyncio
import shutil
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import asyncpg  # type: ignore[import-untyped]
import pytest

from treadle.adapters.stores.postgres import PostgresStore
from treadle.adapters.stores.postgres import connections as schema
from treadle.base import file_system
from treadle.errors import NewerSchema, StoreError
from treadle.testing.store_contract.helpers import A, B, add, begin


@pytest.fixture
def newer(tmp_path: Path) -> Path:
    """The migrations of a Treadle to come."""
    folder = tmp_path / "migrations"
    shutil.copytree(schema.MIGRATIONS, folder)
    number = len(schema.number_migrations(folder)) + 1
    (folder / f"{number:04d}_add.sql").write_text("CREATE TABLE added (a integer);\nINSERT INTO added VALUES (1);\n")
    return folder


@pytest.fixture
def points() -> Iterator[list[str]]:
    fault_points: list[str] = []
    file_system.install_fault_hook(fault_points.append)
    yield fault_points
    file_system.install_fault_hook(None)


async def test_of_many_starters_one_migrates(postgres: str, points: list[str]) -> None:
    stores = [PostgresStore(postgres) for _ in range(6)]
    assert await asyncio.gather(*(store.list() for store in stores)) == [[]] * 6
    assert points.count("store.migrating") == len(schema.number_migrations(schema.MIGRATIONS))
    for store in stores:
        await store.close()


async def test_a_migration_keeps_what_there_is(postgres: str, newer: Path, connection: asyncpg.Connection) -> None:
    old = PostgresStore(postgres)
    await begin(old, A, title="kept")
    new = PostgresStore(postgres, migrations=newer)
    assert (await new.get(A)).summary.title == "kept"
    assert await connection.fetchval("SELECT a FROM added") == 1
    await add(old, A, 2)  # a running store goes on: a new version is brought in without stopping the old one
    await old.close()
    await new.close()


async def test_a_database_of_the_version_before_is_brought_up_to_date(postgres: str, tmp_path: Path) -> None:
    earlier = tmp_path / "earlier"
    shutil.copytree(schema.MIGRATIONS, earlier)
    max(earlier.glob("*.sql")).unlink()
    old = PostgresStore(postgres, migrations=earlier)
    await begin(old, A, title="kept")
    new = PostgresStore(postgres)
    assert (await new.get(A)).summary.title == "kept"
    await add(new, A, 2)
    await add(old, A, 3)
    assert await new.read_head(A) == 3
    await old.close()
    await new.close()


async def test_a_migration_that_fails_changes_nothing(
    postgres: str, newer: Path, connection: asyncpg.Connection
) -> None:
    old = PostgresStore(postgres)
    await begin(old, A)
    await old.close()

    def strike(name: str) -> None:
        if name == "store.migrating":
            raise RuntimeError("struck")

    file_system.install_fault_hook(strike)
    new = PostgresStore(postgres, migrations=newer)
    try:
        with pytest.raises(RuntimeError):
            await new.read_head(A)
    finally:
        file_system.install_fault_hook(None)
    assert await connection.fetchval("SELECT to_regclass('added')") is None
    assert await connection.fetchval("SELECT version FROM treadle_meta") == len(
        schema.number_migrations(schema.MIGRATIONS)
    )
    assert await new.read_head(A) == 1
    assert await connection.fetchval("SELECT a FROM added") == 1
    await new.close()


async def test_a_newer_schema_is_refused_with_a_sentence(postgres: str, newer: Path) -> None:
    new = PostgresStore(postgres, migrations=newer)
    await begin(new, A)
    await new.close()
    old = PostgresStore(postgres)
    with pytest.raises(NewerSchema, match=r"newer Treadle.*upgrade"):
        await old.list()
    await old.close()


async def test_somebody_elses_tables_are_left_alone(postgres: str, connection: asyncpg.Connection) -> None:
    await connection.execute("CREATE TABLE chats (theirs integer)")
    store = PostgresStore(postgres)
    with pytest.raises(StoreError, match="not Treadle's"):
        await store.list()
    await store.close()
    assert await connection.fetchval("SELECT to_regclass('treadle_meta')") is None


async def test_a_database_that_does_not_exist(postgres: str) -> None:
    store = PostgresStore(urlsplit(postgres)._replace(path="/nobody").geturl())
    with pytest.raises(StoreError, match="there is no database"):
        await store.list()
    await store.close()


async def test_changes_go_on_in_order_in_a_database_from_elsewhere(
    postgres: str, connection: asyncpg.Connection
) -> None:
    """A dump that is loaded into a new server brings numbers that this one's transactions have not reached."""
    store = PostgresStore(postgres)
    await begin(store, A)
    await store.close()
    await connection.execute("UPDATE chats SET changed = changed + 1000000000")
    moved_store = PostgresStore(postgres)
    old = (await moved_store.get(A)).change_number
    assert await moved_store.wait_any(old - 1, 20) == old
    await begin(moved_store, B)
    assert await moved_store.wait_any(old, 20) > old
    assert [one.summary.chat for one in await moved_store.list_changes(after_change=old)] == [B]
    await moved_store.close()
