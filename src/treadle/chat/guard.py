"""The loop guard (L-10): the same calls with the same results, over and over, are no progress. Only identical
signatures count; fifty different edits in a row are legitimate work."""

import hashlib
from collections.abc import Sequence

import msgspec

NUDGE_AT = 3
STOP_AT = 5
LONGEST_CYCLE = 5
WINDOW = STOP_AT * LONGEST_CYCLE  # how many signatures are ever looked at


class Repetition(msgspec.Struct, frozen=True):
    """A cycle at the end of the signatures: `length` calls, `repeats` times in a row."""

    length: int
    repeats: int


def compute_signature(name: str, arguments: str, result: str) -> str:
    """A short hash of one call and its result; the same in every process, because it is part of the state."""
    text = f"{len(name)}:{name}{len(arguments)}:{arguments}{result}"
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


def find(signatures: Sequence[str]) -> Repetition | None:
    best: Repetition | None = None
    for length in range(1, min(LONGEST_CYCLE, len(signatures) // NUDGE_AT) + 1):
        count = count_repeats(signatures, length)
        if count >= NUDGE_AT and (best is None or count > best.repeats):
            best = Repetition(length, count)
    return best


def count_repeats(signatures: Sequence[str], length: int = 1) -> int:
    block, count, end = signatures[-length:], 0, len(signatures)
    while end >= length and signatures[end - length : end] == block:
        count += 1
        end -= length
    return count


def describe(finding: Repetition) -> str:
    calls_text = "the same call" if finding.length == 1 else f"the same {finding.length} calls"
    return (
        f"You have made {calls_text} {finding.repeats} times in a row, with the same arguments and the same result. "
        "Doing it again will not change anything. Look at the results, then try something else, "
        "or say what keeps you from going on."
    )
