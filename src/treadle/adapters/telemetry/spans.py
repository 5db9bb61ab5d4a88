"""Spans as values, and those of a log that are open at a point of it. Knows nothing of OpenTelemetry."""

from typing import Any, Literal

import msgspec

ROOT = ""
"""The key of what is above a run."""
RUN = "run"


class Moment(msgspec.Struct):
    """Something that happened in the middle of a span."""

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
    error: str = ""
    """The class of the error that it ended with; empty if with none."""
    error_message: str = ""
    """The error in words."""
    moments: list[Moment] = []


class Trace(msgspec.Struct, frozen=True):
    """The data that all spans of a run share: the chat, the event that began the run, and the caller's span."""

    chat: str
    first: int
    traceparent: str = ""


class Portion(msgspec.Struct, frozen=True):
    """Spans that are handed over together, and how long the chat waited for workers meanwhile, in seconds."""

    trace: Trace
    seq: int
    """The event that ends the portion: the process that wrote it hands the spans over."""
    spans: tuple[Span, ...]
    queued: tuple[float, ...] = ()
