"""Counts of chats by status, and what they cost: kept up to date from the store's list of changes, so that asking does
not read every chat."""

import asyncio
from collections import Counter

import msgspec

from treadle.ports.store import Store
from treadle.protocol.content import Usage
from treadle.protocol.views import ChatSummary, Status
from treadle.types import ChatId

PAGE = 1_000
_USD = 1_000_000_000
"""Money is summed in whole billionths, so that taking away what was added leaves nothing."""

Numbers = tuple[int, ...]
"""Chats, turns, tokens by kind, money, and how many of the chats hold estimates."""


class Total(msgspec.Struct, frozen=True):
    chats: int = 0
    turns: int = 0
    usage: Usage = Usage()


class ChatCounts:
    """Nothing is read before somebody asks; what is remembered of a chat is a few numbers."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lines: dict[ChatId, tuple[str, Status, Numbers]] = {}
        self._owners: dict[str, Numbers] = {}
        self._statuses: Counter[Status] = Counter()
        self._after = 0
        self._reading = asyncio.Lock()

    async def statuses(self) -> Counter[Status]:
        """Chats of all users by status."""
        await self._catch_up()
        return +self._statuses

    async def total(self, owner: str) -> Total:
        await self._catch_up()
        if owner not in self._owners:
            return Total()
        chats, turns, sent, got, cached, reasoning, usd, estimated = self._owners[owner]
        return Total(chats, turns, Usage(sent, got, cached, reasoning, usd / _USD, estimated > 0))

    async def _catch_up(self) -> None:
        async with self._reading:
            full = True
            while full:
                found = await self._store.changes(after=self._after, limit=PAGE)
                for each in found:
                    self._take(each.summary)
                    self._after = each.changed
                full = len(found) == PAGE

    def _take(self, said: ChatSummary) -> None:
        if said.chat in self._lines:
            owner, status, numbers = self._lines[said.chat]
            self._statuses[status] -= 1
            self._add(owner, tuple(-number for number in numbers))
        if said.deleted:
            self._lines.pop(said.chat, None)
            return
        numbers = _numbers(said)
        self._lines[said.chat] = said.owner, said.status, numbers
        self._statuses[said.status] += 1
        self._add(said.owner, numbers)

    def _add(self, owner: str, numbers: Numbers) -> None:
        before = self._owners.get(owner)
        self._owners[owner] = numbers if before is None else tuple(map(int.__add__, before, numbers))


def _numbers(said: ChatSummary) -> Numbers:
    usage = said.usage
    tokens = (usage.input, usage.output, usage.cached, usage.reasoning)
    return (1, said.turns, *tokens, round(usage.usd * _USD), int(usage.estimated))
