"""Everything that happens to a chat, as it happens, without end: for those who show a chat whoever drives it. To see
one command to its end there is `treadle.following`."""

import asyncio
from collections.abc import AsyncIterator

from treadle.engine.deps import Deps
from treadle.engine.hub import Subscription
from treadle.protocol.events import Envelope
from treadle.types import ChatId

LOOK_S = 30.0
_SETTLE_S = 0.05
"""What was written in this process comes by itself a moment after the store has it."""


def watch(deps: Deps, chat: ChatId, after: int) -> AsyncIterator[Envelope]:
    """What is recorded behind `after`, in order and none twice, and what is live from this moment on."""
    return _news(deps, deps.log.hub.subscribe(chat, after))


async def _news(deps: Deps, reader: Subscription) -> AsyncIterator[Envelope]:
    looking = asyncio.create_task(_look(deps, reader), name=f"look {reader.chat}")
    try:
        while True:
            envelope = await reader.get()
            if envelope is None:
                await deps.log.catch_up(reader)
            else:
                yield envelope
    finally:
        looking.cancel()
        reader.close()


async def _look(deps: Deps, reader: Subscription) -> None:
    """What other processes write does not come by itself."""
    while True:
        if await deps.store.wait(reader.chat, reader.reached, LOOK_S) > reader.reached:
            reader.nudge()
            await asyncio.sleep(_SETTLE_S)
