"""Reading and writing one chat's log: load and fold, seal and append, commit and then publish. The only place where
events get a seq, where secrets are removed from them (S-11) and where committed events become visible."""

from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from treadle.base.file_system import reach_faultpoint
from treadle.base.types import ChatId, Clock
from treadle.chat import snapshot
from treadle.chat.fold import fold_all
from treadle.chat.history import weigh
from treadle.chat.state import ChatState, build_summary, is_runnable
from treadle.chat.transitions import transition
from treadle.engine.hub import Hub, Relay, Subscription
from treadle.errors import ChatBusy, HeadMoved, InvalidInput, LeaseLost, TreadleError
from treadle.ports.model import Memo
from treadle.ports.observer import Observer
from treadle.ports.store import Commit, Lease, Remembered, Snapshot, Store
from treadle.protocol import events as e
from treadle.protocol import wire
from treadle.protocol.commands import Apply, Command
from treadle.protocol.content import Entry
from treadle.protocol.events import Envelope, Event
from treadle.protocol.options import check_numbers

Redact = Callable[[str], str]
Ahead = Callable[[ChatState], Sequence[Event]]
"""Returns the next events of the rules that need no effect; empty when an effect or a wait comes next."""
Answer = Callable[[ChatState], Remembered]
"""Returns the answer to remember for a request, from the new state; stored in the same commit (A-04)."""
Sealed = tuple[Envelope, wire.Record]  # an event with its place in the log, and its stored form
SNAPSHOT_EVERY = 200
MAX_WEIGHT = 64 << 20  # of cached states in bytes, by the length of texts; the overhead of objects is not counted
EMPTY_WEIGHT = 32 << 10  # of a chat without messages: its state, and what is kept of it elsewhere

TEXTS: dict[type[Event], tuple[str, ...]] = {
    **dict.fromkeys((e.UserMessage, e.QueueChanged, e.AssistantMessage), ("content",)),
    e.TaskComplete: ("summary",),
    **dict.fromkeys((e.SessionError, e.TurnRetry), ("message",)),
    e.ModelCall: ("text", "error"),
    e.CompactionComplete: ("summary", "error"),
    e.ExecutionComplete: ("result", "error", "result_summary"),
    e.CheckCompleted: ("result", "result_summary"),
    e.PermissionRequested: ("shown",),
    e.PermissionCompleted: ("feedback",),
    e.UserInputRequested: ("question",),
    e.UserInputCompleted: ("answer",),
    **dict.fromkeys((e.TitleChanged, e.SubagentCompleted), ("title",)),
    **dict.fromkeys((e.ModelNotice, e.SandboxNotice, e.GuardNotice), ("text",)),
    e.JobStarted: ("command",),
    **dict.fromkeys((e.Undone, e.Redone, e.ChangesKept), ("error",)),
    **dict.fromkeys((e.WorkspaceConflict, e.SessionCreated), ()),
}
"""The texts of events that may contain a secret. The arguments of calls stay as they are: they are the input of a tool,
and a model that has never seen a secret cannot have put one there."""


def refuse_secrets(command: Command, redact: Redact) -> None:
    """A person's own text goes to the letter into arguments and the log: one with a secret is not taken."""
    if isinstance(command, Apply):
        text = command.race.task if command.race else command.command or command.patch or command.content
        if text is not None and redact(text) != text:
            raise InvalidInput("The content holds a secret, which would stand in the log; write that file yourself.")


def redact_secrets(event: Event, redact: Redact) -> Event:
    """The event as it may be recorded; the same object where there is nothing to take out."""
    names = TEXTS.get(type(event))
    if names is None or redact is str:
        return event
    changes: dict[str, Any] = {}
    for name in names:
        text = getattr(event, name)
        if text and (redacted := redact(text)) is not text and redacted != text:
            changes[name] = redacted
    if isinstance(event, (e.Restored, e.WorkspaceConflict)) and event.conflicts:
        changes["conflicts"] = tuple(
            replace(each, reason=redact(each.reason), diff=redact(each.diff)) for each in event.conflicts
        )
    if isinstance(event, e.SessionCreated):
        prompts = ("system_prompt", "instructions", "agent_prompt")
        options = replace(event.options, **{name: redact(getattr(event.options, name)) for name in prompts})
        if options != event.options:
            changes["options"] = options
    return replace(event, **changes) if changes else event


class CachedState(msgspec.Struct):
    state: ChatState
    weight: int = EMPTY_WEIGHT
    text_weight: int = 0  # the weight of the entries up to `last`
    count: int = 0
    last: Entry | None = None
    memos: dict[str, Memo] = msgspec.field(default_factory=dict)

    def weigh(self) -> int:
        """Costs what was added since the last time; after a cut, everything."""
        history = self.state.history
        if self.count and not (self.count <= len(history) and history[self.count - 1] is self.last):
            self.text_weight = self.count = 0
        self.text_weight += sum(weigh(item) for item in history.slice(self.count))
        self.count, self.last = len(history), history.last
        options = self.state.options
        prompts = len(options.system_prompt) + len(options.instructions) + len(options.agent_prompt)
        pictures = sum(len(data) for memo in self.memos.values() for data in memo.pictures.values())
        self.weight = EMPTY_WEIGHT + prompts + pictures + self.text_weight * (1 + len(self.memos))
        return self.weight


class StateCache:
    """The newest states of chats that this process has seen, and the request bytes made of them, so that a command
    reads only the tail of a log. Bounded by weight: a few long chats weigh more than thousands of short ones. A chat
    that is driven here stays; any other is read again from the store when it is needed."""

    def __init__(self, forgotten: Callable[[ChatId], None]) -> None:
        self._entries: OrderedDict[ChatId, CachedState] = OrderedDict()
        self._forgotten = forgotten
        self.weight = 0
        self.is_driven: Callable[[ChatId], bool] = lambda _chat: False  # a driven chat's state will be needed soon

    def get(self, chat: ChatId) -> ChatState | None:
        entry = self._entries.get(chat)
        return entry.state if entry is not None else None

    def __iter__(self) -> Iterator[ChatState]:
        return iter([entry.state for entry in self._entries.values()])

    def keep(self, state: ChatState) -> None:
        """Unless a newer one is known. Chats that were used least recently are forgotten first."""
        entry = self._entries.get(state.chat)
        if entry is None:
            entry = self._entries[state.chat] = CachedState(state, 0)
        elif entry.state.head > state.head:
            return
        entry.state = state
        self._entries.move_to_end(state.chat)
        self.weight -= entry.weight
        self.weight += entry.weigh()
        for chat in [*self._entries] if self.weight > MAX_WEIGHT else ():
            if self.weight <= MAX_WEIGHT:
                return
            if chat != state.chat and not self.is_driven(chat):
                self.forget(chat)

    def get_memo(self, chat: ChatId, model: str) -> Memo:
        """The bytes of the chat's conversation for this model, kept as long as its state; models may differ (M-10)."""
        entry = self._entries.get(chat)
        return Memo() if entry is None else entry.memos.setdefault(model, Memo())

    def forget(self, chat: ChatId) -> None:
        entry = self._entries.pop(chat, None)
        if entry is not None:
            self.weight -= entry.weight
        self._forgotten(chat)


class Take(msgspec.Struct, frozen=True):
    """A worker that takes the lease in the commit of the command; what the rules say next rides along."""

    worker: str
    effect_free_events: Ahead
    on_lease: Callable[[Lease], None]


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
        self.on_news: Callable[[ChatId], None] = lambda _chat: None  # the newest known state of a chat may be another
        self._with_jobs: set[ChatId] = set()
        self._snapshots: dict[ChatId, int] = {}
        self._epochs: dict[ChatId, int] = {}  # the last known lease of each chat; another worker may have had it since
        self.relay = Relay(store, self._epochs) if relays else None
        if self.relay is not None:
            hub.relay = self.relay.hear
        self.appended = 0  # how many events this process has committed

    async def create(
        self,
        chat: ChatId,
        created: e.SessionCreated,
        *notices: e.ModelNotice,
        first: Sequence[Command] = (),
        answer: Answer | None = None,
    ) -> ChatState:
        """Create a chat and carry out its first commands in the same commit."""
        check_numbers(created.options)
        wire.encode_value(created)
        sealed, state = self._seal(ChatState(chat=chat), (created, *notices), 0)
        following, state = self._seal_commands(state, first)
        sealed += following
        remembered = answer(state) if answer is not None else None
        await self.store.create(build_summary(state), [record for _, record in sealed], answer=remembered)
        self.appended += len(sealed)
        self._epochs[chat] = 0
        self._publish([envelope for envelope, _ in sealed])
        return self._keep(state)

    def hold(self, lease: Lease) -> None:
        self._epochs[lease.chat] = lease.epoch

    async def load(self, chat: ChatId) -> ChatState:
        """Return the current state: the cached one, a snapshot or the empty one, with the rest of the log folded."""
        state = self.states.get(chat) or await self._from_snapshot(chat)
        state = self._keep(fold_all(state, await self._read_after(state)))
        # While this was read, more may have been appended and published here: a reader must begin behind that.
        return self.states.get(chat) or state

    async def refresh(self, state: ChatState, lease: Lease) -> ChatState:
        """Fold what others appended meanwhile, and publish it to this process's readers. LeaseLost: a newer lease wrote
        some of it, and an effect that it began must not be carried out under this one."""
        envelopes = await self._read_after(state)
        self._publish(envelopes)
        state = self._keep(fold_all(state, envelopes))
        if any(envelope.epoch > lease.epoch for envelope in envelopes):
            raise LeaseLost(f"another worker drives chat {state.chat}")
        return state

    async def _read_after(self, state: ChatState) -> list[Envelope]:
        return [wire.decode(state.chat, each) for each in await self.store.read(state.chat, after_seq=state.head)]

    async def has_written(self, state: ChatState, lease: Lease) -> bool:
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
        without further work is released in it. `take`: the command takes the lease, too; ChatBusy if it is held."""
        chat, epoch = state.chat, lease.epoch if lease else 0
        sealed, new_state = self._seal(state, events, epoch)
        if take is not None and not is_runnable(new_state):
            take = None
        if take is not None:
            epoch, effect_free_events = self._epochs[chat] + 1, take.effect_free_events
        if effect_free_events is not None:
            following, new_state, is_durable = self._seal_following(new_state, effect_free_events, epoch)
            sealed += following
            durable = durable or is_durable
        envelopes, records = [envelope for envelope, _ in sealed], [record for _, record in sealed]
        reach_faultpoint(f"append.before:{events[0].TYPE}")
        line = build_summary(new_state)
        new_lease = Lease(chat, epoch, take.worker, new_state.head) if take is not None else None
        is_finished = (lease or new_lease) is not None and not line.runnable
        drop_deltas = self.relay is not None and await self.relay.settle(chat, [one.data for one in envelopes])
        remembered = answer(new_state) if answer is not None else None
        commit = Commit(chat, records, line, lease, durable, is_finished, new_lease, remembered, drop_deltas)
        try:
            await self.store.append(commit)
        except HeadMoved as error:
            # A log that is shorter than the known state: a database failed over, or a backup was restored. The cached
            # state is then void, and the worker that wrote the lost records must write nothing more.
            if (head := await self.store.read_head(chat)) < state.head:
                self.forget(chat)
                if lease is not None:
                    text = f"the log of chat {chat} was put back to {head}; what came after it is lost"
                    raise LeaseLost(text) from error
            raise
        self.appended += len(records)
        self._observer.on_append(state, envelopes)
        if take is not None and new_lease is not None:
            self.hold(new_lease)
            if not is_finished:
                take.on_lease(new_lease)
        reach_faultpoint(f"append.after:{events[0].TYPE}")
        self._publish(envelopes)
        return self._keep(new_state)

    def _seal_following(self, state: ChatState, next_events: Ahead, epoch: int) -> tuple[list[Sealed], ChatState, bool]:
        """Return the events of the rules that follow, the state after them, and whether any of them must be durable."""
        following: list[Sealed] = []
        durable = False
        while events := next_events(state):
            sealed, state = self._seal(state, events, epoch)
            following += sealed
            durable = durable or not isinstance(events[-1], (e.TurnStart, e.TurnEnd))
            if isinstance(events[-1], e.TurnStart):
                break  # a turn that has begun waits for its call
        return following, state, durable

    def forget(self, chat: ChatId) -> None:
        """Let the next look at the chat begin with the store."""
        self.states.forget(chat)
        self._with_jobs.discard(chat)
        self.on_news(chat)

    def _forget_beside(self, chat: ChatId) -> None:
        self._snapshots.pop(chat, None)
        self._epochs.pop(chat, None)

    def list_chats_with_jobs(self) -> list[ChatId]:
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
        it did. `on_state` is told the state that the command meets. Tries what is known first: the append is fenced on
        it, and a refusal is never given from a state that may be old."""
        commands = command if isinstance(command, Sequence) else (command,)
        cached = self.states.get(chat)
        while True:
            state = cached or await self.load(chat)
            try:
                if len(commands) == 1:
                    events = self._make_events(state, commands[0])
                else:
                    events = [envelope.data for envelope, _ in self._seal_commands(state, commands)[0]]
            except TreadleError:
                if cached is None:
                    raise
                events = ()
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

    async def find_recorded_answer(
        self, chat: ChatId, action: str, after: int = 0, upto: int = 0
    ) -> e.PermissionCompleted | None:
        """The last answer to an approval behind `after`, and up to `upto` if that is not 0."""
        for record in reversed(await self.store.read_types(chat, [e.PermissionCompleted.TYPE], after)):
            event = wire.decode(chat, record).data
            is_in_range = record.seq <= (upto or record.seq)
            if isinstance(event, e.PermissionCompleted) and event.action == action and is_in_range:
                return event
        return None

    async def keep_snapshot(self, state: ChatState) -> None:
        """Keep a snapshot when the log has grown enough since the last one; costs O(1) per event over time."""
        last = self._snapshots.get(state.chat, 0)
        if state.head - last >= max(SNAPSHOT_EVERY, last // 2):
            await self.store.save_snapshot(state.chat, Snapshot(state.head, snapshot.encode(state)))
            self._snapshots[state.chat] = state.head

    def publish_live(self, chat: ChatId, event: e.Live) -> None:
        if self.hub.has_reader(chat):
            self.hub.publish(Envelope(0, chat, self.clock.now_ms(), wire.make_encodable(event)))

    async def _from_snapshot(self, chat: ChatId) -> ChatState:
        stored_snapshot = await self.store.load_snapshot(chat)
        if stored_snapshot is not None and (state := snapshot.decode(stored_snapshot.body)) is not None:
            self._snapshots[chat] = stored_snapshot.seq
            return state
        return ChatState(chat=chat)

    def _seal(self, state: ChatState, events: Sequence[Event], epoch: int) -> tuple[list[Sealed], ChatState]:
        """The events as they are recorded, each encoded once, and the state with them."""
        now, chat, redact = self.clock.now_ms(), state.chat, self._redact
        sealed = [
            wire.encode_replacing(Envelope(seq, chat, now, redact_secrets(event, redact), epoch))
            for seq, event in enumerate(events, state.head + 1)
        ]
        return sealed, fold_all(state, [envelope for envelope, _ in sealed])

    def _make_events(self, state: ChatState, command: Command) -> Sequence[Event]:
        wire.encode_value(command)  # a person's text is refused rather than changed
        refuse_secrets(command, self._redact)
        return transition(state, command)

    def _seal_commands(self, state: ChatState, commands: Sequence[Command]) -> tuple[list[Sealed], ChatState]:
        """Seal the events of these commands, each decided on the state after the one before it."""
        sealed: list[Sealed] = []
        for command in commands:
            batch, state = self._seal(state, self._make_events(state, command), 0)
            sealed += batch
        return sealed, state

    def _publish(self, envelopes: Sequence[Envelope]) -> None:
        if envelopes and self.hub.has_reader(envelopes[0].chat):
            for envelope in envelopes:
                self.hub.publish(envelope)

    def _keep(self, state: ChatState) -> ChatState:
        self.states.keep(state)
        if state.jobs:
            self._with_jobs.add(state.chat)
        elif self._with_jobs:
            self._with_jobs.discard(state.chat)
        self.on_news(state.chat)
        return state
