"""Sends spans to a collector from a thread of its own. Each portion is sent at once, because spans that wait for a
timer are lost with the process. No task waits for the thread; spans that the collector refuses are dropped, with one
warning."""

import threading
from queue import SimpleQueue

from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from treadle.base.logs import log_warning

MOST = 8_192
"""So many spans may wait for a collector that is slow or away."""


class Sender(SpanProcessor):
    def __init__(self, exporter: SpanExporter, destination: str) -> None:
        self._exporter = exporter
        self._where = destination
        self._made: list[ReadableSpan] = []
        self._queue: SimpleQueue[list[ReadableSpan] | None] = SimpleQueue()
        self._waiting = 0
        self._told = False
        self._thread = threading.Thread(target=self._send_all, name="treadle traces", daemon=True)
        self._thread.start()

    def on_end(self, span: ReadableSpan) -> None:
        if span.context is not None and span.context.trace_flags.sampled:
            self._made.append(span)

    def send(self) -> None:
        """Queue the spans that were made since the last call."""
        batch, self._made = self._made, []
        if self._waiting + len(batch) > MOST:
            self._failed("too many wait for it")
        elif batch:
            self._waiting += len(batch)
            self._queue.put(batch)

    def _send_all(self) -> None:
        while (batch := self._queue.get()) is not None:
            try:
                if self._exporter.export(batch) is not SpanExportResult.SUCCESS:
                    self._failed("it does not take them")
            except Exception as error:  # an exporter's own fault, which must not end the thread
                self._failed(str(error))
            self._waiting -= len(batch)

    def _failed(self, reason: str) -> None:
        if not self._told:
            self._told = True
            text = "traces do not reach the collector (%s): %s; the work goes on without them"
            log_warning(text, self._where, reason)

    def finish(self, timeout_s: float) -> None:
        """Send what is left, for so long."""
        self._queue.put(None)
        self._thread.join(timeout_s)
        self._exporter.shutdown()
