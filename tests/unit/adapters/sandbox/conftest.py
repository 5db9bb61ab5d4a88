"""Fixtures of the sandbox tests: one's own grounds, and the levels that this machine has."""

from collections.abc import Iterator

import pytest

from tests.unit.adapters.sandbox.grounds import Grounds, grounds, missing


@pytest.fixture
def place() -> Iterator[Grounds]:
    with grounds() as made:
        yield made


@pytest.fixture(params=["bubblewrap", "landlock"])
def level(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    if why := missing(found):
        pytest.skip(why)
    return found


@pytest.fixture
def bubblewrap(place: Grounds) -> Grounds:
    if why := missing("bubblewrap"):
        pytest.skip(why)
    return place


@pytest.fixture
def landlock(place: Grounds) -> Grounds:
    if why := missing("landlock"):
        pytest.skip(why)
    return place
