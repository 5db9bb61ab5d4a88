"""Reading and writing one chat's log: load and fold, seal and append, commit and then publish. The only place where
events get a seq and where what was committed becomes visible."""

from collections.abc import Callable, Sequence

import msgspec

from treadle.base.file_system import faultpoint
from treadle.base.types import ChatId, Clock
from treadle.chat import snapshot
from treadle.chat.fold import fold_all
from treadle.chat.state import ChatState, runnable, summary
from treadle.chat.transitions import transition
from treadle.engine.hub import Hub, Subscription
from treadle.engine.relay import Relay
from treadle.engine.secrets import Redact, refuse_secrets, without_secrets
from treadle.engine.state_cache import StateCache
from treadle.errors import ChatBusy, HeadMoved, LeaseLost, TreadleError
from treadle.ports.model import Memo
from treadle.ports.observer import Observer
from treadle.ports.store import Commit, Lease, Remembered, Snapshot, Store
from treadle.protocol import wire
from treadle.protocol.commands import Command
from treadle.protocol.events import (
    Envelope,
    Event,
    Live,
    ModelNotice,
    PermissionCompleted,
    SessionCreated,
    TurnEnd,
    TurnStart,
)
from treadle.protocol.options import check_numbers

Ahead = Callable[[ChatState], Sequence[Event]]
"""Returns the next events of the rules that need no effect; empty when an effect or a wait comes next."""


Answer = Callable[[ChatState], Remembered]
"""Returns the answer to remember for a request, from the new state; stored in the same commit (A-04)."""


class Take(msgspec.Struct, frozen=True):
    """A worker that wants to go on with the chat at once: it takes the lease in the commit of the command, and what the
    rules say next rides along."""

    worker: str
    effect_free_events: Ahead
    on_lease: Callable[[Lease], None]


Sealed = tuple[Envelope, wire.Record]
"""An event with its place in the log, and its stored form."""

SNAPSHOT_EVERY = 200


class Log:
    """All chats of a store, as folded states. Keeps the newest states it has seen, so that a command costs its tail."""

    def __init__(
        self,
        store: Store,
        hub: Hub,
        clock: Clock,
        redact: Redact = str,
        *,
        relays: bool = False,
        observer: Observer | None = None,
    ) -> None:
        self.store = store
        self._redact = redact
        self._observer = observer or Observer()
        self.hub = hub
        self.clock = clock
        self.states = StateCache(self._forget_beside)
        self._with_jobs: set[ChatId] = set()
        self._snapshots: dict[ChatId, int] = {}
        self._epochs: dict[ChatId, int] = {}
        """The last lease of each chat that this process knows of; others may have had it since."""
        self.relay = Relay(store, self._epochs) if relays else None
        if self.relay is not None:
            hub.relay = self.relay.hear
        self.appended = 0
        """How many events this process has committed."""

    async def create(
        self,
        chat: ChatId,
        created: SessionCreated,
        *notices: ModelNotice,
        first: Sequence[Command] = (),
        answer: Answer | None = None,
    ) -> ChatState:
        """Create a chat and carry out its first commands in the same commit."""
        check_numbers(created.options)
        wire.encode_value(created)
        sealed, state = self._seal(ChatState(chat=chat), (created, *notices), 0)
        following, state = self._seal_commands(state, first)
        envelopes, records = _unzip(sealed + following)
        await self.store.create(summary(state), records, answer=answer(state) if answer is not None else None)
        self.appended += len(envelopes)
        self._epochs[chat] = 0
        self._publish(envelopes)
        return self._keep(state)

    def hold(self, lease: Lease) -> None:
        """Remember that this process had the lease."""
        self._epochs[lease.chat] = lease.epoch

    async def load(self, chat: ChatId) -> ChatState:
        """Return the current state: the cached state, a snapshot or the empty state, with the rest of the log folded
        onto it."""
        state = self.states.get(chat) or await self._from_snapshot(chat)
        records = await self.store.read(chat, after_seq=state.head)
        envelopes = [wire.decode(chat, record) for record in records]
        state = self._keep(fold_all(state, envelopes))
        # While this was read, more may have been appended and published here: a reader must begin behind that.
        return self.states.get(chat) or state

    async def refresh(self, state: ChatState) -> ChatState:
        """Fold what others appended meanwhile, and publish it to this process's readers."""
        records = await self.store.read(state.chat, after_seq=state.head)
        envelopes = [wire.decode(state.chat, record) for record in records]
        self._publish(envelopes)
        return self._keep(fold_all(state, envelopes))

    async def wrote(self, state: ChatState, lease: Lease) -> bool:
        """True if the log has records after this state that were written under this lease."""
        return any(record.epoch == lease.epoch for record in await self.store.read(state.chat, after_seq=state.head))

    async def catch_up(self, reader: Subscription) -> None:
        """Deliver the events of the log that the reader has not received, from any writer."""
        for record in await self.store.read(reader.chat, after_seq=reader.reached):
            reader.deliver(wire.decode(reader.chat, record))

    async def append(
        self,
        state: ChatState,
        events: Sequence[Event],
        *,
        lease: Lease | None,
        durable: bool,
        effect_free_events: Ahead | None = None,
        take: Take | None = None,
        answer: Answer | None = None,
    ) -> ChatState:
        """Append to the log that `state` is the fold of, and return the new state; HeadMoved or LeaseLost otherwise.
        The events that the rules derive from the new state (`effect_free_events`) are in the same commit, and a lease
        without further work is released in it. With `take`, the command also takes the lease for its worker; ChatBusy
        if another worker holds it."""
        sealed, new_state = self._seal(state, events, lease.epoch if lease else 0)
        if take is not None and not runnable(new_state):
            take = None
        epoch = lease.epoch if lease else 0
        if take is not None:
            epoch, effect_free_events = self._epochs[state.chat] + 1, take.effect_free_events
        if effect_free_events is not None:
            following, new_state, is_durable = self._following(new_state, effect_free_events, epoch)
            sealed += following
            durable = durable or is_durable
        envelopes, records = _unzip(sealed)
        faultpoint(f"append.before:{events[0].TYPE}")
        chat_summary = summary(new_state)
        new_lease = Lease(state.chat, epoch, take.worker, new_state.head) if take is not None else None
        is_finished = (lease or new_lease) is not None and not chat_summary.runnable
        drop_deltas = self.relay is not None and await self.relay.settle(state.chat, [one.data for one in envelopes])
        try:
            await self.store.append(
                Commit(
                    state.chat,
                    records,
                    chat_summary,
                    lease=lease,
                    durable=durable,
                    release=is_finished,
                    take=new_lease,
                    answer=answer(new_state) if answer is not None else None,
                    drop_deltas=drop_deltas,
                )
            )
        except HeadMoved:
            await self._check_shortened(state, lease)
            raise
        self.appended += len(records)
        self._observer.committed(state, envelopes)
        if take is not None and new_lease is not None:
            self.hold(new_lease)
            if not is_finished:
                take.on_lease(new_lease)
        faultpoint(f"append.after:{events[0].TYPE}")
        self._publish(envelopes)
        return self._keep(new_state)

    def _following(self, state: ChatState, next_events: Ahead, epoch: int) -> tuple[list[Sealed], ChatState, bool]:
        """Return the events of the rules that follow, the state after them, and whether any of them must be durable."""
        following: list[Sealed] = []
        durable = False
        while events := next_events(state):
            sealed, state = self._seal(state, events, epoch)
            following += sealed
            durable = durable or not isinstance(events[-1], (TurnStart, TurnEnd))
            if isinstance(events[-1], TurnStart):
                break  # a turn that has begun waits for its call
        return following, state, durable

    def memo(self, chat: ChatId, model: str) -> Memo:
        return self.states.memo(chat, model)

    async def _check_shortened(self, state: ChatState, lease: Lease | None) -> None:
        """Detect a log that is shorter than the known state: a database failed over, or a backup was restored. The
        cached state is then void, and the worker that wrote the lost records must write nothing more."""
        head = await self.store.head(state.chat)
        if head < state.head:
            self.forget(state.chat)
            if lease is not None:
                raise LeaseLost(f"the log of chat {state.chat} was put back to {head}; what came after it is lost")

    def forget(self, chat: ChatId) -> None:
        """Let the next look at the chat begin with the store."""
        self.states.forget(chat)
        self._with_jobs.discard(chat)

    def _forget_beside(self, chat: ChatId) -> None:
        self._snapshots.pop(chat, None)
        self._epochs.pop(chat, None)

    def with_jobs(self) -> list[ChatId]:
        """The chats of which this process knows that they have background commands."""
        return [*self._with_jobs]

    def peek(self, chat: ChatId) -> ChatState | None:
        """The newest state that this process has seen; others may have gone further."""
        return self.states.get(chat)

    async def execute(
        self,
        chat: ChatId,
        command: Command | Sequence[Command],
        on_state: Callable[[ChatState], None] | None = None,
        take: Take | None = None,
        answer: Answer | None = None,
    ) -> ChatState:
        """Carry out a command, or several as one, in one transaction: of many that race, each sees what the ones before
        it did. `seen` is told the state that the command meets. Tries what is known first: the append is fenced on it,
        and a refusal is never given from a state that may be old."""
        commands = command if isinstance(command, Sequence) else (command,)
        cached = self.states.get(chat)
        while True:
            state = cached or await self.load(chat)
            try:
                events = self._events(state, commands)
            except TreadleError:
                if cached is None:
                    raise
                cached = None
                continue
            if not events and cached is not None:
                cached = None
                continue
            if on_state is not None:
                on_state(state)
            if not events:
                if answer is not None:
                    await self.store.remember(answer(state))
                return state
            try:
                known_lease = take if chat in self._epochs else None
                return await self.append(state, events, lease=None, durable=True, take=known_lease, answer=answer)
            except HeadMoved:
                cached = None
            except ChatBusy:
                take = None

    async def recorded_answer(
        self, chat: ChatId, action: str, after: int = 0, upto: int = 0
    ) -> PermissionCompleted | None:
        """The last answer to an approval behind `after`, and up to `upto` if that is not 0."""
        for record in reversed(await self.store.read_types(chat, [PermissionCompleted.TYPE], after)):
            event = wire.decode(chat, record).data
            if record.seq <= (upto or record.seq) and isinstance(event, PermissionCompleted) and event.action == action:
                return event
        return None

    async def snapshot(self, state: ChatState) -> None:
        """Keep a snapshot when the log has grown enough since the last one; costs O(1) per event over time."""
        last = self._snapshots.get(state.chat, 0)
        if state.head - last >= max(SNAPSHOT_EVERY, last // 2):
            await self.store.save_snapshot(state.chat, Snapshot(state.head, snapshot.encode(state)))
            self._snapshots[state.chat] = state.head

    def live(self, chat: ChatId, event: Live) -> None:
        """Show something that is not recorded."""
        if self.hub.listened(chat):
            self.hub.publish(Envelope(0, chat, self.clock.now_ms(), wire.encodable(event)))

    async def _from_snapshot(self, chat: ChatId) -> ChatState:
        stored_snapshot = await self.store.load_snapshot(chat)
        state = snapshot.decode(stored_snapshot.body) if stored_snapshot is not None else None
        if stored_snapshot is not None and state is not None:
            self._snapshots[chat] = stored_snapshot.seq
            return state
        return ChatState(chat=chat)

    def _seal(self, state: ChatState, events: Sequence[Event], epoch: int) -> tuple[list[Sealed], ChatState]:
        """The events as they are recorded, each encoded once, and the state with them."""
        now = self.clock.now_ms()
        chat, redact = state.chat, self._redact
        sealed = [
            wire.encode_replacing(Envelope(seq, chat, now, without_secrets(event, redact), epoch))
            for seq, event in enumerate(events, state.head + 1)
        ]
        return sealed, fold_all(state, [envelope for envelope, _ in sealed])

    def _events(self, state: ChatState, commands: Sequence[Command]) -> Sequence[Event]:
        if len(commands) == 1:
            return self._made_of(state, commands[0])
        return [envelope.data for envelope, _ in self._seal_commands(state, commands)[0]]

    def _made_of(self, state: ChatState, command: Command) -> Sequence[Event]:
        wire.encode_value(command)  # a person's text is refused rather than changed
        refuse_secrets(command, self._redact)
        return transition(state, command)

    def _seal_commands(self, state: ChatState, commands: Sequence[Command]) -> tuple[list[Sealed], ChatState]:
        """Seal the events of these commands, each decided on the state after the one before it."""
        sealed: list[Sealed] = []
        for command in commands:
            batch, state = self._seal(state, self._made_of(state, command), 0)
            sealed += batch
        return sealed, state

    def _publish(self, envelopes: Sequence[Envelope]) -> None:
        if envelopes and self.hub.listened(envelopes[0].chat):
            for envelope in envelopes:
                self.hub.publish(envelope)

    def _keep(self, state: ChatState) -> ChatState:
        self.states.keep(state)
        if state.jobs:
            self._with_jobs.add(state.chat)
        elif self._with_jobs:
            self._with_jobs.discard(state.chat)
        return state


def _unzip(sealed: Sequence[Sealed]) -> tuple[list[Envelope], list[wire.Record]]:
    return [envelope for envelope, _ in sealed], [record for _, record in sealed]
