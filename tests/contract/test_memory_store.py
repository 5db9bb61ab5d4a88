"""The memory store keeps the contract: it is the specification in code."""

from pathlib import Path

from treadle.adapters.stores.memory import MemoryStore
from treadle.ports.store import Store
from treadle.testing.clock import ManualClock
from treadle.testing.store_contract import StoreContract


class TestMemoryStore(StoreContract):
    async def open_store(self, clock: ManualClock, folder: Path) -> Store:
        return MemoryStore(clock)
