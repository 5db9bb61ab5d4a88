"""The PostgreSQL store keeps the contract."""

from pathlib import Path

import pytest

from treadle.adapters.stores.postgres import PostgresStore
from treadle.ports.store import Store
from treadle.testing.clock import ManualClock
from treadle.testing.store_contract import StoreContract

pytestmark = pytest.mark.thorough(one_of=4)


class TestPostgresStore(StoreContract):
    @pytest.fixture(autouse=True)
    def _database(self, postgres: str) -> None:
        self.url = postgres

    async def open_store(self, clock: ManualClock, folder: Path) -> Store:
        return PostgresStore(self.url, clock=clock)

    async def open_beside(self, clock: ManualClock, folder: Path, lease_s: float) -> Store:
        return PostgresStore(self.url, clock=clock, lease_s=lease_s)
