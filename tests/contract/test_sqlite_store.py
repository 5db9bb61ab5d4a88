"""The SQLite store keeps the contract."""

from pathlib import Path

from treadle.adapters.stores.sqlite import SqliteStore
from treadle.ports.store import Store
from treadle.testing.clock import ManualClock
from treadle.testing.store_contract import StoreContract


class TestSqliteStore(StoreContract):
    async def open_store(self, clock: ManualClock, folder: Path) -> Store:
        return SqliteStore(folder / "treadle.db", clock=clock)

    async def open_beside(self, clock: ManualClock, folder: Path, lease_s: float) -> Store:
        return SqliteStore(folder / "treadle.db", clock=clock, lease_s=lease_s)
