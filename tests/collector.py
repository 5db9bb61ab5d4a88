"""A collector for tests: takes OTLP over real HTTP, and knows what makes a whole tree."""

import gzip
import threading
from collections import Counter
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

import msgspec
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


class Received(msgspec.Struct, frozen=True):
    """A span as it came over the wire."""

    trace: str
    id: str
    parent: str
    name: str
    kind: int
    start: int
    end: int
    attributes: dict[str, Any]
    error: bool
    resource: dict[str, Any]
    moments: tuple[str, ...]
    schema_url: str = ""


class Collector:
    """`with Collector() as collector:` listens on `collector.url`."""

    def __init__(self) -> None:
        self.spans: list[Received] = []
        self.metrics: list[Any] = []
        self.headers: list[dict[str, str]] = []
        self.raw = b""
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.headers.get("Content-Encoding") == "gzip":
                    body = gzip.decompress(body)
                collector.take(self.path, body, {key.lower(): value for key, value in self.headers.items()})
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._news = threading.Condition()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._server.shutdown()
        self._server.server_close()

    def take(self, path: str, body: bytes, headers: dict[str, str]) -> None:
        with self._news:
            self.headers.append(headers)
            self.raw += body
            if path == "/v1/traces":
                self.spans += _spans(ExportTraceServiceRequest.FromString(body))
            elif path == "/v1/metrics":
                request = ExportMetricsServiceRequest.FromString(body)
                self.metrics += [m for r in request.resource_metrics for s in r.scope_metrics for m in s.metrics]
            self._news.notify_all()

    def until(self, fact: Callable[[], bool]) -> None:
        with self._news:
            assert self._news.wait_for(fact, 60), "it did not come"

    def find_spans(self, name: str) -> list[Received]:
        return [span for span in self.spans if span.name == name]

    def one(self, name: str) -> Received:
        (span,) = self.find_spans(name)
        return span

    def points(self, name: str) -> list[tuple[dict[str, Any], float, int]]:
        """Of a metric: attributes, sum and count of what was last said."""
        latest_points: dict[str, tuple[dict[str, Any], float, int]] = {}
        for metric in self.metrics:
            if metric.name == name:
                data = getattr(metric, metric.WhichOneof("data"))
                for point in data.data_points:
                    attributes = _attributes(point.attributes)
                    value = point.sum if hasattr(point, "sum") else point.as_double
                    latest_points[str(sorted(attributes.items()))] = (attributes, value, getattr(point, "count", 1))
        return list(latest_points.values())

    def problems(self, parent: str = "") -> list[str]:
        """Why the spans are not whole trees, each with one root below `parent`."""
        ids = {span.id for span in self.spans}
        problems = [f"{id} came {n} times" for id, n in Counter(span.id for span in self.spans).items() if n > 1]
        for span in self.spans:
            if span.parent not in ids and span.parent != parent:
                problems.append(f"{span.name} has lost its parent")
            if span.end < span.start:
                problems.append(f"{span.name} ends before it begins")
        roots = Counter(span.trace for span in self.spans if span.parent == parent)
        return problems + [f"trace {trace} has {n} roots" for trace, n in roots.items() if n > 1]

    def tree(self) -> list[str]:
        """The spans by their beginnings, indented."""
        lines: list[str] = []

        def show(parent: str, depth: int) -> None:
            for span in sorted(self.spans, key=lambda span: span.start):
                if span.parent == parent:
                    lines.append("  " * depth + span.name + (" !" if span.error else ""))
                    show(span.id, depth + 1)

        show("", 0)
        return lines


def _spans(request: ExportTraceServiceRequest) -> list[Received]:
    return [
        Received(
            span.trace_id.hex(),
            span.span_id.hex(),
            span.parent_span_id.hex(),
            span.name,
            span.kind,
            span.start_time_unix_nano,
            span.end_time_unix_nano,
            _attributes(span.attributes),
            span.status.code == 2,
            _attributes(resource.resource.attributes),
            tuple(event.name for event in span.events),
            scope.schema_url,
        )
        for resource in request.resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    ]


def _attributes(pairs: Any) -> dict[str, Any]:
    return {pair.key: _value(pair.value) for pair in pairs}


def _value(value: Any) -> Any:
    kind = value.WhichOneof("value")
    return [_value(each) for each in value.array_value.values] if kind == "array_value" else getattr(value, kind)
