"""Chats by words in them (U-04): in the title, the id, the project, or in what a person or the model said. Reads logs
as they are; there is no index, so whoever asks says which chats are looked through."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import NamedTuple

from treadle.ports.store import Listed, Store
from treadle.protocol import wire
from treadle.protocol.events import AssistantMessage, UserMessage
from treadle.types import ChatId

PAGE = 1_000
BEFORE, BEHIND = 30, 60
_SPOKEN = (UserMessage.TYPE, AssistantMessage.TYPE)


class Hit(NamedTuple):
    listed: Listed
    text: str = ""
    """The place where the words stand; empty: they are in the line of the chat."""


async def search(store: Store, chats: Iterable[Listed], text: str) -> AsyncIterator[Hit]:
    """Those in which all the words of `text` stand, one beside the others, in the order in which they were given."""
    words = text.casefold().split()
    for listed in chats:
        line = listed.summary
        if _has(f"{line.title} {line.chat} {line.root} {line.model}", words):
            yield Hit(listed)
        elif said := await _said(store, line.chat, words):
            yield Hit(listed, said)


async def _said(store: Store, chat: ChatId, words: Sequence[str]) -> str:
    after = 0
    while records := await store.read(chat, after, PAGE):
        after = records[-1].seq
        if said := await asyncio.to_thread(_first, chat, records, words):
            return said
    return ""


def _first(chat: ChatId, records: Sequence[wire.Record], words: Sequence[str]) -> str:
    """Of each record the bytes are looked at first; what is said is read only where it may have the words."""
    for record in records:
        if record.type not in _SPOKEN or not _has(record.body.decode(errors="replace"), words):
            continue
        event = wire.decode(chat, record).data
        if isinstance(event, UserMessage | AssistantMessage) and _has(event.content, words):
            at = event.content.casefold().find(words[0])
            return event.content[max(0, at - BEFORE) : at + BEHIND]
    return ""


def _has(text: str, words: Sequence[str]) -> bool:
    folded = text.casefold()
    return all(word in folded for word in words)
