"""How long a stream may be silent (L-12). A sign of life costs one look at the clock: no timer is set anew for it."""

import asyncio
from types import TracebackType
from typing import Self

from treadle.errors import ModelError


class Patience:
    """Ends its block with a ModelError of kind `silence` when nothing was heard for too long."""

    def __init__(self, silence_s: float) -> None:
        self._silence_s = silence_s
        self._loop = asyncio.get_running_loop()
        self._timeout = asyncio.timeout(None)
        self._last = self._loop.time()
        self._timer = self._loop.call_at(self._last + silence_s, self._look)

    def heard(self) -> None:
        self._last = self._loop.time()

    def _look(self) -> None:
        due = self._last + self._silence_s
        if self._loop.time() < due:
            self._timer = self._loop.call_at(due, self._look)
        else:
            self._timeout.reschedule(due)

    async def __aenter__(self) -> Self:
        await self._timeout.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._timer.cancel()
        try:
            await self._timeout.__aexit__(kind, error, trace)
        except TimeoutError as late:
            raise ModelError("silence", f"The model sent nothing for {self._silence_s:g} seconds.") from late
