"""Portions of the log as spans and metrics: the only module that loads OpenTelemetry's SDK and its variables."""

import os
import sys
import threading
import time
from collections.abc import Callable
from importlib import import_module
from queue import SimpleQueue
from typing import TypeVar

from opentelemetry.context import Context
from opentelemetry.metrics import Histogram, Meter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import ConsoleMetricExporter, PeriodicExportingMetricReader
from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_VERSION, Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.sdk.trace.sampling import Decision
from opentelemetry.trace import NonRecordingSpan, SpanContext, SpanKind, TraceFlags, set_span_in_context
from opentelemetry.trace.status import Status, StatusCode

from treadle._version import __version__
from treadle.adapters.telemetry import names
from treadle.adapters.telemetry.projection import ROOT, Portion, Span
from treadle.adapters.telemetry.settings import Signal, Telemetry
from treadle.base.logs import log_warning
from treadle.protocol.trace_context import find_trace, make_span_id

_TOKENS = [4.0**power for power in range(14)]
_SECONDS = [0.01 * 2.0**power for power in range(14)]
_WAITS = [0.1, 1.0, 10.0, 60.0, 600.0, 3_600.0, 86_400.0]
_NS = 1_000_000
MOST = 8_192  # So many spans may wait for a collector that is slow or away.
T = TypeVar("T")


class Sender(SpanProcessor):
    """Sends spans to a collector from a thread of its own. Each portion is sent at once, because spans that wait for a
    timer are lost with the process. No task waits for the thread; spans that the collector refuses are dropped, with
    one warning."""

    def __init__(self, exporter: SpanExporter, destination: str) -> None:
        self._exporter, self._where = exporter, destination
        self._made: list[ReadableSpan] = []
        self._queue: SimpleQueue[list[ReadableSpan] | None] = SimpleQueue()
        self._waiting, self._has_warned = 0, False
        self._thread = threading.Thread(target=self._send_all, name="treadle traces", daemon=True)
        self._thread.start()

    def on_end(self, span: ReadableSpan) -> None:
        if span.context is not None and span.context.trace_flags.sampled:
            self._made.append(span)

    def send(self) -> None:
        batch, self._made = self._made, []
        if self._waiting + len(batch) > MOST:
            self._warn_once("too many wait for it")
        elif batch:
            self._waiting += len(batch)
            self._queue.put(batch)

    def _send_all(self) -> None:
        while (batch := self._queue.get()) is not None:
            try:
                if self._exporter.export(batch) is not SpanExportResult.SUCCESS:
                    self._warn_once("it does not take them")
            except Exception as error:  # an exporter's own fault, which must not end the thread
                self._warn_once(str(error))
            self._waiting -= len(batch)

    def _warn_once(self, reason: str) -> None:
        if not self._has_warned:
            self._has_warned = True
            text = "traces do not reach the collector (%s): %s; the work goes on without them"
            log_warning(text, self._where, reason)

    def finish(self, timeout_s: float) -> None:
        """Send what is left, for so long."""
        self._queue.put(None)
        self._thread.join(timeout_s)
        self._exporter.shutdown()


class Recorder:
    """ConfigError, as of `Telemetry.check`, if it cannot be."""

    def __init__(self, settings: Telemetry) -> None:
        resource = Resource.create({SERVICE_VERSION: __version__})
        if str(resource.attributes.get(SERVICE_NAME, "")).startswith("unknown_service"):
            resource = resource.merge(Resource({SERVICE_NAME: "treadle"}))
        self._ids = _Ids()
        self._provider = TracerProvider(resource=resource, id_generator=self._ids, shutdown_on_exit=False)
        self._sender: Sender | None = None
        if settings.choose_exporter("TRACES", os.environ):
            destination = settings.endpoint or os.environ.get("OTEL_EXPORTER_OTLP_ENDPOINT", "by OTEL_*")
            self._sender = Sender(
                _make_exporter(settings, "TRACES", ConsoleSpanExporter, "OTLPSpanExporter"), destination
            )
            self._provider.add_span_processor(self._sender)
        self._tracer = self._provider.get_tracer("treadle", __version__, schema_url=names.SCHEMA_URL)
        readers = []
        if settings.choose_exporter("METRICS", os.environ):
            exporter = _make_exporter(settings, "METRICS", ConsoleMetricExporter, "OTLPMetricExporter")
            readers.append(PeriodicExportingMetricReader(exporter))
        self._meters = MeterProvider(readers, resource, shutdown_on_exit=False)
        self._measures = Measures(self._meters.get_meter("treadle", __version__, names.SCHEMA_URL))

    def record(self, portion: Portion) -> None:
        for span in portion.spans:
            self._measures.take(span)
        for seconds in portion.queued:
            self._measures.queue.record(seconds)
        if self._sender is not None:
            self._make(portion)
            self._sender.send()

    def _make(self, portion: Portion) -> None:
        chat, first = portion.trace.chat, portion.trace.first
        above = find_trace(chat, first, portion.trace.traceparent)
        outside = _make_context(above.trace, above.span, above.sampled, remote=True) if above.span else Context()
        decision = self._provider.sampler.should_sample(outside, above.trace, "invoke_agent treadle").decision
        if decision is not Decision.RECORD_AND_SAMPLE:
            return
        for span in portion.spans:
            inside = (
                outside if span.parent == ROOT else _make_context(above.trace, make_span_id(chat, first, span.parent))
            )
            self._ids.trace, self._ids.span = above.trace, make_span_id(chat, first, span.key)
            kind, start = SpanKind.CLIENT if span.kind == "client" else SpanKind.INTERNAL, span.start_ms * _NS
            otel_span = self._tracer.start_span(span.name, inside, kind, span.attributes, start_time=start)
            for moment in span.moments:
                otel_span.add_event(moment.name, moment.attributes, moment.time_ms * _NS)
            if span.error:
                otel_span.set_attribute(names.ERROR, span.error)
                otel_span.set_status(Status(StatusCode.ERROR, span.error_message or None))
            otel_span.end(span.end_ms * _NS)

    def close(self, timeout_s: float) -> None:
        """Send what is left; a collector that does not answer is not waited for longer than that."""
        last = threading.Thread(target=self._meters.shutdown, daemon=True)
        last.start()
        until = time.monotonic() + timeout_s
        if self._sender is not None:
            self._sender.finish(timeout_s)
        last.join(max(0.0, until - time.monotonic()))


class Measures:
    """The metrics: those of the conventions, and our own for what they have no name for."""

    def __init__(self, meter: Meter) -> None:
        def make_histogram(name: str, unit: str, about: str, buckets: list[float]) -> Histogram:
            return meter.create_histogram(name, unit, about, explicit_bucket_boundaries_advisory=buckets)

        self._tokens = make_histogram("gen_ai.client.token.usage", "{token}", "Tokens used by model calls.", _TOKENS)
        self._duration = make_histogram("gen_ai.client.operation.duration", "s", "How long operations took.", _SECONDS)
        first = "gen_ai.client.operation.time_to_first_chunk"
        self._first = make_histogram(first, "s", "How long models took to begin.", _SECONDS)
        self._tools = make_histogram("treadle.tool.duration", "s", "How long tools worked.", _SECONDS)
        self._waits = make_histogram(
            "treadle.wait.duration", "s", "How long chats waited for people and clients.", _WAITS
        )
        self.queue = make_histogram("treadle.queue.duration", "s", "How long chats waited for a worker.", _SECONDS)
        self._cost = meter.create_counter("treadle.cost", "USD", "The cost of model calls.")

    def take(self, span: Span) -> None:
        seconds, attributes = (span.end_ms - span.start_ms) / 1000, span.attributes
        shared = (names.OPERATION, names.PROVIDER, names.MODEL, names.TOOL)
        labels = {key: attributes[key] for key in shared if key in attributes}
        failed = {names.ERROR: span.error} if span.error else {}
        if span.kind == "client":
            for key, kind in ((names.INPUT_TOKENS, "input"), (names.OUTPUT_TOKENS, "output")):
                if key in attributes:
                    self._tokens.record(attributes[key], {**labels, names.TOKEN_TYPE: kind})
            if names.FIRST_TOKEN in attributes:
                self._first.record(attributes[names.FIRST_TOKEN], labels)
            if names.COST in attributes:
                self._cost.add(attributes[names.COST], labels)
        if names.WAIT in attributes:
            self._waits.record(seconds, {names.WAIT: attributes[names.WAIT]})
        elif labels.get(names.OPERATION) == "execute_tool":
            self._tools.record(attributes.get(names.TOOL_TIME, seconds), labels | failed)
        elif names.OPERATION in labels:
            self._duration.record(seconds, labels | failed)


class _Ids(IdGenerator):
    trace = span = 0

    def generate_span_id(self) -> int:
        return self.span

    def generate_trace_id(self) -> int:
        return self.trace

    def is_trace_id_random(self) -> bool:
        return True  # the digest of a random id


def _make_context(trace: int, span: int, sampled: bool = True, *, remote: bool = False) -> Context:
    return set_span_in_context(NonRecordingSpan(SpanContext(trace, span, remote, TraceFlags(int(sampled)))), Context())


def _make_exporter(settings: Telemetry, signal: Signal, console: Callable[..., T], name: str) -> T:
    """The console, or the exporter of this name. The setting is the address of the collector; by HTTP a signal adds its
    path."""
    if settings.choose_exporter(signal, os.environ) == "console":
        return console(out=sys.stderr)
    kind = "trace" if signal == "TRACES" else "metric"
    is_grpc = settings.choose_protocol(signal, os.environ) == "grpc"
    short, path = ("grpc", "") if is_grpc else ("http", f"/v1/{signal.lower()}")
    module = import_module(f"opentelemetry.exporter.otlp.proto.{short}.{kind}_exporter")
    base = settings.endpoint.rstrip("/")
    exporter: T = getattr(module, name)(endpoint=base + path if base else None)
    return exporter
