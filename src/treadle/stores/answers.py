"""What all stores say about answers that are remembered (A-04). Knows nothing of where they are kept."""

from treadle.errors import AlreadyAnswered
from treadle.ports.store import ANSWER_MS, Remembered

SWEPT_AT_ONCE = 100
"""How many old answers go when a new one comes: no single request pays for a whole day."""


def already_answered(first: Remembered) -> AlreadyAnswered:
    return AlreadyAnswered(
        f"the request with the key {first.key!r} was answered before; this is the answer that it got",
        request=first.request,
        status=first.status,
        body=first.body,
    )


def too_old(new: Remembered) -> int:
    """Answers of a time before this have been kept long enough when `new` comes."""
    return new.time_ms - ANSWER_MS
