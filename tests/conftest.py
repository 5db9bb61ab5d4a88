"""What holds for all tests. Time is no criterion: a loaded machine is slow, and that is no fault of the code. No test
uses the user's own Treadle; what was found out about sandboxes is shared by all of a run. A PostgreSQL is started for
those who ask for it."""

import gc
import os
from collections.abc import Generator

import pytest
from hypothesis import HealthCheck, settings

from tests.faults.chance import SOAK, examples, split_thorough
from tests.homes import shared_home
from tests.leftovers import no_process_is_left, process_watch, pytest_runtest_teardown, pytest_sessionfinish
from tests.postgres import own_postgres, postgres, postgres_database, postgres_server
from tests.required import pytest_make_collect_report, pytest_runtest_makereport

__all__ = [
    "no_process_is_left",
    "own_postgres",
    "postgres",
    "postgres_database",
    "postgres_server",
    "process_watch",
    "pytest_make_collect_report",
    "pytest_runtest_makereport",
    "pytest_runtest_teardown",
    "pytest_sessionfinish",
]

settings.register_profile(
    "treadle",
    max_examples=examples(100),
    deadline=None,
    derandomize=not SOAK,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("treadle")
os.environ["TREADLE_HOME"] = str(shared_home())


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Nothing of the collected tests is garbage: the collector rests meanwhile."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave the thorough tests to a thorough run, unless they were asked for by name. The slowest first: one of them at
    the end would keep a single process busy while the others have no work left."""
    named = any("::" in argument or argument.endswith(".py") for argument in config.args)
    if not named and not config.option.keyword:
        items[:], thorough = split_thorough(items)
        config.hook.pytest_deselected(items=thorough)
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)


def pytest_collection_finish() -> None:
    """The thousands of tests live as long as the run: the garbage collector need not look at them again."""
    gc.collect()
    gc.freeze()
