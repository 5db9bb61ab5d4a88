"""Records to rows and back. A body that is too large for a row lies in a blob, and the row has its hash. Knows nothing
of SQL, and nothing of what a body means."""

import zlib

from treadle.errors import Damaged, NotFound
from treadle.protocol.wire import Record
from treadle.stores.packing import BLOB, DAMAGED_VERSION, Packed, check_sum, squeeze, swell
from treadle.stores.sqlite.blobs import Blobs

BLOB_OVER = 64 * 1024


def pack(record: Record, blobs: Blobs) -> Packed:
    """Writes a blob if the body needs one: call it before the transaction that refers to it."""
    body = record.body
    if len(body) > BLOB_OVER:
        packing, stored = BLOB, bytes.fromhex(blobs.put(body))
    else:
        packing, stored = squeeze(body)
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
    if packed.packing != BLOB:
        return check_sum(swell(packed.packing, packed.body), packed.crc)
    try:
        return check_sum(blobs.get(packed.body.hex()), packed.crc)
    except (NotFound, Damaged, OSError) as error:
        raise Damaged(str(error)) from error
