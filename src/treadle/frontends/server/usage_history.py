"""The usage of models by day: counted from the log once, and updated from the store's list of changes. Reads nothing
until the first request; stores a few numbers per chat and day."""

import asyncio
from collections import defaultdict
from contextlib import suppress
from datetime import UTC, datetime

import msgspec

from treadle.base.types import ChatId
from treadle.errors import NotFound
from treadle.ports.store import Store
from treadle.protocol import events as e
from treadle.protocol import wire
from treadle.protocol.content import Usage
from treadle.protocol.envelope import Envelope

PAGE = 1_000
DAY_MS = 24 * 60 * 60 * 1_000
_COUNTED = ("assistant.message", "assistant.turn_start", "assistant.turn_retry", "session.model_call",
            "session.compaction_complete", "session.created", "session.options_changed")  # fmt: skip


class Spent(msgspec.Struct, frozen=True):
    usage: Usage = Usage()
    calls: int = 0
    model_ms: int = 0

    def __add__(self, other: "Spent") -> "Spent":
        return Spent(self.usage + other.usage, self.calls + other.calls, self.model_ms + other.model_ms)


class _Chat(msgspec.Struct):
    """How far a chat was read, and what was open there."""

    seq: int = 0
    model: str = ""
    began_ms: int = 0
    spent: dict[tuple[int, str], Spent] = msgspec.field(default_factory=dict)


class UsageHistory:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._chats: dict[str, dict[ChatId, _Chat]] = defaultdict(dict)
        self._after: dict[str, int] = defaultdict(int)
        self._reading = asyncio.Lock()

    async def days(self, owner: str, since_ms: int) -> list[tuple[str, str, Spent]]:
        """Day, model, and what was spent, oldest first."""
        async with self._reading:
            await self._catch_up(owner)
        total: dict[tuple[int, str], Spent] = defaultdict(Spent)
        for chat in self._chats[owner].values():
            for key, spent in chat.spent.items():
                if key[0] >= since_ms // DAY_MS:
                    total[key] += spent
        dates = {day: datetime.fromtimestamp(day * DAY_MS / 1_000, UTC).date().isoformat() for day, _ in total}
        return [(dates[day], model, total[day, model]) for day, model in sorted(total)]

    async def _catch_up(self, owner: str) -> None:
        while page := await self._store.changes(owner=owner, after_change=self._after[owner], limit=PAGE):
            for each in page:
                if each.summary.deleted:
                    self._chats[owner].pop(each.summary.chat, None)
                    self._after[owner] = each.change_number
                    continue
                chat_usage = self._chats[owner].setdefault(each.summary.chat, _Chat())
                if chat_usage.seq > each.summary.head:  # the store was put back to an earlier day
                    chat_usage = self._chats[owner][each.summary.chat] = _Chat()
                await self._read(each.summary.chat, chat_usage)
                self._after[owner] = each.change_number
            if len(page) < PAGE:
                return

    async def _read(self, id: ChatId, chat: _Chat) -> None:
        with suppress(NotFound):  # deleted meanwhile: its tombstone comes later in the list of changes
            while records := await self._store.read(id, chat.seq, PAGE):
                for record in records:
                    if record.type in _COUNTED:
                        _take(chat, wire.decode(id, record))
                chat.seq = records[-1].seq


def _take(chat: _Chat, envelope: Envelope) -> None:
    now = envelope.time_ms
    match envelope.data:
        case e.SessionCreated(options=options):
            chat.model = options.model
        case e.OptionsChanged(changes={"model": str(model)}):
            chat.model = model
        case e.TurnStart(model=model):
            chat.began_ms = now
            chat.model = model or chat.model
        case e.AssistantMessage(usage=usage):
            _add(chat, now, Spent(usage or Usage(), 1, max(0, now - chat.began_ms) if chat.began_ms else 0))
        case e.TurnRetry(usage=usage) | e.ModelCall(usage=usage) | e.CompactionComplete(usage=usage):
            _add(chat, now, Spent(usage))


def _add(chat: _Chat, now_ms: int, spent: Spent) -> None:
    key = now_ms // DAY_MS, chat.model
    chat.spent[key] = chat.spent.get(key, Spent()) + spent
