"""Conversion of the arguments of the database's functions and of its rows. Knows nothing of connections."""

import zlib
from collections.abc import Sequence
from typing import Any

import msgspec

from treadle.adapters.stores.listing import decode_summary, folded
from treadle.adapters.stores.packing import Packed, check_sum, compress, decompress
from treadle.adapters.stores.packing import unpack as unpack_with
from treadle.ports.store import Listed
from treadle.protocol.views import ChatSummary
from treadle.protocol.wire import Record

LISTED = "id, summary, worker <> '' AND lease_until > treadle_now($1) AS held, changed"
RECORD = "seq, time_ms, type, version, epoch, packing, crc, body"

_encode = msgspec.json.Encoder().encode


def pack(record: Record) -> Packed:
    packing, stored = compress(record.body)
    crc = zlib.crc32(record.body)
    crc = crc - (1 << 32) if crc >= 1 << 31 else crc  # PostgreSQL's integers have a sign
    return Packed(record.seq, record.time_ms, record.type, record.version, record.epoch, packing, crc, stored)


def unpack(row: Sequence[Any]) -> Record:
    return unpack_with(Packed(*row), restore)


def restore(packed: Packed) -> bytes:
    """The body as it was given. Damaged, with the reason, when it cannot be had."""
    return check_sum(decompress(packed.packing, packed.body), packed.crc & 0xFFFFFFFF)


def line(summary: ChatSummary) -> tuple[Any, ...]:
    """A summary as the type `treadle_line`."""
    s = summary
    labels = [label.replace("\0", "") for label in s.labels]
    basics = (s.status, s.runnable, s.wake_ms, s.archived, s.owner, s.updated_ms)
    return *basics, folded(s.title), labels, _encode(summary)


def listed(row: Sequence[Any]) -> Listed:
    chat, body, is_held, change_number = row
    return Listed(decode_summary(chat, body), is_held, change_number)
