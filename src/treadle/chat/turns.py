"""Logs in which turns end as they did in version 1 of `assistant.turn_end`: right behind the message, before the calls,
and with the cost that the message does not tell. `lifted` puts them into today's order, for whoever holds one log
against another. The record itself stays as it is, and `fold` reads both."""

from collections.abc import Sequence

from msgspec.structs import replace

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
from treadle.types import CallKey

_WITH_A_RESULT = (CheckpointCreated, FilesChanged, WorkspaceConflict, PlanUpdated, TaskComplete)
"""What is recorded together with the last result of a turn, before the turn ends."""


def lifted(log: Sequence[Envelope]) -> list[Envelope]:
    """The log as it would be written today, numbered anew."""
    return [replace(envelope, seq=seq) for seq, envelope in enumerate(in_order(log), 1)]


def in_order(log: Sequence[Envelope]) -> list[Envelope]:
    """The log in today's order, each event with the number that it has. A turn that has not ended by today's measure,
    because its calls have no results yet, loses its end."""
    ordered: list[Envelope] = []
    moved: Envelope | None = None
    open_calls: set[CallKey] = set()
    old: set[int] = set()
    ends = {envelope.data.turn: envelope.data for envelope in log if isinstance(envelope.data, TurnEnd)}
    for envelope in log:
        event = envelope.data
        if moved is not None and not open_calls and not _belongs(envelope, ordered[-1]):
            ordered.append(_moved(moved, ordered[-1]))
            moved = None
        if isinstance(event, AssistantMessage) and event.usage is None:
            end = ends.get(event.turn, TurnEnd(event.turn))
            told = replace(event, usage=end.usage, finish_reason=end.finish_reason)
            old.add(event.turn)
            open_calls = {request.call for request in event.tool_requests}
            ordered.append(replace(envelope, data=told))
            continue
        if isinstance(event, TurnEnd) and event.turn in old and _behind_its_message(envelope, ordered[-1]):
            moved = envelope
            continue
        if isinstance(event, ExecutionComplete):
            open_calls.discard(event.call)
        elif moved is not None and isinstance(event, TurnStart | RunEnd):  # results were lost
            ordered.append(_moved(moved, ordered[-1]))
            moved, open_calls = None, set()
        ordered.append(envelope)
    if moved is not None and not open_calls:
        ordered.append(_moved(moved, ordered[-1]))
    return ordered


def _behind_its_message(envelope: Envelope, before: Envelope) -> bool:
    """Not so where a copy was cut between the two, and was brought to an end by whoever made it."""
    return isinstance(before.data, AssistantMessage) and envelope.epoch == before.epoch


def _belongs(envelope: Envelope, before: Envelope) -> bool:
    """Whether it was written together with the result, or the message, before it."""
    return envelope.epoch == before.epoch > 0 and isinstance(envelope.data, _WITH_A_RESULT)


def _moved(end: Envelope, before: Envelope) -> Envelope:
    return replace(end, time_ms=before.time_ms, epoch=before.epoch)
