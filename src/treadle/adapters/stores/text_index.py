"""The messages of chats, in parts that can be searched for words (U-04). A search updates a store's index of parts, a
cache, so that appending costs nothing. Knows no SQL."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple

from treadle.adapters.stores.packing import fold_case
from treadle.base.types import ChatId
from treadle.errors import StoreError
from treadle.protocol.events import AssistantMessage, UserMessage
from treadle.protocol.wire import Record, decode

SPOKEN = (UserMessage.TYPE, AssistantMessage.TYPE)
PART = 32 * 1024  # Characters after which another part begins.
GROUP = 20  # Chats that are indexed in one transaction; appends may have to wait for it.
PATIENCE_S = 5.0  # So long a search waits for the index; then the chats that it lacks are read.


class UnindexedRange(NamedTuple):
    """A chat of which the index has the records up to `after`, and not those up to `head`."""

    chat_no: int
    after_seq: int
    head: int


class Part(NamedTuple):
    chat_no: int
    first: int
    last: int
    text: str


def extract_text(record: Record) -> str:
    """Return the text of a person's or the model's message, folded for comparison; empty for other records."""
    if record.type not in SPOKEN:
        return ""
    event = decode(ChatId(""), record).data
    return fold_case(event.content) if isinstance(event, UserMessage | AssistantMessage) else ""


def fold_words(words: Iterable[str]) -> list[str]:
    """Return the words, folded for comparison; characters that cannot be encoded become `?`."""
    return [fold_case(word).encode(errors="replace").decode() for word in words]


def build_parts(chat: UnindexedRange, records: Iterable[Record]) -> Iterator[Part]:
    """The records, which may leave out what is not said, as parts without a gap from `after` to `head`."""
    first, texts, length = chat.after_seq + 1, list[str](), 0
    for record in records:
        if length > PART:
            yield Part(chat.chat_no, first, record.seq - 1, "\n".join(texts))
            first, texts, length = record.seq, [], 0
        texts.append(extract_text(record))
        length += len(texts[-1])
    yield Part(chat.chat_no, first, chat.head, "\n".join(texts))


class CatchingUp:
    """Brings an index up to date: one update at a time for all callers, to its end even if no caller waits for it."""

    def __init__(
        self,
        find_unindexed: Callable[[], Awaitable[Sequence[UnindexedRange]]],
        take_in: Callable[[Sequence[UnindexedRange]], Awaitable[None]],
    ) -> None:
        self._behind, self._take_in = find_unindexed, take_in
        self._task: asyncio.Task[None] | None = None

    async def wait(self) -> None:
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run())
        await asyncio.wait([self._task], timeout=PATIENCE_S)

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _run(self) -> None:
        with suppress(StoreError):  # where nothing can be written, chats are read
            unindexed = await self._behind()
            for begin in range(0, len(unindexed), GROUP):
                await self._take_in(unindexed[begin : begin + GROUP])
