"""From code without `async` to an event loop that lives in a thread of its own. Knows nothing of what runs there."""

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

from treadle.errors import InvalidInput

T = TypeVar("T")


class LoopThread:
    """An event loop in a daemon thread."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="treadle-sync", daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Do the work in the loop and wait for it. What it raises is raised here; Ctrl-C here cancels it there."""
        if self._loop.is_closed():
            work.close()
            raise InvalidInput("this is closed; make a new one")
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def close(self) -> None:
        if self._loop.is_closed():
            return
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.close()
