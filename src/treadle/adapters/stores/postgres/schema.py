"""The numbered migrations in `migrations/`, each applied once, even if many processes on many machines start at the
same moment: they queue at an advisory lock, and the later ones find the new number. Knows nothing of chats."""

from pathlib import Path

import asyncpg  # type: ignore[import-untyped]

from treadle.adapters.stores.postgres.connections import PgConnection
from treadle.base.faultpoint import faultpoint
from treadle.errors import NewerSchema, StoreError

MIGRATIONS = Path(__file__).with_name("migrations")

_LOCK = "SELECT pg_advisory_xact_lock(hashtextextended('treadle ' || current_schema(), 0))"
# A real look at the catalogue: `to_regclass` remembers, while one waits for the lock, that there was no such table.
_EXISTS = "SELECT EXISTS (SELECT 1 FROM pg_tables WHERE schemaname = current_schema() AND tablename = 'treadle_meta')"
# A database that was dumped and loaded elsewhere has changes of numbers that this server's transactions are yet to get.
_RENUMBER = """
UPDATE treadle_meta SET change_base = newest + 1 FROM (
  SELECT coalesce(max(changed), 0) AS newest
  FROM (SELECT changed FROM chats UNION ALL SELECT changed FROM deleted_chats) AS changes
) AS numbers
WHERE newest > change_base + pg_snapshot_xmax(pg_current_snapshot())::text::bigint
"""


async def prepare(connection: PgConnection, address: str, migrations: Path = MIGRATIONS) -> None:
    """Make the tables, or bring them up to date. NewerSchema when a newer Treadle made them."""
    steps = numbered(migrations)
    if await _version(connection, address, steps) < len(steps):
        async with connection.transaction():
            await connection.execute(_LOCK)
            await _migrate(connection, address, steps)
            faultpoint("store.before_commit")
        faultpoint("store.migrated")
    await connection.execute(_RENUMBER)


async def _migrate(connection: PgConnection, address: str, steps: dict[int, Path]) -> None:
    version = await _version(connection, address, steps)
    for number in range(version + 1, len(steps) + 1):
        try:
            await connection.execute(steps[number].read_text(encoding="utf-8"))
        except asyncpg.DuplicateTableError as error:
            raise StoreError(
                f"the database {address} is in use, but not Treadle's ({error}); choose another"
            ) from error
        faultpoint("store.migrating")
    if version < len(steps):
        await connection.execute("UPDATE treadle_meta SET version = $1", len(steps))


async def _version(connection: PgConnection, address: str, steps: dict[int, Path]) -> int:
    if not await connection.fetchval(_EXISTS):
        return 0
    version = int(await connection.fetchval("SELECT version FROM treadle_meta"))
    if version > len(steps):
        raise NewerSchema(
            f"the database {address} was made by a newer Treadle (its schema is {version}, this one knows "
            f"{len(steps)}); "
            "upgrade Treadle, or use another database"
        )
    return version


def numbered(folder: Path) -> dict[int, Path]:
    """The migrations by number: 1, 2, 3 … without a gap."""
    steps = {int(file.name.split("_")[0]): file for file in sorted(folder.glob("[0-9]*.sql"))}
    if list(steps) != list(range(1, len(steps) + 1)):
        raise StoreError(f"the migrations in {folder} are not numbered without a gap; reinstall Treadle")
    return steps
