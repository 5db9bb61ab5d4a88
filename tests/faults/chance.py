"""How much is struck, and by which chance. `make test` strikes some of the points, the same in every run; `make soak`
(TEST_SOAK=1) strikes all of them and makes other random cases each time. A failure prints TEST_SEED, which repeats the
choice; set to another number, `make test` makes other choices.

Tests with the marker `thorough` run in `make thorough` (TEST_THOROUGH=1), in CI and in a soak, not in `make test`; with
`thorough(one_of=8)` an eighth of them runs in `make test`, too: the same in every run."""

import os
import random
from collections import defaultdict
from collections.abc import Sequence
from typing import TypeVar

import pytest

SOAK = bool(os.environ.get("TEST_SOAK"))
THOROUGH = SOAK or bool(os.environ.get("TEST_THOROUGH"))
_RUN = os.environ.get("PYTEST_XDIST_TESTRUNUID")
"""The processes of one run choose the same: each has the list of all tests."""
SEED = int(os.environ.get("TEST_SEED") or (random.Random(_RUN).randrange(10**6) if SOAK else 1))

FEW = 4

T = TypeVar("T")


def examples(most: int) -> int:
    """How many examples of a property are tried: all of them in a soak."""
    return most if SOAK else max(most // 8, 10)


def some(items: Sequence[T], one_of: int, salt: str) -> list[T]:
    """One of so many by chance, in their order, and half as many beyond the first FEW; all of them for a soak."""
    if SOAK or one_of == 1:
        return list(items)
    print(f"TEST_SEED={SEED}")
    count = -(-len(items) // one_of)
    count = min(count, FEW) + max(0, count - FEW) // 2
    indexes = set(random.Random(f"{SEED} {salt}").sample(range(len(items)), count))
    return [item for index, item in enumerate(items) if index in indexes]


def split_thorough(items: Sequence[pytest.Item]) -> tuple[list[pytest.Item], list[pytest.Item]]:
    """The tests that run, and those that only a thorough run has. With `one_of=8` an eighth runs, by chance: of the
    tests of a marked file, or of all marked tests in `tests/unit`, `tests/scenario` and so on."""
    left_out: set[pytest.Item] = set()
    groups = defaultdict[tuple[str, int], list[pytest.Item]](list)
    for item in items:
        if not THOROUGH and (marker := item.get_closest_marker("thorough")):
            path = item.nodeid.partition("::")[0]
            group_name = "/".join(path.split("/")[:2]) if marker in item.own_markers else path
            groups[group_name, marker.kwargs.get("one_of", 0)].append(item)
    for (group_name, one_of), group in groups.items():
        count = -(-len(group) // one_of) if one_of else 0
        left_out |= set(group).difference(random.Random(f"{SEED} {group_name}").sample(group, count))
    return [item for item in items if item not in left_out], [item for item in items if item in left_out]
