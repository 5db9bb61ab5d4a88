"""The guide to scale: its SQL is understood by a database that Treadle has made."""

import re
from pathlib import Path

import asyncpg  # type: ignore[import-untyped]
import pytest

from treadle.adapters.stores.postgres import PostgresStore
from treadle.testing.store_contract.helpers import A, begin, claim_lease

PAGE = (Path(__file__).parents[2] / "docs" / "guide" / "scale.md").read_text(encoding="utf-8")
STATEMENTS = re.findall(r"```sql\n(.*?)```", PAGE, flags=re.S)


async def test_the_sql_of_the_page_works(postgres: str) -> None:
    store = PostgresStore(postgres)
    connection = await asyncpg.connect(postgres)
    try:
        await begin(store, A, runnable=True)
        size, vacuum, held_query, waiting = STATEMENTS
        assert (await connection.fetchrow(size))["events"] == 1
        assert await connection.execute(vacuum) == "ALTER TABLE"
        assert (await connection.fetchrow(waiting))["waiting"] == 1
        await claim_lease(store, "w1")
        assert [tuple(row) for row in await connection.fetch(held_query)] == [("w1", 1)]
        assert (await connection.fetchrow(waiting))["waiting"] == 0
    finally:
        await connection.close()
        await store.close()


@pytest.mark.parametrize("name", re.findall(r"`(treadle_[a-z_]+)", PAGE))
def test_every_number_to_watch_exists(name: str) -> None:
    sources = Path(__file__).parents[2] / "src" / "treadle" / "frontends" / "server"
    assert any(f'"{name}"' in file.read_text(encoding="utf-8") for file in sources.rglob("*.py"))
