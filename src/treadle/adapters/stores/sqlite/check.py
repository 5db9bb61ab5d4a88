"""Finds damage in a database file and repairs it where possible (`treadle fsck`, D-06).

A repair moves a damaged record to the table `quarantine`, puts `session.record_lost` in its place, and corrects heads
and summaries that contradict the log. It deletes nothing else. It does not change a file whose pages are damaged: the
readable part of such a file goes into a new one (`salvage`). Knows nothing of leases: the repair of a chat is one
transaction, and a worker whose chat it touched goes on from the log as it is then; sound chats are only read.
"""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from hashlib import file_digest
from pathlib import Path

import msgspec

from treadle.adapters.stores.integrity import MISSING, MOST_LOST, STRAY, Problem, end_after_repair
from treadle.adapters.stores.packing import Packed
from treadle.adapters.stores.sqlite.blobs import BlobFiles
from treadle.adapters.stores.sqlite.failures import BROKEN, primary_code
from treadle.adapters.stores.sqlite.rows import Types, pack, restore
from treadle.adapters.stores.sqlite.schema import connect
from treadle.adapters.stores.sqlite.tables import COLUMNS, PLACES
from treadle.base.types import ChatId
from treadle.errors import Damaged
from treadle.protocol import wire
from treadle.protocol.events import Envelope, Event, RecordLost
from treadle.protocol.references import lost_without
from treadle.protocol.views import STATUSES, ChatSummary

_TOLD = 5
_COLUMNS = "place, time_ms, type, version, epoch, packing, crc, body"


def check(path: Path, *, repair: bool, busy_s: float = 10.0) -> list[Problem]:
    """Everything that is wrong with an up-to-date database and its blobs; an empty list when all is well."""
    blobs = BlobFiles(path.with_name("blobs"))
    try:
        with closing(connect(path, busy_s=busy_s)) as connection:
            problems = _damaged_pages(connection)
            if not problems:
                problems = list(_Inspection(connection, blobs, repair).problems())
    except sqlite3.DatabaseError as error:
        if primary_code(error) not in BROKEN:
            raise
        problems = [Problem("database", str(error))]
    return problems + list(_damaged_files(blobs))


def _damaged_pages(connection: sqlite3.Connection) -> list[Problem]:
    """Return SQLite's own findings about the file: the first ones, and the number of the others."""
    messages = [str(text) for (text,) in connection.execute("PRAGMA integrity_check") if text != "ok"]
    more = [f"and {len(messages) - _TOLD:,} more of this kind"] if len(messages) > _TOLD else []
    return [Problem("database", " ".join(text.split())) for text in [*messages[:_TOLD], *more]]


class _Inspection:
    """One pass over the file."""

    def __init__(self, connection: sqlite3.Connection, blobs: BlobFiles, repair: bool) -> None:
        self._connection = connection
        self._blobs = blobs
        self._may_repair = repair
        self._repair = False
        """True if damage is repaired: only in a transaction that may write."""
        self._types = Types(connection)

    def problems(self) -> Iterator[Problem]:
        for number, chat in self._connection.execute("SELECT no, id FROM chats ORDER BY no").fetchall():
            problems = self._inspect(number, str(chat), repair=False)
            yield from self._inspect(number, str(chat), repair=True) if problems and self._may_repair else problems
        yield from self._orphans()

    def _inspect(self, number: int, chat: str, *, repair: bool) -> list[Problem]:
        """One chat, in a transaction of its own: workers write to the others meanwhile."""
        self._repair = repair
        self._connection.execute("BEGIN IMMEDIATE" if repair else "BEGIN")
        try:
            problems = [*self._records(number, chat), *self._chat(number, chat)]
        except BaseException:
            self._connection.execute("ROLLBACK")
            raise
        self._connection.execute("COMMIT")
        return problems

    def _records(self, number: int, chat: str) -> Iterator[Problem]:
        base = number * PLACES
        expected = 1
        places = (base, base + PLACES)
        rows = self._connection.execute(
            f"SELECT {COLUMNS} FROM events WHERE place >= ? AND place < ? ORDER BY place", places
        )
        damaged: list[tuple[Packed, str]] = []
        missing: list[int] = []
        stray: list[Packed] = []
        for place, time_ms, kind, *columns in rows:
            packed = Packed(place - base, time_ms, self._types.name(kind), *columns)
            if packed.seq - expected > MOST_LOST:
                stray.append(packed)
                yield Problem("record", STRAY, chat, packed.seq, self._repair)
                continue
            for seq in range(expected, packed.seq):
                missing.append(seq)
                yield Problem("gap", "there is no record with this number", chat, seq, self._repair)
            expected = packed.seq + 1
            try:
                event = wire.decode_event(packed.type, packed.version, restore(packed, self._blobs))
            except Damaged as error:
                damaged.append((packed, str(error)))
                yield Problem("record", str(error), chat, packed.seq, self._repair)
            else:
                yield from self._lost_blobs(event, chat, packed.seq)
        if self._repair:  # only now: the rows above were being read
            for packed, reason in damaged:
                self._quarantine(base, packed, reason)
            for seq in missing:
                self._put_lost(base, Packed(seq, 0, "", 0, 0, 0, 0, b""), MISSING)
            for packed in stray:
                self._quarantine(base, packed, STRAY)
                self._connection.execute("DELETE FROM events WHERE place = ?", (base + packed.seq,))

    def _lost_blobs(self, event: Event, chat: str, seq: int) -> Iterator[Problem]:
        """Blobs that an event names and that are not there. The event itself is sound and stays."""
        for digest in lost_without(event):
            if not self._blobs.path(digest).is_file():
                yield Problem("blob", f"blob {digest} is missing", chat, seq)

    def _quarantine(self, base: int, packed: Packed, reason: str) -> None:
        self._connection.execute(
            f"INSERT INTO quarantine ({_COLUMNS}, reason) SELECT {_COLUMNS}, ? FROM events WHERE place = ?",
            (reason, base + packed.seq),
        )
        self._put_lost(base, packed, reason)

    def _put_lost(self, base: int, packed: Packed, reason: str) -> None:
        envelope = Envelope(packed.seq, ChatId(""), packed.time_ms, RecordLost(packed.type, reason), packed.epoch)
        seq, time_ms, kind, *columns = pack(wire.encode(envelope), self._blobs)
        self._connection.execute(
            f"INSERT OR REPLACE INTO events ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (base + seq, time_ms, self._types.number(kind), *columns),
        )

    def _chat(self, number: int, chat: str) -> Iterator[Problem]:
        """Check that the chat's row agrees with its log."""
        base = number * PLACES
        last = self._connection.execute(
            "SELECT max(place) FROM events WHERE place >= ? AND place < ?", (base, base + PLACES)
        ).fetchone()[0]
        last = last - base if last is not None else 0
        row = self._connection.execute(
            "SELECT head, status, runnable, wake_ms, archived, owner, updated_ms, summary FROM chats WHERE no = ?",
            (number,),
        ).fetchone()
        if row is None:
            return  # it was removed meanwhile
        head, status, runnable, wake_ms, archived, owner, updated_ms, body = row
        head, wake_ms, updated_ms = (_number(value) for value in (head, wake_ms, updated_ms))
        try:
            summary = msgspec.json.decode(body, type=ChatSummary)
            if summary.chat != chat:
                raise msgspec.ValidationError("it is another chat's")
        except (msgspec.MsgspecError, UnicodeDecodeError, TypeError) as error:
            yield Problem("summary", f"the summary cannot be read ({error})", chat, 0, self._repair)
            summary = ChatSummary(
                ChatId(chat),
                status if status in STATUSES else "idle",
                head,
                bool(runnable),
                wake_ms,
                owner=str(owner),
                archived=bool(archived),
                updated_ms=updated_ms,
            )
            self._correct(number, last, summary)
        if head != last:
            text = f"the chat says its last record is {head}, the log ends with {last}"
            yield Problem("head", text, chat, last, self._repair)
            if self._repair:
                end = end_after_repair(head, last)
                for seq in range(last + 1, end + 1):
                    self._put_lost(base, Packed(seq, 0, "", 0, 0, 0, 0, b""), MISSING)
                self._correct(number, end, summary)

    def _correct(self, number: int, last: int, summary: ChatSummary) -> None:
        if self._repair:
            body = msgspec.json.encode(msgspec.structs.replace(summary, head=last))
            self._connection.execute("UPDATE chats SET head = ?, summary = ? WHERE no = ?", (last, body, number))

    def _orphans(self) -> Iterator[Problem]:
        owned = f"SELECT place / {PLACES} AS chat_no FROM events"
        query = f"SELECT chat_no, count(*) FROM ({owned}) WHERE chat_no NOT IN (SELECT no FROM chats) GROUP BY chat_no"
        for number, count in self._connection.execute(query):
            yield Problem("orphan", f"{count} records belong to chat number {number}, which does not exist")


def _number(value: object) -> int:
    """A number out of a row that may be damaged: SQLite keeps anything in any column."""
    return value if isinstance(value, int) else 0


def _damaged_files(blobs: BlobFiles) -> Iterator[Problem]:
    for file in sorted(blobs.folder.glob("??/*")):
        if len(file.name) == 64:
            try:
                with open(file, "rb") as stream:
                    digest = file_digest(stream, "sha256").hexdigest()
            except OSError as error:
                yield Problem("blob", f"blob {file.name} cannot be read: {error.strerror}")
                continue
            if digest != file.name:
                yield Problem("blob", f"blob {file.name} is damaged: its bytes have another hash")
