"""The check of one chat for `treadle fsck` (D-06), the same for all stores: what is wrong with its records and its row,
and what a repair has to write. A store feeds the rows and writes the repair. Knows nothing of SQL.

A repair moves a damaged record to the table `quarantine`, puts `session.record_lost` in its place, and corrects a head
or a summary that contradicts the log. It deletes nothing else."""

from collections.abc import Callable, Collection
from typing import NamedTuple

import msgspec

from treadle.adapters.stores.packing import (
    MISSING,
    MOST_LOST,
    STRAY,
    Packed,
    Problem,
    ProblemKind,
    compute_repaired_end,
)
from treadle.base.types import ChatId
from treadle.errors import Damaged
from treadle.protocol import wire
from treadle.protocol.events import Envelope, RecordLost
from treadle.protocol.references import list_needed_blobs
from treadle.protocol.views import STATUSES, ChatSummary, Status


class StoredChatRow(NamedTuple):
    """A chat's row, as it was read: SQLite keeps anything in any column."""

    head: object
    status: object
    runnable: object
    wake_ms: object
    archived: object
    owner: object
    updated_ms: object
    summary: bytes


class ChatInspection:
    """Call `add_record` for each record, `report_missing_blobs`, `compare_row`. Then `problems` and repair are done."""

    def __init__(self, chat: str, restore: Callable[[Packed], bytes], *, repair: bool) -> None:
        self.problems: list[Problem] = []
        self.lost: list[tuple[Packed, str]] = []
        """Records to quarantine, if they are there, and to replace by `make_lost_record`; with the reason."""
        self.stray: list[int] = []  # Numbers of records to quarantine and delete.
        self.correction: tuple[int, bytes] | None = None  # The chat's head and summary.
        self.blobs: list[tuple[int, str]] = []  # Blobs that sound events need, each with the number of the event.
        self._chat, self._restore, self._repair = chat, restore, repair
        self._expected, self._last = 1, 0

    def add_record(self, packed: Packed) -> None:
        self._last = packed.seq
        if packed.seq - self._expected > MOST_LOST:
            self.stray.append(packed.seq)
            self._report_problem("record", STRAY, packed.seq)
            return
        for seq in range(self._expected, packed.seq):
            self.lost.append((_make_missing_record(seq), MISSING))
            self._report_problem("gap", "there is no record with this number", seq)
        self._expected = packed.seq + 1
        try:
            event = wire.decode_event(packed.type, packed.version, self._restore(packed))
        except Damaged as error:
            self.lost.append((packed, str(error)))
            self._report_problem("record", str(error), packed.seq)
        else:
            self.blobs += [(packed.seq, digest) for digest in list_needed_blobs(event)]

    def report_missing_blobs(self, present: Collection[str]) -> None:
        """The events that name the blobs are sound and stay."""
        missing = [(seq, digest) for seq, digest in self.blobs if digest not in present]
        self.problems += [Problem("blob", f"blob {digest} is missing", self._chat, seq) for seq, digest in missing]
        self.problems.sort(key=lambda problem: problem.seq)

    def compare_row(self, row: StoredChatRow) -> None:
        last = self._expected - 1 if self._repair else self._last
        row_numbers = (row.head, row.wake_ms, row.updated_ms)
        head, wake_ms, updated_ms = (value if isinstance(value, int) else 0 for value in row_numbers)
        try:
            summary = msgspec.json.decode(row.summary, type=ChatSummary)
            if summary.chat != self._chat:
                raise msgspec.ValidationError("it is another chat's")
        except (msgspec.MsgspecError, UnicodeDecodeError, TypeError) as error:
            self._report_problem("summary", f"the summary cannot be read ({error})")
            status: Status = next((status for status in STATUSES if status == row.status), "idle")
            summary = ChatSummary(ChatId(self._chat), status, head, bool(row.runnable), wake_ms, updated_ms=updated_ms)
            summary = msgspec.structs.replace(summary, owner=str(row.owner), archived=bool(row.archived))
            self._correct(last, summary)
        if head != last:
            self._report_problem("head", f"the chat says its last record is {head}, the log ends with {last}", last)
            end = compute_repaired_end(head, last)
            self.lost += [(_make_missing_record(seq), MISSING) for seq in range(last + 1, end + 1)]
            self._correct(end, summary)

    def _correct(self, head: int, summary: ChatSummary) -> None:
        self.correction = head, msgspec.json.encode(msgspec.structs.replace(summary, head=head))

    def _report_problem(self, kind: ProblemKind, text: str, seq: int = 0) -> None:
        self.problems.append(Problem(kind, text, self._chat, seq, self._repair))


def make_lost_record(packed: Packed, reason: str) -> wire.Record:
    return wire.encode(Envelope(packed.seq, ChatId(""), packed.time_ms, RecordLost(packed.type, reason), packed.epoch))


def _make_missing_record(seq: int) -> Packed:
    return Packed(seq, 0, "", 0, 0, 0, 0, b"")
