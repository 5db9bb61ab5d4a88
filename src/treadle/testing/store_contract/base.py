"""How the tests of the contract get their store."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from treadle.ports.store import Store
from treadle.testing.clock import ManualClock


class OpensStore:
    """A new store for every test, closed after it."""

    async def open_store(self, clock: ManualClock, folder: Path) -> Store:
        """A new, empty store whose leases are timed by `clock`; it is closed after the test."""
        raise AssertionError("say how to open a store")

    async def open_beside(self, clock: ManualClock, folder: Path, lease_s: float) -> Store:
        """The same store once more, as another process opens it that was told another length of leases; it is closed
        by the test. A store that lives in one process has nobody beside it."""
        pytest.skip("nobody else can open this store")

    @pytest.fixture
    def clock(self) -> ManualClock:
        return ManualClock()

    @pytest_asyncio.fixture
    async def store(self, clock: ManualClock, tmp_path: Path) -> AsyncIterator[Store]:
        store = await self.open_store(clock, tmp_path)
        yield store
        await store.close()
