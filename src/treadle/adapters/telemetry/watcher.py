"""Hands over the portions of spans that end with what this process commits, read from the store in its own task."""

import asyncio
import logging
import os
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

import msgspec

from treadle.adapters.telemetry.projection import EVERY_MS, RUN, Projection
from treadle.adapters.telemetry.settings import Telemetry
from treadle.base.logs import log_warning
from treadle.base.types import CallKey, ChatId
from treadle.chat.state import ChatState
from treadle.errors import ConfigError
from treadle.ports.observer import Observer
from treadle.ports.store import Store
from treadle.protocol import events as e
from treadle.protocol import wire
from treadle.protocol.deltas import FinishDelta
from treadle.protocol.events import Envelope
from treadle.protocol.trace_context import TraceContext, find_trace, make_span_id

if TYPE_CHECKING:
    from treadle.adapters.telemetry.recorder import Recorder

K = TypeVar("K")
V = TypeVar("V")

KEPT = 1_024
CLOSE_S = 3.0  # How long a process that ends waits for its collector.
_LOOK_BACK = 50  # Outside runs: a compaction begins so few events before it ends.
_ENDS = e.RunEnd | e.CompactionComplete | e.PermissionRequested | e.ExternalToolRequested | e.UserInputRequested


def make_observer(telemetry: bool | Telemetry, store: Store, warn: Callable[[str], object]) -> Observer:
    """The observer that exports as `telemetry` says; one that does nothing if there is nothing to export, or cannot
    be."""
    settings = telemetry if isinstance(telemetry, Telemetry) else Telemetry()
    try:
        return Watcher(store, settings) if telemetry and settings.check(os.environ) else Observer()
    except ConfigError as error:
        warn(f"no traces: {error}")
        return Observer()


class _Job(msgspec.Struct, frozen=True):
    """A commit with which a portion may end."""

    chat: ChatId
    begin: int
    first: int
    last: int
    model: str


class _Watched(msgspec.Struct):
    """State of a chat whose run is under way. It is a cache: all of it can be dropped."""

    handed_ms: int = 0  # When the last portion ended, as far as this process has read; it may have been another's.
    first_tokens: dict[int, float] = {}
    endings: dict[int, FinishDelta] = {}
    projection: Projection | None = None


class Watcher(Observer):
    """An `Observer` that exports. ConfigError at once if it cannot."""

    def __init__(self, store: Store, settings: Telemetry) -> None:
        self._store, self._wanted = store, settings
        self._jobs: deque[_Job] = deque()
        self._task: asyncio.Task[None] | None = None
        self._recorder: Recorder | None = None
        self._watched: OrderedDict[ChatId, _Watched] = OrderedDict()
        self._current: OrderedDict[str, TraceContext] = OrderedDict()
        self._filter = _TraceIds(self._current)
        logging.getLogger("treadle").addFilter(self._filter)

    def on_append(self, previous_state: ChatState, envelopes: Sequence[Envelope]) -> None:
        last = next((one for one in reversed(envelopes) if self._can_end(previous_state, one)), None)
        if last is None:
            return
        first = envelopes[0].seq
        begin = previous_state.run.first if previous_state.run is not None else max(1, first - _LOOK_BACK)
        self._jobs.append(_Job(previous_state.chat, begin, first, last.seq, previous_state.options.model))
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._work(), name="telemetry")

    def _can_end(self, previous_state: ChatState, envelope: Envelope) -> bool:
        """True if a portion may end here. The log decides if it does."""
        if not isinstance(envelope.data, e.TurnEnd):
            return isinstance(envelope.data, _ENDS)
        began = previous_state.run.started_ms if previous_state.run is not None else envelope.time_ms
        return envelope.time_ms - max(began, self._get_watched(previous_state.chat).handed_ms) >= EVERY_MS

    def _get_watched(self, chat: ChatId) -> _Watched:
        return _keep(self._watched, chat, self._watched.get(chat) or _Watched())

    def on_first_token(self, chat: ChatId, turn: int, seconds: float) -> None:
        self._get_watched(chat).first_tokens[turn] = seconds

    def on_answer(self, chat: ChatId, turn: int, ending: FinishDelta) -> None:
        self._get_watched(chat).endings[turn] = ending

    @contextmanager
    def trace_work(self, state: ChatState, call: CallKey | None = None) -> Iterator[None]:
        """Make this call or run OpenTelemetry's current span: tools' spans are its children, logs have its trace."""
        if state.run is None:
            yield
            return
        from opentelemetry.context import attach, detach
        from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, set_span_in_context

        here = _get_span_context(state, f"tool {call}" if call else RUN)
        _keep(self._current, state.chat, here)
        span_context = SpanContext(here.trace, here.span, False, TraceFlags(int(here.sampled)))
        token = attach(set_span_in_context(NonRecordingSpan(span_context)))
        try:
            yield
        finally:
            detach(token)

    def make_traceparent(self, state: ChatState, waits: CallKey) -> str:
        return str(_get_span_context(state, f"wait {waits}")) if state.run is not None else ""

    async def _work(self) -> None:
        while self._jobs:
            job = self._jobs.popleft()
            try:
                await self._hand_over(job)
            except Exception as error:  # any error: telemetry must not disturb the chat
                log_warning("the trace of chat %s is not whole: %s: %s", job.chat, type(error).__name__, error)

    async def _hand_over(self, job: _Job) -> None:
        if self._recorder is None:
            self._recorder = await asyncio.to_thread(_load_recorder, self._wanted)
        watched = self._get_watched(job.chat)
        projection, watched.projection = watched.projection, None  # if this fails, the projection is incomplete
        if projection is None or not job.begin - 1 <= projection.reached < job.first:
            content, tokens, endings = self._wanted.content, watched.first_tokens, watched.endings
            projection = Projection(job.chat, job.model, content, tokens, endings)
            projection.reached = job.begin - 1
        records = await self._store.read(job.chat, projection.reached, job.last - projection.reached)
        for record in records:
            portion = projection.take(wire.decode(job.chat, record))
            if portion is not None and portion.seq >= job.first:
                self._recorder.record(portion)
        watched.handed_ms = projection.handed_ms
        if not projection.idle:
            watched.projection = projection

    async def close(self) -> None:
        """Hand over what was committed. The process may end when this returns."""
        if self._task is not None:
            await self._task
        logging.getLogger("treadle").removeFilter(self._filter)
        if self._recorder is not None:
            await asyncio.to_thread(self._recorder.close, CLOSE_S)


def _get_span_context(state: ChatState, key: str) -> TraceContext:
    """Of a span of the run that is under way."""
    assert state.run is not None
    above = find_trace(state.chat, state.run.first, state.run.traceparent)
    return TraceContext(above.trace, make_span_id(state.chat, state.run.first, key), above.sampled)


def _load_recorder(settings: Telemetry) -> "Recorder":
    from treadle.adapters.telemetry.recorder import Recorder  # it loads OpenTelemetry's SDK

    return Recorder(settings)


def _keep(cache: OrderedDict[K, V], key: K, value: V) -> V:
    """Keep it, and forget what was not asked for longest."""
    cache[key] = value
    cache.move_to_end(key)
    if len(cache) > KEPT:
        cache.popitem(last=False)
    return value


class _TraceIds(logging.Filter):
    """Log lines tell their trace: in their text, and under the names that OpenTelemetry's own logging uses."""

    def __init__(self, current: OrderedDict[str, TraceContext]) -> None:
        super().__init__()
        self._current = current

    def filter(self, record: logging.LogRecord) -> bool:
        from opentelemetry.trace import get_current_span

        here = get_current_span().get_span_context()
        args = record.args if isinstance(record.args, tuple) else ()
        chats = (self._current[word] for word in args if isinstance(word, str) and word in self._current)
        context = TraceContext(here.trace_id, here.span_id) if here.is_valid else next(chats, None)
        if context is not None and not hasattr(record, "otelTraceID"):
            record.otelTraceID, record.otelSpanID = f"{context.trace:032x}", f"{context.span:016x}"
            record.msg = f"{record.msg} [trace {context.trace:032x}]"
        return True
