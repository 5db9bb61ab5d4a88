"""A recorded log, cut into inputs (epoch 0, written by commands) and outputs of workers; and the store of its replay.
Input is written where the record has it, with HeadMoved for an engine that is about to write there; every event that
the engine writes is compared. Where the record goes on under another epoch, or ends, the worker had died: the engine is
abandoned, and the driver begins the next tenure."""

import asyncio
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import takewhile
from typing import Any, NoReturn

import msgspec
from msgspec.structs import replace

from treadle.adapters.stores.memory import MemoryStore
from treadle.base.types import CallKey, ChatId
from treadle.chat.divergence import Divergence, describe_divergence, is_same_event, reorder_log
from treadle.chat.fold import fold_all
from treadle.chat.state import ChatState
from treadle.chat.state import build_summary as summary_of
from treadle.engine.outcome import take_first_line
from treadle.errors import HeadMoved
from treadle.ports.store import Commit, Lease
from treadle.ports.toolset import Fact
from treadle.protocol import events as e
from treadle.protocol import wire
from treadle.protocol.content import ToolRequest
from treadle.protocol.events import Envelope, Interrupted, RecordLost, SessionError
from treadle.protocol.tools import ToolKind
from treadle.protocol.views import ChatSummary
from treadle.protocol.wire import Record

NEAR = 16  # How many events one model call leaves at most; nearly all of them would be notices.


class CallRecord(msgspec.Struct):
    request: ToolRequest
    start: e.ExecutionStart | None = None
    start_seq: int = 0  # The seq of the intent.
    complete: e.ExecutionComplete | None = None
    completed: e.Envelope | None = None
    kind: ToolKind = "function"
    parallel: bool = False  # True if it ran beside another call: then its tool only reads.
    permission_request: e.PermissionRequested | None = None
    """The last approval that was requested for it; `asks` has all requests with their places."""
    asks: list[tuple[int, e.PermissionRequested]] = msgspec.field(default_factory=list)
    trials: list[tuple[int, e.TrialStart]] = msgspec.field(default_factory=list)  # When it was tried, and how.
    ruled: e.PermissionCompleted | None = None  # The decision that the policy made by itself.
    edits: list[dict[str, Any]] = msgspec.field(default_factory=list)
    """The arguments that a person wrote, one for each approval with changed arguments."""
    files: e.FilesChanged | None = None
    conflict: e.WorkspaceConflict | None = None
    facts: tuple[Fact, ...] = ()
    questions: list[e.Envelope] = msgspec.field(default_factory=list)
    """The questions that its tool asked in the middle of the call."""
    samples: list[e.Envelope] = msgspec.field(default_factory=list)  # When its tool asked the model.

    @property
    def refused(self) -> bool:
        """True if intent and result were written together: nothing ran, or the call failed at once."""
        start, complete, completed = self.start, self.complete, self.completed
        if start is None or complete is None or completed is None or self.parallel or start.plan is not None:
            return False
        summary = take_first_line(complete.error)
        plain = e.ExecutionComplete(start.call, False, error=complete.error, result_summary=summary)
        comparable = replace(complete, duration_ms=0)  # a call that was tried took its time
        return completed.seq == self.start_seq + 1 and completed.epoch > 0 and comparable == plain

    @property
    def is_lost(self) -> bool:
        """True if a worker that is gone had tried the call, so that it was not run."""
        start, complete, completed = self.start, self.complete, self.completed
        if not self.trials or start is None or complete is None or completed is None or start.plan is not None:
            return False
        return completed.seq == self.start_seq + 1 and complete.synthetic == "unknown"


class Recording:
    def __init__(self, events: Sequence[e.Envelope]) -> None:
        ordered = reorder_log(events)
        self.events = [replace(envelope, seq=seq) for seq, envelope in enumerate(ordered, 1)]
        """In the order in which today's engine writes; older versions used other orders."""
        self.calls: dict[CallKey, CallRecord] = {}
        self.cut = _count_copied_events(ordered)
        self._outputs = [envelope.seq for envelope in self.events if envelope.epoch]
        self._messages: list[int] = []
        for envelope in self.events:
            self._note_event(envelope)

    def find_event(self, seq: int) -> e.Envelope | None:
        return self.events[seq - 1] if 1 <= seq <= len(self.events) else None

    def find_due(self, head: int) -> e.Envelope | None:
        """The first thing behind `head` that a worker wrote."""
        index = bisect_right(self._outputs, head)
        return self.events[self._outputs[index] - 1] if index < len(self._outputs) else None

    def iterate_outputs(self, head: int) -> Iterator[e.Envelope]:
        for index in range(bisect_right(self._outputs, head), len(self._outputs)):
            yield self.events[self._outputs[index] - 1]

    def list_following(self, due: e.Envelope) -> list[e.Envelope]:
        """An output and the few right behind it under the same epoch: one append, or the beginning of one."""
        return list(takewhile(lambda each: each.epoch == due.epoch, self.events[due.seq - 1 : due.seq - 1 + NEAR]))

    def list_inputs(self, head: int) -> Sequence[e.Envelope]:
        """Return the events that came from outside after `head`, up to the next output."""
        due = self.find_due(head)
        arrived = self.events[head : due.seq - 1 if due is not None else len(self.events)]
        outcome = due.data if due is not None else None
        is_call = isinstance(outcome, e.ModelCall) and outcome.purpose == "compaction"
        if not is_call and not (isinstance(outcome, e.CompactionComplete) and outcome.threshold):
            return arrived
        # A compaction by hand was under way when the rest came, which may be the interrupt that ended it.
        starts = [place for place, each in enumerate(arrived, 1) if isinstance(each.data, e.CompactionStart)]
        return arrived[: starts[-1]] if starts else arrived

    def find_decision(self, head: int) -> list[e.Event]:
        """Return the next decision of the rules after `head`: warnings, and the event that follows them."""
        events: list[e.Event] = []
        for envelope in self.iterate_outputs(head):
            events.append(envelope.data)
            if not isinstance(envelope.data, e.LimitWarning):
                break
        return events

    def turn_calls(self, head: int) -> list[CallRecord]:
        index = bisect_right(self._messages, head)
        message = self.events[self._messages[index - 1] - 1].data if index else None
        requests = message.tool_requests if isinstance(message, e.AssistantMessage) else ()
        return [self.calls[request.call] for request in requests]

    def iterate_stopped_outputs(self, epoch: int) -> Iterator[tuple[CallKey, str]]:
        """The output that calls had written until this worker recorded that they were stopped."""
        for key, call in self.calls.items():
            if call.complete is None or call.completed is None or call.completed.epoch != epoch:
                continue
            if call.complete.synthetic == "interrupted" and call.complete.result:
                yield key, call.complete.result.removesuffix(f"\n[{call.complete.error}]")

    def _note_event(self, envelope: e.Envelope) -> None:
        match envelope.data:
            case e.AssistantMessage(tool_requests=requests):
                self._messages.append(envelope.seq)
                self.calls.update({request.call: CallRecord(request) for request in requests})
            case e.ExecutionStart(call=key) as start if key in self.calls:
                self._note_start(self.calls[key], start, envelope)
            case e.ExecutionComplete(call=key) as complete if key in self.calls and not self.calls[key].complete:
                self._note_result(self.calls[key], complete, envelope)
            case e.TrialStart(call=key) as trial if key in self.calls:
                self.calls[key].trials.append((envelope.seq, trial))
            case e.CheckStarted(check=key, plan=plan):  # a call that the model did not request
                start = e.ExecutionStart(key, "", plan=plan)
                self.calls[key] = CallRecord(ToolRequest(key, ""), start, envelope.seq)
            case e.CheckCompleted(check=key) as check if key in self.calls and not self.calls[key].complete:
                self._note_result(self.calls[key], _as_result(check), envelope)
            case e.ExternalToolRequested(call=key) if key in self.calls:
                self.calls[key].kind = "client"
            case e.ModelCall(call=key) if key in self.calls:
                self.calls[key].samples.append(envelope)
            case e.UserInputRequested(call=key, purpose="elicitation") if key in self.calls:
                self.calls[key].questions.append(envelope)
            case e.UserInputRequested(call=key) if key in self.calls:
                self.calls[key].kind = "question"
            case e.PermissionRequested(call=key) as question if key in self.calls:
                self.calls[key].permission_request = question
                self.calls[key].asks.append((envelope.seq, question))
            case e.PermissionCompleted(action=action) as answer if CallKey(action) in self.calls:
                call = self.calls[CallKey(action)]
                call.ruled = answer if answer.by == "policy" else None
                if answer.arguments is not None:
                    call.edits.append(answer.arguments)

    def _note_start(self, call: CallRecord, start: e.ExecutionStart, at: e.Envelope) -> None:
        if call.questions:
            return  # it goes on after an answer
        call.start, call.start_seq = start, at.seq
        for other in self.turn_calls(at.seq):
            if other is not call and other.start_seq and other.complete is None and other.kind == "function":
                call.parallel = other.parallel = True

    def _note_result(self, call: CallRecord, complete: e.ExecutionComplete, at: e.Envelope) -> None:
        """Record a result and the events that belong to it; they stand right after it."""
        call.complete, call.completed = complete, at
        facts: list[Fact] = []
        for index in range(at.seq, len(self.events)):
            envelope = self.events[index]
            if envelope.epoch != at.epoch:  # another process closed a job
                break
            match envelope.data:
                case e.FilesChanged(call=key) as files if key == call.request.call:
                    call.files = files
                case e.WorkspaceConflict(call=key) as conflict if key == call.request.call:
                    call.conflict = conflict
                case e.PlanUpdated() | e.TaskComplete() | e.SandboxNotice() | e.JobSettled() as fact:
                    facts.append(fact)
                case e.ModelNotice(kind="log_put_back") | e.JobStarted() | e.JobEnded() | e.SubagentCompleted() as fact:
                    facts.append(fact)
                case _:
                    break
        call.facts = tuple(facts)


def _as_result(completion: e.CheckCompleted) -> e.ExecutionComplete:
    """Convert the outcome of a check to the result of a call; a lost check becomes an unknown result."""
    synthetic = {"lost": "unknown", "stopped": "interrupted"}.get(completion.synthetic, completion.synthetic)
    return e.ExecutionComplete(
        completion.check, completion.success, result=completion.result if completion.success else "",
        error="" if completion.success else completion.result, result_summary=completion.result_summary,
        sandbox=completion.sandbox, synthetic=synthetic, output=completion.output,
    )  # fmt: skip


def _count_copied_events(ordered: Sequence[e.Envelope]) -> int:
    """How many events are a copy of another chat's, or 0: only there an append may be torn. By the log's own seqs."""
    first = ordered[0].data if ordered else None
    origin = first.forked_from if isinstance(first, e.SessionCreated) else ""
    seq = origin.rpartition("@")[2]
    if not seq.isdecimal():
        return 0
    return next((place for place, envelope in enumerate(ordered) if envelope.seq > int(seq)), len(ordered))


def make_fault(error: e.SessionError) -> Exception:
    """A fault of Treadle itself, as its record names it."""
    name, _, text = error.message.partition(": ")
    kind: type[Exception] = type(name, (Exception,), {})
    return kind(text)


NAMES = ("recorded", "replayed")
PATIENCE_S = 60.0


class ReplayStore(MemoryStore):
    def __init__(self, chat: ChatId, recording: Recording) -> None:
        super().__init__()
        self.chat, self.recording = chat, recording
        self.now = 0  # The head: how far the play has come.
        self.epoch = 0
        self.left: asyncio.Future[Divergence | None] = asyncio.get_running_loop().create_future()

    async def open(self) -> None:
        """Write what there is before any worker's first word."""
        first = self.recording.list_inputs(0)
        await self.create(ChatSummary(self.chat), [wire.encode(envelope) for envelope in first])
        self.now = len(first)

    def begin(self, epoch: int) -> Lease:
        self.epoch = epoch
        self.left = asyncio.get_running_loop().create_future()
        return Lease(self.chat, epoch, "replay")

    async def read_events(self) -> list[Envelope]:
        return [wire.decode(self.chat, record) for record in await self.read(self.chat)]

    async def append(self, commit: Commit) -> None:
        records = commit.records
        if commit.lease is not None and records[0].seq == self.now + 1:
            records = await self._compare_envelopes([wire.decode(commit.chat, record) for record in records])
        await super().append(Commit(commit.chat, records, commit.summary, durable=commit.durable))
        self.now += len(records)
        if self.now == self.recording.cut and self.find_due() is None:
            await self.leave(None)  # the record is a copy that was cut here: the work that was under way ends here
        self._fail()

    async def admit(self) -> None:
        """Let in what came from outside before the next output."""
        arrived = [wire.encode(envelope) for envelope in self.recording.list_inputs(self.now)]
        if arrived:
            await super().append(Commit(self.chat, arrived, ChatSummary(self.chat), durable=False))
            self.now += len(arrived)

    async def _compare_envelopes(self, envelopes: Sequence[Envelope]) -> list[Record]:
        """The records that may be written: fewer than all where the record is a copy that was cut here."""
        due = self.find_due()
        if due is None:  # the worker wrote no more in the record: it died, or there was nothing to do
            state = fold_all(ChatState(chat=self.chat), await self.read_events())
            await self.leave(None if summary_of(state).runnable else self.make_divergence(None, envelopes[0]))
        if due.seq > self.now + 1:
            await self.admit()
            raise HeadMoved("something came from outside, here as in the record")
        if not isinstance(envelopes[0].data, SessionError):
            self._fail()
        for envelope in envelopes:
            if envelope.seq - 1 == self.recording.cut:
                return [wire.encode(earlier) for earlier in envelopes if earlier.seq < envelope.seq]
            recorded = self.recording.find_event(envelope.seq)
            if recorded is None or recorded.epoch != self.epoch or not _is_alike(recorded, envelope):
                await self.leave(self.make_divergence(recorded, envelope))
        return [wire.encode(envelope) for envelope in envelopes]

    async def require_due(self) -> Envelope:
        """Return the next event that the worker wrote; if it wrote no more, it died in this effect."""
        if (due := self.find_due()) is None:
            await self.leave(None)
        self._fail()
        return due

    def _fail(self) -> None:
        """Raise the fault of Treadle that the record has next. Where exactly it struck makes no difference."""
        due = self.find_due()
        if due is not None and isinstance(due.data, SessionError) and due.data.error_class == "internal":
            raise make_fault(due.data)

    def find_due(self) -> Envelope | None:
        """Return the next event that this worker wrote, or None if it wrote no more."""
        due = self.recording.find_due(self.now)
        return due if due is not None and due.epoch == self.epoch else None

    async def wait_for_turn(self, outcome: Envelope) -> None:
        """Wait until everything before this outcome was written: calls end in the order in which they ended then."""
        while (due := self.find_due()) is not None and due.seq < outcome.seq:
            await self.wait(self.chat, self.now, PATIENCE_S)

    async def perish(self) -> NoReturn:
        """End a call without a result: an interrupt ended it, or the worker died in it, maybe after other calls."""
        while self.find_due() is not None:
            self._fail()
            if any(isinstance(envelope.data, Interrupted) for envelope in self.recording.list_inputs(self.now)):
                await self.admit_interrupt()
            await self.wait(self.chat, self.now, PATIENCE_S)
        await self.leave(None)

    async def admit_interrupt(self) -> NoReturn:
        """An interrupt ended the effect: let it in, and wait to be cancelled for it."""
        await self.admit()
        await self._wait_forever()

    async def leave(self, divergence: Divergence | None) -> NoReturn:
        """Go no further in this tenure: the worker died here, or the play has left the record."""
        if not self.left.done():
            self.left.set_result(divergence)
        await self._wait_forever()

    @staticmethod
    async def _wait_forever() -> NoReturn:
        await asyncio.get_running_loop().create_future()
        raise AssertionError("nobody resolves this future")

    def make_divergence(self, recorded: Envelope | None, replayed: Envelope | None) -> Divergence:
        at = next(side.seq for side in (recorded, replayed) if side is not None)
        return describe_divergence(self.recording.events[: at - 1], recorded, replayed, NAMES)


def _is_alike(recorded: Envelope, replayed: Envelope) -> bool:
    """A record that was lost may have been anything."""
    return isinstance(recorded.data, RecordLost) or is_same_event(recorded, replayed)
