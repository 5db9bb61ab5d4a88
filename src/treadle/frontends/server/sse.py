"""Server-sent events: envelopes as JSON, encoded once however many read them, and JSON as frames of the stream."""

from collections import OrderedDict

from treadle.protocol import wire
from treadle.protocol.events import Envelope

MEDIA_TYPE = "text/event-stream"
KEPT = 512
HEARTBEAT = b": still here\n\n"
OPENING = b"retry: 1000\n\n"
"""Readers that lose the connection come back after a second, with the id of the last event they have."""


class Frames:
    """JSON of envelopes, kept for the other readers of the same chat."""

    def __init__(self) -> None:
        self._kept: OrderedDict[int, tuple[Envelope, bytes]] = OrderedDict()

    def json(self, envelope: Envelope) -> bytes:
        cached = self._kept.get(id(envelope))
        if cached is not None:
            return cached[1]
        encoded = wire.to_json(envelope)
        self._kept[id(envelope)] = (envelope, encoded)  # which keeps its id from being used again
        if len(self._kept) > KEPT:
            self._kept.popitem(last=False)
        return encoded


def event(data: bytes, id: int = 0) -> bytes:
    """One server-sent event. Live ones have no id, so that a reader comes back behind the last recorded one. Without
    data only the place of the reader is moved."""
    if not data:
        return b"id: %d\n\n" % id
    return b"id: %d\ndata: %b\n\n" % (id, data) if id else b"data: %b\n\n" % data
