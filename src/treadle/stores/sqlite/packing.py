"""How a record's body lies in its row: as it is, compressed, or as the hash of a blob; with a checksum over the
body itself. Knows nothing of SQL, and nothing of what a body means."""

import zlib
from typing import Literal, NamedTuple

from treadle.errors import Damaged, NotFound
from treadle.protocol.wire import Record
from treadle.stores.sqlite.blobs import Blobs
from treadle.stores.sqlite.dictionary import FIRST

SMALL_OVER = 40
ZLIB_OVER = 8 * 1024
BLOB_OVER = 64 * 1024

PLAIN, ZLIB, BLOB, SMALL = 0, 1, 2, 3
"""SMALL: deflated with a window of 8 KB and the first dictionary. Setting up a full zlib costs ten times as much."""
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


def pack(record: Record, blobs: Blobs) -> Packed:
    """Writes a blob if the body needs one: call it before the transaction that refers to it."""
    body = record.body
    packing, stored = PLAIN, body
    if len(body) > BLOB_OVER:
        packing, stored = BLOB, bytes.fromhex(blobs.put(body))
    elif len(body) > SMALL_OVER:
        large = len(body) > ZLIB_OVER
        smaller = zlib.compress(body, 1) if large else _deflate(body)
        if len(smaller) < len(body):
            packing, stored = (ZLIB if large else SMALL), smaller
    return Packed(
        record.seq, record.time_ms, record.type, record.version, record.epoch, packing, zlib.crc32(body), stored
    )


def unpack(packed: Packed, blobs: Blobs) -> Record:
    """The record; a damaged one with its raw bytes and a version that cannot be decoded."""
    try:
        body, version = restore(packed, blobs), packed.version
    except Damaged:
        body, version = packed.body, DAMAGED_VERSION
    return Record(packed.seq, packed.time_ms, packed.type, version, packed.epoch, body)


def restore(packed: Packed, blobs: Blobs) -> bytes:
    """The body as it was given. Damaged, with the reason, when it cannot be had."""
    body = packed.body
    if packed.packing in (ZLIB, SMALL):
        try:
            body = zlib.decompress(body) if packed.packing == ZLIB else _inflate(body)
        except zlib.error as error:
            raise Damaged(f"the compressed body cannot be read ({error})") from error
    elif packed.packing == BLOB:
        try:
            body = blobs.get(body.hex())
        except (NotFound, Damaged, OSError) as error:
            raise Damaged(str(error)) from error
    if zlib.crc32(body) != packed.crc:
        raise Damaged("the checksum does not match the body")
    return body


def _deflate(body: bytes) -> bytes:
    squeeze = zlib.compressobj(3, zlib.DEFLATED, _WINDOW, 6, zdict=FIRST)
    return squeeze.compress(body) + squeeze.flush()


def _inflate(stored: bytes) -> bytes:
    swell = zlib.decompressobj(_WINDOW, zdict=FIRST)
    body = swell.decompress(stored)
    if not swell.eof:
        raise zlib.error("incomplete")
    return body
