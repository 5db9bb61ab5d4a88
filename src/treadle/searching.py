"""Chats by words in them (U-04): in the title, the id, the project, or in what a person or the model said. The store
tells where words may stand; here it is looked whether they do."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import NamedTuple

from treadle.ports.store import ChatFilter, Listed, Store
from treadle.protocol import wire
from treadle.protocol.events import AssistantMessage, UserMessage
from treadle.types import ChatId

CHATS = 500
"""A page of the list that is walked through."""
FEW, MANY = 10, 1_000
"""Records that are read first, where the words most likely stand, and then."""
BEFORE, BEHIND = 30, 60
_SPOKEN = (UserMessage.TYPE, AssistantMessage.TYPE)


class Hit(NamedTuple):
    listed: Listed
    text: str = ""
    """The place where the words stand; empty: they are in the line of the chat."""


async def search(store: Store, which: ChatFilter, text: str) -> AsyncIterator[Hit]:
    """Those in which all the words of `text` stand, one beside the others, the newest first."""
    words = text.casefold().split()
    where = await store.said(words)
    async for listed in _every(store, which):
        line = listed.summary
        if _has(f"{line.title} {line.chat} {line.root} {line.model}", words):
            yield Hit(listed)
        elif line.chat in where and (said := await _said(store, line.chat, where[line.chat], words)):
            yield Hit(listed, said)


async def _every(store: Store, which: ChatFilter) -> AsyncIterator[Listed]:
    before = None
    while page := await store.list(which, limit=CHATS, before=before):
        for listed in page:
            yield listed
        before = page[-1].summary.updated_ms, page[-1].summary.chat


async def _said(store: Store, chat: ChatId, first: int, words: Sequence[str]) -> str:
    after, limit = first - 1, FEW
    while records := await store.read(chat, after, limit):
        after, limit = records[-1].seq, MANY
        if said := await asyncio.to_thread(_first, chat, records, words):
            return said
    return ""


def _first(chat: ChatId, records: Sequence[wire.Record], words: Sequence[str]) -> str:
    spoken = (wire.decode(chat, record).data for record in records if record.type in _SPOKEN)
    for event in spoken:
        if isinstance(event, UserMessage | AssistantMessage) and _has(event.content, words):
            at = event.content.casefold().find(words[0])
            return event.content[max(0, at - BEFORE) : at + BEHIND]
    return ""


def _has(text: str, words: Sequence[str]) -> bool:
    folded = text.casefold()
    return all(word in folded for word in words)
