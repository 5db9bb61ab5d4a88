"""Where two logs begin to differ: for `diff-runs`, and for replay, which holds a log against its own repetition. Pure.
Says what counts as a difference, and says it in words; knows nothing of stores."""

import math
from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import Any

import msgspec
from msgspec.structs import replace

from treadle.base.types import CallKey
from treadle.protocol import events as e
from treadle.protocol import wire
from treadle.protocol.events import Envelope

IGNORED: Mapping[str, str] = {
    "id": "made of the chat's id",
    "chat": "every chat has its own",
    "time": "no two runs happen at the same time",
    "epoch": "says which worker wrote it, not what it wrote",
    "data.id": "the name under which a message queued is chosen at random",
    "data.queue_id": "the same name, where the message is used",
    "data.duration_ms": "a measured time",
    "data.traceparent": "says who watched, not what happened",
    "data.delay_s": "the wait before another attempt has chance in it",
    "data.why": "says in words what the events before it record; logs from before it was recorded do not say it",
    "data.read_only": "logs from before it was recorded do not say it",
    "data.effect": "said by the tool's spec, which is not recorded",
    "data.hash": "a digest of what is shown beside it, and of arguments that a refused call does not record",
    "data.place": "a job of another run is on another machine, or in another home",
    "data.host": "the same, for people",
    "data.forked_from": "where a copy came from is not what happened in it",
    "data.options.root": "two runs of one task are made in two folders",
    "data.options.root_id": "the same, said by the file system",
}
"""The fields in which equal events may differ, and why."""

CONTEXT = 2
_LINE = 160


class Divergence(msgspec.Struct, frozen=True):
    """The first place where two logs differ. A side is None where its log has ended."""

    seq: int
    left: Envelope | None
    right: Envelope | None
    text: str


def normalize_event(envelope: Envelope) -> dict[str, Any]:
    """An event as plain data without what may differ between equal events."""
    fields: dict[str, Any] = _strip_ignored(wire.to_dict(envelope), "")
    data = fields["data"]
    if data.get("kind") == "wall_s":
        data.pop("used", None)  # a measured time, under a name that mostly is none
    return fields


def _strip_ignored(value: Any, path: str) -> Any:
    if isinstance(value, dict):
        inner = f"{path}." if path else ""
        return {
            key: _strip_ignored(part, f"{inner}{key}") for key, part in value.items() if f"{inner}{key}" not in IGNORED
        }
    if isinstance(value, list):
        return [_strip_ignored(part, f"{path}[]") for part in value]
    if isinstance(value, float) and math.isfinite(value):
        return float(f"{value:.12g}")  # money is a sum of floats, whose last bits are noise
    return value


def is_same_event(left: Envelope, right: Envelope) -> bool:
    return normalize_event(left) == normalize_event(right)


def find_first_divergence(
    left: Sequence[Envelope], right: Sequence[Envelope], names: tuple[str, str] = ("A", "B")
) -> Divergence | None:
    """The first event in which two logs differ, with the events before it as context; None if they do not. Turns of
    version 1 are held against others as if they were written today."""
    left, right = upgrade_log(left), upgrade_log(right)
    for index, (one, second) in enumerate(zip_longest(left, right)):
        if one is None or second is None or not is_same_event(one, second):
            return describe_divergence(left[:index], one, second, names)
    return None


def describe_divergence(
    preceding: Sequence[Envelope], left: Envelope | None, right: Envelope | None, names: tuple[str, str] = ("A", "B")
) -> Divergence:
    """Describe a difference that follows the events `before`."""
    seq = next((side.seq for side in (left, right) if side is not None), len(preceding) + 1)
    width = max(len(name) for name in names)
    lines = [f"The first difference is at {seq}: {_describe_difference(left, right, names)}"]
    lines += [f"  {'':{width}}  {_format_line(envelope)}" for envelope in preceding[-CONTEXT:]]
    for name, side in zip(names, (left, right), strict=True):
        lines.append(f"  {name:{width}}  {_format_line(side) if side is not None else '(nothing)'}")
    return Divergence(seq, left, right, "\n".join(lines))


def _describe_difference(left: Envelope | None, right: Envelope | None, names: tuple[str, str]) -> str:
    if left is None or right is None:
        return f"{names[0] if left is None else names[1]} has ended there."
    if left.type != right.type:
        return f"{left.type} in {names[0]}, {right.type} in {names[1]}."
    field, one, second = _find_different_field("", normalize_event(left), normalize_event(right)) or ("nothing", "", "")
    return f"{field} is {_shorten_value(one)} in {names[0]}, {_shorten_value(second)} in {names[1]}."


def _find_different_field(path: str, one: Any, second: Any) -> tuple[str, Any, Any] | None:
    if isinstance(one, dict) and isinstance(second, dict):
        prefix, keys = f"{path}." if path else "", dict.fromkeys((*one, *second))
        return next(
            filter(None, (_find_different_field(f"{prefix}{key}", one.get(key), second.get(key)) for key in keys)), None
        )
    if isinstance(one, list) and isinstance(second, list) and len(one) == len(second):
        pairs = enumerate(zip(one, second, strict=True))
        return next(filter(None, (_find_different_field(f"{path}[{index}]", a, b) for index, (a, b) in pairs)), None)
    return None if one == second else (path, one, second)


def _shorten_value(value: Any, limit: int = _LINE) -> str:
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def _format_line(envelope: Envelope) -> str:
    return f"{envelope.seq:>5}  {envelope.type}  {_shorten_value(msgspec.to_builtins(envelope.data))}"


# -- logs whose turns end as in version 1 of `assistant.turn_end`: right after the message, before the calls, and with
# the usage that the message lacks. The record itself stays as it is, and `fold` reads both.

_WITH_A_RESULT = (e.CheckpointCreated, e.FilesChanged, e.WorkspaceConflict, e.PlanUpdated, e.TaskComplete)
"""Events that are recorded together with the last result of a turn, before the turn ends."""


def upgrade_log(log: Sequence[Envelope]) -> list[Envelope]:
    return [replace(envelope, seq=seq) for seq, envelope in enumerate(reorder_log(log), 1)]


def reorder_log(log: Sequence[Envelope]) -> list[Envelope]:
    """The log in today's order, each event with the number that it has. A turn that has not ended by today's measure,
    because its calls have no results yet, loses its end."""
    ordered: list[Envelope] = []
    pending_end: Envelope | None = None
    open_calls, old = set[CallKey](), set[int]()
    ends = {envelope.data.turn: envelope.data for envelope in log if isinstance(envelope.data, e.TurnEnd)}
    for envelope in log:
        event = envelope.data
        last = ordered[-1] if ordered else envelope
        # An event that was written together with the result, or the message, before it belongs to the turn.
        belongs = envelope.epoch == last.epoch > 0 and isinstance(event, _WITH_A_RESULT)
        if pending_end is not None and not open_calls and not belongs:
            ordered.append(_restamp_event(pending_end, last))
            pending_end, last = None, ordered[-1]
        if isinstance(event, e.AssistantMessage) and event.usage is None:
            end = ends.get(event.turn, e.TurnEnd(event.turn))
            message = replace(event, usage=end.usage, finish_reason=end.finish_reason)
            old.add(event.turn)
            open_calls = {request.call for request in event.tool_requests}
            ordered.append(replace(envelope, data=message))
            continue
        # A turn end of another epoch than its message: a copy was cut between the two, and the copier ended the turn.
        is_behind_message = isinstance(last.data, e.AssistantMessage) and envelope.epoch == last.epoch
        if isinstance(event, e.TurnEnd) and event.turn in old and is_behind_message:
            pending_end = envelope
            continue
        if isinstance(event, e.ExecutionComplete):
            open_calls.discard(event.call)
        elif pending_end is not None and isinstance(event, e.TurnStart | e.RunEnd):  # results were lost
            ordered.append(_restamp_event(pending_end, last))
            pending_end, open_calls = None, set()
        ordered.append(envelope)
    if pending_end is not None and not open_calls:
        ordered.append(_restamp_event(pending_end, ordered[-1]))
    return ordered


def _restamp_event(end: Envelope, previous: Envelope) -> Envelope:
    return replace(end, time_ms=previous.time_ms, epoch=previous.epoch)
