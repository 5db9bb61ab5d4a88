"""Live text for readers in other processes (law 7, D-04): the deltas of all chats of a worker go to the store's side
table, in one call every so often. Each row is an envelope in its wire form.

Deltas stay what they are: never recorded, never waited for. They are dropped in the commit that makes them superfluous
(the message, a retry, the result of a call, the end of a run), and nothing of them is written behind it.
"""

import asyncio
from collections.abc import Mapping, Sequence

from treadle.base.logs import log_warning
from treadle.base.types import CallKey, ChatId
from treadle.errors import StoreError
from treadle.ports.store import Delta, Store
from treadle.protocol import wire
from treadle.protocol.events import (
    AssistantMessage,
    AssistantReset,
    Envelope,
    Event,
    ExecutionComplete,
    ExecutionOutput,
    MessageDelta,
    ReasoningDelta,
    RunEnd,
    ToolCallDelta,
    TurnRetry,
)

EVERY_S = 0.15
SETTLES = (AssistantMessage, TurnRetry, ExecutionComplete, RunEnd)
"""Events that make the live text before them superfluous."""


class Relay:
    """`epochs` says under which lease a chat is driven here."""

    def __init__(self, store: Store, epochs: Mapping[ChatId, int], every_s: float = EVERY_S) -> None:
        self._store = store
        self._epochs = epochs
        self.every_s = every_s
        self._pending: dict[ChatId, list[Envelope]] = {}
        self._number = 0
        self._timer: asyncio.TimerHandle | None = None
        self._flushing: asyncio.Task[None] | None = None
        self._closed = False

    def hear(self, envelope: Envelope) -> None:
        """Something was shown live here."""
        if _turn_of(envelope.data) and not self._closed:
            _join(self._pending.setdefault(envelope.chat, []), envelope)
            if self._timer is None:
                self._timer = asyncio.get_running_loop().call_later(self.every_s, self._due)

    async def settle(self, chat: ChatId, events: Sequence[Event]) -> bool:
        """True if these events, about to be committed, make the chat's live text superfluous. The text is then not
        written any more; only a pending `assistant.reset`, which makes readers drop the text that they have seen, is
        still sent."""
        settling = [event for event in events if isinstance(event, SETTLES)]
        if not settling:
            return False
        waiting = self._pending.pop(chat, [])
        if isinstance(settling[-1], TurnRetry):
            for envelope in waiting:
                if isinstance(envelope.data, AssistantReset):
                    self._pending[chat] = [envelope]
        if self._flushing is not None:
            await asyncio.wait({self._flushing})
        return True

    def _due(self) -> None:
        if self._flushing is not None and not self._flushing.done():
            self._timer = asyncio.get_running_loop().call_later(self.every_s, self._due)  # a slow store: fewer, larger
            return
        self._timer = None
        self._flushing = asyncio.create_task(self._flush(), name="relay live text")

    async def _flush(self) -> None:
        pending, self._pending = self._pending, {}
        rows = [row for chat, envelopes in pending.items() for row in self._rows(chat, envelopes)]
        try:
            if rows:
                await self._store.put_deltas(rows)
        except StoreError as error:
            log_warning("live text could not be passed on: %s", error)

    def _rows(self, chat: ChatId, envelopes: Sequence[Envelope]) -> list[Delta]:
        epoch = self._epochs.get(chat)
        rows: list[Delta] = []
        for envelope in envelopes if epoch is not None else ():
            self._number += 1  # of all chats together: under one lease no number comes twice
            rows.append(Delta(chat, epoch or 0, _turn_of(envelope.data), self._number, wire.to_json(envelope)))
        return rows

    async def close(self) -> None:
        """Stop passing on live text, even if some is pending."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        if self._flushing is not None:
            await asyncio.wait({self._flushing})


def _turn_of(event: Event) -> int:
    """The turn of what is passed on; 0 for all else."""
    match event:
        case MessageDelta(turn=turn) | ReasoningDelta(turn=turn) | ToolCallDelta(turn=turn) | AssistantReset(turn=turn):
            return turn
        case ExecutionOutput(call=call):
            return _turn_of_call(call)
        case _:
            return 0


def _turn_of_call(call: CallKey) -> int:
    turn = call.partition(".")[0]
    return int(turn) if turn.isdecimal() else 0


def _join(waiting: list[Envelope], envelope: Envelope) -> None:
    """Add an envelope. A delta that continues the last one is joined to it, so that the list stays short for any
    model."""
    if not waiting:
        return waiting.append(envelope)
    last = waiting[-1]
    joined: Event | None = None
    match last.data, envelope.data:
        case (MessageDelta(turn=a, text=head), MessageDelta(turn=b, text=tail)) if a == b:
            joined = MessageDelta(a, head + tail)
        case (ReasoningDelta(turn=a, text=head), ReasoningDelta(turn=b, text=tail)) if a == b:
            joined = ReasoningDelta(a, head + tail)
        case (ExecutionOutput(call=x, text=head), ExecutionOutput(call=y, text=tail)) if x == y:
            joined = ExecutionOutput(x, head + tail)
    if joined is None:
        waiting.append(envelope)
    else:
        waiting[-1] = Envelope(0, envelope.chat, envelope.time_ms, joined)
