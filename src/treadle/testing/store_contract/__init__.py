"""The contract of every store, as tests: subclass `StoreContract`, say how to open a store, and pytest does the rest.

    class TestMyStore(StoreContract):
        async def open_store(self, clock, folder):
            return MyStore(folder, clock=clock)

Needs pytest and pytest-asyncio. Names no store; `treadle.adapters.stores.memory` is the specification in code."""

from treadle.testing.store_contract.leases import LeaseContract
from treadle.testing.store_contract.lists import ListContract, SaidContract, SideContract
from treadle.testing.store_contract.log import DeletionContract, LogContract


class StoreContract(LogContract, LeaseContract, ListContract, SideContract, SaidContract, DeletionContract):
    """D-03, D-04, D-05, D-06, A-04, A-06, A-07, U-04 as far as they can be seen through the port."""
