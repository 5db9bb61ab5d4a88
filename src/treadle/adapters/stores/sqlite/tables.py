"""The SQL of the store, on one connection, inside the caller's transaction. Every operation checks before it writes, so
that a refused one has changed nothing. Lists of chats: A-06, A-07. Knows no threads."""

import sqlite3
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import astuple

from treadle.adapters.stores import packing
from treadle.adapters.stores.packing import Packed, fold_case
from treadle.adapters.stores.sqlite.leases import Leases
from treadle.adapters.stores.sqlite.rows import BlobFiles, Types, make_chat_columns, read_row, restore
from treadle.adapters.stores.watch import ANY, DELETED
from treadle.base.types import ChatId
from treadle.errors import ChatBusy, ChatExists, HeadMoved, LeaseLost, NotFound
from treadle.ports import store as port
from treadle.protocol.views import ChatSummary
from treadle.protocol.wire import Record

if TYPE_CHECKING:
    from treadle.adapters.stores.sqlite.text_index import TextIndex

PLACES = 1 << 32  # How many places in `events` each chat has; place = chat number * PLACES + seq.

_NUMBER = "SELECT no FROM chats WHERE id = ?"
_FENCE = "SELECT no, head, epoch, worker, lease_until, boot FROM chats WHERE id = ?"
_INSERT = "INSERT INTO events (place, time_ms, type, version, epoch, packing, crc, body) "
_INSERT += "VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
_LAST_CHANGE = """
max((SELECT coalesce(max(changed), 0) FROM chats), (SELECT coalesce(max(changed), 0) FROM deleted_chats))"""
# Of tombstones, too: neither the number of a chat nor that of a change is given twice.
_NEXT_NUMBER = "max((SELECT coalesce(max(no), 0) FROM chats), (SELECT coalesce(max(no), 0) FROM deleted_chats)) + 1"
_NEXT_CHANGE = f"{_LAST_CHANGE} + 1"
_CREATE = f"""
INSERT INTO chats (head, status, runnable, wake_ms, archived, owner, updated_ms, summary, title, labels, id,
epoch, no, changed) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, {_NEXT_NUMBER}, {_NEXT_CHANGE})"""
_SUMMARY = f"""
UPDATE chats SET head = ?, status = ?, runnable = ?, wake_ms = ?, archived = ?, owner = ?, updated_ms = ?,
summary = ?, title = ?, labels = ?, changed = {_NEXT_CHANGE}"""
_BURY = f"""INSERT INTO deleted_chats (no, id, owner, epoch, changed, summary)
VALUES (?, ?, ?, ?, {_NEXT_CHANGE}, CAST(json_object('chat', ?, 'owner', ?, 'deleted', json('true')) AS BLOB))"""
_REPLACE = f"{_SUMMARY} WHERE no = ?"
_REPLACE_AND_TAKE = f"{_SUMMARY}, epoch = ?, worker = ?, lease_until = ?, boot = ? WHERE no = ?"
_REPLACE_AND_RELEASE = f"{_SUMMARY}, worker = '' WHERE no = ?"
# The conditions without the alias are, word for word, those of the indexes chats_held and chats_ready.
CANDIDATE = """WITH busy AS (SELECT owner, count(*) AS chats FROM chats WHERE worker <> ''
AND lease_live(worker, lease_until, boot) GROUP BY owner)
SELECT no, id, epoch, head FROM chats LEFT JOIN busy USING (owner)
WHERE archived = 0 AND (runnable = 1 OR wake_ms > 0)
AND (runnable = 1 OR wake_ms <= ?) AND NOT lease_live(worker, lease_until, boot)
ORDER BY coalesce(busy.chats, 0), CASE WHEN runnable = 1 THEN updated_ms ELSE wake_ms END, no LIMIT 1"""
_CLAIM = "UPDATE chats SET epoch = ?, worker = ?, lease_until = ?, boot = ? WHERE no = ?"
# Damage may have made text of the bytes; the cast costs nothing and lets SQLite return any content.
COLUMNS = "place, time_ms, type, version, epoch, packing, crc, CAST(body AS BLOB)"
_READ = f"SELECT {COLUMNS} FROM events WHERE place > ? AND place < ? ORDER BY place LIMIT ?"
_OF_TYPES = (
    f"SELECT {COLUMNS} FROM events WHERE place > ? AND place <= ? "
    "AND type IN (SELECT no FROM types WHERE name IN ({})) ORDER BY place"
)
_LAST = "SELECT max(place) FROM events WHERE place > ? AND place < ?"
_LISTED = "SELECT id, summary, worker, lease_until, boot, changed FROM chats"
# One statement, and so one moment: a change between two would be passed over.
_CHANGES = (
    f"{_LISTED} WHERE {{0}} AND changed > ? UNION ALL "
    "SELECT id, summary, '', 0, '', changed FROM deleted_chats WHERE {0} AND changed > ? ORDER BY changed LIMIT ?"
)

# The first condition is quick and finds too many: the text of one label may stand inside another.
_LABELLED = """instr(labels, ?) > 0 AND EXISTS
(SELECT 1 FROM json_each(CASE WHEN json_valid(labels) THEN labels ELSE '[]' END) WHERE value = ?)"""
_RECALL = "SELECT owner, key, request, status, body, time_ms FROM answers WHERE owner = ? AND key = ?"
_REMEMBER = "INSERT OR REPLACE INTO answers (owner, key, request, status, body, time_ms) VALUES (?, ?, ?, ?, ?, ?)"
_SWEEP = "DELETE FROM answers WHERE no IN (SELECT no FROM answers WHERE time_ms < ? ORDER BY time_ms LIMIT ?)"
_PUT_DELTA = """INSERT OR REPLACE INTO deltas (chat_no, epoch, turn, number, payload)
SELECT no, epoch, ?, ?, ? FROM chats WHERE id = ? AND epoch = ? AND worker <> ''"""
_READ_DELTAS = """SELECT d.epoch, d.turn, d.number, d.payload FROM chats AS c JOIN deltas AS d
ON d.chat_no = c.no AND d.epoch = c.epoch WHERE c.id = ? AND (d.epoch, d.turn, d.number) > (?, ?, ?)
ORDER BY d.turn, d.number"""


class ReadTables:
    def __init__(self, connection: sqlite3.Connection, leases: Leases, blobs: BlobFiles) -> None:
        self.types = Types(connection)
        self._connection, self._leases, self._blobs = connection, leases, blobs
        self._seen_version = -1

    def read(self, chat: ChatId, after_seq: int, limit: int) -> list[Record]:
        number, head = read_row(self._connection, "SELECT no, head FROM chats WHERE id = ?", chat)
        base, after_seq = number * PLACES, min(max(0, after_seq), PLACES)
        rows = self._connection.execute(_READ, (base + after_seq, base + PLACES, limit or -1)).fetchall()
        return packing.fill_gaps([self._unpack(base, row) for row in rows], chat, after_seq, head, limit)

    def read_types(self, chat: ChatId, types: Iterable[str], after_seq: int, limit: int) -> list[Record]:
        (number,) = read_row(self._connection, _NUMBER, chat)
        records = self.iterate_records(sorted(types), number, min(max(0, after_seq), PLACES - 1), PLACES - 1)
        return list(islice(records, limit or None))

    def iterate_records(self, types: Sequence[str], number: int, after_seq: int, upto: int) -> Iterator[Record]:
        base = number * PLACES
        query = _OF_TYPES.format(", ".join("?" * len(types)))
        for row in self._connection.execute(query, (base + after_seq, base + upto, *types)):
            yield self._unpack(base, row)

    def _unpack(self, base: int, row: Sequence[Any]) -> Record:
        packed = Packed(row[0] - base, row[1], self.types.get_name(row[2]), *row[3:])
        return packing.unpack(packed, lambda packed: restore(packed, self._blobs))

    def open_text_index(self) -> "TextIndex":
        from treadle.adapters.stores.sqlite.text_index import TextIndex

        return TextIndex(self._connection, self.iterate_records)

    def read_head(self, chat: ChatId) -> int:
        return int(read_row(self._connection, "SELECT head FROM chats WHERE id = ?", chat)[0])

    def read_news(self, chats: Sequence[ChatId]) -> dict[ChatId, int]:
        """The heads of these chats, if any other connection has committed since this was last asked."""
        if (version := self.read_data_version()) == self._seen_version:
            return {}
        self._seen_version = version
        places = ", ".join("?" * len(chats))
        rows = self._connection.execute(f"SELECT id, head FROM chats WHERE id IN ({places})", chats)
        heads = {chat: DELETED for chat in chats if chat != ANY} | dict(rows.fetchall())
        return heads | {ANY: self.read_last_change()} if ANY in chats else heads

    def read_data_version(self) -> int:
        """Changes when any other connection, of this process or another, has committed."""
        return int(self._connection.execute("PRAGMA data_version").fetchone()[0])

    def read_last_change(self) -> int:
        return int(self._connection.execute(f"SELECT {_LAST_CHANGE}").fetchone()[0])

    def get_chat(self, chat: ChatId) -> port.Listed:
        return self._decode_listed(read_row(self._connection, f"{_LISTED} WHERE id = ?", chat))

    def list_chats(self, chat_filter: port.ChatFilter, limit: int, cursor: port.Cursor | None) -> list[port.Listed]:
        conditions, values = _build_conditions(chat_filter, cursor)
        query = f"{_LISTED} WHERE {conditions} ORDER BY updated_ms DESC, id DESC LIMIT ?"
        return [self._decode_listed(row) for row in self._connection.execute(query, [*values, limit or -1])]

    def list_changes(self, owner: str | None, after_change: int, limit: int) -> list[port.Listed]:
        conditions, values = _build_conditions(port.ChatFilter(owner), None)
        rows = self._connection.execute(_CHANGES.format(conditions), [*values, after_change] * 2 + [limit or -1])
        return [self._decode_listed(row) for row in rows]

    def _decode_listed(self, row: tuple[Any, ...]) -> port.Listed:
        chat, summary, worker, until_ms, boot, change = row
        return port.Listed(packing.decode_summary(chat, summary), self._leases.is_live(worker, until_ms, boot), change)

    def load_snapshot(self, chat: ChatId) -> port.Snapshot | None:
        number = read_row(self._connection, _NUMBER, chat)[0]
        row = self._connection.execute("SELECT seq, body FROM snapshots WHERE chat_no = ?", (number,)).fetchone()
        try:
            return port.Snapshot(row[0], zlib.decompress(row[1])) if row else None
        except zlib.error:
            return None  # a cache: what cannot be read is made again

    def recall(self, owner: str, key: str) -> port.Remembered | None:
        row = self._connection.execute(_RECALL, (owner, key)).fetchone()
        return port.Remembered(*row) if row else None

    def read_deltas(self, reached: Mapping[ChatId, port.Reach]) -> list[port.Delta]:
        return [
            port.Delta(chat, *row)
            for chat, reach in reached.items()
            for row in self._connection.execute(_READ_DELTAS, (chat, *reach))
        ]


class WriteTables(ReadTables):
    def __init__(self, connection: sqlite3.Connection, leases: Leases, blobs: BlobFiles) -> None:
        super().__init__(connection, leases, blobs)
        connection.create_function("lease_live", 3, leases.is_live)

    def create(self, summary: ChatSummary, packed: Sequence[Packed], answer: port.Remembered | None = None) -> None:
        self._check_new(answer)
        if self._connection.execute(_FENCE, (summary.chat,)).fetchone():
            raise ChatExists(f"chat {summary.chat} exists already; choose another id")
        packing.check_gapless(packed, 1)
        # Leases of a deleted chat of this id must not fit the new one.
        deleted = self._connection.execute("SELECT epoch FROM deleted_chats WHERE id = ?", (summary.chat,)).fetchone()
        epoch = max([int(deleted[0]) if deleted is not None else 0, *(record.epoch for record in packed)])
        number = self._connection.execute(
            _CREATE, (*make_chat_columns(len(packed), summary), summary.chat, epoch)
        ).lastrowid
        assert number is not None
        self._insert(number, packed)
        self._connection.execute("DELETE FROM deleted_chats WHERE id = ?", (summary.chat,))
        self._keep_answer(answer)

    def delete(self, chats: Sequence[ChatId], owner: str | None) -> None:
        present = [row for chat in chats if (row := self._find_deletable(chat, owner)) is not None]
        self._connection.execute("PRAGMA secure_delete = ON")  # a salvaged file must not bring the chat back
        try:
            for number, chat, chat_owner, epoch in present:
                # First the tombstone: the number of its change must be higher than that of the chat's last one.
                self._connection.execute(_BURY, (number, chat, chat_owner, epoch, chat, chat_owner))
                base = number * PLACES
                for table in ("events", "quarantine"):
                    rows = f"DELETE FROM {table} WHERE place >= ? AND place < ?"
                    self._connection.execute(rows, (base, base + PLACES))
                for table in ("snapshots", "deltas"):
                    self._connection.execute(f"DELETE FROM {table} WHERE chat_no = ?", (number,))
                self.open_text_index().forget(number)
                self._connection.execute("DELETE FROM chats WHERE no = ?", (number,))
        finally:
            self._connection.execute("PRAGMA secure_delete = OFF")

    def _find_deletable(self, chat: ChatId, owner: str | None) -> tuple[int, ChatId, str, int] | None:
        """Number, id, owner and epoch; None if the chat was deleted before. NotFound or ChatBusy: see `Store`."""
        columns = "SELECT no, owner, epoch, worker, lease_until, boot FROM chats WHERE id = ?"
        if (row := self._connection.execute(columns, (chat,)).fetchone()) is None:
            is_deleted = "SELECT 1 FROM deleted_chats WHERE id = ? AND (? IS NULL OR owner = ?)"
            if self._connection.execute(is_deleted, (chat, owner, owner)).fetchone() is None:
                raise NotFound(f"there is no chat {chat}")
            return None
        number, chat_owner, epoch, worker, until_ms, boot = row
        if owner not in (None, chat_owner):
            raise NotFound(f"there is no chat {chat}")
        if self._leases.is_live(worker, until_ms, boot):
            raise ChatBusy(f"chat {chat} is held by the live worker {worker}; stop it before you delete it")
        return number, chat, chat_owner, epoch

    def append(self, commit: port.Commit, packed: Sequence[Packed]) -> port.Lease | None:
        chat, lease, take = commit.chat, commit.lease, commit.take
        self._check_new(commit.answer)
        number, head, epoch, worker, until_ms, boot = read_row(self._connection, _FENCE, chat)
        if take is not None and (take.epoch != epoch + 1 or self._leases.is_live(worker, until_ms, boot)):
            raise ChatBusy(f"chat {chat} is held, or was meanwhile; it cannot be taken as epoch {take.epoch}")
        if lease is not None and not (lease.chat == chat and lease.epoch == epoch and lease.worker == worker):
            raise LeaseLost(f"epoch {lease.epoch} of chat {chat} is over (now {epoch}); write nothing more")
        if commit.first != head + 1:
            base = number * PLACES
            last_place = self._connection.execute(_LAST, (base, base + PLACES)).fetchone()[0]
            if last_place is not None and last_place - base > head:
                raise packing.make_contradiction(chat, head, last_place - base)
            raise HeadMoved(f"chat {chat} is at {head}, not at {commit.first - 1}; read on and try again")
        packing.check_gapless(packed, head + 1)
        self._insert(number, packed)
        columns = make_chat_columns(head + len(packed), commit.summary)
        if take is not None:
            granted = (
                take.epoch,
                "" if commit.release else take.worker,
                self._leases.compute_end_ms(),
                self._leases.boot,
            )
            self._connection.execute(_REPLACE_AND_TAKE, (*columns, *granted, number))
        else:
            release = commit.release and lease is not None
            self._connection.execute(_REPLACE_AND_RELEASE if release else _REPLACE, (*columns, number))
        self._keep_answer(commit.answer)
        if commit.drop_deltas:
            self._connection.execute("DELETE FROM deltas WHERE chat_no = ?", (number,))
        return None if commit.release else take

    def claim(self, worker: str, chat: ChatId | None, now_ms: int) -> port.Lease | None:
        if chat is None:
            if (row := self._connection.execute(CANDIDATE, (now_ms,)).fetchone()) is None:
                return None
            number, chat, epoch, head = row
        else:
            number, head, epoch, holder, until_ms, boot = read_row(self._connection, _FENCE, chat)
            if self._leases.is_live(holder, until_ms, boot):
                raise ChatBusy(f"chat {chat} is held by the live worker {holder}; wait until it is released")
        granted = (epoch + 1, worker, self._leases.compute_end_ms(), self._leases.boot)
        self._connection.execute(_CLAIM, (*granted, number))
        return port.Lease(ChatId(chat), epoch + 1, worker, head)

    def renew(self, leases: Sequence[port.Lease]) -> list[port.Lease]:
        if not leases:
            return []
        rows = ", ".join(["(?, ?, ?)"] * len(leases))
        lease_values = [value for lease in leases for value in (lease.chat, lease.epoch, lease.worker)]
        cursor = self._connection.execute(
            "UPDATE chats SET lease_until = ?, boot = ? WHERE worker <> '' "
            f"AND (id, epoch, worker) IN (VALUES {rows}) RETURNING id, epoch, worker",
            (self._leases.compute_end_ms(), self._leases.boot, *lease_values),
        )
        renewed = set(cursor.fetchall())
        return [lease for lease in leases if (lease.chat, lease.epoch, lease.worker) in renewed]

    def release(self, leases: Sequence[port.Lease]) -> None:
        self._connection.executemany(
            "UPDATE chats SET worker = '' WHERE id = ? AND epoch = ? AND worker = ?",
            [(lease.chat, lease.epoch, lease.worker) for lease in leases],
        )

    def save_snapshot(self, chat: ChatId, seq: int, body: bytes) -> None:
        number = read_row(self._connection, _NUMBER, chat)[0]
        self._connection.execute("INSERT OR REPLACE INTO snapshots VALUES (?, ?, ?)", (number, seq, body))

    def _insert(self, number: int, packed: Sequence[Packed]) -> None:
        base, number_of = number * PLACES, self.types.ensure_number
        self._connection.executemany(_INSERT, [(base + p[0], p[1], number_of(p[2]), *p[3:]) for p in packed])

    def remember(self, answer: port.Remembered) -> None:
        self._check_new(answer)
        self._keep_answer(answer)

    def _check_new(self, answer: port.Remembered | None) -> None:
        if answer is not None:
            first = self.recall(answer.owner, answer.key)
            if first is not None and first.time_ms >= answer.compute_expiry_ms():
                raise first.refuse()

    def _keep_answer(self, answer: port.Remembered | None) -> None:
        """Store an answer, after `_check_new`. Expired answers are removed, a few at a time."""
        if answer is not None:
            self._connection.execute(_SWEEP, (answer.compute_expiry_ms(), port.ANSWERS_SWEPT))
            self._connection.execute(_REMEMBER, astuple(answer))

    def put_deltas(self, deltas: Sequence[port.Delta]) -> None:
        self._connection.executemany(_PUT_DELTA, [(d.turn, d.number, d.payload, d.chat, d.epoch) for d in deltas])


def _build_conditions(chat_filter: port.ChatFilter, cursor: port.Cursor | None) -> tuple[str, list[Any]]:
    """Only what is asked for: a condition that lets everything pass would keep an index from being used."""
    parts: list[tuple[str, tuple[Any, ...]]] = [("1", ())]
    for column in ("owner", "archived", "status"):
        if (wanted := getattr(chat_filter, column)) is not None:
            parts.append((f"{column} = ?", (wanted,)))
    if chat_filter.label is not None:
        parts.append((_LABELLED, (msgspec.json.encode(chat_filter.label).decode(), chat_filter.label)))
    if chat_filter.query:
        first, second = packing.list_id_beginnings(chat_filter.query)
        condition = "(instr(title, ?) > 0 OR substr(id, 1, ?) = ? OR substr(id, 1, ?) = ?)"
        parts.append((condition, (fold_case(chat_filter.query), len(first), first, len(second), second)))
    if cursor is not None:
        parts.append(("(updated_ms, id) < (?, ?)", cursor))
    return " AND ".join(text for text, _ in parts), [value for _, values in parts for value in values]
