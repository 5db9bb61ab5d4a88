"""Ids, JSON, time and the location of Treadle's data: what every package shares. Knows nothing of chats."""

import os
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NewType, Protocol

if TYPE_CHECKING:
    from pathlib import Path

ChatId = NewType("ChatId", str)
CallKey = NewType("CallKey", str)
"""A call is keyed by turn and position, "3.0"; never by the provider's id, which may repeat (M-09)."""

JsonObject = Mapping[str, Any]

_LETTERS = b"0123456789abcdefghjkmnpqrstvwxyz" * 8
"""For every byte one of 32, each for as many; without letters that look like digits."""


def make_call_key(turn: int, position: int) -> CallKey:
    return CallKey(f"{turn}.{position}")


def make_id(prefix: str) -> str:
    """A random, sortable-by-nothing id that is easy to type: `c_` and 16 letters or digits."""
    return f"{prefix}_{os.urandom(16).translate(_LETTERS).decode()}"


def make_chat_id() -> ChatId:
    return ChatId(make_id("c"))


HOME_VARIABLE = "TREADLE_HOME"


def get_home(environment: Mapping[str, str]) -> "Path":
    """$TREADLE_HOME, or the platform's folder for such data."""
    from pathlib import Path

    if folder := environment.get(HOME_VARIABLE, ""):
        return Path(folder).expanduser().absolute()
    from platformdirs import user_data_path

    return user_data_path("treadle")


class Clock(Protocol):
    """Time, injected. The rules never see it; the engine passes it to them as data."""

    def now_ms(self) -> int:
        """Since 1970."""
        ...

    def monotonic(self) -> float: ...

    async def sleep(self, seconds: float) -> None: ...


class SystemClock:
    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        import asyncio  # here, because it is most of the start-up time of a command that never sleeps

        await asyncio.sleep(seconds)
