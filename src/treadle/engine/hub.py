"""Publishes events of chats inside this process: events after their commit, and deltas that are never recorded. A
reader receives every event once and in order, from any publisher, and `session.idle` after every end of a run; a slow
reader loses deltas, never events, and blocks no other. Events of another process are not published here: a reader that
has a gap is nudged, and fills it from the store."""

import asyncio
from collections.abc import Callable, Sequence

from treadle.base.types import ChatId
from treadle.protocol.events import Envelope, Live, RunEnd, SessionIdle

MAX_BACKLOG = 10_000


class Subscription:
    """One reader of one chat. Close it when done."""

    __slots__ = (
        "_closed",
        "_early",
        "_first",
        "_hub",
        "_next",
        "_nudged",
        "_ready",
        "_taken",
        "_waiter",
        "chat",
        "source",
    )

    def __init__(self, hub: "Hub", chat: ChatId, after_seq: int) -> None:
        self._hub = hub
        self.chat = chat
        self._ready: list[Envelope] = []
        self._taken: list[Envelope] = []
        """Envelopes that are delivered next, in reverse order. A list, because a deque allocates room for 64 and most
        readers wait for one."""
        self._early: dict[int, Envelope] = {}
        self._first = self._next = after_seq + 1
        self._waiter: asyncio.Future[None] | None = None
        self._closed = False
        self._nudged = False
        self.source: object = None
        """The publisher of the events, as far as the reader knows; for the reader's own use."""

    def deliver(self, envelope: Envelope) -> None:
        if envelope.seq == 0:
            if len(self._ready) + len(self._taken) >= MAX_BACKLOG and isinstance(envelope.data, Live):
                return
            self._ready.append(envelope)
        elif envelope.seq > self._next:
            self._early[envelope.seq] = envelope
            self._nudged = True
        elif envelope.seq == self._next:
            following: Envelope | None = envelope
            while following is not None:
                self._ready.append(following)
                self._next += 1
                if isinstance(end := following.data, RunEnd):
                    self._ready.append(Envelope(0, self.chat, following.time_ms, SessionIdle(end.reason, end.why)))
                following = self._early.pop(self._next, None) if self._early else None
            self._nudged = self._nudged or bool(self._early)
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    @property
    def began(self) -> int:
        """The head that the reader knew when it came."""
        return self._first - 1

    @property
    def reached(self) -> int:
        """The seq of the last event that came through."""
        return self._next - 1

    @property
    def untouched(self) -> bool:
        """True if the reader has received nothing yet."""
        return self._next == self._first and not (self._ready or self._taken)

    def nudge(self) -> None:
        """Let a waiting `get` return empty-handed, so that its reader can look elsewhere."""
        self._nudged = True
        self._wake()

    async def get(self) -> Envelope | None:
        """The next piece of news; None when the subscription was closed or nudged."""
        while (envelope := self.take()) is None:
            if self._closed or self._nudged:
                self._nudged = False
                return None
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        return envelope

    def take(self) -> Envelope | None:
        """The next piece of news if it is there already."""
        if not self._taken:
            if not self._ready:
                return None
            self._taken, self._ready = self._ready, self._taken
            self._taken.reverse()
        return self._taken.pop()

    def close(self) -> None:
        self._closed = True
        self._hub.leave(self)
        self._wake()


SoFar = Callable[[], Sequence[Envelope]]
"""Returns the live envelopes of an answer that is still arriving."""


class Hub:
    def __init__(self) -> None:
        self._readers: dict[ChatId, list[Subscription]] = {}
        self._speaking: dict[ChatId, SoFar] = {}
        self.relay: Callable[[Envelope], None] | None = None
        """Passes on what is live to readers in other processes, if there may be any."""

    def subscribe(self, chat: ChatId, after_seq: int) -> Subscription:
        """From now on; `after` is the head that the reader knows."""
        reader = Subscription(self, chat, after_seq)
        self.attach(reader)
        for envelope in self.so_far(chat):
            reader.deliver(envelope)
        return reader

    def attach(self, reader: Subscription) -> None:
        """For a reader that fetches by itself what was before."""
        self._readers.setdefault(reader.chat, []).append(reader)

    def so_far(self, chat: ChatId) -> Sequence[Envelope]:
        """Return the live envelopes of an answer that is still arriving in this process; empty if there is none."""
        so_far = self._speaking.get(chat)
        return so_far() if so_far is not None else ()

    def speaks(self, chat: ChatId) -> bool:
        """True if an answer is arriving in this process."""
        return chat in self._speaking

    def speak(self, chat: ChatId, so_far: SoFar | None) -> None:
        """Register an answer that begins; None if it ends. A reader that subscribes in between gets the text so far
        (D-04)."""
        if so_far is None:
            self._speaking.pop(chat, None)
        else:
            self._speaking[chat] = so_far

    def leave(self, reader: Subscription) -> None:
        readers = self._readers.get(reader.chat, [])
        if reader in readers:
            readers.remove(reader)
        if not readers:
            self._readers.pop(reader.chat, None)

    def listened(self, chat: ChatId) -> bool:
        """True if there is a reader: events without a reader are not built (law 13)."""
        return self.relay is not None or chat in self._readers

    def publish(self, envelope: Envelope) -> None:
        if self.relay is not None and envelope.seq == 0:
            self.relay(envelope)
        for reader in self._readers.get(envelope.chat, ()):
            reader.deliver(envelope)
