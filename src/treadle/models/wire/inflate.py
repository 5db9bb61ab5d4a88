"""Compressed bodies, piece by piece: however much a few bytes may unfold to, no more than one piece of it is held.
Knows no HTTP."""

import zlib

PIECE = 256 * 1024
"""How much is unfolded at once."""
KNOWN = ("gzip", "x-gzip", "deflate")
_ANY_HEADER = 32 + zlib.MAX_WBITS
"""Of gzip or zlib, whichever it has."""


class Inflate:
    """Take what came with `feed`, then ask for `piece` until it is empty."""

    def __init__(self) -> None:
        self._inner = zlib.decompressobj(_ANY_HEADER)
        self._waiting = b""

    def feed(self, data: bytes) -> None:
        self._waiting += data

    def piece(self) -> bytes:
        """The next piece; empty when more must come first. zlib.error if it is nothing compressed."""
        found = b""
        while self._waiting and not found:
            found = self._inner.decompress(self._waiting, PIECE)
            self._waiting = self._inner.unconsumed_tail
            if self._inner.eof:
                self._waiting = self._inner.unused_data
                self._inner = zlib.decompressobj(_ANY_HEADER)  # a body may be several, one behind the other
        return found
