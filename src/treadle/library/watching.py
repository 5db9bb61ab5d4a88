"""The endless stream of a chat's events, as they happen. To follow one command there is `following`."""

import asyncio
import math
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TypeVar

from treadle.base.logs import log_warning
from treadle.base.types import ChatId
from treadle.engine.deps import Deps
from treadle.engine.hub import Subscription
from treadle.errors import Damaged, NewerSchema, NotFound, StoreError
from treadle.protocol.events import Envelope

T = TypeVar("T")
LOOK_S = 30.0
PAUSE_S = 1.0
_SETTLE_S = 0.05
"""Seconds to pause after a nudge: an event of this process arrives by itself a moment after the store has it."""


def watch(deps: Deps, chat: ChatId, after_seq: int) -> AsyncIterator[Envelope]:
    """Yield the events recorded behind `after_seq`, each once and in order, and live events from this moment on."""
    return _news(deps, deps.log.hub.subscribe(chat, after_seq))


async def _news(deps: Deps, reader: Subscription) -> AsyncIterator[Envelope]:
    looking = asyncio.create_task(_look(deps, reader), name=f"look {reader.chat}")
    try:
        while True:
            if (envelope := await reader.get()) is None:
                await read_patiently(lambda: deps.log.catch_up(reader))
            else:
                yield envelope
    finally:
        looking.cancel()
        reader.close()


async def _look(deps: Deps, reader: Subscription) -> None:
    """Look for events of other processes: they do not arrive by themselves."""
    while True:
        try:
            head = await read_patiently(lambda: deps.store.wait(reader.chat, reader.reached, LOOK_S))
        except NotFound:  # deleted: the reader looks once more, and gets the error
            reader.nudge()
            return
        if head > reader.reached:
            reader.nudge()
            await asyncio.sleep(_SETTLE_S)


async def read_patiently(read: Callable[[], Awaitable[T]], patience_s: float = math.inf) -> T:
    """Read the store, again while it is unreachable. StoreError if that lasts too long, or no second try mends it."""
    until = time.monotonic() + patience_s
    while True:
        try:
            return await read()
        except (Damaged, NewerSchema):
            raise
        except StoreError as error:
            if time.monotonic() > until:
                raise
            log_warning("the store cannot be read, and is tried again: %s", error)
        await asyncio.sleep(PAUSE_S)
