"""The waiters for a chat, or for any chat. Appends of this store wake them at once; one poll for all waiters finds
those of others. Wake-ups are hints: a waiter that is woken too early looks again."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

from treadle.base.types import ChatId
from treadle.errors import NotFound

if TYPE_CHECKING:
    import asyncio

POLL_S = 0.1

ANY = ChatId("")  # Stands for all chats: its head is the number of the last change of any.

Heads = dict[ChatId, int]

DELETED = -1  # The head of a chat that does not exist any more.


class Watch:
    """The waiters of one event loop. `ask` looks for news of these chats and answers with their heads, or with nothing
    when no other connection has committed since the last call. `listen` is called when a wait begins."""

    def __init__(
        self,
        ask: Callable[[Sequence[ChatId]], asyncio.Future[Heads]],
        poll_s: float = POLL_S,
        *,
        listen: Callable[[], None] = lambda: None,
    ) -> None:
        self._ask, self._listen, self._poll_s = ask, listen, poll_s
        self._waiters: dict[ChatId, dict[asyncio.Future[int], int]] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None
        """Of the next poll. At any time there is either this or a poll under way, never both: else polls multiply."""
        self._asking, self._closed = False, False

    async def wait(self, chat: ChatId, after_head: int, timeout_s: float, now: Callable[[], Awaitable[int]]) -> int:
        """The head as soon as it is > `after_head`, or what `now` says when the time is up."""
        import asyncio

        waiter: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._waiters.setdefault(chat, {})[waiter] = after_head  # before looking: nothing is missed in between
        if self._loop is not waiter.get_loop():  # the requests of the previous loop are never answered
            self._loop, self._timer, self._asking = waiter.get_loop(), None, False
        self._poll_later()
        try:
            if (head := await now()) > after_head:
                return head
            self._listen()
            try:
                async with asyncio.timeout(timeout_s):
                    return await waiter
            except TimeoutError:
                return await now()
        finally:
            waiting = self._waiters.get(chat, {})
            waiting.pop(waiter, None)
            if not waiting:
                self._waiters.pop(chat, None)
            if not self._waiters and self._timer is not None:
                self._timer.cancel()
                self._timer = None

    def _poll_later(self) -> None:
        if self._loop is not None and self._timer is None and not self._asking and self._waiters and not self._closed:
            self._timer = self._loop.call_later(self._poll_s, self._poll)

    def tell(self, chat: ChatId, head: int) -> None:
        for waiter, after_head in self._waiters.get(chat, {}).items():
            if waiter.done():
                continue
            if head == DELETED:
                waiter.set_exception(NotFound(f"chat {chat} was deleted"))
            elif head > after_head:
                waiter.set_result(head)

    def poll_soon(self) -> None:
        """Something has changed here: let those who wait for any chat know soon."""
        if ANY in self._waiters and self._timer is not None:
            self._timer.cancel()
            self._poll()

    def close(self, error: Exception) -> None:
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for waiting in self._waiters.values():
            for waiter in waiting:
                if not waiter.done():
                    waiter.set_exception(error)

    def _poll(self) -> None:
        self._timer, self._asking = None, True
        self._ask(tuple(self._waiters)).add_done_callback(self._handle_answer)

    def _handle_answer(self, answer: asyncio.Future[Heads]) -> None:
        if answer.get_loop() is not self._loop:
            return
        self._asking = False
        # A failed poll brings no news; the next read reports the cause.
        if not answer.cancelled() and answer.exception() is None:
            for chat, head in answer.result().items():
                self.tell(chat, head)
        self._poll_later()
