"""A worker: takes chats that need one, drives them, gives them back. Any number of workers on any number of machines
may share a store; leases keep them apart. One task renews all leases of a worker. The callers choose the chats: a
command that takes the lease with it, or the pool, which takes any waiting chat."""

import asyncio
import contextlib
from collections.abc import Coroutine, Iterator
from typing import Any

from msgspec.structs import replace

from treadle.base.file_system import reach_faultpoint
from treadle.base.logs import log_error, log_warning
from treadle.base.types import ChatId, make_id
from treadle.chat.state import ChatState, build_summary, compute_status, find_wake_time, is_runnable, list_open_actions
from treadle.engine.deps import Deps
from treadle.engine.log import Take
from treadle.engine.loop import advance, derive_effect_free_events
from treadle.engine.recovery import close_calls, withdraw
from treadle.engine.tenure import BUSY_PAUSE_S, CancelScope, Tenure
from treadle.errors import ChatBusy, HeadMoved, LeaseLost, NotFound, StoreBusy, StoreError, TreadleError
from treadle.ports.store import LEASE_S, RENEW_S, Commit, Lease, Store
from treadle.protocol.events import ActionRequired

ENDING_S = 5.0  # how long calls that were told to end may take to say so


class Hold:
    """One lease of a chat while it is driven: by which task, and how to end that without ending the task. A chat whose
    lease ran out may be claimed again while its old hold still ends, so that a hold is removed only by itself."""

    __slots__ = ("ended", "lease", "resting", "scope", "task", "tenure")

    def __init__(self, lease: Lease, task: asyncio.Task[Any]) -> None:
        self.lease = lease
        self.task = task
        self.scope = CancelScope()
        self.tenure: Tenure | None = None
        self.resting = False  # True if the chat is held without being driven, because it failed a moment ago
        self.ended = asyncio.Event()

    @property
    def released(self) -> bool:
        """True if the lease was given back with the last append: a later command finds the chat free."""
        return self.tenure is not None and self.tenure.released


class Worker:
    """Drives chats, at most `concurrency` at once (0: any number). `drive` takes one by name, `claim` the one that has
    waited longest; a chat over the limit stays pending, for any worker with room (A-08)."""

    def __init__(self, deps: Deps, name: str = "", *, concurrency: int = 0) -> None:
        self._deps = deps
        self.name = name or make_id("w")
        self.concurrency = concurrency
        self.changed = asyncio.Event()  # set whenever a chat was let go of: there may be room for another
        self.has_pool = False  # True if a pool claims the waiting chats, in the order that is fair to all owners
        self._held: dict[ChatId, Hold] = {}
        self._ending: set[Hold] = set()  # holds whose lease a newer hold of this worker has, until their steps end
        self._lending: list[ChatId] = []  # chats that wait for others which they began: their places are free
        self._renewing: asyncio.Task[None] | None = None
        self._waking: dict[ChatId, asyncio.TimerHandle] = {}
        self._driving: dict[ChatId, asyncio.Task[None]] = {}
        self._called: set[ChatId] = set()  # chats that were to be driven while a drive of theirs was under way
        self._postponed: dict[ChatId, None] = {}  # chats that found no room here, oldest first
        self._taken: dict[ChatId, Lease] = {}  # leases that came with a command and wait for their drive
        self._lease_s = deps.renew_s * LEASE_S / RENEW_S
        self._awaiting: set[ChatId] = set()  # chats that another worker holds, to be looked at when its lease is over
        self._lease_times_s: dict[ChatId, float] = {}  # when each lease was last asked for and given or extended
        self._reserved = 0  # room for claims that are under way
        self._afterwards: set[asyncio.Task[None]] = set()  # what is left to do for chats that are not held any more
        self.leaving = False  # once set, nothing is taken any more, and what is driven is left at its next seam
        deps.log.states.is_driven = self.is_holding
        deps.log.on_news = self._drop_timer
        self._closing = False  # True if cancelled tasks close their calls: the next worker may be on another machine

    @property
    def store(self) -> Store:
        return self._deps.store

    @property
    def load(self) -> int:
        idle = {chat for chat, hold in self._held.items() if hold.resting} | set(self._lending)
        return len(self._held) - len(idle) + len(self._taken) + self._reserved

    @property
    def full(self) -> bool:
        return self.leaving or (self.concurrency > 0 and self.load >= self.concurrency)

    def is_holding(self, chat: ChatId) -> bool:
        return chat in self._held or chat in self._taken

    @contextlib.contextmanager
    def open_take(self, chat: ChatId) -> Iterator[Take | None]:
        """For a command that is to be carried on here: the lease comes in its commit, and the chat is driven when the
        block ends. None while the chat is driven, or when there is no room; its place is kept for the block."""
        hold = self._held.get(chat)
        if chat in self._taken or (hold is not None and not hold.released) or self.full:
            yield None
            return
        leases, asked_s = list[Lease](), self._deps.clock.monotonic()
        self._reserved += 1
        try:
            yield Take(self.name, lambda state: derive_effect_free_events(state, self._deps), leases.append)
        finally:
            self._reserved -= 1
            for lease in leases:
                self._taken[chat], self._lease_times_s[chat] = lease, asked_s
                self.start(chat)
            self._make_room()

    @contextlib.contextmanager
    def lend_place(self, chat: ChatId) -> Iterator[None]:
        """For a chat that is driven here and waits for others: as long as the block lasts it takes no place from them,
        so that any number of workers, however small, gets them done."""
        self._lending.append(chat)
        self._make_room()
        try:
            yield
        finally:
            self._lending.remove(chat)

    async def drive(self, chat: ChatId) -> None:
        """Take the chat and drive it as long as it has something to do. ChatBusy: another worker has it."""
        while chat in self._taken or not self.full:
            lease = await self.claim(chat)
            if lease is None:
                return
            hold = await self.hold(lease)
            # A command of this process is known here. One of another process found the chat held if it came before the
            # lease was given back, so that only this worker can take it up, unless both were one commit.
            if chat in self._taken:
                continue
            if chat in self._held:
                return
            is_known = hold.released and self._deps.log.peek(chat) is not None
            if not (self._is_due(chat) if is_known else await self._is_waiting(chat)):
                return
        if not self.leaving and not self.has_pool:
            self._postponed[chat] = None

    async def _is_waiting(self, chat: ChatId) -> bool:
        listed = await self._deps.store.get(chat)
        line = listed.summary
        is_due = line.runnable or 0 < line.wake_ms <= self._deps.clock.now_ms()
        return is_due and not line.archived and not listed.leased

    async def claim(self, chat: ChatId | None = None) -> Lease | None:
        """Claim a chat, for `hold`. A lease that was granted during a cancellation is given back."""
        if chat is not None and (taken_lease := self._taken.pop(chat, None)) is not None:
            return taken_lease
        store, lease, asked_s = self._deps.store, None, self._deps.clock.monotonic()
        self._reserved += 1
        try:
            claiming = asyncio.ensure_future(store.claim(self.name, chat, now_ms=self._deps.clock.now_ms()))
            try:
                lease = await asyncio.shield(claiming)
            except asyncio.CancelledError:
                with contextlib.suppress(TreadleError):
                    if (late_lease := await claiming) is not None:
                        await store.release(late_lease)
                raise
        finally:
            self._reserved -= 1
            if lease is None:
                self._make_room()
        if lease is not None:
            self._deps.log.hold(lease)
            self._lease_times_s[lease.chat] = asked_s
        return lease

    def _is_due(self, chat: ChatId) -> bool:
        state = self._deps.log.peek(chat)
        return state is not None and (is_runnable(state) or 0 < find_wake_time(state) <= self._deps.clock.now_ms())

    def start(self, chat: ChatId) -> asyncio.Task[None]:
        """Drive a chat in the background; the task that does so already, if there is one."""
        running = self._driving.get(chat)
        if running is None or running.done():
            running = asyncio.create_task(self._drive_quietly(chat), name=f"drive {chat}")
            self._driving[chat] = running
            running.add_done_callback(lambda task: self._forget(chat, task))
        else:
            self._called.add(chat)
        return running

    def _forget(self, chat: ChatId, task: asyncio.Task[None]) -> None:
        if self._driving.get(chat) is task:
            del self._driving[chat]
        self._make_room()  # it may have given a place to this drive, which did not use it
        was_called = chat in self._called
        self._called.discard(chat)
        if task.cancelled():
            return
        if (error := task.exception()) is not None:
            log_error("chat %s cannot go on: %s", chat, error)
        # A command may have come while this drive found nothing to do and ended: with the lease, or behind its last
        # look at the store.
        if chat in self._taken or (was_called and error is None and not self.leaving and self._is_due(chat)):
            self.start(chat)

    async def _drive_quietly(self, chat: ChatId) -> None:
        clock, head, until = self._deps.clock, -1, 0.0
        with contextlib.suppress(NotFound):
            while True:
                try:
                    return await self.drive(chat)
                except ChatBusy:  # its holder looks again when it lets go; it may have done so just now
                    self._look_later(chat)
                    if not await self._is_waiting(chat):
                        return
                except StoreBusy:  # the waiting command was acknowledged; perhaps no other worker looks for it
                    state = self._deps.log.peek(chat)
                    new_head = state.head if state is not None else 0
                    if self.leaving or (new_head <= head and clock.monotonic() >= until):
                        raise
                    if new_head > head:  # there was progress: try again, also if this process is stopped right now
                        head, until = new_head, clock.monotonic() + self._deps.renew_s
                    await clock.sleep(BUSY_PAUSE_S)

    async def hold(self, lease: Lease, *, rest_s: float = 0.0) -> Hold:
        """Drive a chat under its lease, which is held idle for `rest_s` first: no other worker takes the chat."""
        if self._renewing is None or self._renewing.done():
            self._renewing = asyncio.create_task(self._renew(), name="renew leases")
        task = asyncio.current_task()
        assert task is not None
        hold, chat = Hold(lease, task), lease.chat
        older = self._held.get(chat)
        self._held[chat] = hold
        self._cancel_waking(chat)  # the awaited event has come, or is looked at now
        try:
            with hold.scope:
                if older is not None:
                    await self._replace(older)
                await self._advance(hold, rest_s)
        except LeaseLost:
            self._withdraw(hold)
        except asyncio.CancelledError:
            await asyncio.shield(self._deps.store.release(lease))  # its own release may be what was cancelled
            raise
        else:
            if hold.scope.cancelled:
                self._withdraw(hold)
        finally:
            self._ending.discard(hold)
            hold.ended.set()
            if self._held.get(chat) is hold:
                del self._held[chat]
                if self._deps.on_chat_released is not None:
                    self._deps.on_chat_released(chat)
            self._make_room()
        return hold

    async def _replace(self, older: Hold) -> None:
        """The lease of an older hold of the chat ran out: its step must end before the chat is driven again."""
        self._ending.add(older)
        if not older.released:  # else it only keeps a snapshot
            older.scope.cancel()
        try:
            await asyncio.wait_for(older.ended.wait(), ENDING_S)
        except TimeoutError:
            log_warning("chat %s: a step whose lease ran out has not ended after %s s", older.lease.chat, ENDING_S)

    def _make_room(self) -> None:
        """A place may have become free: for the pool, or, without one, for a chat that found none. Called wherever
        the load falls, else a postponed chat would wait for ever."""
        self.changed.set()
        while self._postponed and not self.full:
            chat = next(iter(self._postponed))
            del self._postponed[chat]
            if self._deps.log.peek(chat) is None or self._is_due(chat):
                self.start(chat)
                return

    def _withdraw(self, hold: Hold) -> None:
        """Another worker has the chat now: processes of its calls here must not outlive their settlement."""
        if hold.tenure is not None:
            self._do_afterwards(withdraw(hold.tenure, self._deps), f"withdraw from {hold.lease.chat}")

    def _do_afterwards(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        task = asyncio.create_task(work, name=name)
        self._afterwards.add(task)
        task.add_done_callback(self._afterwards.discard)
        return task

    async def _release(self, lease: Lease) -> None:
        """Give a lease back; if the store is away, in the background: until then every claim finds the chat held."""
        try:
            await self._deps.store.release(lease)
        except StoreError:
            if self.leaving:
                raise
            self._do_afterwards(self._look_again(lease.chat, lease), f"release {lease.chat}")

    def _look_later(self, chat: ChatId) -> None:
        """The holder may be dead, or be this worker, which heard nothing of the grant: then the lease runs out."""
        if not self.has_pool and chat not in self._awaiting:
            self._awaiting.add(chat)
            look_task = self._do_afterwards(self._look_again(chat), f"look again at {chat}")
            look_task.add_done_callback(lambda _task: self._awaiting.discard(chat))

    async def _look_again(self, chat: ChatId, lease: Lease | None = None) -> None:
        """Drive a chat if it waits when `lease` is given back, or when the lease of another hold is over."""
        is_undriven: bool | None = None
        while is_undriven is None:
            await self._deps.clock.sleep(BUSY_PAUSE_S if lease is not None else self._lease_s / 2)
            with contextlib.suppress(StoreError):
                try:
                    if lease is not None:
                        await self._deps.store.release(lease)
                    elif (await self._deps.store.get(chat)).leased:
                        continue
                    is_undriven = not self.has_pool and await self._is_waiting(chat)
                except NotFound:
                    is_undriven = False
        if is_undriven:
            self.start(chat)

    async def _advance(self, hold: Hold, rest_s: float) -> None:
        lease, tenure = hold.lease, hold.tenure
        try:
            if rest_s:
                hold.resting = True
                try:
                    await self._deps.clock.sleep(rest_s)
                finally:
                    hold.resting = False
            reach_faultpoint("lease.claimed")
            state = await self._load_state(lease)
            tenure = hold.tenure = Tenure(lease, self._deps.log, state, lease_s=self._lease_s)
            tenure.leaving, tenure.lease_times_s = self.leaving, self._lease_times_s
            await advance(tenure, self._deps)
            await self._put_right(tenure)
            try:
                await self._deps.log.keep_snapshot(tenure.state)
            except StoreError as error:  # a cache: that it cannot be kept is no failure of the chat
                log_warning("no snapshot of chat %s was kept: %s", lease.chat, error)
        except asyncio.CancelledError:
            if self._closing and tenure is not None:
                await close_calls(tenure, self._deps)
            raise
        finally:
            if tenure is None or not tenure.released:
                reach_faultpoint("lease.before_release")
                await asyncio.shield(self._release(lease))
        state = self._deps.log.peek(lease.chat) or tenure.state  # an answer may have come since the lease went back
        if compute_status(state) == "requires_action":
            tenure.publish_live(ActionRequired(list_open_actions(state)))
            self._cancel_waking(lease.chat)
            if due_ms := find_wake_time(state):  # if this process ends before, the next claim acts on the deadline
                delay = max(0.0, (due_ms - self._deps.clock.now_ms()) / 1000) + 0.01
                self._waking[lease.chat] = asyncio.get_running_loop().call_later(delay, self._wake, lease.chat)

    async def _put_right(self, tenure: Tenure) -> None:
        """A chat with nothing to do, whose line in the store says otherwise, would be claimed again and again. If a
        command came in between, its line is the newer one and stays."""
        if tenure.released or is_runnable(tenure.state):
            return
        line = build_summary(tenure.state)
        store, chat = self._deps.store, line.chat
        stored_summary = (await store.get(chat)).summary
        if (stored_summary.runnable, stored_summary.wake_ms) != (line.runnable, line.wake_ms):
            if tenure.state.creation_lost:  # its owner and title are only in that line
                fields = ("head", "status", "runnable", "wake_ms")
                line = replace(stored_summary, **{field: getattr(line, field) for field in fields})
            with contextlib.suppress(HeadMoved):
                await store.append(Commit(chat, (), line, lease=tenure.lease, durable=False, release=True))
                tenure.released = True

    async def _load_state(self, lease: Lease) -> ChatState:
        """The state to begin from: the cached state if it is the whole log as of the lease, else the loaded one."""
        cached_state = self._deps.log.peek(lease.chat)
        if cached_state is not None and cached_state.head == lease.head:
            return cached_state
        if cached_state is not None and cached_state.head > lease.head:
            self._deps.log.forget(lease.chat)  # the log was put back
        return await self._deps.log.load(lease.chat)

    def _wake(self, chat: ChatId) -> None:
        self._waking.pop(chat, None)
        self.start(chat)

    def _drop_timer(self, chat: ChatId) -> None:
        """A chat that was answered, interrupted or deleted has no deadline to be woken for."""
        if chat in self._waking and ((state := self._deps.log.peek(chat)) is None or not find_wake_time(state)):
            self._cancel_waking(chat)

    def _cancel_waking(self, chat: ChatId) -> None:
        if timer := self._waking.pop(chat, None):
            timer.cancel()

    async def _renew(self) -> None:
        while True:
            await self._deps.clock.sleep(self._deps.renew_s)
            if not self._held and not self._taken:
                return self._lease_times_s.clear()
            # A lease that was given back with the last append is not lost, though its hold still ends.
            leases = [hold.lease for hold in self._held.values() if not hold.released]
            leases += self._taken.values()
            if not leases:
                continue
            asked_s = self._deps.clock.monotonic()
            try:
                renewed = set(await self._deps.store.renew(leases))
            except Exception as error:
                # Renewal goes on after any error: a store that is busy or full for a moment takes no lease away, and
                # every append is fenced anyway.
                log_warning("leases could not be renewed: %s", error)
                continue
            self._lease_times_s.clear()  # of the others nothing is sure
            self._lease_times_s.update({lease.chat: asked_s for lease in renewed})
            for hold in [*self._held.values()]:
                if hold.lease in leases and hold.lease not in renewed and not hold.released:
                    hold.scope.cancel()

    async def drain(self, grace_s: float) -> None:
        """Leave in good order: take nothing more, bring every step that is under way to its record, and give the
        leases back; then `close`. After `grace_s` model calls are left to the next worker, and commands to their
        supervisors, or, where the next worker may be on another machine, they are ended and their results recorded."""
        self.leave()
        if await self._wait_for_tasks(grace_s) and self._deps.shared:
            self._closing = True
            for hold in self._held.values():
                hold.scope.cancel()
            await self._wait_for_tasks(ENDING_S)
        await self.close()

    def leave(self) -> None:
        """From now on take nothing, and leave what is driven at its next seam."""
        self.leaving = True
        for chat, hold in self._held.items():
            if hold.tenure is not None:
                hold.tenure.leaving = True
            if hold.resting or chat in self._lending:
                hold.scope.cancel()

    async def _wait_for_tasks(self, timeout_s: float) -> bool:
        """Wait until no chat is driven any more. True if one still is after `timeout_s`."""
        tasks = self._list_tasks()
        return bool(tasks and (await asyncio.wait(tasks, timeout=timeout_s))[1])

    def _list_tasks(self) -> set[asyncio.Task[Any]]:
        return {*self._driving.values(), *(hold.task for hold in (*self._held.values(), *self._ending))}

    async def close(self) -> None:
        """Stop driving. Running steps are left as a crash would leave them, but the leases are given back."""
        self.leaving = True
        for timer in self._waking.values():
            timer.cancel()
        tasks = self._list_tasks() | self._afterwards
        if self._renewing is not None:
            tasks.add(self._renewing)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        while self._taken:
            await self._deps.store.release(self._taken.popitem()[1])
