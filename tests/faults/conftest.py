from collections.abc import Iterator

import pytest

from tests.faults import harness


@pytest.fixture(scope="session")
def nursery() -> Iterator[harness.Nursery]:
    with harness.nursery() as made:
        yield made
