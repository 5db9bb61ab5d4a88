"""Models that answer from the record: deltas that add up to the recorded message, the same failures, and silence where
the worker died; and inputs of decisions that are not in the log, derived from the events that follow: the model's
window and prices, the size of the system prompt, the time."""

import math
from collections.abc import AsyncIterator, Sequence
from itertools import islice
from typing import Any, cast, get_args

import msgspec

from treadle.chat.assembly import NOTICES
from treadle.chat.completion import MARKER
from treadle.chat.history import CHARS_PER_TOKEN
from treadle.chat.state import ChatState
from treadle.chat.transcript import COMPACT_AT, HEADROOM_TOKENS, compute_threshold, estimate
from treadle.engine.hub import Hub
from treadle.engine.log import Ahead, Log
from treadle.engine.request import TYPICAL_OUTPUT
from treadle.engine.tenure import Tenure
from treadle.errors import ConfigError, ModelError, ModelErrorKind
from treadle.library.replay.recording import ReplayStore, make_fault
from treadle.ports.model import Model, ModelInfo, ModelRequest
from treadle.protocol import deltas as d
from treadle.protocol import events as e
from treadle.protocol.content import Usage
from treadle.protocol.options import ChatOptions

ROOM = 1_000_000_000
ROOMY = (ROOM, 0)
CRAMPED = (1, ROOM)  # A window and an output limit.
NO_TOOLS = 2  # Characters of the JSON of no tools at all.


class WatchedLog(Log):
    """A log that tells which state the rules are being asked about: they are asked ahead of what is written."""

    def __init__(self, stage: ReplayStore) -> None:
        super().__init__(stage, Hub(), WrittenTime(self))
        self.stage = stage
        self.tenure: Tenure | None = None
        self._asked: ChatState | None = None

    @property
    def state(self) -> ChatState:
        return self._asked or (self.tenure.state if self.tenure is not None else ChatState())

    async def append(
        self,
        state: ChatState,
        events: Sequence[e.Event],
        *,
        effect_free_events: Ahead | None = None,
        **append_options: Any,
    ) -> ChatState:
        def record_state(new_state: ChatState) -> Sequence[e.Event]:
            self._asked = new_state
            return effect_free_events(new_state) if effect_free_events is not None else ()

        self._asked = state
        try:
            return await super().append(state, events, effect_free_events=record_state, **append_options)
        finally:
            self._asked = None

    def find_decision(self) -> list[e.Event]:
        return self.stage.recording.find_decision(self.state.head)


class WrittenTime:
    """The clock that stamps events: each gets its recorded time, so that deadlines and durations repeat."""

    def __init__(self, log: WatchedLog) -> None:
        self._log = log

    def now_ms(self) -> int:
        recording = self._log.stage.recording
        return (recording.find_event(self._log.state.head + 1) or recording.events[-1]).time_ms

    def monotonic(self) -> float:
        return 0.0

    async def sleep(self, seconds: float) -> None:
        """Do nothing: no code sleeps on this clock."""


class DecidedTime(WrittenTime):
    """The clock of decisions: late where only time explains the recorded decision, else as early as it can be."""

    def now_ms(self) -> int:
        recording, head = self._log.stage.recording, self._log.state.head
        is_late = any(map(_is_timely, self._log.find_decision()))
        envelope = recording.find_due(head) if is_late else recording.find_event(head)
        return envelope.time_ms if envelope is not None else 0

    async def sleep(self, seconds: float) -> None:
        """A wait before another attempt: it takes no time, but may have been the end of the run or of the worker."""
        due = await self._log.stage.require_due()
        if isinstance(due.data, e.TurnEnd) and due.data.finish_reason == "interrupted":
            await self._log.stage.admit_interrupt()


def _is_timely(event: e.Event) -> bool:
    if isinstance(event, e.LimitReached | e.LimitWarning):
        return event.kind == "wall_s"
    return getattr(event, "synthetic", "") == "deadline"


def make_filler(log: WatchedLog) -> str:
    """A system text that weighs what the real one weighed together with the tools, by the estimates in the log."""
    state, target_tokens = log.state, 0
    for event in log.find_decision():
        match event:
            case e.TurnStart(reserved=reserved):
                target_tokens = reserved.input
            case e.CompactionStart(trigger="threshold", tokens_before=tokens_before):
                target_tokens = tokens_before
            case e.LimitReached(kind="tokens", used=used_tokens, limit=limit):
                run = state.run
                expected = run.usage.output // run.turns if run is not None and run.turns else TYPICAL_OUTPUT
                target_tokens = int(limit - used_tokens) + 1 - expected
    return " " * max(0, int((target_tokens - 1) * CHARS_PER_TOKEN) + 1 - state.context_chars - NO_TOOLS)


def derive_model_info(log: WatchedLog, ref: str) -> ModelInfo:
    """The model by the log: name and price where a turn is reserved, its room where a compaction begins or ends."""
    state = log.state
    next_events = [envelope.data for envelope in islice(log.stage.recording.iterate_outputs(state.head), 2)]
    price = 0.0
    match log.find_decision()[-1:]:
        case [e.TurnStart(model=ref, reserved=reserved)]:
            price = reserved.usd / reserved.input if reserved.input else 0.0
        case [e.LimitReached() as limit]:
            price = _compute_breaking_price(limit, estimate(state, NO_TOOLS + len(make_filler(log))))
        case [e.CompactionComplete(success=False, error=error)] if error != "interrupted":
            limit_event = next_events[-1]  # the limit that forbade it, if that was not cut off from it
            price = _compute_breaking_price(limit_event, 1) if isinstance(limit_event, e.LimitReached) else 1.0
    window, output = _choose_capacity(state, next_events)
    provider, _, name = ref.partition(":")
    native = True
    if state.open_turn is not None:  # only the record knows the rung of an answer that ended its run by the marker
        coming = [envelope.data for envelope in islice(log.stage.recording.iterate_outputs(state.head), NOTICES + 2)]
        answers = [index for index, event in enumerate(coming) if isinstance(event, e.AssistantMessage)]
        native = not answers or not isinstance((*coming, None)[answers[0] + 1], e.TaskComplete)
    # The log has settled the question of a known price: it records how the run went on.
    usd = price * 1_000_000
    return ModelInfo(provider, name, window, output, usd_per_million_input=usd, native_tools=native, free=True)


def _compute_breaking_price(limit: e.LimitReached, tokens: int) -> float:
    """A price per token at which this many break the limit, and not by much."""
    if limit.kind != "usd" or not tokens:
        return 0.0
    return ((limit.limit - limit.used) * (1 + 1e-9) + 1e-9) / tokens


def _choose_capacity(state: ChatState, next_events: Sequence[e.Event]) -> tuple[int, int]:
    """A window and an output limit that lead where the log leads. Only the threshold that they make is ever seen."""
    completion = next((event for event in next_events if isinstance(event, e.CompactionComplete)), None)
    if state.compacting and completion is not None and completion.threshold:
        return _compute_capacity(completion.threshold, state.options)
    if state.compacting or isinstance(next_events[0] if next_events else None, e.CompactionStart):
        return CRAMPED
    return ROOMY


def _compute_capacity(target_threshold: int, options: ChatOptions) -> tuple[int, int]:
    """A window and an output limit, as far as the options leave them open, that make this threshold."""
    fixed, output = options.context_window, options.max_tokens
    if fixed:
        return fixed, max(0, fixed - HEADROOM_TOKENS - target_threshold)
    share = int(target_threshold / COMPACT_AT)
    for window in (2 * target_threshold, target_threshold + output + HEADROOM_TOKENS, share, share + 1):
        if compute_threshold(window, output or ROOM) == target_threshold:
            return window, ROOM
    return CRAMPED


NEVER = math.inf  # A requested wait that is longer than any limit, so that the call is not repeated.


class RecordedAnswer(msgspec.Struct, frozen=True):
    deltas: tuple[d.Delta, ...] = ()
    error: Exception | None = None
    stopped: bool = False


class RecordedModels:
    """Implements `treadle.ports.model.Models`."""

    def __init__(self, log: WatchedLog) -> None:
        self._log = log

    def get(self, ref: str) -> Model:
        for event in self._log.find_decision()[:1]:
            match event:
                case e.SessionError(error_class="config", message=message):
                    raise ConfigError(message)
                case e.CompactionComplete(success=False, threshold=0, error=message):
                    raise ConfigError(message)
        return RecordedModel(self._log, ref)

    async def close(self) -> None:
        """Nothing is held open."""


class RecordedModel:
    def __init__(self, log: WatchedLog, ref: str) -> None:
        self._log, self._ref = log, ref

    @property
    def info(self) -> ModelInfo:
        return derive_model_info(self._log, self._ref)

    async def stream(self, request: ModelRequest) -> AsyncIterator[Sequence[d.Delta]]:
        stage = self._log.stage
        due = await stage.require_due()
        following = [envelope.data for envelope in stage.recording.list_following(due)]
        answer = _make_turn_answer(following) if request.purpose == "turn" else _make_side_answer(following)
        if answer is None:
            await stage.leave(stage.make_divergence(due, None))
        if answer.deltas:
            yield answer.deltas
        if answer.stopped:
            await stage.admit_interrupt()
        if answer.error is not None:
            raise answer.error

    async def close(self) -> None:
        """Nothing is held open."""


def _make_turn_answer(following: Sequence[e.Event]) -> RecordedAnswer | None:
    """The attempt that these events are the record of; None if they are none of an attempt."""
    first, *later_events = following
    match first:
        case e.ModelNotice(kind=kind, text=text):
            later: RecordedAnswer | None = RecordedAnswer((d.UsageDelta(Usage()), d.FinishDelta()))
            if later_events:
                later = _make_turn_answer(later_events)
            notice = (d.NoticeDelta(kind, text),)
            return later and msgspec.structs.replace(later, deltas=(*notice, *later.deltas))
        case e.TurnRetry():
            return RecordedAnswer(_make_usage_deltas(first.usage), _make_failure(first, later_events))
        case e.AssistantMessage():
            # A completion by the tool comes behind its result; one by the marker right behind the message.
            marked = bool(later_events) and isinstance(later_events[0], e.TaskComplete)
            deltas = (*_make_deltas(first, marked), d.UsageDelta(first.usage or Usage()))  # none in a torn copy
            if first.partial:
                return RecordedAnswer(deltas, stopped=True)
            return RecordedAnswer((*deltas, d.FinishDelta(first.finish_reason)))
        case e.TurnEnd(usage=usage, finish_reason="interrupted"):
            return RecordedAnswer(_make_usage_deltas(usage), stopped=True)
        case e.SessionError(error_class=kind, message=message):
            return RecordedAnswer(error=_make_error(kind, message))
        case _:
            return None


def _make_deltas(message: e.AssistantMessage, marked: bool) -> list[d.Delta]:
    """The parts of a message, in an order that adds up to it."""
    deltas: list[d.Delta] = [d.ThinkingBlock(block) for block in message.reasoning]
    text = message.content + (MARKER if marked else "")
    if text:
        deltas.append(d.TextDelta(text))
    for position, request in enumerate(message.tool_requests):
        call_labels = (request.id or None, position, request.name or None)
        deltas.append(d.CallDelta(*call_labels, request.arguments, request.repaired))
    return deltas


def _make_usage_deltas(usage: Usage) -> tuple[d.Delta, ...]:
    """Return the usage that was counted before the end; no usage is reported for a call that cost nothing."""
    return (d.UsageDelta(usage),) if usage != Usage() else ()


def _make_failure(retry: e.TurnRetry, later_events: Sequence[e.Event]) -> Exception:
    """The failure behind a retry, with the wait that was chosen; without one where the turn was given up."""
    following = later_events[0] if later_events else None
    given_up = not retry.delay_s and retry.usage.tokens and isinstance(following, e.SessionError)
    if isinstance(following, e.SessionError) and following.error_class == retry.error_class == "internal":
        return make_fault(following)
    return _make_error(retry.error_class, retry.message, NEVER if given_up else retry.delay_s)


def _make_error(kind: str, message: str, retry_after: float = NEVER) -> Exception:
    if kind == "config":
        return ConfigError(message)
    error_kind = kind if kind in (*get_args(ModelErrorKind), "internal") else "bad_request"
    return ModelError(cast(ModelErrorKind, error_kind), message, retry_after=retry_after)


def _make_side_answer(following: Sequence[e.Event]) -> RecordedAnswer | None:
    """A call that is no turn. A compaction's text is its summary, recorded with the compaction itself."""
    first, *later_events = following
    match first:
        case e.ModelCall(usage=usage, error="interrupted"):
            return RecordedAnswer(_make_usage_deltas(usage), stopped=True)
        case e.ModelCall(usage=usage, error=error) if error:
            return RecordedAnswer(_make_usage_deltas(usage), ModelError("bad_request", error))
        case e.ModelCall(usage=usage, text=text):
            if later_events and isinstance(later_events[0], e.CompactionComplete):
                text = later_events[0].summary
            return RecordedAnswer((d.TextDelta(text), d.UsageDelta(usage), d.FinishDelta()))
        case e.CompactionComplete(error="interrupted") | e.RunEnd(reason="interrupted"):
            return RecordedAnswer(stopped=True)
        case _:
            return None
