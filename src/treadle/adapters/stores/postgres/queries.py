"""The queries of the store, their arguments and their rows. One that writes calls one function
(`migrations/0002_functions.sql`) and can be repeated after a lost connection. Lists: A-06, A-07."""

import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec

from treadle.adapters.stores import packing
from treadle.adapters.stores.packing import Packed
from treadle.ports import store as port
from treadle.ports.store import Listed
from treadle.protocol.views import ChatSummary
from treadle.protocol.wire import Record

LISTED = "id, summary, worker <> '' AND lease_until > treadle_now($1) AS held, changed"
RECORD = "seq, time_ms, type, version, epoch, packing, crc, body"

_encode = msgspec.json.Encoder().encode


def pack(record: Record) -> Packed:
    method, stored = packing.compress(record.body)
    crc = zlib.crc32(record.body)
    crc = crc - (1 << 32) if crc >= 1 << 31 else crc  # PostgreSQL's integers have a sign
    return Packed(record.seq, record.time_ms, record.type, record.version, record.epoch, method, crc, stored)


def unpack(row: Sequence[Any]) -> Record:
    return packing.unpack(Packed(*row), restore)


def restore(packed: Packed) -> bytes:
    """The body as it was given. Damaged, with the reason, when it cannot be had."""
    return packing.check_sum(packing.decompress(packed.packing, packed.body), packed.crc & 0xFFFFFFFF)


def make_summary_columns(summary: ChatSummary) -> tuple[Any, ...]:
    s = summary
    labels = [label.replace("\0", "") for label in s.labels]
    basics = (s.status, s.runnable, s.wake_ms, s.archived, s.owner, s.updated_ms)
    return *basics, packing.fold_case(s.title), labels, _encode(summary)


def decode_listed(row: Sequence[Any]) -> Listed:
    chat, body, is_held, change_number = row
    return Listed(packing.decode_summary(chat, body), is_held, change_number)


MOST = 2**31 - 1  # No log is longer. Clients may send any number as the last seq that they have seen.
# One statement, and so one moment: the chat's head, and its records. At least one row, if there is such a chat.
_RECORDS = (
    f"SELECT c.head, e.* FROM chats AS c LEFT JOIN LATERAL (SELECT {RECORD} FROM events WHERE chat_no = c.no "
    "AND seq > $2{} ORDER BY seq LIMIT $3) AS e ON true WHERE c.id = $1 ORDER BY e.seq"
)
READ = _RECORDS.format("")
OF_TYPES = _RECORDS.format(" AND type = ANY($4::text[])")
SNAPSHOT = "SELECT seq, body FROM snapshots WHERE chat_no = (SELECT no FROM chats WHERE id = $1)"
DELTAS = """SELECT c.id, d.epoch, d.turn, d.number, d.payload
FROM unnest($1::text[], $2::int[], $3::int[], $4::int[]) WITH ORDINALITY AS r (chat, epoch, turn, number, place)
JOIN chats AS c ON c.id = r.chat JOIN deltas AS d ON d.chat_no = c.no AND d.epoch = c.epoch
WHERE (d.epoch, d.turn, d.number) > (r.epoch, r.turn, r.number) ORDER BY r.place, d.turn, d.number"""


# $1 is always the time that leases are judged by.
GET = f"SELECT {LISTED} FROM chats WHERE id = $2"
_CHANGED = "WHERE changed > $2 AND changed < (SELECT treadle_settled()) AND ($3::text IS NULL OR owner = $3)"
CHANGES = f"""SELECT {LISTED} FROM chats {_CHANGED} UNION ALL
SELECT id, summary, false, changed FROM deleted_chats {_CHANGED} ORDER BY changed LIMIT $4"""
LAST_CHANGE = """SELECT greatest((SELECT coalesce(max(changed), 0) FROM chats WHERE changed < s.settled),
(SELECT coalesce(max(changed), 0) FROM deleted_chats WHERE changed < s.settled))
FROM (SELECT treadle_settled() AS settled) AS s"""
HEADS = "SELECT id, head FROM chats WHERE id = ANY ($1::text[])"


def build_listing_query(chat_filter: port.ChatFilter, limit: int, cursor: port.Cursor | None) -> tuple[str, list[Any]]:
    """The query, and its values after $1. Only what is asked for is a condition."""
    values: list[Any] = []

    def add_value(parameter: object) -> str:
        values.append(parameter)
        return f"${len(values) + 1}"

    conditions = ["true"]
    for column in ("owner", "archived", "status"):
        if (wanted := getattr(chat_filter, column)) is not None:
            conditions.append(f"{column} = {add_value(wanted)}")
    if chat_filter.label is not None:
        conditions.append(f"{add_value(chat_filter.label.replace(chr(0), ''))} = ANY (labels)")
    if chat_filter.query:
        alternatives = [f"position({add_value(packing.fold_case(chat_filter.query))} IN title) > 0"]
        # No id has a NUL.
        begins = [begin.replace("\0", "\ufffd") for begin in packing.list_id_beginnings(chat_filter.query)]
        alternatives += [f"starts_with(id, {add_value(begin)})" for begin in begins]
        conditions.append(f"({' OR '.join(alternatives)})")
    if cursor is not None:
        updated_ms, chat = cursor
        conditions.append(f"(updated_ms, id) < ({add_value(updated_ms)}, {add_value(chat)})")
    query = f"SELECT {LISTED} FROM chats WHERE {' AND '.join(conditions)} ORDER BY updated_ms DESC, id DESC"
    return f"{query} LIMIT {add_value(limit or None)}", values


CREATE = "SELECT treadle_create($1, $2::treadle_packed[], $3, $4, $5, $6, $7, $8)"
APPEND = """
SELECT outcome, head, epoch FROM treadle_append($1, $2, $3::treadle_packed[], $4, $5, $6, $7, $8, $9, $10, $11,
$12, $13, $14, $15, $16, $17)"""
DELETE = "SELECT outcome, chat, worker FROM treadle_delete($1, $2, $3)"
ENDS = "SELECT head, (SELECT coalesce(max(seq), 0) FROM events WHERE chat_no = no) AS last FROM chats WHERE id = $1"
RENEW = "SELECT chat, epoch FROM treadle_renew($1, $2, $3, $4, $5)"
CLAIM = "SELECT outcome, chat, epoch, head FROM treadle_claim($1, $2, $3, $4, $5)"
CLAIM_CHAT = "SELECT outcome, chat, epoch, head FROM treadle_claim_chat($1, $2, $3, $4, $5)"
RECALL = "SELECT owner, key, request, status, body, time_ms FROM treadle_recall($1, $2)"
CLAIMED = "SELECT outcome, chat, epoch, head FROM treadle_claimed($1, $2)"


def make_answer_columns(answer: port.Remembered | None) -> tuple[object, int, int]:
    """An answer as the type `treadle_answer`, and which old ones go."""
    if answer is None:
        return None, 0, port.ANSWERS_SWEPT
    return msgspec.structs.astuple(answer), answer.compute_expiry_ms(), port.ANSWERS_SWEPT


def make_lease_columns(leases: Sequence[port.Lease]) -> tuple[list[str], list[int], list[str]]:
    return [lease.chat for lease in leases], [lease.epoch for lease in leases], [lease.worker for lease in leases]


# -- blobs: by their SHA-256, in parts of a megabyte, so that neither side ever holds more than one -------------------
# A blob exists when all its parts do; parts of an unfinished upload are invisible.

BLOB_PART = 1 << 20

FIRST_PART = """
SELECT b.upload, b.size, p.data FROM blobs AS b LEFT JOIN blob_parts AS p ON p.upload = b.upload AND p.part = 0
WHERE b.digest = $1"""


def split_parts(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """The same bytes, in parts of one size, the last one smaller."""
    buffer = bytearray()
    for piece in pieces:
        buffer += piece
        while len(buffer) >= BLOB_PART:
            yield bytes(buffer[:BLOB_PART])
            del buffer[:BLOB_PART]
    if buffer:
        yield bytes(buffer)


# -- the table of messages (U-04), which the server searches itself ---------------------------------------------------
# A cache: no transaction waits for it, and what a crash of the server takes from it is put in again.

UNINDEXED = """SELECT no, coalesce(done, 0) AS done, head, id FROM chats
LEFT JOIN (SELECT chat_no, max(last) AS done FROM said GROUP BY chat_no) AS taken ON chat_no = no
WHERE head > coalesce(done, 0) ORDER BY updated_ms DESC"""
SPOKEN_RECORDS = f"""
SELECT {RECORD} FROM events WHERE chat_no = $1 AND seq > $2 AND seq <= $3 AND type = ANY ($4::text[])
ORDER BY seq"""
# If two processes index the same records at once, the one that has seen more replaces the other's row: nothing is lost.
KEEP_TEXT = """INSERT INTO said (chat_no, first, last, text)
SELECT p.* FROM unnest($1::bigint[], $2::int[], $3::int[], $4::text[]) AS p (chat_no, first, last, text)
JOIN chats AS c ON c.no = p.chat_no FOR KEY SHARE OF c
ON CONFLICT (chat_no, first) DO UPDATE SET last = excluded.last, text = excluded.text
WHERE said.last < excluded.last"""
WITH_WORDS = "SELECT id, min(first) FROM said JOIN chats ON no = chat_no WHERE {} GROUP BY id"
