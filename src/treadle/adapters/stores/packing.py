"""The rules that all stores share: the body of a record in its row (plain or compressed, with a checksum over the body
itself), the filter and the order of lists of chats, logs without a gap (D-06). Knows nothing of SQL."""

import zlib
from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

import msgspec

from treadle.base.types import ChatId
from treadle.errors import Damaged, InvalidInput
from treadle.ports.store import ChatFilter, Cursor
from treadle.protocol import wire
from treadle.protocol.views import ChatSummary
from treadle.protocol.wire import Record

SMALL_OVER = 40
ZLIB_OVER = 8 * 1024

PLAIN, ZLIB, BLOB, SMALL = 0, 1, 2, 3
"""SMALL: deflated with a window of 8 KB and the dictionary below. Setting up a full zlib costs ten times as much. BLOB:
the stored body is a hash; only the SQLite store uses it."""
_WINDOW = -13
DAMAGED_VERSION: Literal[0] = 0
"""No event has this version, so that a damaged body can never be taken for an event (D-06)."""


class Packed(NamedTuple):
    """A record on its way to the table; in the order of the columns."""

    seq: int
    time_ms: int
    type: str
    version: int
    epoch: int
    packing: int
    crc: int
    body: bytes


def compress(body: bytes) -> tuple[int, bytes]:
    if len(body) > SMALL_OVER:
        large = len(body) > ZLIB_OVER
        compressor = None if large else _COMPRESSOR.copy()
        smaller = zlib.compress(body, 1) if compressor is None else compressor.compress(body) + compressor.flush()
        if len(smaller) < len(body):
            return (ZLIB if large else SMALL), smaller
    return PLAIN, body


def decompress(packing: int, stored: bytes) -> bytes:
    """The body again. Damaged, with the reason, when it cannot be had."""
    try:
        if packing == ZLIB:
            return zlib.decompress(stored)
        if packing != SMALL:
            return stored
        decompressor = zlib.decompressobj(_WINDOW, zdict=_DICTIONARY)
        body = decompressor.decompress(stored)
        if not decompressor.eof:
            raise zlib.error("incomplete")
        return body
    except zlib.error as error:
        raise Damaged(f"the compressed body cannot be read ({error})") from error


def unpack(packed: Packed, restore: Callable[[Packed], bytes]) -> Record:
    """The record; a damaged one with its raw bytes and a version that cannot be decoded."""
    try:
        body, version = restore(packed), packed.version
    except Damaged:
        body, version = packed.body, DAMAGED_VERSION
    return Record(packed.seq, packed.time_ms, packed.type, version, packed.epoch, body)


def check_sum(body: bytes, crc: int) -> bytes:
    if zlib.crc32(body) != crc:
        raise Damaged("the checksum does not match the body")
    return body


_DICTIONARY = (
    b'{"summary":"session.error","class":"network","message":"'
    b'{"trigger":"threshold","success":true,"tokens_before":,"tokens_after":,"usage":{"input":,"upto":,"kept":[,"masked":'
    b'{"purpose":"summary","usage":{"input":,"output":,"estimated":true},"text":"'
    b'{"action":"1.0","call":"1.0","severity":"none","reason":"","shown":"","hash":"'
    b'{"action":"1.0","decision":"allow","by":"policy","auto_approved":true,"feedback":"'
    b'{"call":"1.0","name":"","arguments":{},"tool_call_id":"1.0","deadline_s":300.0}'
    b'{"action":"1.0","question":"","options":["continue","stop"],"purpose":"ask_user","call":"1.0"}'
    b'{"op":"added","id":"q_","content":"","delivery":"steering"}{"changes":{"model":"","mode":"auto-edit"}}'
    b'{"steps":[{"text":"","status":"in_progress"},{"text":"","status":"done"},{"text":"'
    b'{"turn":1,"attempt":1,"class":"overloaded","message":"","delay_s":2.0,"usage":{"input":'
    b'{"reason":"task_complete"}{"reason":"interrupted"}{"reason":"done"}'
    b'{"content":"","delivery":"queued","source":"autopilot","queue_id":"q_'
    b'{"files":[{"path":"src/","action":"modified","added":1,"removed":1}],"call":"1.0"}'
    b'"diff_stat":{"added":1,"removed":1},"sandbox":"","output":"","duration_ms":1}'
    b'{"call":"1.0","success":false,"error":"","result_summary":"","synthetic":"interrupted"}'
    b'{"turn":1,"content":"","reasoning":[{"text":"","opaque":"","model":"openai:'
    b'"name":"list_directory","arguments":"{\\"path\\":\\".\\"}","name":"write_file","arguments":"{\\"path\\":\\"","content'
    b'\\":\\""name":"edit_file","arguments":"{\\"path\\":\\"","old_str\\":\\"","new_str\\":\\""name":"task_complete",'
    b'"name":"run_command","arguments":{"command":"python -m '
    b'{"turn":1,"model":"openai:gpt-","reserved":{"input":1200,"output":600,"usd":0.00,"estimated":true}}'
    b'{"turn":2,"usage":{"input":1000,"output":50,"cached":0,"reasoning":0,"usd":0.00},"finish_reason":"stop"}'
    b'"finish_reason":"tool_calls"}{"call":"20.0","name":"read_file","arguments":{"path":"src/"},"args_summary":"src/'
    b'{"turn":1,"tool_requests":[{"call":"1.0","name":"read_file","arguments":"{\\"path\\":\\"src/\\"}","id":"call_0"}]}'
    b'{"call":"1.0","success":true,"result":"\\n    \\n        return self.import from def class if not None",'
    b'"result_summary":"'
)
"""The dictionary of the compressor, with the text that small records have in common: a record of a hundred bytes then
takes forty. Part of the file format: records packed with it can be read only with it. It is never changed; a better one
would be a second dictionary with a packing of its own."""
_COMPRESSOR = zlib.compressobj(3, zlib.DEFLATED, -12, 5, zdict=_DICTIONARY)
"""Has read the dictionary; a copy is quicker than another one, and the smaller its window (4 KB here, which any reader
of `_WINDOW` takes), the less of the caches it takes from what comes next."""


_decoder = msgspec.json.Decoder(ChatSummary)


def matches_filter(chat_filter: ChatFilter, summary: ChatSummary, cursor: Cursor | None) -> bool:
    return (
        chat_filter.owner in (None, summary.owner)
        and chat_filter.archived in (None, summary.archived)
        and chat_filter.status in (None, summary.status)
        and (chat_filter.label is None or chat_filter.label in summary.labels)
        and (
            not chat_filter.query
            or fold_case(chat_filter.query) in fold_case(summary.title)
            or summary.chat.startswith(list_id_beginnings(chat_filter.query))
        )
        and (cursor is None or make_cursor(summary) < cursor)
    )


def make_cursor(summary: ChatSummary) -> Cursor:
    return summary.updated_ms, summary.chat


def fold_case(text: str) -> str:
    """A title, or a part of one, without its case. NUL is what no database takes in a text."""
    return text.casefold().replace("\0", "")


def list_id_beginnings(query: str) -> tuple[str, str]:
    """How the id of a chat may begin that is meant by `query`."""
    return query, f"c_{query}"


def decode_summary(chat: str, body: bytes) -> ChatSummary:
    """A summary that cannot be read must not hide the chat, nor the others in a list; `treadle fsck` tells of it."""
    try:
        return _decoder.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, TypeError):
        return ChatSummary(ChatId(chat), status="error", title="(the summary is damaged: run treadle fsck)")


MISSING = "the record was missing"
STRAY = "its number is far from all others and cannot be right"
MOST_LOST = 10_000  # More than this is not lost: the number of the last record is wrong.


ProblemKind = Literal[
    "database", "record", "gap", "head", "summary", "orphan", "blob", "image", "changes", "snapshot", "world", "ahead"
]


class Problem(msgspec.Struct, frozen=True):
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


def fill_gaps(records: list[Record], chat: ChatId, after_seq: int, head: int, limit: int) -> list[Record]:
    """The records behind `after_seq`, one for every number up to the chat's head, or up to `limit` of them."""
    upto = max(head, records[-1].seq if records else 0)
    if limit:
        upto = min(upto, after_seq + limit)
    missing_count = max(0, upto - after_seq) - len(records)
    if missing_count == 0:
        return records
    if missing_count > MOST_LOST:
        raise make_contradiction(chat, head, records[-1].seq if records else after_seq)
    there = {record.seq: record for record in records}
    return [there.get(seq) or wire.make_lost_record(seq, MISSING) for seq in range(after_seq + 1, upto + 1)]


def compute_repaired_end(head: int, last: int) -> int:
    """Where a log ends whose chat and records do not agree. No number is given twice: those of lost records stay
    theirs, and if the chat's number cannot be believed, one lost record says that there was more."""
    if head <= last:
        return last
    return head if head - last <= MOST_LOST else last + 1


def make_contradiction(chat: ChatId, head: int, last: int) -> Damaged:
    return Damaged(
        f"chat {chat} says that its last record is {head}, and its log ends with {last}; nothing was changed, "
        "mend it with `treadle fsck --repair`"
    )
