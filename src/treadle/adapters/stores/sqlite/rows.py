"""Records and summaries to rows and back: bodies, large ones in blobs; types by number; the columns of a chat. Knows
nothing of what a body means."""

import sqlite3
import zlib
from typing import Any

import msgspec

from treadle.adapters.stores.listing import folded
from treadle.adapters.stores.packing import BLOB, Packed, check_sum, compress, decompress
from treadle.adapters.stores.packing import unpack as unpack_with
from treadle.adapters.stores.sqlite.blobs import BlobFiles
from treadle.base.types import ChatId
from treadle.errors import Damaged, NotFound
from treadle.protocol.views import ChatSummary
from treadle.protocol.wire import Record

BLOB_OVER = 64 * 1024

_encode = msgspec.json.Encoder().encode


def pack(record: Record, blobs: BlobFiles) -> Packed:
    """Writes a blob if the body needs one: call it before the transaction that refers to it."""
    body = record.body
    if len(body) > BLOB_OVER:
        packing, stored = BLOB, bytes.fromhex(blobs.put(body))
    else:
        packing, stored = compress(body)
    return Packed(
        record.seq, record.time_ms, record.type, record.version, record.epoch, packing, zlib.crc32(body), stored
    )


def unpack(packed: Packed, blobs: BlobFiles) -> Record:
    return unpack_with(packed, lambda packed: restore(packed, blobs))


def restore(packed: Packed, blobs: BlobFiles) -> bytes:
    """The body as it was given. Damaged, with the reason, when it cannot be had."""
    if packed.packing != BLOB:
        return check_sum(decompress(packed.packing, packed.body), packed.crc)
    try:
        return check_sum(blobs.get(packed.body.hex()), packed.crc)
    except (NotFound, Damaged, OSError) as error:
        raise Damaged(str(error)) from error


def row_of(connection: sqlite3.Connection, query: str, chat: ChatId) -> tuple[Any, ...]:
    """The one row that a query finds by the id of a chat. NotFound if there is no such chat."""
    row: tuple[Any, ...] | None = connection.execute(query, (chat,)).fetchone()
    if row is None:
        raise NotFound(f"there is no chat {chat}")
    return row


class Types:
    """Event types by number, as one connection knows them."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._numbers: dict[str, int] = {}
        self._names: dict[int, str] = {}

    def number(self, name: str) -> int:
        number = self._numbers.get(name)
        if number is None:
            self._connection.execute("INSERT OR IGNORE INTO types (name) VALUES (?)", (name,))
            self._load()
            number = self._numbers[name]
        return number

    def name(self, number: int) -> str:
        if number not in self._names:
            self._load()
        return self._names.get(number, f"type.{number}")

    def forget(self) -> None:
        """After a rollback, numbers given in it are void."""
        self._numbers.clear()
        self._names.clear()

    def _load(self) -> None:
        for number, name in self._connection.execute("SELECT no, name FROM types"):
            self._numbers[name] = number
            self._names[number] = name


def chat_columns(head: int, summary: ChatSummary) -> tuple[Any, ...]:
    s = summary
    labels = _encode(s.labels).decode() if s.labels else ""
    # Numbers, not bools: sqlite3 would first look for an adapter for each.
    basics = (head, s.status, int(s.runnable), s.wake_ms, int(s.archived), s.owner, s.updated_ms)
    return *basics, _encode(summary), folded(s.title), labels
