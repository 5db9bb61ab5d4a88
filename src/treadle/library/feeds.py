"""Fan-out of events to the readers of a chat: from the hub what happens in this process, from the store what others
write, and the live text of chats that another process runs. One watch per chat, however many read it. `watch` is the
endless stream for one reader in this process; to follow one command there is `command_stream`."""

import asyncio
import math
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import TypeVar

from treadle.base.logs import log_warning
from treadle.base.types import CallKey, ChatId
from treadle.chat.state import compute_status, list_open_actions
from treadle.engine.deps import Deps
from treadle.engine.hub import Hub, Subscription
from treadle.errors import Damaged, NewerSchema, NotFound, StoreError
from treadle.ports.store import Reach
from treadle.protocol import events as e
from treadle.protocol import wire
from treadle.protocol.events import Envelope

PAGE = 200
WAIT_S = 10.0
SETTLE_S = 0.01  # Seconds to wait for the hub, which delivers an event of this process a moment after the store has it.
PAUSE_S = 1.0
POLL_S = 0.15
_START: Reach = (0, 0, 0)
_OF_TURN = (e.MessageDelta, e.ReasoningDelta, e.ToolCallDelta)


class Reader(Subscription):
    """The reader of a stream, attached to the hub, with bounded memory: first the log, then the text so far of the open
    turn, then live. `backlog` is how many pieces of news are held at most.

    Why a reader is either live or behind. Events of this process are delivered, and a reader that keeps up never reads
    the store. A reader that is slow, or that learns of events which were not delivered (another process wrote them),
    falls behind: it accepts no more deliveries, sends the events that it holds, reads the log page by page at its own
    pace, and is live again once it has reached the end. So events are never lost and never doubled, and memory is
    bounded; missed live text is replaced by `assistant.reset` and the text so far."""

    def __init__(self, hub: Hub, chat: ChatId, after_seq: int, backlog: int, turn: int = 0) -> None:
        super().__init__(hub, chat, after_seq)
        self._held: deque[Envelope] = deque()
        self._backlog, self._woken, self.live = backlog, asyncio.Event(), False
        self.turn = turn  # The turn that is open as of what was taken in.
        self.calls: set[CallKey] = set()
        """Calls that are under way as of what was taken in, as far as the reader saw them begin."""
        self._spoken = turn if after_seq else 0  # The turn of which the other side may have text already.
        self.known = after_seq  # The highest seq that the reader has heard of.
        self._told_ms, self.overflows, self.ended = 0, 0, False

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
            case e.RunEnd(reason=reason, why=explanation):
                self.turn = 0
                self.calls.clear()
                self._held.append(Envelope(0, self.chat, envelope.time_ms, e.SessionIdle(reason, explanation)))

    def go_live(self, so_far: list[Envelope]) -> None:
        """All that is known was taken in. `so_far` is what was said of the open turn, as of this moment."""
        self.live = True
        if self.turn and self._spoken == self.turn:
            now = so_far[0].time_ms if so_far else self._told_ms
            self._held.append(Envelope(0, self.chat, now, e.AssistantReset(self.turn)))
        for envelope in so_far:
            self._take_live(envelope)

    def drain(self) -> list[Envelope]:
        envelopes = list(self._held)
        self._held.clear()
        return envelopes

    async def wait_for_news(self, timeout_s: float) -> bool:
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
        self.ended = True
        self._woken.set()


class Feed:
    def __init__(self, chat: ChatId) -> None:
        self.chat = chat
        self.readers: list[Reader] = []
        self.watch: asyncio.Task[None] | None = None

    @property
    def head(self) -> int:
        """The head that all readers know. A reader of the log may be ahead; the others still wait for the news."""
        return min(reader.known for reader in self.readers)


class RemoteLive:
    """Live text of chats that another process runs (D-04, law 7): one query per poll for all, only while such a chat
    has a reader and an open turn. `feeds`: the chats that are read here; `here`: True if this process drives a chat."""

    def __init__(self, deps: Deps, feeds: Mapping[ChatId, Feed], here: Callable[[ChatId], bool]) -> None:
        self._here, self._deps, self._feeds = here, deps, feeds
        self._reached: dict[ChatId, Reach] = {}
        self._said: dict[ChatId, list[Envelope]] = {}  # By chat: the live envelopes of the turn that `_reached` is in.
        self._polling: asyncio.Task[None] | None = None

    def begin(self) -> None:
        if self._polling is None or self._polling.done():
            self._polling = asyncio.create_task(self._poll(), name="live text from elsewhere")

    def list_live_text(self, chat: ChatId) -> list[Envelope]:
        return list(self._said.get(chat, ()))

    def forget(self, chat: ChatId) -> None:
        self._reached.pop(chat, None)
        self._said.pop(chat, None)

    def close(self) -> None:
        if self._polling is not None:
            self._polling.cancel()

    def _list_remote_chats(self) -> dict[ChatId, Reach]:
        reaches = {}
        for chat, feed in self._feeds.items():
            under_way = any(reader.turn or reader.calls for reader in feed.readers)
            if under_way and not self._here(chat):
                reaches[chat] = self._reached.get(chat, _START)
            else:
                self.forget(chat)
        return reaches

    async def _poll(self) -> None:
        while self._feeds:
            await asyncio.sleep(POLL_S)
            if not (reaches := self._list_remote_chats()):
                continue
            try:
                deltas = await self._deps.store.read_deltas(reaches)
            except StoreError as error:
                log_warning("no live text from elsewhere: %s", error)
                await asyncio.sleep(PAUSE_S)
                continue
            for delta in deltas:
                self._take(delta.chat, (delta.epoch, delta.turn, delta.number), delta.payload)

    def _take(self, chat: ChatId, place: Reach, payload: bytes) -> None:
        last_place = self._reached.get(chat, _START)
        live_events = self._said.setdefault(chat, [])
        if place <= last_place or chat not in self._feeds:
            return
        if place[:2] != last_place[:2]:
            live_events.clear()
            if last_place[1] == place[1]:  # another worker makes the same turn again
                self._tell(chat, Envelope(0, chat, self._deps.clock.now_ms(), e.AssistantReset(place[1])))
        self._reached[chat] = place
        try:
            envelope = wire.from_json(payload)
        except Damaged as error:
            log_warning("live text of chat %s cannot be read: %s", chat, error)
            return
        if isinstance(envelope.data, e.AssistantReset):
            live_events.clear()
        else:
            live_events.append(envelope)
        self._tell(chat, envelope)

    def _tell(self, chat: ChatId, envelope: Envelope) -> None:
        for reader in self._feeds[chat].readers:
            reader.deliver(envelope)


class Feeds:
    """`here` tells whether a chat is driven by this process."""

    def __init__(self, deps: Deps, backlog: int, here: Callable[[ChatId], bool]) -> None:
        self._deps, self._backlog = deps, backlog
        self.dropped = 0  # How often a slow reader was put back to the log.
        self._feeds: dict[ChatId, Feed] = {}
        self._remote = RemoteLive(deps, self._feeds, here)

    @asynccontextmanager
    async def open_reader(self, chat: ChatId, after_seq: int, turn: int) -> AsyncIterator[Reader]:
        """A reader of the chat, for the length of the block. `turn` is the one that is open now, if there is one."""
        hub = self._deps.log.hub
        reader = Reader(hub, chat, after_seq, self._backlog, turn)
        feed = self._feeds.setdefault(chat, Feed(chat))
        feed.readers.append(reader)
        hub.attach(reader)
        if feed.watch is None:
            feed.watch = asyncio.create_task(self._watch(feed), name=f"watch {chat}")
        self._remote.begin()
        try:
            yield reader
        finally:
            hub.leave(reader)
            feed.readers.remove(reader)
            if not feed.readers:
                self._feeds.pop(chat, None)
                self._remote.forget(chat)
                feed.watch.cancel()
                await asyncio.gather(feed.watch, return_exceptions=True)

    async def stream_batches(
        self, reader: Reader, silence_s: float, *, follow: bool = True
    ) -> AsyncIterator[list[Envelope]]:
        """Some envelopes at a time; none is a heartbeat. Ends with server or chat or, without `follow`, the log."""
        announced = 0
        while True:
            batch = reader.drain()
            if announced == reader.reached:  # an ActionRequired is sent once for each position of the log
                batch = [each for each in batch if not isinstance(each.data, e.ActionRequired)]
            if batch:
                if any(isinstance(each.data, e.ActionRequired) for each in batch):
                    announced = reader.reached
                yield batch
                continue
            if reader.ended:
                return
            if not reader.live:
                if await self._read_on(reader) and not follow:
                    if last_batch := reader.drain():
                        yield last_batch
                    return
                continue
            if announced != reader.reached and (waits := await self._find_action_required(reader)) is not None:
                announced = reader.reached
                yield [waits]
                continue
            announced = reader.reached
            if not await reader.wait_for_news(silence_s):
                yield []

    async def _read_on(self, reader: Reader) -> bool:
        """Read a page of the log, and go live at its end. True at the end."""
        overflows, reader.overflows = reader.overflows, 0
        self.dropped += overflows
        try:
            records = await self._deps.store.read(reader.chat, reader.reached, PAGE)
        except NotFound:  # deleted
            reader.end()
            return False
        for record in records:
            if record.seq == reader.reached + 1:
                reader.take_in(wire.decode(reader.chat, record))
        if len(records) < PAGE and reader.known <= reader.reached:
            hub = self._deps.log.hub
            local = hub.is_speaking(reader.chat)
            reader.go_live(list(hub.list_live_text(reader.chat)) if local else self._remote.list_live_text(reader.chat))
            return True
        if not records:
            await asyncio.sleep(SETTLE_S)
        return False

    async def _find_action_required(self, reader: Reader) -> Envelope | None:
        """The ActionRequired of a chat that waits: a worker elsewhere sends it to its own readers only."""
        if (state := self._deps.log.peek(reader.chat)) is None or state.head < reader.reached:
            try:
                state = await self._deps.log.load(reader.chat)
            except NotFound:  # deleted
                reader.end()
                return None
        if state.head != reader.reached or compute_status(state) != "requires_action":
            return None
        return Envelope(0, reader.chat, self._deps.clock.now_ms(), e.ActionRequired(list_open_actions(state)))

    async def _watch(self, feed: Feed) -> None:
        """Tell readers the head of the log, from any writer. Wake-ups are hints: it looks again in any case."""
        while True:
            try:
                head = await self._deps.store.wait(feed.chat, feed.head, WAIT_S)
                await asyncio.sleep(SETTLE_S)
            except NotFound:  # deleted
                for reader in feed.readers:
                    reader.end()
                return
            except StoreError as error:
                log_warning("chat %s cannot be watched: %s", feed.chat, error)
                await asyncio.sleep(PAUSE_S)
                continue
            for reader in feed.readers:
                reader.hear_of(head)

    def end(self) -> None:
        for feed in self._feeds.values():
            for reader in feed.readers:
                reader.end()
        self._remote.close()


T = TypeVar("T")
_LOOK_S = 30.0

_NUDGE_S = 0.05
"""Seconds to pause after a nudge: an event of this process arrives by itself a moment after the store has it."""


def watch(deps: Deps, chat: ChatId, after_seq: int) -> AsyncIterator[Envelope]:
    """Yield the events recorded behind `after_seq`, each once and in order, and live events from this moment on."""
    return _read_news(deps, deps.log.hub.subscribe(chat, after_seq))


async def _read_news(deps: Deps, reader: Subscription) -> AsyncIterator[Envelope]:
    looking = asyncio.create_task(_watch_store(deps, reader), name=f"look {reader.chat}")
    try:
        while True:
            if (envelope := await reader.get()) is None:
                await read_patiently(lambda: deps.log.catch_up(reader))
            else:
                yield envelope
    finally:
        looking.cancel()
        reader.close()


async def _watch_store(deps: Deps, reader: Subscription) -> None:
    """Look for events of other processes: they do not arrive by themselves."""
    while True:
        try:
            head = await read_patiently(lambda: deps.store.wait(reader.chat, reader.reached, _LOOK_S))
        except NotFound:  # deleted: the reader looks once more, and gets the error
            reader.nudge()
            return
        if head > reader.reached:
            reader.nudge()
            await asyncio.sleep(_NUDGE_S)


async def read_patiently(read: Callable[[], Awaitable[T]], patience_s: float = math.inf) -> T:
    """Read the store, again while it is unreachable. StoreError if that lasts too long, or no second try mends it."""
    until = time.monotonic() + patience_s
    while True:
        try:
            return await read()
        except (Damaged, NewerSchema):
            raise
        except StoreError as error:
            if time.monotonic() > until:
                raise
            log_warning("the store cannot be read, and is tried again: %s", error)
        await asyncio.sleep(PAUSE_S)
