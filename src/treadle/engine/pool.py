"""Keeps a worker busy: claims chats that need a worker as long as there is room, regardless of which process wrote to
them.

Wake-ups are hints (law 8): the pool looks again whenever a chat was released, whenever the store reports a change, and
in any case twice a second, so that the claim itself finds a passed deadline (A-05) or an expired lease. A chat for
which a machine has no room is not claimed: it stays pending, for any other machine."""

import asyncio
import contextlib

from treadle.base.logs import log_error, log_warning
from treadle.base.types import ChatId
from treadle.engine.worker import Worker
from treadle.ports.store import Lease

POLL_S = 0.5
LULL_S = 0.02  # seconds of pause after a hint: hints may come as fast as others write, and claims must not
MAX_REST_S = 60.0
GRACE_S = 25.0  # a step may take so long to be recorded at the end: less than supervisors of processes usually allow


class WorkerPool:
    """`start` it, and it takes chats until `drain` or `close`; after either it is over."""

    def __init__(self, worker: Worker, *, poll_s: float = POLL_S) -> None:
        self.worker = worker
        self._poll_s = poll_s
        self._claiming: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._failures: dict[ChatId, int] = {}
        self._seen = 0  # the store's last change that was looked at

    def start(self) -> None:
        self.worker.has_pool = True
        if self._claiming is None:
            self._claiming = asyncio.create_task(self._claim_on(), name="claim chats")

    async def drain(self, grace_s: float = GRACE_S, hurry: asyncio.Event | None = None) -> None:
        """End in good order (fault 17): see `Worker.drain`. Once `hurry` is set, at once."""
        self.worker.leave()
        await self._stop_claiming()
        draining = asyncio.ensure_future(self.worker.drain(grace_s))
        hurrying = asyncio.ensure_future((hurry or asyncio.Event()).wait())
        try:
            await asyncio.wait((draining, hurrying), return_when=asyncio.FIRST_COMPLETED)
            if draining.done():
                draining.result()
        finally:
            for each in (draining, hurrying):
                each.cancel()
            await asyncio.gather(draining, hurrying, return_exceptions=True)
        await self.close()

    async def close(self) -> None:
        """End at once. Running steps are left as a crash would leave them, but the leases are given back."""
        await self._stop_claiming()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.worker.close()

    async def _stop_claiming(self) -> None:
        if self._claiming is not None:
            self._claiming.cancel()
            await asyncio.gather(self._claiming, return_exceptions=True)

    async def _claim_on(self) -> None:
        failures = 0
        while True:
            self.worker.changed.clear()
            try:
                lease = None if self.worker.full else await self.worker.claim()
                failures = 0
            except Exception as error:
                # A database that is restarted, or full, comes back; and every append is fenced anyway. After any other
                # error, too: a pool that stops claiming would leave every chat waiting without a visible reason.
                failures += 1
                log_warning("no chat could be claimed: %s", error)
                await asyncio.sleep(_compute_backoff(failures, self._poll_s))
                continue
            if lease is None:  # wait until it may be worth while to look again, but not longer than a poll
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self._poll_s):
                        await (self.worker.changed.wait() if self.worker.full else self._await_hint())
                continue
            task = asyncio.create_task(self._see_through(lease), name=f"chat {lease.chat}")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            await asyncio.sleep(0)  # from here on the worker counts it

    async def _await_hint(self) -> None:
        try:
            self._seen = await self.worker.store.wait_any(self._seen, self._poll_s)
        except Exception:
            await asyncio.sleep(self._poll_s)  # the next claim says what is the matter
        await asyncio.sleep(LULL_S)

    async def _see_through(self, lease: Lease) -> None:
        """Drive one chat. A chat that fails here would fail again at once: on the next claim its lease is held idle for
        a while first, so that the chat keeps no worker busy."""
        chat = lease.chat
        failures = self._failures.pop(chat, 0)
        try:
            await self.worker.hold(lease, rest_s=_compute_backoff(failures, self._poll_s) if failures else 0.0)
        except Exception as error:
            self._failures[chat] = failures + 1
            log_error("chat %s cannot go on: %s", chat, error)


def _compute_backoff(failures: int, first_s: float) -> float:
    return min(first_s * 2.0 ** min(failures - 1, 16), MAX_REST_S)
