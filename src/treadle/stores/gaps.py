"""A log without gaps, whatever became of its rows: where a record is missing stands `session.record_lost` (D-06).
Shared by the stores on disk; knows nothing of SQL."""

from treadle.errors import Damaged
from treadle.protocol import wire
from treadle.protocol.wire import Record
from treadle.types import ChatId

MISSING = "the record was missing"
STRAY = "its number is far from all others and cannot be right"
MOST_LOST = 10_000
"""More than this is not lost: the number of the last record is wrong."""


def gapless(found: list[Record], chat: ChatId, after: int, head: int, limit: int) -> list[Record]:
    """The records behind `after`, one for every number up to the chat's head, or up to `limit` of them."""
    upto = max(head, found[-1].seq if found else 0)
    if limit:
        upto = min(upto, after + limit)
    lost = max(0, upto - after) - len(found)
    if lost == 0:
        return found
    if lost > MOST_LOST:
        raise contradiction(chat, head, found[-1].seq if found else after)
    there = {record.seq: record for record in found}
    return [there.get(seq) or wire.lost(seq, MISSING) for seq in range(after + 1, upto + 1)]


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
