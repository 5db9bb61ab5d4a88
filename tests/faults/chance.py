"""How much is struck, and by which chance. `make test` strikes some of the points, the same in every run; `make soak`
(TEST_SOAK=1) strikes all of them and makes other random cases each time. A failure prints TEST_SEED, which repeats the
choice; set to another number, `make test` makes other choices."""

import os
import random
from collections.abc import Sequence
from typing import TypeVar

SOAK = bool(os.environ.get("TEST_SOAK"))
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
