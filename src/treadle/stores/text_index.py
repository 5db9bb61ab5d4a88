"""What was said in chats, in parts that words can be looked up in (U-04). Shared by the stores on disk: each keeps an
index of parts, a cache that is caught up when somebody searches, so that appending costs nothing. Knows no SQL."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from treadle.errors import StoreError
from treadle.protocol.events import AssistantMessage, UserMessage
from treadle.protocol.wire import Record, decode
from treadle.stores.listing import folded
from treadle.types import ChatId

SPOKEN = (UserMessage.TYPE, AssistantMessage.TYPE)
PART = 32 * 1024
"""Characters after which another part begins."""
GROUP = 20
"""Chats that are taken in at once: what appends may have to wait for."""
PATIENCE_S = 5.0
"""So long a search waits for the index; then the chats that it lacks are read."""


class Behind(NamedTuple):
    """A chat of which the index has the records up to `after`, and not those up to `head`."""

    chat_no: int
    after: int
    head: int


class Part(NamedTuple):
    chat_no: int
    first: int
    last: int
    text: str


def said(record: Record) -> str:
    """What a person or the model says in a record, as it is compared; empty for all else."""
    if record.type not in SPOKEN:
        return ""
    event = decode(ChatId(""), record).data
    return folded(event.content) if isinstance(event, UserMessage | AssistantMessage) else ""


def wanted(words: Iterable[str]) -> list[str]:
    """Words as they are compared; what is no text is in none."""
    return [folded(word).encode(errors="replace").decode() for word in words]


def parts(chat: Behind, records: Iterable[Record]) -> Iterator[Part]:
    """The records, which may leave out what is not said, as parts without a gap from `after` to `head`."""
    first, texts, length = chat.after + 1, list[str](), 0
    for record in records:
        if length > PART:
            yield Part(chat.chat_no, first, record.seq - 1, "\n".join(texts))
            first, texts, length = record.seq, [], 0
        texts.append(said(record))
        length += len(texts[-1])
    yield Part(chat.chat_no, first, chat.head, "\n".join(texts))


class CatchingUp:
    """Brings an index up to date: once at a time, whoever asks, and to the end even if nobody waits for it."""

    def __init__(
        self,
        behind: Callable[[], Awaitable[Sequence[Behind]]],
        take_in: Callable[[Sequence[Behind]], Awaitable[None]],
    ) -> None:
        self._behind = behind
        self._take_in = take_in
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
        try:
            behind = await self._behind()
            for begin in range(0, len(behind), GROUP):
                await self._take_in(behind[begin : begin + GROUP])
        except StoreError:
            pass  # where nothing can be written, chats are read
