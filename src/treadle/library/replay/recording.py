"""A recorded log, cut into what came from outside (inputs: epoch 0, written by commands) and what workers wrote
(outputs). Answers questions about it; drives nothing."""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import takewhile
from typing import Any

import msgspec
from msgspec.structs import replace

from treadle.base.types import CallKey
from treadle.chat.divergence import in_order
from treadle.engine.outcome import first_line
from treadle.ports.toolset import Fact
from treadle.protocol import events as e
from treadle.protocol.content import ToolRequest
from treadle.protocol.tools import ToolKind

NEAR = 16
"""How many events one model call leaves at most; nearly all of them would be notices."""


class CallRecord(msgspec.Struct):
    """Everything the log says about one call."""

    request: ToolRequest
    start: e.ExecutionStart | None = None
    start_seq: int = 0
    """The seq of the intent."""
    complete: e.ExecutionComplete | None = None
    completed: e.Envelope | None = None
    kind: ToolKind = "function"
    parallel: bool = False
    """True if it ran beside another call: then its tool only reads."""
    permission_request: e.PermissionRequested | None = None
    """The last approval that was requested for it; `asks` has all requests with their places."""
    asks: list[tuple[int, e.PermissionRequested]] = msgspec.field(default_factory=list)
    trials: list[tuple[int, e.TrialStart]] = msgspec.field(default_factory=list)
    """When it was tried, and how."""
    ruled: e.PermissionCompleted | None = None
    """The decision that the policy made by itself."""
    edits: list[dict[str, Any]] = msgspec.field(default_factory=list)
    """The arguments that a person wrote, one for each approval with changed arguments."""
    files: e.FilesChanged | None = None
    conflict: e.WorkspaceConflict | None = None
    facts: tuple[Fact, ...] = ()
    questions: list[e.Envelope] = msgspec.field(default_factory=list)
    """The questions that its tool asked in the middle of the call."""
    samples: list[e.Envelope] = msgspec.field(default_factory=list)
    """When its tool asked the model."""

    @property
    def refused(self) -> bool:
        """True if intent and result were written together, so that nothing ran: bad arguments, no such tool, or a tool
        that looked and declined. A call that ran and failed at once leaves the same events."""
        start, complete, completed = self.start, self.complete, self.completed
        if start is None or complete is None or completed is None or self.parallel or start.plan is not None:
            return False
        plain = e.ExecutionComplete(start.call, False, error=complete.error, result_summary=first_line(complete.error))
        comparable = replace(complete, duration_ms=0)  # a call that was tried took its time
        return completed.seq == self.start_seq + 1 and completed.epoch > 0 and comparable == plain

    @property
    def is_lost(self) -> bool:
        """True if a worker that is gone had tried the call, so that it was not run: intent and result were written
        together."""
        start, complete, completed = self.start, self.complete, self.completed
        if not self.trials or start is None or complete is None or completed is None or start.plan is not None:
            return False
        return completed.seq == self.start_seq + 1 and complete.synthetic == "unknown"


class Recording:
    def __init__(self, events: Sequence[e.Envelope]) -> None:
        ordered = in_order(events)
        self.events = [replace(envelope, seq=seq) for seq, envelope in enumerate(ordered, 1)]
        """In the order in which today's engine writes; older versions used other orders."""
        self.calls: dict[CallKey, CallRecord] = {}
        self.cut = _count_copied_events(ordered)
        self._outputs = [envelope.seq for envelope in self.events if envelope.epoch]
        self._messages: list[int] = []
        for envelope in self.events:
            self._note(envelope)

    # -- the log ------------------------------------------------------------------------------------------------------

    def at(self, seq: int) -> e.Envelope | None:
        return self.events[seq - 1] if 1 <= seq <= len(self.events) else None

    def due(self, head: int) -> e.Envelope | None:
        """The first thing behind `head` that a worker wrote."""
        index = bisect_right(self._outputs, head)
        return self.events[self._outputs[index] - 1] if index < len(self._outputs) else None

    def outputs(self, head: int) -> Iterator[e.Envelope]:
        """Yield the events that workers wrote after `head`."""
        for index in range(bisect_right(self._outputs, head), len(self._outputs)):
            yield self.events[self._outputs[index] - 1]

    def following(self, due: e.Envelope) -> list[e.Envelope]:
        """An output and the few right behind it under the same epoch: one append, or the beginning of one."""
        return list(takewhile(lambda each: each.epoch == due.epoch, self.events[due.seq - 1 : due.seq - 1 + NEAR]))

    def inputs(self, head: int) -> Sequence[e.Envelope]:
        """Return the events that came from outside after `head`, up to the next output."""
        due = self.due(head)
        arrived = self.events[head : due.seq - 1 if due is not None else len(self.events)]
        cost = due.data if due is not None else None
        if not isinstance(cost, e.ModelCall) or (cost.purpose, cost.error) != ("compaction", "interrupted"):
            return arrived
        # A compaction by hand was under way when the interrupt came that ended it.
        starts = [place for place, each in enumerate(arrived, 1) if isinstance(each.data, e.CompactionStart)]
        return arrived[: starts[-1]] if starts else arrived

    def decision(self, head: int) -> list[e.Event]:
        """Return the next decision of the rules after `head`: warnings, and the event that follows them."""
        events: list[e.Event] = []
        for envelope in self.outputs(head):
            events.append(envelope.data)
            if not isinstance(envelope.data, e.LimitWarning):
                break
        return events

    # -- the calls ----------------------------------------------------------------------------------------------------

    def turn_calls(self, head: int) -> list[CallRecord]:
        """The calls of the turn that the log is in at `head`."""
        index = bisect_right(self._messages, head)
        message = self.events[self._messages[index - 1] - 1].data if index else None
        requests = message.tool_requests if isinstance(message, e.AssistantMessage) else ()
        return [self.calls[request.call] for request in requests]

    def outputs_of_stopped_calls(self, epoch: int) -> Iterator[tuple[CallKey, str]]:
        """The output that calls had written until this worker recorded that they were stopped."""
        for key, call in self.calls.items():
            if call.complete is None or call.completed is None or call.completed.epoch != epoch:
                continue
            if call.complete.synthetic == "interrupted" and call.complete.result:
                yield key, call.complete.result.removesuffix(f"\n[{call.complete.error}]")

    def _note(self, envelope: e.Envelope) -> None:
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
            case e.CheckCompleted(check=key) as done if key in self.calls and not self.calls[key].complete:
                self._note_result(self.calls[key], _as_result(done), envelope)
            case e.ExternalToolRequested(call=key) if key in self.calls:
                self.calls[key].kind = "client"
            case e.ModelCall(call=key) if key in self.calls:
                self.calls[key].samples.append(envelope)
            case e.UserInputRequested(call=key, purpose="elicitation") if key in self.calls:
                self.calls[key].questions.append(envelope)
            case e.UserInputRequested(call=key) if key in self.calls:
                self.calls[key].kind = "question"
            case e.PermissionRequested(call=key) as asked if key in self.calls:
                self.calls[key].permission_request = asked
                self.calls[key].asks.append((envelope.seq, asked))
            case e.PermissionCompleted(action=action) as answer if CallKey(action) in self.calls:
                call = self.calls[CallKey(action)]
                call.ruled = answer if answer.by == "policy" else None
                if answer.arguments is not None:
                    call.edits.append(answer.arguments)
            case _:
                pass

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
        completion.check,
        completion.success,
        result=completion.result if completion.success else "",
        error="" if completion.success else completion.result,
        result_summary=completion.result_summary,
        sandbox=completion.sandbox,
        synthetic=synthetic,
        output=completion.output,
    )


def _count_copied_events(ordered: Sequence[e.Envelope]) -> int:
    """How many events of a log are a copy of another chat's, or 0: there, and only there, an append may be torn. The
    seqs are those that the events have in the log itself."""
    first = ordered[0].data if ordered else None
    origin = first.forked_from if isinstance(first, e.SessionCreated) else ""
    seq = origin.rpartition("@")[2]
    if not seq.isdecimal():
        return 0
    return next((place for place, envelope in enumerate(ordered) if envelope.seq > int(seq)), len(ordered))


def fault_of(error: e.SessionError) -> Exception:
    """A fault of Treadle itself, as its record names it."""
    name, _, text = error.message.partition(": ")
    kind: type[Exception] = type(name, (Exception,), {})
    return kind(text)
