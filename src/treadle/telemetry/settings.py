"""What is exported, and where to. Imports nothing of OpenTelemetry: whoever wants none of it pays nothing for it."""

from collections.abc import Mapping
from importlib.util import find_spec
from typing import Literal

import msgspec

from treadle.errors import ConfigError

Signal = Literal["TRACES", "METRICS"]
Exporter = Literal["", "otlp", "console"]

HTTP = "http/protobuf"
PROTOCOLS = (HTTP, "grpc")
_BASE = "OTEL_EXPORTER_OTLP"
_EXPORTERS: Mapping[str, Exporter] = {"otlp": "otlp", "console": "console", "none": ""}


class Telemetry(msgspec.Struct, frozen=True):
    """Traces and metrics for a collector. Whatever is empty is taken from the usual variables, `OTEL_*`.
    `endpoint`: the address of the collector, as in `http://localhost:4318`. `content`: whether spans tell what was
    said: messages, arguments of calls, results."""

    endpoint: str = ""
    protocol: Literal["", "http/protobuf", "grpc"] = ""
    content: bool = False

    def exporter(self, signal: Signal, env: Mapping[str, str]) -> Exporter:
        """How a signal is exported; empty: not at all. ConfigError if it cannot be."""
        if env.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
            return ""
        named = env.get(f"OTEL_{signal}_EXPORTER", "").strip()
        given = any(env.get(name) for name in (f"{_BASE}_ENDPOINT", f"{_BASE}_{signal}_ENDPOINT"))
        chosen = named or ("otlp" if self.endpoint or given else "none")
        if chosen not in _EXPORTERS:
            raise ConfigError(f"OTEL_{signal}_EXPORTER is {named!r}; Treadle knows otlp, console and none")
        return _EXPORTERS[chosen]

    def protocol_of(self, signal: Signal, env: Mapping[str, str]) -> str:
        chosen = self.protocol or env.get(f"{_BASE}_{signal}_PROTOCOL") or env.get(f"{_BASE}_PROTOCOL") or HTTP
        if chosen not in PROTOCOLS:
            raise ConfigError(f"{chosen!r} is no protocol that traces are sent by; there is: {', '.join(PROTOCOLS)}")
        return chosen

    def check(self, env: Mapping[str, str]) -> bool:
        """Whether anything is exported at all. ConfigError says what is missing for it."""
        signals: tuple[Signal, ...] = ("TRACES", "METRICS")
        wanted = [signal for signal in signals if self.exporter(signal, env)]
        if not wanted:
            return False
        if find_spec("opentelemetry") is None or find_spec("opentelemetry.sdk") is None:
            raise ConfigError("OpenTelemetry is not installed; install it with: pip install 'treadle[otel]'")
        for signal in wanted:
            name = "grpc" if self.protocol_of(signal, env) == "grpc" else "http"
            if self.exporter(signal, env) == "otlp" and not _found(f"opentelemetry.exporter.otlp.proto.{name}"):
                package = f"opentelemetry-exporter-otlp-proto-{name}"
                raise ConfigError(f"{package} is not installed; install it, or choose another protocol")
        return True


def _found(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False
