"""The reader of a stream, with bounded memory: first the log, then the text so far of the open turn, then live.

Why a reader is either live or behind. Events of this process are delivered, and a reader that keeps up never reads the
store. A reader that is slow, or that learns of events which were not delivered (another process wrote them), falls
behind: it accepts no more deliveries, sends the events that it holds, reads the log page by page at its own pace, and
is live again once it has reached the end. So events are never lost and never doubled, and memory is bounded; missed
live text is replaced by `assistant.reset` and the text so far.
"""

import asyncio
from collections import deque

from treadle.base.types import CallKey, ChatId
from treadle.engine.hub import Hub, Subscription
from treadle.protocol import events as e
from treadle.protocol.events import Envelope

_OF_TURN = (e.MessageDelta, e.ReasoningDelta, e.ToolCallDelta)


class Reader(Subscription):
    """Attached to the hub. `backlog` is how many pieces of news are held at most."""

    def __init__(self, hub: Hub, chat: ChatId, after_seq: int, backlog: int, turn: int = 0) -> None:
        super().__init__(hub, chat, after_seq)
        self._held: deque[Envelope] = deque()
        self._backlog = backlog
        self._woken = asyncio.Event()
        self.live = False
        self.turn = turn
        """The turn that is open as of what was taken in."""
        self.calls: set[CallKey] = set()
        """Calls that are under way as of what was taken in, as far as the reader saw them begin."""
        self._spoken = turn if after_seq else 0
        """The turn of which the other side may have text already."""
        self.known = after_seq
        """The highest seq that the reader has heard of."""
        self._told_ms = 0
        self.overflows = 0
        self.ended = False

    # -- news ---------------------------------------------------------------------------------------------------------

    def deliver(self, envelope: Envelope) -> None:
        """Receive an envelope. Called in the event loop; never waits."""
        if envelope.seq:
            self.known = max(self.known, envelope.seq)
        if not self.live:
            self._woken.set()
            return
        if envelope.seq and envelope.seq < self._next:
            return
        if len(self._held) >= self._backlog:
            self.overflows += 1
            self._fall_behind()
        elif envelope.seq > self._next:
            self._fall_behind()
        elif envelope.seq:
            self.take_in(envelope)
        else:
            self._take_live(envelope)
        self._woken.set()

    def _take_live(self, envelope: Envelope) -> None:
        if isinstance(envelope.data, _OF_TURN):
            if envelope.data.turn != self.turn:
                return
            self._spoken = self.turn
        self._held.append(envelope)

    def hear_of(self, head: int) -> None:
        """Note the head of the log, from any writer."""
        self.known = max(self.known, head)
        if self.known > self.reached:
            self._fall_behind()

    def _fall_behind(self) -> None:
        self.live = False
        self._woken.set()

    def take_in(self, envelope: Envelope) -> None:
        """The next event, from the hub or from the log."""
        self._held.append(envelope)
        self._next = envelope.seq + 1
        self._told_ms = envelope.time_ms
        self.known = max(self.known, envelope.seq)
        match envelope.data:
            case e.TurnStart(turn=turn):
                self.turn = turn
                self.calls.clear()
            case e.TrialStart(call=call) | e.ExecutionStart(call=call):
                self.calls.add(call)
            case e.ExecutionComplete(call=call):
                self.calls.discard(call)
            case e.AssistantMessage() | e.TurnEnd():
                self.turn = 0
            case e.RunEnd(reason=reason, why=why):
                self.turn = 0
                self.calls.clear()
                self._held.append(Envelope(0, self.chat, envelope.time_ms, e.SessionIdle(reason, why)))

    def go_live(self, so_far: list[Envelope]) -> None:
        """All that is known was taken in. `so_far` is what was said of the open turn, as of this moment."""
        self.live = True
        if self.turn and self._spoken == self.turn:
            now = so_far[0].time_ms if so_far else self._told_ms
            self._held.append(Envelope(0, self.chat, now, e.AssistantReset(self.turn)))
        for envelope in so_far:
            self._take_live(envelope)

    # -- reading ------------------------------------------------------------------------------------------------------

    def drain(self) -> list[Envelope]:
        """Return and remove the envelopes that are held, in order."""
        envelopes = list(self._held)
        self._held.clear()
        return envelopes

    async def news(self, timeout_s: float) -> bool:
        """Wait until there is something to do; False when the time is up."""
        if not self._held and self.live and not self.ended:
            try:
                async with asyncio.timeout(timeout_s):
                    await self._woken.wait()
            except TimeoutError:
                return False
        self._woken.clear()
        return True

    def end(self) -> None:
        """The server wants the reader to leave."""
        self.ended = True
        self._woken.set()


class Feed:
    """All readers of one chat, and the watch over what others write to it."""

    def __init__(self, chat: ChatId) -> None:
        self.chat = chat
        self.readers: list[Reader] = []
        self.watch: asyncio.Task[None] | None = None

    @property
    def head(self) -> int:
        """The head that all readers know. A reader of the log may be ahead; the others still wait for the news."""
        return min(reader.known for reader in self.readers)
