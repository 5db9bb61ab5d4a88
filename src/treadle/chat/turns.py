"""Reads logs whose turns end as in version 1 of `assistant.turn_end`: right after the message, before the calls, and
with the usage that the message lacks. `lifted` converts them to today's order, for a comparison of two logs. The record
itself stays as it is, and `fold` reads both."""

from collections.abc import Sequence

from msgspec.structs import replace

from treadle.base.types import CallKey
from treadle.protocol.events import (
    AssistantMessage,
    CheckpointCreated,
    Envelope,
    ExecutionComplete,
    FilesChanged,
    PlanUpdated,
    RunEnd,
    TaskComplete,
    TurnEnd,
    TurnStart,
    WorkspaceConflict,
)

_WITH_A_RESULT = (CheckpointCreated, FilesChanged, WorkspaceConflict, PlanUpdated, TaskComplete)
"""Events that are recorded together with the last result of a turn, before the turn ends."""


def lifted(log: Sequence[Envelope]) -> list[Envelope]:
    """The log as it would be written today, numbered anew."""
    return [replace(envelope, seq=seq) for seq, envelope in enumerate(in_order(log), 1)]


def in_order(log: Sequence[Envelope]) -> list[Envelope]:
    """The log in today's order, each event with the number that it has. A turn that has not ended by today's measure,
    because its calls have no results yet, loses its end."""
    ordered: list[Envelope] = []
    pending_end: Envelope | None = None
    open_calls: set[CallKey] = set()
    old: set[int] = set()
    ends = {envelope.data.turn: envelope.data for envelope in log if isinstance(envelope.data, TurnEnd)}
    for envelope in log:
        event = envelope.data
        if pending_end is not None and not open_calls and not _belongs(envelope, ordered[-1]):
            ordered.append(_restamp_event(pending_end, ordered[-1]))
            pending_end = None
        if isinstance(event, AssistantMessage) and event.usage is None:
            end = ends.get(event.turn, TurnEnd(event.turn))
            message = replace(event, usage=end.usage, finish_reason=end.finish_reason)
            old.add(event.turn)
            open_calls = {request.call for request in event.tool_requests}
            ordered.append(replace(envelope, data=message))
            continue
        if isinstance(event, TurnEnd) and event.turn in old and _behind_its_message(envelope, ordered[-1]):
            pending_end = envelope
            continue
        if isinstance(event, ExecutionComplete):
            open_calls.discard(event.call)
        elif pending_end is not None and isinstance(event, TurnStart | RunEnd):  # results were lost
            ordered.append(_restamp_event(pending_end, ordered[-1]))
            pending_end, open_calls = None, set()
        ordered.append(envelope)
    if pending_end is not None and not open_calls:
        ordered.append(_restamp_event(pending_end, ordered[-1]))
    return ordered


def _behind_its_message(envelope: Envelope, previous: Envelope) -> bool:
    """True if the turn end was written together with its message. False if a copy was cut between the two and the
    copying process ended the turn."""
    return isinstance(previous.data, AssistantMessage) and envelope.epoch == previous.epoch


def _belongs(envelope: Envelope, previous: Envelope) -> bool:
    """True if the event was written together with the result, or the message, before it."""
    return envelope.epoch == previous.epoch > 0 and isinstance(envelope.data, _WITH_A_RESULT)


def _restamp_event(end: Envelope, previous: Envelope) -> Envelope:
    return replace(end, time_ms=previous.time_ms, epoch=previous.epoch)
