"""The context of a trace as the W3C writes it (`traceparent`), and the ids of a run's own trace. They follow from what
is recorded, so that any worker says the same ones, and nothing need be remembered. Knows nothing of OpenTelemetry."""

from collections.abc import Mapping
from hashlib import sha256
from typing import Any

import msgspec

_LENGTHS = (2, 32, 16, 2)


class TraceContext(msgspec.Struct, frozen=True):
    """A place in a trace. `span` is 0 where a trace begins."""

    trace: int
    span: int = 0
    sampled: bool = True

    def __str__(self) -> str:
        return f"00-{self.trace:032x}-{self.span:016x}-{int(self.sampled):02x}"


def read(traceparent: str) -> TraceContext | None:
    """None if it is none that can be joined: then a trace of its own is begun, as the W3C wants it."""
    parts = traceparent.strip().lower().split("-")[:4]
    if tuple(map(len, parts)) != _LENGTHS or not set("".join(parts)) <= set("0123456789abcdef"):
        return None
    version, trace, span, flags = parts
    if version == "ff" or not int(trace, 16) or not int(span, 16):
        return None
    return TraceContext(int(trace, 16), int(span, 16), bool(int(flags, 16) & 1))


def normalize_traceparent(traceparent: str) -> str:
    """In its one spelling; empty if it cannot be joined."""
    return str(read(traceparent) or "")


def extract_traceparent(metadata: Mapping[str, Any] | None) -> str:
    """The `traceparent` that came along with a request, where protocols have no field for it but a map of anything
    (`_meta`); empty if none did, or none that can be joined."""
    traceparent = (metadata or {}).get("traceparent")
    return normalize_traceparent(traceparent) if isinstance(traceparent, str) else ""


def find_trace(chat: str, first: int, traceparent: str = "") -> TraceContext:
    """The parent of the run that began with the event `first`: the span that began it, or a trace of its own."""
    return read(traceparent) or TraceContext(int.from_bytes(_compute_digest(chat, first)[:16]))


def make_span_id(chat: str, first: int, key: str) -> int:
    """The id of a span of that run. `key` names it within the run."""
    return int.from_bytes(_compute_digest(chat, first, key)[:8])


def _compute_digest(*parts: object) -> bytes:
    return sha256("\0".join(map(str, ("treadle", *parts))).encode()).digest()
