"""How a record's body lies in its row: as it is, or compressed; with a checksum over the body itself. Shared by the
stores on disk; knows nothing of SQL, and nothing of what a body means."""

import zlib
from typing import Literal, NamedTuple

from treadle.errors import Damaged
from treadle.stores.dictionary import FIRST

SMALL_OVER = 40
ZLIB_OVER = 8 * 1024

PLAIN, ZLIB, BLOB, SMALL = 0, 1, 2, 3
"""SMALL: deflated with a window of 8 KB and the first dictionary. Setting up a full zlib costs ten times as much.
BLOB: what is stored is a hash; only the SQLite store keeps bodies so."""
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


def squeeze(body: bytes) -> tuple[int, bytes]:
    """How the body is packed, and what is to be stored."""
    if len(body) > SMALL_OVER:
        large = len(body) > ZLIB_OVER
        smaller = zlib.compress(body, 1) if large else _deflate(body)
        if len(smaller) < len(body):
            return (ZLIB if large else SMALL), smaller
    return PLAIN, body


def swell(packing: int, stored: bytes) -> bytes:
    """The body again. Damaged, with the reason, when it cannot be had."""
    try:
        if packing == ZLIB:
            return zlib.decompress(stored)
        return _inflate(stored) if packing == SMALL else stored
    except zlib.error as error:
        raise Damaged(f"the compressed body cannot be read ({error})") from error


def check_sum(body: bytes, crc: int) -> bytes:
    if zlib.crc32(body) != crc:
        raise Damaged("the checksum does not match the body")
    return body


def _deflate(body: bytes) -> bytes:
    squeezing = zlib.compressobj(3, zlib.DEFLATED, _WINDOW, 6, zdict=FIRST)
    return squeezing.compress(body) + squeezing.flush()


def _inflate(stored: bytes) -> bytes:
    swelling = zlib.decompressobj(_WINDOW, zdict=FIRST)
    body = swelling.decompress(stored)
    if not swelling.eof:
        raise zlib.error("incomplete")
    return body
