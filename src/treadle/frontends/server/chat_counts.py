"""Counts of chats by status, and what they cost: kept up to date from the store's list of changes, so that asking does
not read every chat."""

import asyncio
from collections import Counter

import msgspec

from treadle.base.types import ChatId
from treadle.ports.store import Store
from treadle.protocol.content import Usage
from treadle.protocol.views import ChatSummary, Status

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
    """Usage and number of chats by user and by status. Reads nothing until the first request; stores a few numbers per
    chat."""

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
        chats, turns, input_tokens, output_tokens, cached, reasoning, usd, estimated = self._owners[owner]
        return Total(chats, turns, Usage(input_tokens, output_tokens, cached, reasoning, usd / _USD, estimated > 0))

    async def _catch_up(self) -> None:
        async with self._reading:
            full = True
            while full:
                page = await self._store.changes(after_change=self._after, limit=PAGE)
                for each in page:
                    self._take(each.summary)
                    self._after = each.change_number
                full = len(page) == PAGE

    def _take(self, summary: ChatSummary) -> None:
        if summary.chat in self._lines:
            owner, status, numbers = self._lines[summary.chat]
            self._statuses[status] -= 1
            self._add(owner, tuple(-number for number in numbers))
        if summary.deleted:
            self._lines.pop(summary.chat, None)
            return
        numbers = _numbers(summary)
        self._lines[summary.chat] = summary.owner, summary.status, numbers
        self._statuses[summary.status] += 1
        self._add(summary.owner, numbers)

    def _add(self, owner: str, numbers: Numbers) -> None:
        old_numbers = self._owners.get(owner)
        self._owners[owner] = numbers if old_numbers is None else tuple(map(int.__add__, old_numbers, numbers))


def _numbers(summary: ChatSummary) -> Numbers:
    usage = summary.usage
    tokens = (usage.input, usage.output, usage.cached, usage.reasoning)
    return (1, summary.turns, *tokens, round(usage.usd * _USD), int(usage.estimated))
