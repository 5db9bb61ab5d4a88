"""Ids, JSON and time: the few types every room shares. Knows nothing of chats."""

import os
import time
from collections.abc import Mapping
from typing import Any, NewType, Protocol

ChatId = NewType("ChatId", str)
CallKey = NewType("CallKey", str)
"""A call is keyed by turn and position, "3.0"; never by the provider's id, which may repeat (M-09)."""

JsonObject = Mapping[str, Any]

_LETTERS = b"0123456789abcdefghjkmnpqrstvwxyz" * 8
"""For every byte one of 32, each for as many; without letters that look like digits."""


def call_key(turn: int, position: int) -> CallKey:
    return CallKey(f"{turn}.{position}")


def new_id(prefix: str) -> str:
    """A random, sortable-by-nothing id that is easy to type: `c_` and 16 letters or digits."""
    return f"{prefix}_{os.urandom(16).translate(_LETTERS).decode()}"


def new_chat_id() -> ChatId:
    return ChatId(new_id("c"))


class Clock(Protocol):
    """Time, injected. The rules never see it; the engine passes it to them as data."""

    def now_ms(self) -> int:
        """Wall-clock time in milliseconds since 1970."""
        ...

    def monotonic(self) -> float: ...

    async def sleep(self, seconds: float) -> None: ...


class SystemClock:
    """The machine's own clock."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        import asyncio  # here, because it is most of the start-up time of a command that never sleeps

        await asyncio.sleep(seconds)
