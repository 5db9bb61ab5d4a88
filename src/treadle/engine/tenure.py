"""A worker's tenure of a chat: its lease, and the state it writes from.

Why two ways to write. A decision of the rules (`append`) holds only for the state it was decided on: if a command was
legally added meanwhile, the decision is discarded and made anew. An effect that really happened (`record`) is true
regardless of added commands: it is appended after them and never repeated. Both are refused for good once a newer epoch
exists: LeaseLost passes through everything here, and the worker writes nothing more."""

import asyncio
import math
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from msgspec.structs import replace

from treadle.base.types import CallKey
from treadle.chat.state import ChatState, is_runnable
from treadle.engine.hub import SoFar
from treadle.engine.log import Ahead, Log
from treadle.errors import Damaged, HeadMoved, LeaseLost, NewerSchema, StoreBusy, StoreError
from treadle.ports.model import Memo
from treadle.ports.store import LEASE_S, Lease
from treadle.protocol.content import Usage
from treadle.protocol.events import Event, ExecutionComplete, ExecutionOutput, Live

T = TypeVar("T")
WATCH_S = 5.0
OUTPUT_KEPT = 16_000  # characters of a running call's output
BUSY_PAUSE_S = 0.2
DOUBT_S = 1.0  # how long a decision with a cost is tried again: its commit may have happened, its answer be lost
UNWATCHED_S = 0.03  # an effect is not watched for an interrupt before: after a shorter one, the next append sees it


class Stopped:
    """The result of an effect whose run was interrupted."""


STOPPED: Final = Stopped()


class CancelScope:
    """A block that others may cancel: the task goes on behind it, unless it was cancelled itself meanwhile."""

    __slots__ = ("_before", "_open", "_task", "cancelled")

    def __enter__(self) -> Self:
        task = asyncio.current_task()
        assert task is not None
        self._task = task
        self._before = task.cancelling()
        self._open = True
        self.cancelled = False
        return self

    def cancel(self) -> None:
        if self._open:
            self._open = False
            self.cancelled = True
            self._task.cancel()

    def close(self) -> None:
        """Ignore later calls of `cancel`: the rest of the block runs to its end."""
        self._open = False

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        self._open = False
        if not self.cancelled:
            return False
        return self._task.uncancel() == self._before and kind is asyncio.CancelledError


class Tenure:
    __slots__ = (
        "_lease_s", "_log", "_outputs", "_writing", "ahead", "lease", "lease_times_s", "leaving", "released",
        "reserved", "state", "under_way",
    )  # fmt: skip

    def __init__(self, lease: Lease, log: Log, state: ChatState, *, lease_s: float = LEASE_S) -> None:
        self.lease = lease
        self._lease_s = lease_s
        self.lease_times_s = {lease.chat: math.inf}  # when the worker last asked for each of its leases, and got it
        self.state = state
        self.released = False  # True if the last append gave the lease back, because it left nothing to do
        self.ahead: Ahead | None = None  # returns the events that are committed with every append: one commit a step
        self.leaving = False  # True if the worker is about to exit: running effects are recorded, and no new one begins
        self.under_way: ChatState | None = None
        """The state in which an open effect began. `state` may have its end already, by the next worker of the chat."""
        self.reserved: list[Usage] = []  # estimated usage of model calls inside tool calls, until the real is recorded
        self._log = log
        self._outputs: dict[CallKey, str] = {}  # the end of the output of running calls: kept if the call is stopped
        self._writing = asyncio.Lock()

    async def confirm(self) -> None:
        """Before an effect without an append before it. LeaseLost: another worker has the chat and acts on what was
        read, however late the answer came."""
        chat = self.lease.chat
        for _ in range(3):  # the answer may come when the lease is over again
            if (now_s := self._log.clock.monotonic()) <= self.lease_times_s.get(chat, 0.0) + self._lease_s / 2:
                return
            if not await self._log.store.renew([self.lease]):
                raise LeaseLost(f"another worker drives chat {chat}")
            self.lease_times_s[chat] = now_s

    async def append(self, *events: Event, durable: bool = True, patience_s: float = 0.0) -> None:
        """Record a decision, for `patience_s` at a busy store. HeadMoved: the state is fresh, decide again."""
        async with self._writing:
            try:
                await self._append_patiently(events, durable, patience_s)
            except HeadMoved:
                self.state = await self._log.refresh(self.state, self.lease)
                raise
            except StoreError:
                raise
            except Exception:
                # A fault of ours beside the commit. Only this tenure writes under its epoch: what it finds behind its
                # head was written by this very append.
                if not await self._log.has_written(self.state, self.lease):
                    raise
                self.state = await self._log.refresh(self.state, self.lease)
            self.released = not is_runnable(self.state)

    async def _append_patiently(self, events: tuple[Event, ...], durable: bool, patience_s: float) -> None:
        clock = self._log.clock
        until, lost_answer, conflict = clock.monotonic() + patience_s, False, None
        while True:
            try:
                if lost_answer and await self._log.has_written(self.state, self.lease):  # the commit had happened
                    self.state = await self._log.refresh(self.state, self.lease)
                    return
                if conflict is not None:
                    raise conflict
                self.state = await self._log.append(
                    self.state, events, lease=self.lease, durable=durable, effect_free_events=self.ahead
                )
                return
            except (HeadMoved, LeaseLost) as error:  # perhaps by that commit: it was still under way at the last look
                if not lost_answer or conflict is not None:
                    raise
                conflict = error
            except StoreBusy:
                if clock.monotonic() >= until:
                    raise
                lost_answer = True
                await clock.sleep(BUSY_PAUSE_S)

    async def record(self, *events: Event, durable: bool = True) -> None:
        """Record events behind those that were added meanwhile, and try once more after a fault of ours. A store that
        is busy is asked again for as long as the lease lives: else an outcome that is known would become unknown."""
        struck = False
        while True:
            try:
                return await self.append(*events, durable=durable, patience_s=self._lease_s)
            except HeadMoved:
                continue
            except StoreError:
                raise
            except Exception:
                if struck:
                    raise
                struck = True

    def publish_live(self, event: Live) -> None:
        self._log.publish_live(self.state.chat, event)

    def show_output(self, call: CallKey, text: str) -> None:
        self._outputs[call] = (self._outputs.get(call, "") + text)[-OUTPUT_KEPT:]
        self.publish_live(ExecutionOutput(call, text))

    def add_outputs(self, events: tuple[Event, ...]) -> tuple[Event, ...]:
        """The same events; a call that is closed because the run was stopped keeps what it had written."""

        def add_output(event: Event) -> Event:
            if not isinstance(event, ExecutionComplete) or event.synthetic != "interrupted":
                return event
            output = self._outputs.get(event.call, "").rstrip("\n")
            return replace(event, result=f"{output}\n[{event.error}]") if output else event

        return tuple(map(add_output, events))

    def speak(self, so_far: SoFar | None) -> None:
        self._log.hub.speak(self.state.chat, so_far)

    @property
    def has_reader(self) -> bool:
        return self._log.hub.has_reader(self.state.chat)

    def get_memo(self, model: str) -> Memo:
        return self._log.states.get_memo(self.state.chat, model)

    async def run_unless_stopped(
        self, effect: Coroutine[Any, Any, T], lasts: Callable[[], None] | None = None
    ) -> T | Stopped:
        """Carry out an effect, and cancel it as soon as an interrupt of any writer is in the log. Of an idle
        chat only a compaction can be interrupted. `lasts` is called unless the effect is over soon."""
        self.under_way = self.state
        if self.state.run is None and not self.state.compacting:
            if lasts is not None:
                lasts()
            outcome = await effect
            self.under_way = None
            return outcome
        watching: list[asyncio.Task[None]] = []
        of_run = self.state.run is not None
        with CancelScope() as scope:

            def watch() -> None:
                if lasts is not None:
                    lasts()
                watching.append(asyncio.create_task(self._interrupt(of_run=of_run)))
                watching[0].add_done_callback(lambda task: None if task.cancelled() else scope.cancel())

            timer = asyncio.get_running_loop().call_later(UNWATCHED_S, watch)
            try:
                outcome = await effect
                if not scope.cancelled:
                    self.under_way = None
                    return outcome
            except Exception:
                if not scope.cancelled:
                    raise
            finally:
                scope.close()
                timer.cancel()
                for task in watching:
                    task.cancel()
                    await asyncio.gather(task, return_exceptions=True)
        watching[0].result()
        return STOPPED

    async def _interrupt(self, *, of_run: bool) -> None:
        """Return when the run is being interrupted, or is over; without a run, when the compaction is."""
        while True:
            state = self.state
            compaction_ended = not state.compacting or state.compaction_stopped
            if (state.run is None or state.run.interrupting) if of_run else compaction_ended:
                return
            try:
                head = await self._log.store.wait(state.chat, state.head, WATCH_S)
                if head > state.head:
                    async with self._writing:
                        if head > self.state.head:
                            self.state = await self._log.refresh(self.state, self.lease)
            except (Damaged, LeaseLost, NewerSchema):
                raise
            except StoreError:  # the effect goes on while the store is away: every append is fenced
                await self._log.clock.sleep(BUSY_PAUSE_S)
