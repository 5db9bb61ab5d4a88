"""The SQL of the store: the checks and changes of each operation, on one connection, inside the caller's transaction.
Every operation checks before it writes, so that a refused one has changed nothing. Knows no threads.
"""

import sqlite3
import zlib
from collections.abc import Collection, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING

from treadle.adapters.stores.integrity import check_gapless, contradiction, gapless
from treadle.adapters.stores.packing import Packed
from treadle.adapters.stores.sqlite.blobs import BlobFiles
from treadle.adapters.stores.sqlite.leases import Leases
from treadle.adapters.stores.sqlite.lists import LAST_CHANGE, Lists
from treadle.adapters.stores.sqlite.rows import ChatColumns, Types, chat_columns, row_of, unpack
from treadle.adapters.stores.sqlite.side_tables import Answers, Deltas
from treadle.adapters.stores.watch import ANY, DELETED
from treadle.base.types import ChatId
from treadle.errors import ChatBusy, ChatExists, HeadMoved, LeaseLost, NotFound
from treadle.ports.store import Commit, Lease, Remembered, Snapshot
from treadle.protocol.views import ChatSummary
from treadle.protocol.wire import Record

if TYPE_CHECKING:
    from treadle.adapters.stores.sqlite.text_index import TextIndex

PLACES = 1 << 32
"""How many places in `events` each chat has; place = chat number * PLACES + seq."""

_NUMBER = "SELECT no FROM chats WHERE id = ?"
_FENCE = "SELECT no, head, epoch, worker, lease_until, boot FROM chats WHERE id = ?"
_INSERT = (
    "INSERT INTO events (place, time_ms, type, version, epoch, packing, crc, body) VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
)
# Of tombstones, too: neither the number of a chat nor that of a change is given twice.
_NEXT_NUMBER = "max((SELECT coalesce(max(no), 0) FROM chats), (SELECT coalesce(max(no), 0) FROM deleted_chats)) + 1"
_NEXT_CHANGE = f"{LAST_CHANGE} + 1"
_CREATE = (
    "INSERT INTO chats (head, status, runnable, wake_ms, archived, owner, updated_ms, summary, title, labels, id, "
    f"epoch, no, changed) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, {_NEXT_NUMBER}, {_NEXT_CHANGE})"
)
_SUMMARY = (
    "UPDATE chats SET head = ?, status = ?, runnable = ?, wake_ms = ?, archived = ?, owner = ?, updated_ms = ?, "
    f"summary = ?, title = ?, labels = ?, changed = {_NEXT_CHANGE}"
)
_BURY = (
    "INSERT INTO deleted_chats (no, id, owner, epoch, changed, summary) "
    f"VALUES (?, ?, ?, ?, {_NEXT_CHANGE}, CAST(json_object('chat', ?, 'owner', ?, 'deleted', json('true')) AS BLOB))"
)
_REPLACE = f"{_SUMMARY} WHERE no = ?"
_REPLACE_AND_TAKE = f"{_SUMMARY}, epoch = ?, worker = ?, lease_until = ?, boot = ? WHERE no = ?"
_REPLACE_AND_RELEASE = f"{_SUMMARY}, worker = '' WHERE no = ?"
# The conditions without the alias are, word for word, those of the indexes chats_held and chats_ready.
CANDIDATE = (
    "WITH busy AS (SELECT owner, count(*) AS chats FROM chats WHERE worker <> '' "
    "AND lease_live(worker, lease_until, boot) GROUP BY owner) "
    "SELECT no, id, epoch, head FROM chats LEFT JOIN busy USING (owner) "
    "WHERE archived = 0 AND (runnable = 1 OR wake_ms > 0) "
    "AND (runnable = 1 OR wake_ms <= ?) AND NOT lease_live(worker, lease_until, boot) "
    "ORDER BY coalesce(busy.chats, 0), CASE WHEN runnable = 1 THEN updated_ms ELSE wake_ms END, no LIMIT 1"
)
_CLAIM = "UPDATE chats SET epoch = ?, worker = ?, lease_until = ?, boot = ? WHERE no = ?"
# Damage may have made text of the bytes; the cast costs nothing and lets SQLite return any content.
COLUMNS = "place, time_ms, type, version, epoch, packing, crc, CAST(body AS BLOB)"
_READ = f"SELECT {COLUMNS} FROM events WHERE place > ? AND place < ? ORDER BY place LIMIT ?"
_OF_TYPES = (
    f"SELECT {COLUMNS} FROM events WHERE place > ? AND place <= ? "
    "AND type IN (SELECT no FROM types WHERE name IN ({})) ORDER BY place"
)
_LAST = "SELECT max(place) FROM events WHERE place > ? AND place < ?"


class WriteTables:
    """The operations that change the database."""

    def __init__(self, connection: sqlite3.Connection, leases: Leases) -> None:
        self.types = Types(connection)
        self._connection = connection
        self._leases = leases
        self.answers = Answers(connection)
        self.deltas = Deltas(connection)
        connection.create_function("lease_live", 3, leases.live)

    def create(self, summary: ChatSummary, packed: Sequence[Packed], answer: Remembered | None = None) -> None:
        self.answers.check(answer)
        if self._connection.execute(_FENCE, (summary.chat,)).fetchone():
            raise ChatExists(f"chat {summary.chat} exists already; choose another id")
        check_gapless(packed, 1)
        epoch = max([self._epoch_before(summary.chat), *(record.epoch for record in packed)])
        values = (*chat_columns(len(packed), summary), summary.chat, epoch)
        number = self._connection.execute(_CREATE, values).lastrowid
        assert number is not None
        self._insert(number, packed)
        self._connection.execute("DELETE FROM deleted_chats WHERE id = ?", (summary.chat,))
        self.answers.keep(answer)

    def delete(self, chats: Sequence[ChatId], owner: str | None) -> None:
        present = [row for chat in chats if (row := self._deletable(chat, owner)) is not None]
        self._connection.execute("PRAGMA secure_delete = ON")  # a salvaged file must not bring the chat back
        try:
            for number, chat, chat_owner, epoch in present:
                # First the tombstone: the number of its change must be higher than that of the chat's last one.
                self._connection.execute(_BURY, (number, chat, chat_owner, epoch, chat, chat_owner))
                self._remove(number)
        finally:
            self._connection.execute("PRAGMA secure_delete = OFF")

    def _deletable(self, chat: ChatId, owner: str | None) -> tuple[int, ChatId, str, int] | None:
        """Number, id, owner and epoch; None if the chat was deleted before. NotFound or ChatBusy: see `Store`."""
        columns = "SELECT no, owner, epoch, worker, lease_until, boot FROM chats WHERE id = ?"
        row = self._connection.execute(columns, (chat,)).fetchone()
        if row is None:
            is_deleted = "SELECT 1 FROM deleted_chats WHERE id = ? AND (? IS NULL OR owner = ?)"
            if self._connection.execute(is_deleted, (chat, owner, owner)).fetchone() is None:
                raise NotFound(f"there is no chat {chat}")
            return None
        number, chat_owner, epoch, worker, until_ms, boot = row
        if owner not in (None, chat_owner):
            raise NotFound(f"there is no chat {chat}")
        if self._leases.live(worker, until_ms, boot):
            raise ChatBusy(f"chat {chat} is held by the live worker {worker}; stop it before you delete it")
        return number, chat, chat_owner, epoch

    def _remove(self, number: int) -> None:
        base = number * PLACES
        for table in ("events", "quarantine"):
            self._connection.execute(f"DELETE FROM {table} WHERE place >= ? AND place < ?", (base, base + PLACES))
        self._connection.execute("DELETE FROM snapshots WHERE chat_no = ?", (number,))
        self.deltas.drop(number)
        self.open_text_index().forget(number)
        self._connection.execute("DELETE FROM chats WHERE no = ?", (number,))

    def _epoch_before(self, chat: ChatId) -> int:
        """The last epoch of a deleted chat of this id: leases of it must not fit the new one."""
        row = self._connection.execute("SELECT epoch FROM deleted_chats WHERE id = ?", (chat,)).fetchone()
        return int(row[0]) if row is not None else 0

    def append(self, commit: Commit, packed: Sequence[Packed]) -> Lease | None:
        """The lease that was taken, if one was."""
        chat, lease, take = commit.chat, commit.lease, commit.take
        self.answers.check(commit.answer)
        number, head, epoch, worker, until_ms, boot = row_of(self._connection, _FENCE, chat)
        if take is not None and (take.epoch != epoch + 1 or self._leases.live(worker, until_ms, boot)):
            raise ChatBusy(f"chat {chat} is held, or was meanwhile; it cannot be taken as epoch {take.epoch}")
        if lease is not None and not (lease.chat == chat and lease.epoch == epoch and lease.worker == worker):
            raise LeaseLost(f"epoch {lease.epoch} of chat {chat} is over (now {epoch}); write nothing more")
        if packed and packed[0].seq != head + 1:
            if (last := self._last(number)) > head:
                raise contradiction(chat, head, last)
            raise HeadMoved(f"chat {chat} is at {head}, not at {packed[0].seq - 1}; read on and try again")
        check_gapless(packed, head + 1)
        self._insert(number, packed)
        self._replace(number, chat_columns(head + len(packed), commit.summary), commit)
        self.answers.keep(commit.answer)
        if commit.drop_deltas:
            self.deltas.drop(number)
        return None if commit.release else take

    def _replace(self, number: int, columns: ChatColumns, commit: Commit) -> None:
        """Write the chat's line, and in the same statement what becomes of its lease."""
        take = commit.take
        if take is not None:
            granted = (take.epoch, "" if commit.release else take.worker, self._leases.until_ms(), self._leases.boot)
            self._connection.execute(_REPLACE_AND_TAKE, (*columns, *granted, number))
        elif commit.release and commit.lease is not None:
            self._connection.execute(_REPLACE_AND_RELEASE, (*columns, number))
        else:
            self._connection.execute(_REPLACE, (*columns, number))

    def claim(self, worker: str, chat: ChatId | None, now_ms: int) -> Lease | None:
        if chat is None:
            row = self._connection.execute(CANDIDATE, (now_ms,)).fetchone()
            if row is None:
                return None
            number, chat, epoch, head = row
        else:
            number, epoch, head = self._free(chat)
        granted = (epoch + 1, worker, self._leases.until_ms(), self._leases.boot)
        self._connection.execute(_CLAIM, (*granted, number))
        return Lease(ChatId(chat), epoch + 1, worker, head)

    def renew(self, leases: Sequence[Lease]) -> list[Lease]:
        if not leases:
            return []
        rows = ", ".join(["(?, ?, ?)"] * len(leases))
        lease_values = [value for lease in leases for value in (lease.chat, lease.epoch, lease.worker)]
        cursor = self._connection.execute(
            "UPDATE chats SET lease_until = ?, boot = ? WHERE worker <> '' "
            f"AND (id, epoch, worker) IN (VALUES {rows}) RETURNING id, epoch, worker",
            (self._leases.until_ms(), self._leases.boot, *lease_values),
        )
        renewed = set(cursor.fetchall())
        return [lease for lease in leases if (lease.chat, lease.epoch, lease.worker) in renewed]

    def release(self, leases: Sequence[Lease]) -> None:
        self._connection.executemany(
            "UPDATE chats SET worker = '' WHERE id = ? AND epoch = ? AND worker = ?",
            [(lease.chat, lease.epoch, lease.worker) for lease in leases],
        )

    def open_text_index(self) -> "TextIndex":
        from treadle.adapters.stores.sqlite.text_index import TextIndex

        return TextIndex(self._connection)

    def save_snapshot(self, chat: ChatId, seq: int, body: bytes) -> None:
        number = row_of(self._connection, _NUMBER, chat)[0]
        self._connection.execute("INSERT OR REPLACE INTO snapshots VALUES (?, ?, ?)", (number, seq, body))

    def _free(self, chat: ChatId) -> tuple[int, int, int]:
        number, head, epoch, worker, until_ms, boot = row_of(self._connection, _FENCE, chat)
        if self._leases.live(worker, until_ms, boot):
            raise ChatBusy(f"chat {chat} is held by the live worker {worker}; wait until it is released")
        return number, epoch, head

    def _last(self, number: int) -> int:
        """The number of the last record, as the log itself says it."""
        base = number * PLACES
        last_place = self._connection.execute(_LAST, (base, base + PLACES)).fetchone()[0]
        return int(last_place) - base if last_place is not None else 0

    def _insert(self, number: int, packed: Sequence[Packed]) -> None:
        base = number * PLACES
        numbered = self.types.number
        self._connection.executemany(_INSERT, [(base + p[0], p[1], numbered(p[2]), *p[3:]) for p in packed])


class ReadTables:
    """The operations that only read."""

    def __init__(self, connection: sqlite3.Connection, leases: Leases, blobs: BlobFiles) -> None:
        self._connection = connection
        self._types = Types(connection)
        self._leases = leases
        self._blobs = blobs
        self._seen_version = -1
        self.lists = Lists(connection, leases)
        self.answers = Answers(connection)
        self.deltas = Deltas(connection)

    def read(self, chat: ChatId, after_seq: int, limit: int) -> list[Record]:
        number, head = row_of(self._connection, "SELECT no, head FROM chats WHERE id = ?", chat)
        base, after_seq = number * PLACES, min(max(0, after_seq), PLACES)
        rows = self._connection.execute(_READ, (base + after_seq, base + PLACES, limit or -1)).fetchall()
        name, blobs = self._types.name, self._blobs
        records = [unpack(Packed(r[0] - base, r[1], name(r[2]), *r[3:]), blobs) for r in rows]
        return gapless(records, chat, after_seq, head, limit)

    def open_text_index(self) -> "TextIndex":
        from treadle.adapters.stores.sqlite.text_index import TextIndex

        return TextIndex(self._connection, self.of_types)

    def read_types(self, chat: ChatId, types: Collection[str], after_seq: int, limit: int) -> list[Record]:
        (number,) = row_of(self._connection, "SELECT no FROM chats WHERE id = ?", chat)
        records = self.of_types(sorted(types), number, min(max(0, after_seq), PLACES - 1), PLACES - 1)
        return list(islice(records, limit or None))

    def of_types(self, types: Sequence[str], number: int, after_seq: int, upto: int) -> Iterator[Record]:
        """The records of a chat, by its number, that are of these types."""
        base = number * PLACES
        query = _OF_TYPES.format(", ".join("?" * len(types)))
        for r in self._connection.execute(query, (base + after_seq, base + upto, *types)):
            yield unpack(Packed(r[0] - base, r[1], self._types.name(r[2]), *r[3:]), self._blobs)

    def head(self, chat: ChatId) -> int:
        return int(row_of(self._connection, "SELECT head FROM chats WHERE id = ?", chat)[0])

    def news(self, chats: Sequence[ChatId]) -> dict[ChatId, int]:
        """The heads of these chats, if any other connection has committed since this was last asked."""
        version = self.data_version()
        if version == self._seen_version:
            return {}
        self._seen_version = version
        places = ", ".join("?" * len(chats))
        rows = self._connection.execute(f"SELECT id, head FROM chats WHERE id IN ({places})", chats)
        heads = {chat: DELETED for chat in chats if chat != ANY} | dict(rows.fetchall())
        return heads | {ANY: self.lists.last_change()} if ANY in chats else heads

    def data_version(self) -> int:
        """Changes when any other connection, of this process or another, has committed."""
        return int(self._connection.execute("PRAGMA data_version").fetchone()[0])

    def load_snapshot(self, chat: ChatId) -> Snapshot | None:
        number = row_of(self._connection, _NUMBER, chat)[0]
        row = self._connection.execute("SELECT seq, body FROM snapshots WHERE chat_no = ?", (number,)).fetchone()
        try:
            return Snapshot(row[0], zlib.decompress(row[1])) if row else None
        except zlib.error:
            return None  # a cache: what cannot be read is made again
