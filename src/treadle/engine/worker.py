"""A worker: takes chats that need one, drives them, gives them back. Any number of workers on any number of machines
may share a store; leases keep them apart. One task renews all leases of a worker."""

import asyncio
import contextlib
import logging

from treadle.chat.state import ChatState, open_actions, status, summary
from treadle.engine.deps import Deps
from treadle.engine.lease import Tenure
from treadle.engine.log import Take
from treadle.engine.loop import advance, ahead
from treadle.errors import ChatBusy, LeaseLost, NotFound, StoreError, TreadleError
from treadle.faultpoint import faultpoint
from treadle.ports.store import Lease
from treadle.protocol.events import ActionRequired
from treadle.types import ChatId, new_id

POLL_S = 0.5


class Worker:
    """Drives chats. `drive` takes one by name; `run` takes whatever needs a worker until it is told to stop."""

    def __init__(self, deps: Deps, name: str = "") -> None:
        self._deps = deps
        self.name = name or new_id("w")
        self._held: dict[ChatId, tuple[Lease, asyncio.Task[None]]] = {}
        self._renewing: asyncio.Task[None] | None = None
        self._waking: dict[ChatId, asyncio.TimerHandle] = {}
        self._driving: dict[ChatId, asyncio.Task[None]] = {}
        self._tenures: dict[ChatId, Tenure] = {}
        self._taken: dict[ChatId, Lease] = {}
        """Leases that came with a command and wait for their drive."""

    def take(self, chat: ChatId) -> Take | None:
        """For a command that is to be carried on here: the lease comes in its commit. None while the chat is driven."""
        tenure = self._tenures.get(chat)
        if chat in self._taken or (chat in self._held and (tenure is None or not tenure.released)):
            return None
        return Take(self.name, lambda state: ahead(state, self._deps), lambda lease: self._took(lease))

    def _took(self, lease: Lease) -> None:
        self._taken[lease.chat] = lease
        self.start(lease.chat)

    async def drive(self, chat: ChatId) -> None:
        """Take the chat and drive it as long as it has something to do. ChatBusy: another worker has it."""
        while True:
            lease = await self._claim(chat)
            if lease is None:
                return
            if not await self._hold(lease):
                return
            if not self._due(chat):
                return  # commands of this process are seen here; those of others bring their own worker

    async def _claim(self, chat: ChatId | None = None) -> Lease | None:
        """Claim a chat. What was claimed in the moment of a cancellation is given back."""
        if chat is not None and (taken := self._taken.pop(chat, None)) is not None:
            return taken
        store = self._deps.store
        claiming = asyncio.ensure_future(store.claim(self.name, chat, now_ms=self._deps.clock.now_ms()))
        try:
            lease = await asyncio.shield(claiming)
            if lease is not None:
                self._deps.log.hold(lease)
            return lease
        except asyncio.CancelledError:
            with contextlib.suppress(TreadleError):
                if (lease := await claiming) is not None:
                    await store.release(lease)
            raise

    def _due(self, chat: ChatId) -> bool:
        state = self._deps.log.peek(chat)
        if state is None:
            return False
        line = summary(state)
        return line.runnable or 0 < line.wake_ms <= self._deps.clock.now_ms()

    def start(self, chat: ChatId) -> asyncio.Task[None]:
        """Drive a chat in the background; the task that does so already, if there is one."""
        running = self._driving.get(chat)
        if running is None or running.done():
            running = asyncio.create_task(self._drive_quietly(chat), name=f"drive {chat}")
            self._driving[chat] = running
            running.add_done_callback(lambda task: self._forget(chat, task))
        return running

    def _forget(self, chat: ChatId, task: asyncio.Task[None]) -> None:
        if self._driving.get(chat) is task:
            del self._driving[chat]
        if not task.cancelled() and (error := task.exception()) is not None:
            logging.getLogger("treadle").error("chat %s cannot go on: %s", chat, error)

    async def _drive_quietly(self, chat: ChatId) -> None:
        with contextlib.suppress(ChatBusy, NotFound):
            await self.drive(chat)

    async def run(self, stop: asyncio.Event, concurrency: int = 32) -> None:
        """Take chats until `stop` is set, then drain: what is under way ends at its next wait or end."""
        tasks: set[asyncio.Task[bool]] = set()
        failures: list[BaseException] = []

        def ended(task: asyncio.Task[bool]) -> None:
            tasks.discard(task)
            if not task.cancelled() and (error := task.exception()) is not None:
                logging.getLogger("treadle").error("%s failed: %s", task.get_name(), error)
                failures.append(error)

        while not stop.is_set():
            lease = None
            if failures:
                failures.clear()  # what fails at once would fail at once again: wait a moment
            elif len(tasks) < concurrency:
                lease = await self._claim()
            if lease is not None:
                task = asyncio.create_task(self._hold(lease), name=f"chat {lease.chat}")
                tasks.add(task)
                task.add_done_callback(ended)
                continue
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(POLL_S):
                    await stop.wait()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _hold(self, lease: Lease) -> bool:
        """Drive a chat under its lease; False when the lease was lost."""
        work = asyncio.create_task(self._advance(lease), name=f"advance {lease.chat}")
        self._held[lease.chat] = (lease, work)
        if self._renewing is None or self._renewing.done():
            self._renewing = asyncio.create_task(self._renew(), name="renew leases")
        try:
            await work
            return True
        except LeaseLost:
            return False
        except asyncio.CancelledError:
            if work.cancelled() and not _cancelling():
                return False  # the renewal found the lease gone
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)
            await asyncio.shield(self._deps.store.release(lease))  # for work that never began; else it is silent
            raise
        finally:
            self._held.pop(lease.chat, None)
            self._tenures.pop(lease.chat, None)

    async def _advance(self, lease: Lease) -> None:
        tenure: Tenure | None = None
        try:
            faultpoint("lease.claimed")
            tenure = self._tenures[lease.chat] = Tenure(lease, self._deps.log, await self._state(lease))
            await advance(tenure, self._deps)
            await self._snapshot(tenure.state)
        finally:
            if tenure is None or not tenure.released:
                faultpoint("lease.before_release")
                await asyncio.shield(self._deps.store.release(lease))
        state = tenure.state
        if status(state) == "requires_action":
            tenure.live(ActionRequired(open_actions(state)))
            self._wake_later(lease.chat, summary(state).wake_ms)

    async def _state(self, lease: Lease) -> ChatState:
        """The state to begin from: what is known, if it is the whole log as of the lease."""
        known = self._deps.log.peek(lease.chat)
        if known is not None and known.head > lease.head:
            self._deps.log.forget(lease.chat)  # the log was put back
        return known if known is not None and known.head == lease.head else await self._deps.log.load(lease.chat)

    async def _snapshot(self, state: ChatState) -> None:
        """A cache: that it cannot be kept is no failure of the chat."""
        try:
            await self._deps.log.snapshot(state)
        except StoreError as error:
            logging.getLogger("treadle").warning("no snapshot of chat %s was kept: %s", state.chat, error)

    def _wake_later(self, chat: ChatId, wake_ms: int) -> None:
        """A deadline that passes while this process lives is acted on here; otherwise by whoever claims next."""
        if earlier := self._waking.pop(chat, None):
            earlier.cancel()
        if wake_ms:
            delay = max(0.0, (wake_ms - self._deps.clock.now_ms()) / 1000) + 0.01
            self._waking[chat] = asyncio.get_running_loop().call_later(delay, self.start, chat)

    async def _renew(self) -> None:
        while self._held:
            await self._deps.clock.sleep(self._deps.renew_s)
            leases = [lease for lease, _ in self._held.values()]
            if not leases:
                return
            try:
                kept = set(await self._deps.store.renew(leases))
            except Exception as error:
                # Renewal goes on, whatever it is: a store that is busy or full for a moment takes no lease away, and
                # every append is fenced anyway.
                logging.getLogger("treadle").warning("leases could not be renewed: %s", error)
                continue
            for lease in leases:
                held = self._held.get(lease.chat)
                if lease not in kept and held is not None and held[0] == lease:
                    held[1].cancel()

    async def close(self) -> None:
        """Stop driving. What is under way is left as a crash would leave it, but its leases are given back."""
        for timer in self._waking.values():
            timer.cancel()
        tasks = [*self._driving.values(), *(task for _, task in self._held.values())]
        if self._renewing is not None:
            tasks.append(self._renewing)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        while self._taken:
            await self._deps.store.release(self._taken.popitem()[1])


def _cancelling() -> bool:
    current = asyncio.current_task()
    return current is not None and current.cancelling() > 0
