"""Live text of chats that another process runs, from the store's side table (D-04, law 7): one query per poll for all
of them, and only while such a chat has a reader and an open turn."""

import asyncio
from collections.abc import Callable, Mapping

from treadle.base.logs import log_warning
from treadle.base.types import ChatId
from treadle.engine.deps import Deps
from treadle.errors import Damaged, StoreError
from treadle.library.feeds.reader import Feed
from treadle.ports.store import Reach
from treadle.protocol import events as e
from treadle.protocol import wire
from treadle.protocol.events import Envelope

POLL_S = 0.15
PAUSE_S = 1.0
_START: Reach = (0, 0, 0)


class RemoteLive:
    """`feeds` are the chats that are read here; `here` tells whether one is driven by this process, so that its text
    comes by the hub."""

    def __init__(self, deps: Deps, feeds: Mapping[ChatId, Feed], here: Callable[[ChatId], bool]) -> None:
        self._here = here
        self._deps = deps
        self._feeds = feeds
        self._reached: dict[ChatId, Reach] = {}
        self._said: dict[ChatId, list[Envelope]] = {}
        """By chat: the live envelopes of the turn that `_reached` is in."""
        self._polling: asyncio.Task[None] | None = None

    def begin(self) -> None:
        if self._polling is None or self._polling.done():
            self._polling = asyncio.create_task(self._poll(), name="live text from elsewhere")

    def so_far(self, chat: ChatId) -> list[Envelope]:
        return list(self._said.get(chat, ()))

    def forget(self, chat: ChatId) -> None:
        self._reached.pop(chat, None)
        self._said.pop(chat, None)

    def close(self) -> None:
        if self._polling is not None:
            self._polling.cancel()

    def _list_remote_chats(self) -> dict[ChatId, Reach]:
        """Chats in which something is under way, and not in this process."""
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
            reaches = self._list_remote_chats()
            if not reaches:
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
