"""Metrics for Prometheus, in its text format. Counts the work of this process; the content of the store is queried when
the metrics are requested."""

from collections import Counter
from collections.abc import Mapping

from starlette.types import Scope

BUCKETS = (0.005, 0.02, 0.1, 0.5, 2.0, 10.0)
MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"

Labels = tuple[tuple[str, str], ...]


class Metrics:
    """Requests by method, route and status; durations by route; streams that are open."""

    def __init__(self) -> None:
        self._requests: Counter[Labels] = Counter()
        self._durations: dict[str, list[int]] = {}
        self._seconds: Counter[str] = Counter()
        self.streams: Counter[str] = Counter()
        """Open streams by user."""

    def request(self, route: str, scope: Scope, status: int, seconds: float) -> None:
        method = scope.get("method", "GET") if scope["type"] == "http" else "WEBSOCKET"
        if route == "other":
            method = "any"  # anything can be sent; it must not make a series each
        self._requests[("method", method), ("route", route), ("status", str(status))] += 1
        if status == 101 or route.endswith(("/events", "/watch", "/export")):
            return  # how long a reader stays tells nothing
        counts = self._durations.setdefault(route, [0] * (len(BUCKETS) + 1))
        counts[next((at for at, most in enumerate(BUCKETS) if seconds <= most), len(BUCKETS))] += 1
        self._seconds[route] += seconds  # type: ignore[assignment]

    def text(self, gauges: Mapping[str, tuple[str, Mapping[Labels, float]]]) -> str:
        """Return the page: the metrics counted here, and `gauges`: by name, their help and values."""
        lines = _series("treadle_http_requests_total", "counter", "HTTP requests answered.", self._requests)
        lines += self._histogram()
        lines += _series("treadle_open_streams", "gauge", "Streams that are open.", {(): self.streams.total()})
        for name, (about, values) in gauges.items():
            kind = "counter" if name.endswith("_total") else "gauge"
            lines += _series(name, kind, about, values)
        return "\n".join(lines) + "\n"

    def _histogram(self) -> list[str]:
        name = "treadle_http_request_duration_seconds"
        lines = [f"# HELP {name} How long requests took.", f"# TYPE {name} histogram"]
        for route, counts in sorted(self._durations.items()):
            label = f'route="{_escaped(route)}"'
            running = 0
            for most, count in zip((*map(str, BUCKETS), "+Inf"), counts, strict=True):
                running += count
                lines.append(f'{name}_bucket{{{label},le="{most}"}} {running}')
            lines.append(f"{name}_sum{{{label}}} {self._seconds[route]:.6f}")
            lines.append(f"{name}_count{{{label}}} {running}")
        return lines


def _series(name: str, kind: str, about: str, values: Mapping[Labels, float]) -> list[str]:
    lines = [f"# HELP {name} {about}", f"# TYPE {name} {kind}"]
    for labels, value in sorted(values.items()):
        pairs = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels)
        braced = f"{{{pairs}}}" if pairs else ""
        lines.append(f"{name}{braced} {f'{value:g}' if isinstance(value, float) else value}")
    return lines


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
