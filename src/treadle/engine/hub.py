"""Publishes events of chats inside this process: events after their commit, and deltas that are never recorded. A
reader receives every event once and in order, from any publisher, and `session.idle` after every end of a run; a slow
reader loses deltas, never events, and blocks no other. Events of another process are not published here: a reader that
has a gap is nudged, and fills it from the store."""

import asyncio
from collections.abc import Callable, Mapping, Sequence

from msgspec.structs import replace

from treadle.base.logs import log_warning
from treadle.base.types import ChatId
from treadle.errors import StoreError
from treadle.ports.store import Delta, Store
from treadle.protocol import events as e
from treadle.protocol import wire
from treadle.protocol.events import Envelope, Event

MAX_BACKLOG = 10_000


class Subscription:
    """One reader of one chat. Close it when done."""

    __slots__ = (
        "_closed", "_early", "_first", "_hub", "_next", "_nudged", "_ready", "_taken", "_waiter", "chat", "source"
    )  # fmt: skip

    def __init__(self, hub: "Hub", chat: ChatId, after_seq: int) -> None:
        self._hub = hub
        self.chat = chat
        self._ready: list[Envelope] = []
        self._taken: list[Envelope] = []  # delivered next, in reverse order; a deque would allocate room for 64
        self._early: dict[int, Envelope] = {}
        self._first = self._next = after_seq + 1
        self._waiter: asyncio.Future[None] | None = None
        self._closed = False
        self._nudged = False
        self.source: object = None  # the publisher of the events, as far as the reader knows; for the reader's own use

    def deliver(self, envelope: Envelope) -> None:
        if envelope.seq == 0:
            if len(self._ready) + len(self._taken) >= MAX_BACKLOG and isinstance(envelope.data, e.Live):
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
                if isinstance(end := following.data, e.RunEnd):
                    self._ready.append(Envelope(0, self.chat, following.time_ms, e.SessionIdle(end.reason, end.why)))
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


SoFar = Callable[[], Sequence[Envelope]]  # returns the live envelopes of an answer that is still arriving


class Hub:
    def __init__(self) -> None:
        self._readers: dict[ChatId, list[Subscription]] = {}
        self._speaking: dict[ChatId, SoFar] = {}
        self.relay: Callable[[Envelope], None] | None = None  # passes live envelopes on to readers in other processes

    def subscribe(self, chat: ChatId, after_seq: int) -> Subscription:
        """From now on; `after_seq` is the head that the reader knows."""
        reader = Subscription(self, chat, after_seq)
        self.attach(reader)
        for envelope in self.list_live_text(chat):
            reader.deliver(envelope)
        return reader

    def attach(self, reader: Subscription) -> None:
        """For a reader that fetches by itself what was before."""
        self._readers.setdefault(reader.chat, []).append(reader)

    def list_live_text(self, chat: ChatId) -> Sequence[Envelope]:
        """Return the live envelopes of an answer that is still arriving in this process; empty if there is none."""
        so_far = self._speaking.get(chat)
        return so_far() if so_far is not None else ()

    def is_speaking(self, chat: ChatId) -> bool:
        return chat in self._speaking

    def speak(self, chat: ChatId, so_far: SoFar | None) -> None:
        """Register an answer that begins; None: it ends. A later reader gets the text so far (D-04)."""
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

    def has_reader(self, chat: ChatId) -> bool:
        """True if there is a reader: events without a reader are not built (law 13)."""
        return self.relay is not None or chat in self._readers

    def publish(self, envelope: Envelope) -> None:
        if self.relay is not None and envelope.seq == 0:
            self.relay(envelope)
        for reader in self._readers.get(envelope.chat, ()):
            reader.deliver(envelope)


EVERY_S = 0.15
TEXTS = (e.MessageDelta, e.ReasoningDelta, e.ExecutionOutput)
SETTLES = (e.AssistantMessage, e.TurnRetry, e.ExecutionComplete, e.RunEnd)  # make the live text before superfluous


class Relay:
    """Live text for readers in other processes (law 7, D-04): the deltas of all chats of a worker go to the store's
    side table, in one call every so often, as envelopes in their wire form. They are never recorded and never waited
    for. They are dropped in the commit that makes them superfluous (the message, a retry, the result of a call, the end
    of a run), and nothing of them is written behind it. `epochs` says under which lease a chat is driven here."""

    def __init__(self, store: Store, epochs: Mapping[ChatId, int], every_s: float = EVERY_S) -> None:
        self._store = store
        self._epochs = epochs
        self.every_s = every_s
        self._pending: dict[ChatId, list[Envelope]] = {}
        self._number = 0
        self._passing: asyncio.Task[None] | None = None
        self._writing = asyncio.Lock()
        self._closed = False

    def hear(self, envelope: Envelope) -> None:
        if _get_turn(envelope.data) and not self._closed:
            _join(self._pending.setdefault(envelope.chat, []), envelope)
            if self._passing is None or self._passing.done():
                self._passing = asyncio.create_task(self._pass_on(), name="relay live text")

    async def settle(self, chat: ChatId, events: Sequence[Event]) -> bool:
        """True if these events, about to be committed, make the chat's live text superfluous. The text is then not
        written any more; only a pending `assistant.reset`, which makes readers drop what they have seen, is sent."""
        settling = [event for event in events if isinstance(event, SETTLES)]
        if not settling:
            return False
        resets = [each for each in self._pending.pop(chat, []) if isinstance(each.data, e.AssistantReset)]
        if resets and isinstance(settling[-1], e.TurnRetry):
            self._pending[chat] = resets[-1:]
        async with self._writing:  # wait for a write that is under way
            return True

    async def _pass_on(self) -> None:
        """Write while there is something to write. A slow store gets fewer and larger pieces."""
        while self._pending:
            await asyncio.sleep(self.every_s)
            async with self._writing:
                await self._flush()

    async def _flush(self) -> None:
        pending, self._pending = self._pending, {}
        rows: list[Delta] = []
        for chat in (each for each in pending if each in self._epochs):
            for envelope in pending[chat]:
                self._number += 1  # of all chats together: under one lease no number comes twice
                turn, body = _get_turn(envelope.data), wire.to_json(envelope)
                rows.append(Delta(chat, self._epochs[chat], turn, self._number, body))
        try:
            if rows:
                await self._store.put_deltas(rows)
        except StoreError as error:
            log_warning("live text could not be passed on: %s", error)

    async def close(self) -> None:
        self._closed = True
        async with self._writing:
            if self._passing is not None:
                self._passing.cancel()


def _get_turn(event: Event) -> int:
    """The turn of what is passed on; 0 for all else."""
    match event:
        case e.MessageDelta() | e.ReasoningDelta() | e.ToolCallDelta() | e.AssistantReset():
            return event.turn
        case e.ExecutionOutput(call=call) if (number := call.partition(".")[0]).isdecimal():
            return int(number)
        case _:
            return 0


def _join(waiting: list[Envelope], envelope: Envelope) -> None:
    """Add an envelope. A delta that continues the last one is joined to it, so that the list stays short."""
    last, data = waiting[-1].data if waiting else None, envelope.data
    if isinstance(data, TEXTS) and isinstance(last, TEXTS) and replace(data, text=last.text) == last:
        waiting[-1] = replace(envelope, data=replace(data, text=last.text + data.text))
    else:
        waiting.append(envelope)
