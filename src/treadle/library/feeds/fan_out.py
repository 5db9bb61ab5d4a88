"""Fan-out of events to the readers of a chat: from the hub what happens in this process, from the store what others
write, and from its side table the live text of chats that another process runs. One watch per chat, however many read
it. Knows nothing of how it is sent."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from treadle.base.logs import log_warning
from treadle.base.types import ChatId
from treadle.chat.state import open_actions, status
from treadle.engine.deps import Deps
from treadle.errors import NotFound, StoreError
from treadle.library.feeds.reader import Feed, Reader
from treadle.library.feeds.remote_live import RemoteLive
from treadle.protocol import events as e
from treadle.protocol import wire
from treadle.protocol.events import Envelope

PAGE = 200
WAIT_S = 10.0
SETTLE_S = 0.01
"""Seconds to wait for the hub, which delivers an event of this process a moment after the store has it."""
PAUSE_S = 1.0


class Feeds:
    """`here` tells whether a chat is driven by this process."""

    def __init__(self, deps: Deps, backlog: int, here: Callable[[ChatId], bool]) -> None:
        self._deps = deps
        self._backlog = backlog
        self.dropped = 0
        """How often a slow reader was put back to the log."""
        self._feeds: dict[ChatId, Feed] = {}
        self._remote = RemoteLive(deps, self._feeds, here)

    @asynccontextmanager
    async def reading(self, chat: ChatId, after_seq: int, turn: int) -> AsyncIterator[Reader]:
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

    async def batches(
        self, reader: Reader, heartbeat_s: float, *, follow: bool = True
    ) -> AsyncIterator[list[Envelope]]:
        """What is to be sent, some at a time; an empty batch is a heartbeat. Ends when the server does, when the chat
        is deleted, or, without `follow`, at the end of the log."""
        announced = 0
        while True:
            if batch := self._drop_repeated_actions(reader.drain(), reader, announced):
                if any(isinstance(each.data, e.ActionRequired) for each in batch):
                    announced = reader.reached
                yield batch
                continue
            if reader.ended:
                return
            if not reader.live:
                at_end = await self._read_on(reader)
                if at_end and not follow:
                    if last_batch := reader.drain():
                        yield last_batch
                    return
                continue
            if announced != reader.reached and (waits := await self._waits(reader)) is not None:
                announced = reader.reached
                yield [waits]
                continue
            announced = reader.reached
            if not await reader.news(heartbeat_s):
                yield []

    def _drop_repeated_actions(self, batch: list[Envelope], reader: Reader, announced: int) -> list[Envelope]:
        """Drop a repeated ActionRequired: it is sent once for each position of the log."""
        is_announced = announced == reader.reached
        return [each for each in batch if not (is_announced and isinstance(each.data, e.ActionRequired))]

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
            local = hub.speaks(reader.chat)
            reader.go_live(list(hub.so_far(reader.chat)) if local else self._remote.so_far(reader.chat))
            return True
        if not records:
            await asyncio.sleep(SETTLE_S)
        return False

    async def _waits(self, reader: Reader) -> Envelope | None:
        """Return the ActionRequired of a chat that waits, if the reader is at the end of its log. A worker elsewhere
        sends it only to its own readers."""
        state = self._deps.log.peek(reader.chat)
        if state is None or state.head < reader.reached:
            try:
                state = await self._deps.log.load(reader.chat)
            except NotFound:  # deleted
                reader.end()
                return None
        if state.head != reader.reached or status(state) != "requires_action":
            return None
        return Envelope(0, reader.chat, self._deps.clock.now_ms(), e.ActionRequired(open_actions(state)))

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
        """Every reader is to leave."""
        for feed in self._feeds.values():
            for reader in feed.readers:
                reader.end()
        self._remote.close()
