"""The event stream of a chat, with reconnection: a broken stream is opened again behind the last event that came, so
that every event comes once and in order (A-07, D-04)."""

import time
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing

import msgspec

from treadle.base.types import ChatId
from treadle.client.http import AGAIN, Http, Pause
from treadle.errors import ApiError, Damaged
from treadle.protocol import wire
from treadle.protocol.events import (
    AssistantMessage,
    AssistantReset,
    Envelope,
    MessageDelta,
    ReasoningDelta,
    ToolCallDelta,
    TurnEnd,
)


class Lines:
    """Bytes to the data of server-sent events. Each of ours is one line; comments, ids and hints need no reading: the
    envelope has its seq."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, piece: bytes) -> Iterator[bytes]:
        *lines, self._rest = (self._rest + piece).split(b"\n")
        for line in lines:
            if line.startswith(b"data:"):
                yield line[5:].strip()


class _Seq(msgspec.Struct):
    seq: int = 0


class Gap(Exception):
    """An event is missing: the connection is made again."""


class Place:
    """How far a reader is: the last event it has, and the turn of which it has seen pieces."""

    def __init__(self, after_seq: int) -> None:
        self.after = after_seq
        self.connected = False
        """True if the server has answered since this was last set to False."""
        self._turn = 0

    def take(self, data: bytes) -> Envelope | None:
        """The envelope, if it comes next; None for one that came before, or that is newer than this client."""
        try:
            envelope = wire.from_json(data)
        except Damaged:
            self._step(msgspec.json.decode(data, type=_Seq).seq)
            return None
        match envelope.data:
            case MessageDelta(turn=turn) | ReasoningDelta(turn=turn) | ToolCallDelta(turn=turn):
                self._turn = turn
            case AssistantReset() | AssistantMessage() | TurnEnd():
                self._turn = 0
        return envelope if self._step(envelope.seq) else None

    def _step(self, seq: int) -> bool:
        if seq > self.after + 1:
            raise Gap
        fresh = not seq or seq > self.after
        self.after = max(self.after, seq)
        return fresh

    def reset(self, chat: ChatId) -> Envelope | None:
        """After a reconnection the text so far comes again: return the event that discards the text seen before, if
        any."""
        turn, self._turn = self._turn, 0
        return Envelope(0, chat, time.time_ns() // 1_000_000, AssistantReset(turn)) if turn else None


async def follow(
    http: Http, chat: ChatId, after_seq: int, deltas: bool, patience_s: float
) -> AsyncGenerator[Envelope, None]:
    """Yield every event after `after_seq`, and live ones between them, until the caller stops. ApiError when the chat
    cannot be read, or its server could not be reached for too long."""
    place, pause = Place(after_seq), Pause()
    lost_at = time.monotonic()
    while True:
        failure: ApiError | None = None
        try:
            async with aclosing(_connection(http, chat, place, deltas)) as envelopes:
                async for envelope in envelopes:
                    pause = Pause()
                    yield envelope
        except Gap:
            pass
        except ApiError as error:
            failure = error
        if place.connected:  # a quiet stream is no outage: patience begins when the connection is lost
            place.connected, lost_at = False, time.monotonic()
        elif failure is not None and (failure.status not in (0, *AGAIN) or time.monotonic() - lost_at > patience_s):
            raise failure
        await pause()
        if (dropped := place.reset(chat)) is not None:
            yield dropped


async def _connection(http: Http, chat: ChatId, place: Place, deltas: bool) -> AsyncGenerator[Envelope, None]:
    """One connection, to its end."""
    headers = {"Last-Event-ID": str(place.after)} if place.after else {}
    lines = Lines()
    async with http.stream(f"/api/chats/{chat}/events", headers, {} if deltas else {"deltas": "false"}) as pieces:
        place.connected = True
        async for piece in pieces:
            for data in lines.feed(piece):
                if (envelope := place.take(data)) is not None:
                    yield envelope
