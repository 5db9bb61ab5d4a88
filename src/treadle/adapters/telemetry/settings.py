"""Settings of the export. Imports nothing of OpenTelemetry: a process without telemetry pays nothing for it."""

from collections.abc import Mapping
from contextlib import suppress
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
    """Traces and metrics for a collector. An empty field is taken from the usual variables, `OTEL_*`. `endpoint`: the
    address of the collector, as in `http://localhost:4318`. `content`: True if spans have the content of the chat:
    messages, arguments of calls, results."""

    endpoint: str = ""
    protocol: Literal["", "http/protobuf", "grpc"] = ""
    content: bool = False

    def choose_exporter(self, signal: Signal, env: Mapping[str, str]) -> Exporter:
        """How a signal is exported; empty: not at all. ConfigError if it cannot be."""
        if env.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
            return ""
        exporter_name = env.get(f"OTEL_{signal}_EXPORTER", "").strip()
        has_endpoint = any(env.get(name) for name in (f"{_BASE}_ENDPOINT", f"{_BASE}_{signal}_ENDPOINT"))
        choice = exporter_name or ("otlp" if self.endpoint or has_endpoint else "none")
        if choice not in _EXPORTERS:
            raise ConfigError(f"OTEL_{signal}_EXPORTER is {exporter_name!r}; Treadle knows otlp, console and none")
        return _EXPORTERS[choice]

    def choose_protocol(self, signal: Signal, env: Mapping[str, str]) -> str:
        protocol = self.protocol or env.get(f"{_BASE}_{signal}_PROTOCOL") or env.get(f"{_BASE}_PROTOCOL") or HTTP
        if protocol not in PROTOCOLS:
            raise ConfigError(f"{protocol!r} is no protocol that traces are sent by; there is: {', '.join(PROTOCOLS)}")
        return protocol

    def check(self, env: Mapping[str, str]) -> bool:
        """True if any signal is exported. ConfigError names the package that is missing for it."""
        signals: tuple[Signal, ...] = ("TRACES", "METRICS")
        exported = [signal for signal in signals if self.choose_exporter(signal, env)]
        if not exported:
            return False
        if find_spec("opentelemetry") is None or find_spec("opentelemetry.sdk") is None:
            raise ConfigError("OpenTelemetry is not installed; install it with: pip install 'treadle[otel]'")
        for signal in exported:
            name = "grpc" if self.choose_protocol(signal, env) == "grpc" else "http"
            spec = None
            with suppress(ModuleNotFoundError):
                spec = find_spec(f"opentelemetry.exporter.otlp.proto.{name}")
            if self.choose_exporter(signal, env) == "otlp" and spec is None:
                package = f"opentelemetry-exporter-otlp-proto-{name}"
                raise ConfigError(f"{package} is not installed; install it, or choose another protocol")
        return True
