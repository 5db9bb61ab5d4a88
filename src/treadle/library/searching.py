"""Chats by words (U-04): in the title, the id, the project, or in messages, where the store says they may stand."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import NamedTuple

from treadle.base.types import ChatId
from treadle.ports.store import ChatFilter, Listed, Store
from treadle.protocol import wire
from treadle.protocol.events import AssistantMessage, UserMessage

CHATS = 500  # A page of the list that is walked through.
FEW, MANY = 10, 1_000  # Records that are read first, where the words most likely stand, and then.
BEFORE, BEHIND = 30, 60
_SPOKEN = (UserMessage.TYPE, AssistantMessage.TYPE)


class Hit(NamedTuple):
    listed: Listed
    text: str = ""  # The place where the words stand; empty: they are in the line of the chat.


async def search_chats(store: Store, chat_filter: ChatFilter, text: str) -> AsyncIterator[Hit]:
    """Those in which all the words of `text` stand, one beside the others, the newest first."""
    words = text.casefold().split()
    first_seqs = await store.search_text(words)
    cursor = None
    while page := await store.list(chat_filter, limit=CHATS, cursor=cursor):
        for listed in page:
            line, first_seq = listed.summary, first_seqs.get(listed.summary.chat, 0)
            if _contains_words(f"{line.title} {line.chat} {line.root} {line.model}", words):
                yield Hit(listed)
            elif first_seq and (excerpt := await _find_text(store, line.chat, first_seq, words)):
                yield Hit(listed, excerpt)
        cursor = page[-1].summary.updated_ms, page[-1].summary.chat


async def _find_text(store: Store, chat: ChatId, first: int, words: Sequence[str]) -> str:
    after_seq, limit = first - 1, FEW
    while records := await store.read(chat, after_seq, limit):
        after_seq, limit = records[-1].seq, MANY
        if excerpt := await asyncio.to_thread(_find_excerpt, chat, records, words):
            return excerpt
    return ""


def _find_excerpt(chat: ChatId, records: Sequence[wire.Record], words: Sequence[str]) -> str:
    for event in (wire.decode(chat, record).data for record in records if record.type in _SPOKEN):
        if isinstance(event, UserMessage | AssistantMessage) and _contains_words(event.content, words):
            at = event.content.casefold().find(words[0])
            return event.content[max(0, at - BEFORE) : at + BEHIND]
    return ""


def _contains_words(text: str, words: Sequence[str]) -> bool:
    folded = text.casefold()
    return all(word in folded for word in words)
