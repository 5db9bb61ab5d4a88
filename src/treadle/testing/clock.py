"""A clock that moves only when a test moves it. Knows nothing of chats."""

import asyncio
import heapq
import itertools


class ManualClock:
    """A clock that stands still until `advance`. A task that sleeps on this clock wakes when its time has come."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._wall_ms = float(now_ms)
        self._monotonic = 1_000.0
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._order = itertools.count()

    def now_ms(self) -> int:
        return int(self._wall_ms)

    def monotonic(self) -> float:
        return self._monotonic

    async def sleep(self, seconds: float) -> None:
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self._monotonic + seconds, next(self._order), woken))
        await woken

    def advance(self, seconds: float) -> None:
        self._monotonic += seconds
        self._wall_ms += seconds * 1000
        while self._sleepers and self._sleepers[0][0] <= self._monotonic:
            woken = heapq.heappop(self._sleepers)[2]
            if not woken.done():
                woken.set_result(None)

    def jump(self, seconds: float) -> None:
        """Move the wall clock alone, as a correction of the system's time does."""
        self._wall_ms += seconds * 1000
