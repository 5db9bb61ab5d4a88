"""How often and how long to wait before a failed model call is made again (M-11). Pure: chance comes in as data."""

from treadle.errors import ModelError

RETRIES = 5
BASE_S = 2.0
CAP_S = 30.0
JITTER = 0.25
PATIENCE_S = 120.0
"""A provider that asks for more than this is not waited for."""

_TRANSIENT = ("rate_limit", "overloaded", "network", "cut_stream", "silence")


def delay(error: ModelError, failures: int, chance: float, base_s: float = BASE_S) -> float | None:
    """Seconds to wait before the next attempt, or None when there is none. `chance` is in [0, 1)."""
    if error.kind not in _TRANSIENT or failures >= RETRIES:
        return None
    if error.retry_after is not None:
        return error.retry_after if error.retry_after <= PATIENCE_S else None
    wait = base_s * 2.0**failures * (1 + JITTER * (2 * chance - 1))
    return float(min(wait, CAP_S))
