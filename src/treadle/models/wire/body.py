"""The body of an answer that should be a stream of events, and is one JSON document when a server ignores `stream`."""

from treadle.models.wire.limits import EVENT_BYTES, TooMuch
from treadle.models.wire.sse import Decoder, ServerEvent


class EventBody:
    """Takes bytes as they come. What it is shows in its first byte."""

    def __init__(self) -> None:
        self._events = Decoder()
        self._begun = False
        self._pieces: list[bytes] | None = None
        self._size = 0

    def feed(self, chunk: bytes) -> list[ServerEvent]:
        """The events that are complete; none ever of a document."""
        if not self._begun:
            self._begin(chunk)
        if self._pieces is None:
            return self._events.feed(chunk)
        self._pieces.append(chunk)
        self._size += len(chunk)
        if self._size > EVENT_BYTES:
            raise TooMuch("a document", EVENT_BYTES)
        return []

    def document(self) -> bytes | None:
        """The document, at the end of the body; None if it was a stream."""
        if self._pieces is None:
            return None
        return b"".join(self._pieces).removeprefix(b"\xef\xbb\xbf").strip()

    def _begin(self, chunk: bytes) -> None:
        first = chunk.lstrip(b"\xef\xbb\xbf \t\r\n")[:1]
        if first:
            self._begun = True
            self._pieces = [] if first in (b"{", b"[") else None
