"""Turns the log of a chat into spans. It reads events, and takes all times from them. Pure: the same log makes the same
spans with the same keys, for each reader and after any number of killed workers.

Spans are handed over in portions. The log alone decides where a portion ends: at the end of a run, where the run begins
to wait for a person or a client, and now and then in between. The process that writes the event that ends a portion
hands the portion over, with the spans of workers that died on the way. So no span is handed over twice, and none is
lost except by a kill between that commit and the sending."""

from typing import Any, Literal

import msgspec

from treadle._version import __version__
from treadle.adapters.telemetry import names
from treadle.base.inert import make_inert_line
from treadle.base.types import CallKey, ChatId
from treadle.protocol import events as e
from treadle.protocol.content import Usage
from treadle.protocol.deltas import FinishDelta
from treadle.protocol.events import Envelope

Attributes = dict[str, Any]
NOTHING: Attributes = {}
EVERY_MS = 10_000  # A long run is shown in portions of at least this length, each of whole turns.
_NAME = 80
_TOLD = 300

ROOT = ""  # The key of what is above a run.
RUN = "run"
_ANSWERED = e.PermissionCompleted | e.ExternalToolCompleted | e.UserInputCompleted
_ASKED = e.PermissionRequested | e.ExternalToolRequested | e.UserInputRequested


class Moment(msgspec.Struct):
    name: str
    time_ms: int
    attributes: dict[str, Any] = {}


class Span(msgspec.Struct):
    """`key` names it in its trace, `parent` what it is a part of."""

    key: str
    parent: str
    name: str
    start_ms: int
    attributes: dict[str, Any]
    kind: Literal["internal", "client"] = "internal"
    end_ms: int = 0
    error: str = ""  # The class of the error that it ended with; empty if with none.
    error_message: str = ""  # The error in words.
    moments: list[Moment] = []


class Trace(msgspec.Struct, frozen=True):
    """The data that all spans of a run share: the chat, the event that began the run, and the caller's span."""

    chat: str
    first: int
    traceparent: str = ""


class Portion(msgspec.Struct, frozen=True):
    """Spans that are handed over together, and how long the chat waited for workers meanwhile, in seconds."""

    trace: Trace
    seq: int  # The event that ends the portion: the process that wrote it hands the spans over.
    spans: tuple[Span, ...]
    queued: tuple[float, ...] = ()


class Projection:
    """Takes every event from the beginning of a run on, and returns a portion where one ends. `include_content`: True
    if spans have messages, arguments and results. `first_tokens`: by turn, the seconds until the first token of its
    model. `endings`: by turn, how its model call ended."""

    def __init__(
        self,
        chat: ChatId,
        model: str = "",
        include_content: bool = False,
        first_tokens: dict[int, float] | None = None,
        endings: dict[int, FinishDelta] | None = None,
    ) -> None:
        self.reached = 0  # The last event that was taken.
        self._chat, self._default_model, self._said = chat, model, include_content
        self._first_tokens = {} if first_tokens is None else first_tokens
        self._endings = {} if endings is None else endings
        self._begin(None, 0)
        self._before_ms = 0

    def _begin(self, trace: Trace | None, time_ms: int) -> None:
        self._trace = trace
        self._open: dict[str, Span] = {}
        self._done: list[Span] = []
        self._queued: list[float] = []
        self._pending_ms = 0
        self.handed_ms = time_ms  # When the last portion ended, or else the run began.
        self._epoch, self._model, self._turn = 0, self._default_model, ""
        self._attempt = 0
        self._asked_ms = 0  # Since when a model is asked; 0 when none is.
        self._requests: dict[CallKey, tuple[str, str]] = {}  # By call: the name of its tool, and the provider's id.
        self._usage, self._compacting = Usage(), ""
        self._failure: e.SessionError | None = None

    def take(self, envelope: Envelope) -> Portion | None:
        at, event = envelope.time_ms, envelope.data
        self.reached = envelope.seq
        # A trace begins with a run, or with a compaction that a person requests in an idle chat.
        if self._trace is None and isinstance(event, e.UserMessage):
            self._begin(Trace(self._chat, envelope.seq, event.traceparent), at)
            attributes = {names.OPERATION: "invoke_agent", names.AGENT: "treadle", names.AGENT_VERSION: __version__}
            self._start_span(RUN, ROOT, "invoke_agent treadle", at, attributes)
            self._pending_ms = at
        elif self._trace is None and isinstance(event, e.CompactionStart):
            self._begin(Trace(self._chat, envelope.seq), at)
        if self._trace is not None:
            self._record_worker(envelope)
            self._project_turn_event(at, event)
            self._project_call_event(at, event)
            self._project_side_event(envelope)
        self._before_ms = at
        return self._take_portion(envelope)

    @property
    def idle(self) -> bool:
        """True if no run is under way: then the next run needs nothing of this state."""
        return self._trace is None

    def _take_portion(self, envelope: Envelope) -> Portion | None:
        trace, event = self._trace, envelope.data
        over = isinstance(event, e.RunEnd) or (isinstance(event, e.CompactionComplete) and RUN not in self._open)
        due = isinstance(event, e.TurnEnd) and envelope.time_ms - self.handed_ms >= EVERY_MS
        if trace is None or not (over or due or isinstance(event, _ASKED)):
            return None
        if over:
            self._end_model_call(envelope.time_ms, made_anyway=False)
            for key in [key for key in self._open if key != RUN]:
                self._end_span(key, envelope.time_ms)
        if isinstance(event, e.RunEnd):
            failure = self._failure if event.reason == "error" else None
            kind, message = (failure.error_class, failure.message) if failure is not None else ("", "")
            came_to = _describe_usage(self._usage) | {"treadle.end": event.reason}
            self._end_span(RUN, envelope.time_ms, came_to, error=kind, message=message)
        portion = Portion(trace, envelope.seq, tuple(self._done), tuple(self._queued))
        self._done, self._queued, self.handed_ms = [], [], envelope.time_ms
        if over:
            self._begin(None, 0)
        return portion

    def _start_span(self, key: str, parent: str, name: str, at: int, attributes: Attributes) -> Span:
        nonempty = {name: value for name, value in attributes.items() if value != ""}
        span = Span(key, parent, make_inert_line(name, _NAME), at, {names.CONVERSATION: self._chat, **nonempty})
        return self._open.setdefault(key, span)

    def _end_span(
        self, key: str, at: int, attributes: Attributes = NOTHING, *, error: str = "", message: str = ""
    ) -> None:
        if (span := self._open.pop(key, None)) is None:
            return
        span.attributes |= attributes
        span.end_ms = max(span.start_ms, at)
        span.error, span.error_message = error, make_inert_line(message, _TOLD)
        self._done.append(span)

    @property
    def _here(self) -> str:
        """The parent of a new span: the turn, or else the run."""
        return next((key for key in (self._turn, RUN) if key in self._open), ROOT)

    def _record_worker(self, envelope: Envelope) -> None:
        """Record the worker that drives the run, and how long the run waited for a worker."""
        run = self._open.get(RUN)
        if envelope.epoch == 0:
            return
        if self._pending_ms:
            self._queued.append(max(0, envelope.time_ms - self._pending_ms) / 1000)
            if run is not None:
                run.attributes.setdefault(names.QUEUED, self._queued[-1])
            self._pending_ms = 0
        if run is not None and envelope.epoch != self._epoch:
            run.moments = [*run.moments, Moment("treadle.worker", envelope.time_ms, {"treadle.epoch": envelope.epoch})]
        self._epoch = envelope.epoch

    def _project_turn_event(self, at: int, event: e.Event) -> None:
        attributes: Attributes
        match event:
            case e.UserMessage() if self._said and RUN in self._open:
                attributes = self._open[RUN].attributes
                messages = msgspec.json.decode(attributes.get(names.INPUT_MESSAGES, "[]"))
                message = {"role": "user", "parts": [{"type": "text", "content": event.content}]}
                attributes[names.INPUT_MESSAGES] = _encode_json([*messages, message])
            case e.TurnStart(turn=turn, model=model):
                self._turn = f"turn {turn}"
                self._start_span(self._turn, RUN, self._turn, at, {names.TURN: turn})
                self._attempt, self._asked_ms = 0, at if model else 0
                self._model = model or self._model
                self._open[RUN].attributes |= names.describe_model(model)
            case e.TurnRetry():
                is_lost = event.error_class == "worker_lost"  # the reserved tokens are no count of the used ones
                usage = None if is_lost else event.usage
                self._end_model_call(at, error=event.error_class, message=event.message, usage=usage)
                self._asked_ms = at + round(event.delay_s * 1000)
            case e.AssistantMessage():
                self._requests |= {request.call: (request.name, request.id) for request in event.tool_requests}
                attributes = {names.FINISH: [event.finish_reason]} if event.finish_reason else {}
                if self._said:
                    attributes |= _encode_answer(event)
                    if RUN in self._open:  # the last message of a run is what came of it
                        self._open[RUN].attributes[names.OUTPUT_MESSAGES] = attributes[names.OUTPUT_MESSAGES]
                self._end_model_call(at, attributes, usage=event.usage, turn=event.turn)
            case e.TurnEnd():
                self._end_model_call(at, usage=event.usage, made_anyway=event.usage.tokens > 0)
                self._end_span(f"turn {event.turn}", at)
                self._turn = ""
            case e.SessionError():
                self._failure = event
                self._end_model_call(at, error=event.error_class, message=event.message, made_anyway=self._attempt == 0)

    def _end_model_call(
        self,
        at: int,
        attributes: Attributes = NOTHING,
        *,
        error: str = "",
        message: str = "",
        usage: Usage | None = None,
        turn: int = 0,
        made_anyway: bool = True,
    ) -> None:
        """End the span of a model call for a turn. After a failed attempt the log does not tell if another attempt was
        made before the turn ended; only the time that passed does."""
        asked_ms, self._asked_ms = self._asked_ms, 0
        if not asked_ms or not (made_anyway or at > asked_ms):
            return
        self._attempt += 1
        key = f"chat {self._turn} {self._attempt}"
        if (first := self._first_tokens.pop(turn, None)) is not None:
            attributes = {**attributes, names.FIRST_TOKEN: round(first, 6)}
        if (ending := self._endings.pop(turn, None)) is not None:
            attributes = {**attributes, **names.describe_response(ending)}
        self._record_model_call(key, self._here, min(asked_ms, at), usage)
        self._end_span(key, at, attributes, error=error, message=message)

    def _record_model_call(self, key: str, parent: str, start: int, usage: Usage | None) -> None:
        model = names.describe_model(self._model)
        name = f"chat {model.get(names.MODEL, '')}".rstrip()
        self._start_span(
            key, parent, name, start, {names.OPERATION: "chat"} | model | _describe_usage(usage)
        ).kind = "client"
        self._usage += usage or Usage()

    # -- calls, and what they wait for ----------------------------------------------------------------------------

    def _project_call_event(self, at: int, event: e.Event) -> None:
        match event:
            case e.TrialStart(call=call):
                self._start_span(f"try {call}", self._here, f"try {event.name}", at, {names.TOOL: event.name})
            case e.ExecutionStart(call=call):
                self._end_span(f"try {call}", at)
                attributes = {names.OPERATION: "execute_tool", names.TOOL: event.name, "treadle.effect": event.effect}
                attributes[names.TOOL_TYPE] = "extension" if "__" in event.name else "function"
                ids = {names.TOOL_CALL: self._requests.get(call, ("", ""))[1], names.CALL: call}
                content = {names.ARGUMENTS: _encode_json(event.arguments)} if self._said else {}
                name = f"execute_tool {event.name}"
                self._start_span(f"tool {call}", self._here, name, at, attributes | ids | content)
            case e.ExecutionComplete(call=call):
                self._end_span(f"try {call}", at)
                outcome: Attributes = {names.RESULT: event.result or event.error} if self._said else {}
                outcome |= {names.TOOL_TIME: event.duration_ms / 1000} if event.duration_ms else {}
                outcome |= {"treadle.sandbox": event.sandbox} if event.sandbox else {}
                failed = "" if event.success else event.synthetic or "tool_error"
                self._end_span(f"tool {call}", at, outcome, error=failed)
            case e.PermissionRequested(action=action, call=call):
                self._end_span(f"try {call}", at)
                self._wait(at, action, "approval", call, {"treadle.severity": event.severity})
            case e.ExternalToolRequested(call=call):
                self._wait(at, call, "client_tool", call)
            case e.UserInputRequested(action=action, call=call):
                self._wait(at, action, "question", call, {"treadle.question": event.purpose})
            case e.PermissionCompleted(action=action):
                self._end_span(f"wait {action}", at, {"treadle.decision": event.decision, "treadle.by": event.by})
            case e.ExternalToolCompleted(call=call):
                failed = "client_error" if event.is_error else ""
                self._end_span(f"wait {call}", at, {"treadle.by": event.by}, error=failed)
            case e.UserInputCompleted(action=action):
                self._end_span(f"wait {action}", at, {"treadle.by": event.by})
        if isinstance(event, _ANSWERED):
            self._pending_ms = at

    def _wait(self, at: int, action: str, wait_kind: str, call: CallKey, attributes: Attributes = NOTHING) -> None:
        tool = self._requests.get(call, ("", ""))[0]
        parent = f"tool {call}" if f"tool {call}" in self._open else self._here
        own_attributes = {names.WAIT: wait_kind, names.TOOL: tool, names.CALL: call}
        self._start_span(f"wait {action}", parent, f"wait {wait_kind}", at, {**own_attributes, **attributes})

    # -- compaction, checks, calls that are no turn -----------------------------------------------------------------

    def _project_side_event(self, envelope: Envelope) -> None:
        at, event = envelope.time_ms, envelope.data
        match event:
            case e.CompactionStart():
                parent = self._here if self._asked_ms or RUN not in self._open else RUN
                self._compacting = f"compaction {envelope.seq}"
                self._start_span(self._compacting, parent, "compaction", at, {"treadle.trigger": event.trigger})
            case e.CompactionComplete():
                tokens = {"treadle.tokens.before": event.tokens_before, "treadle.tokens.after": event.tokens_after}
                self._end_span(self._compacting, at, tokens, error="" if event.success else "compaction_failed")
                self._asked_ms = self._asked_ms and at
            case e.ModelCall(usage=usage) if usage.tokens or event.error:
                compacts = event.purpose == "compaction"
                within = self._open.get(self._compacting if compacts else f"tool {event.call}")
                start = within.start_ms if within is not None and compacts else self._before_ms
                parent = within.key if within is not None else self._here
                key, error = f"chat {envelope.seq}", "model_error" if event.error else ""
                self._record_model_call(key, parent, start, usage)
                self._end_span(key, at, {names.PURPOSE: event.purpose}, error=error, message=event.error)
            case e.CheckStarted(check=check):
                content = {"treadle.check": event.command} if self._said else {}
                self._start_span(check, self._here, "check", at, content)
            case e.CheckCompleted(check=check):
                self._end_span(check, at, error="" if event.success else event.synthetic or "check_failed")
            case e.Interrupted() if (run := self._open.get(RUN)) is not None:
                run.moments = [*run.moments, Moment("treadle.interrupted", at, {"treadle.by": event.by})]


def _describe_usage(usage: Usage | None) -> Attributes:
    if usage is None or not usage.tokens:
        return {}
    optional: Attributes = {names.CACHED_TOKENS: usage.cached, names.REASONING_TOKENS: usage.reasoning}
    optional |= {names.COST: usage.usd, names.ESTIMATED: usage.estimated}
    tokens = {names.INPUT_TOKENS: usage.input, names.OUTPUT_TOKENS: usage.output}
    return {**tokens, **{name: value for name, value in optional.items() if value}}


# -- content in the shapes of the GenAI conventions; it comes from the log, so secrets are out of it (S-11) ------------


def _encode_json(value: object) -> str:
    return msgspec.json.encode(value).decode()


def _encode_answer(message: e.AssistantMessage) -> Attributes:
    parts: list[Attributes] = [{"type": "text", "content": message.content}] if message.content else []
    for request in message.tool_requests:
        parts.append({"type": "tool_call", "id": request.id, "name": request.name, "arguments": request.arguments})
    answer = {"role": "assistant", "parts": parts, "finish_reason": message.finish_reason}
    return {names.OUTPUT_MESSAGES: _encode_json([answer])}
