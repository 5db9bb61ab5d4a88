"""Live text for readers in other processes (law 7, D-04). A Relay writes the deltas of all chats of its worker into the
store's side table, in one call every so often; a Feed reads those of chats that are driven elsewhere and delivers them
to the readers of this process, who need not know where a chat runs.

Deltas stay what they are: never recorded, never waited for. They are dropped in the commit that makes them superfluous
(the message, a retry, the end of a run), and whoever comes late gets what is there: the text so far.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping, Sequence

import msgspec

from treadle.engine.hub import Hub, Subscription
from treadle.errors import Damaged, StoreError
from treadle.ports.store import Delta, Store
from treadle.protocol import wire
from treadle.protocol.events import (
    AssistantMessage,
    AssistantReset,
    Envelope,
    Event,
    ExecutionOutput,
    Live,
    MessageDelta,
    ReasoningDelta,
    RunEnd,
    ToolCallDelta,
    TurnRetry,
    UsageInfo,
)
from treadle.types import ChatId, Clock

EVERY_S = 0.15
RELAYED = (MessageDelta, ReasoningDelta, ToolCallDelta, AssistantReset, ExecutionOutput, UsageInfo)
SETTLES = (AssistantMessage, TurnRetry, RunEnd)
"""What makes the live text before it superfluous."""
_LAST = 1 << 62

_decoder = msgspec.json.Decoder(list[tuple[str, msgspec.Raw]])


class Relay:
    """`epochs` says under which lease a chat is driven here."""

    def __init__(self, store: Store, epochs: Mapping[ChatId, int], every_s: float = EVERY_S) -> None:
        self._store = store
        self._epochs = epochs
        self._every_s = every_s
        self._pending: dict[ChatId, list[Live]] = {}
        self._number = 0
        self._timer: asyncio.TimerHandle | None = None
        self._flushing: asyncio.Task[None] | None = None

    def hear(self, envelope: Envelope) -> None:
        """Something was shown live here."""
        event = envelope.data
        if isinstance(event, RELAYED):
            _join(self._pending.setdefault(envelope.chat, []), event)
            if self._timer is None:
                self._timer = asyncio.get_running_loop().call_later(self._every_s, self._due)

    async def settle(self, chat: ChatId, events: Sequence[Event]) -> bool:
        """Whether these events, about to be committed, make the chat's live text superfluous. Then nothing of it is
        written behind them; only that a reader must drop what it has seen is still said."""
        settling = [event for event in events if isinstance(event, SETTLES)]
        if not settling:
            return False
        waiting = self._pending.pop(chat, [])
        if isinstance(settling[-1], TurnRetry):
            for event in waiting:
                if isinstance(event, AssistantReset):
                    self._pending[chat] = [event]
        if self._flushing is not None:
            await asyncio.wait({self._flushing})
        return True

    def _due(self) -> None:
        if self._flushing is not None and not self._flushing.done():
            self._timer = asyncio.get_running_loop().call_later(self._every_s, self._due)  # a slow store: fewer, larger
            return
        self._timer = None
        self._flushing = asyncio.create_task(self._flush(), name="relay live text")

    async def _flush(self) -> None:
        pending, self._pending = self._pending, {}
        rows = [row for chat, events in pending.items() if (row := self._row(chat, events)) is not None]
        try:
            if rows:
                await self._store.put_deltas(rows)
        except StoreError as error:
            logging.getLogger("treadle").warning("live text could not be passed on: %s", error)

    def _row(self, chat: ChatId, events: Sequence[Live]) -> Delta | None:
        epoch = self._epochs.get(chat)
        if epoch is None:
            return None
        self._number += 1  # of all chats together: under one lease no number comes twice, whatever the turn
        return Delta(chat, epoch, 0, self._number, msgspec.json.encode([(event.TYPE, event) for event in events]))

    async def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._flushing is not None:
            await asyncio.wait({self._flushing})


def _join(waiting: list[Live], event: Live) -> None:
    """Add an event, to the last one if it goes on with it: there are then fewer of them, whatever the model does."""
    last = waiting[-1] if waiting else None
    match last, event:
        case (MessageDelta(turn=a, text=head), MessageDelta(turn=b, text=tail)) if a == b:
            waiting[-1] = MessageDelta(a, head + tail)
        case (ReasoningDelta(turn=a, text=head), ReasoningDelta(turn=b, text=tail)) if a == b:
            waiting[-1] = ReasoningDelta(a, head + tail)
        case (ExecutionOutput(call=x, text=head), ExecutionOutput(call=y, text=tail)) if x == y:
            waiting[-1] = ExecutionOutput(x, head + tail)
        case _:
            waiting.append(event)


class Feed:
    """Start it in a process that has readers; it costs nothing while there are none. `driven`: the epoch under which a
    chat is driven here, or None: such a chat's readers hear of everything at once."""

    def __init__(
        self,
        store: Store,
        hub: Hub,
        driven: Callable[[ChatId], int | None],
        clock: Clock,
        every_s: float = EVERY_S,
    ) -> None:
        self._store = store
        self._hub = hub
        self._driven = driven
        self._clock = clock
        self._every_s = every_s
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        if self._task is None:
            self._task = asyncio.create_task(self._read_on(), name="feed live text")

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _read_on(self) -> None:
        while True:
            await asyncio.sleep(self._every_s)
            with contextlib.suppress(StoreError):  # deltas are not worth a word; whoever reads events hears of it
                await self.look()

    async def look(self) -> None:
        """Deliver what came since the last look. Only to readers who were there before it: to one that came meanwhile
        a message may have been shown already whose text is found here."""
        elsewhere: dict[ChatId, list[Subscription]] = {}
        for chat, readers in self._hub.readers().items():
            epoch = self._driven(chat)
            if epoch is None:
                if listening := [reader for reader in readers if not reader.resting]:
                    elsewhere[chat] = listening
                continue
            for reader in readers:
                reader.reach = (epoch, _LAST, _LAST)
        if elsewhere:
            reached = {chat: min(reader.reach for reader in readers) for chat, readers in elsewhere.items()}
            for delta in await self._store.read_deltas(reached):
                self._deliver(delta, elsewhere[delta.chat])

    def _deliver(self, delta: Delta, readers: Sequence[Subscription]) -> None:
        place = (delta.epoch, delta.turn, delta.number)
        envelopes = self._decode(delta)
        for reader in readers:
            if place > reader.reach:
                reader.reach = place
                for envelope in envelopes:
                    if not reader.said(getattr(envelope.data, "turn", _LAST)):
                        reader.deliver(envelope)

    def _decode(self, delta: Delta) -> list[Envelope]:
        now = self._clock.now_ms()
        try:
            parts = _decoder.decode(delta.payload)
            return [Envelope(0, delta.chat, now, wire.decode_event(kind, 1, body)) for kind, body in parts]
        except (Damaged, msgspec.MsgspecError):
            return []  # of another version of Treadle, during an upgrade
