"""Checks that a log is complete (D-06): numbers without a gap, `session.record_lost` where a record is missing; and the
messages of `treadle fsck` about damage. Shared by all stores; knows nothing of SQL."""

from collections.abc import Sequence
from typing import Literal

import msgspec

from treadle.adapters.stores.packing import Packed
from treadle.base.types import ChatId
from treadle.errors import Damaged, InvalidInput
from treadle.protocol import wire
from treadle.protocol.wire import Record

MISSING = "the record was missing"
STRAY = "its number is far from all others and cannot be right"
MOST_LOST = 10_000
"""More than this is not lost: the number of the last record is wrong."""


ProblemKind = Literal[
    "database", "record", "gap", "head", "summary", "orphan", "blob", "image", "changes", "snapshot", "world", "ahead"
]


class Problem(msgspec.Struct, frozen=True):
    """One thing that is wrong, and whether it was mended."""

    kind: ProblemKind
    text: str
    chat: str = ""
    seq: int = 0
    repaired: bool = False


def check_gapless(records: Sequence[Record | Packed], first: int) -> None:
    """InvalidInput unless the numbers of new records go on from `first`."""
    for seq, record in enumerate(records, first):
        if record.seq != seq:
            raise InvalidInput(f"the records are not gapless: {record.seq} stands where {seq} belongs")


def gapless(records: list[Record], chat: ChatId, after_seq: int, head: int, limit: int) -> list[Record]:
    """The records behind `after`, one for every number up to the chat's head, or up to `limit` of them."""
    upto = max(head, records[-1].seq if records else 0)
    if limit:
        upto = min(upto, after_seq + limit)
    missing_count = max(0, upto - after_seq) - len(records)
    if missing_count == 0:
        return records
    if missing_count > MOST_LOST:
        raise contradiction(chat, head, records[-1].seq if records else after_seq)
    there = {record.seq: record for record in records}
    return [there.get(seq) or wire.make_lost_record(seq, MISSING) for seq in range(after_seq + 1, upto + 1)]


def end_after_repair(head: int, last: int) -> int:
    """Where a log ends whose chat and records do not agree. No number is given twice: those of lost records stay
    theirs, and if the chat's number cannot be believed, one lost record says that there was more."""
    if head <= last:
        return last
    return head if head - last <= MOST_LOST else last + 1


def contradiction(chat: ChatId, head: int, last: int) -> Damaged:
    return Damaged(
        f"chat {chat} says that its last record is {head}, and its log ends with {last}; nothing was changed, "
        "mend it with `treadle fsck --repair`"
    )
