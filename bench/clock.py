"""Time by the clock of work that runs in this process."""

import time
from collections.abc import Callable


def least(work: Callable[[], object], repeats: int) -> float:
    """Seconds by the clock, of the quickest run after a first one that fills the caches."""
    spent = []
    for _ in range(repeats + 1):
        began = time.perf_counter()
        work()
        spent.append(time.perf_counter() - began)
    return min(spent[1:])
