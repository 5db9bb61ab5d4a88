"""Fixtures of the sandbox tests: one's own grounds, and the levels that this machine has."""

from collections.abc import Iterator

import pytest

from tests.unit.adapters.sandbox.grounds import Grounds, grounds, missing


@pytest.fixture
def place() -> Iterator[Grounds]:
    with grounds() as fresh_grounds:
        yield fresh_grounds


@pytest.fixture(params=["bubblewrap", "landlock"])
def level(request: pytest.FixtureRequest) -> str:
    level_name: str = request.param
    if skip_reason := missing(level_name):
        pytest.skip(skip_reason)
    return level_name


@pytest.fixture
def bubblewrap(place: Grounds) -> Grounds:
    if skip_reason := missing("bubblewrap"):
        pytest.skip(skip_reason)
    return place


@pytest.fixture
def landlock(place: Grounds) -> Grounds:
    if skip_reason := missing("landlock"):
        pytest.skip(skip_reason)
    return place
