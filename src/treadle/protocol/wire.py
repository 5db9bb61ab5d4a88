"""Envelopes as JSON and back: the wire form of the specification, and the stored form of a record.

Stored form: the event's own JSON (`body`) beside its type, version and time; wire form: the whole envelope.
Nothing else in Treadle encodes or decodes an event."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, TypeVar

import msgspec

from treadle.base.types import ChatId
from treadle.errors import Damaged, InvalidInput
from treadle.protocol.events import LIVE, RECORDED, Envelope, Event, RecordLost
from treadle.protocol.tools import COMMAND_TOOL, EDIT_TOOLS, is_read_only_command

_encoder = msgspec.json.Encoder()
_KINDS = RECORDED | LIVE
MAX_LEVELS = 200  # A value may have so many levels: every reader of a chat visits them by recursion.
_READ_LEVELS = 800  # Records of earlier versions may have so many; newer Pythons could decode, but not visit, more.
MAX_TIME_MS = 253_402_214_400_000  # The last day of the year 9999, which `datetime` can hold in any time zone.
EventT = TypeVar("EventT", bound=Event)


class Record(msgspec.Struct, frozen=True):
    """An event as a store keeps it."""

    seq: int
    time_ms: int
    type: str
    version: int
    epoch: int
    body: bytes


class _Wire(msgspec.Struct, omit_defaults=True):
    type: str
    data: msgspec.Raw
    chat: str = ""
    time: str = ""
    seq: int = 0
    id: str = ""
    version: int = 1
    epoch: int = 0
    ephemeral: bool = False


_wire_decoder = msgspec.json.Decoder(_Wire)
# Made at import: two threads that use a type for the first time at once crash msgspec.
_decoders: dict[str, msgspec.json.Decoder[Event]] = {kind: msgspec.json.Decoder(_KINDS[kind]) for kind in _KINDS}


def encode(envelope: Envelope) -> Record:
    """The stored form. InvalidInput if it could not be read back: JSON has no infinite number and no lone surrogate."""
    return _make_record(envelope, encode_value(envelope.data))


def encode_replacing(envelope: Envelope) -> tuple[Envelope, Record]:
    """The stored form, and the envelope as it is read back (see `encodable`). InvalidInput for an infinite number."""
    try:
        return envelope, _make_record(envelope, _encode_finite(envelope.data))
    except UnicodeEncodeError:
        envelope = msgspec.structs.replace(envelope, data=make_encodable(envelope.data))
        return envelope, encode(envelope)


def _make_record(envelope: Envelope, body: bytes) -> Record:
    event = envelope.data
    return Record(envelope.seq, envelope.time_ms, event.TYPE, event.VERSION, envelope.epoch, body)


def encode_value(value: object) -> bytes:
    """The JSON of an event or a command; InvalidInput if reading it would not give the same value."""
    try:
        body = _encode_finite(value)
        msgspec.json.decode(body, type=type(value))
    except UnicodeEncodeError as error:
        raise InvalidInput(
            f"This text holds {error.object[error.start]!a}, half of a character; it cannot be stored as UTF-8."
        ) from error
    except (msgspec.ValidationError, TypeError) as error:
        raise InvalidInput(f"This value does not fit: {error}.") from error
    return body


def _encode_finite(value: object) -> bytes:
    body = _encoder.encode(value)
    # The encoder writes infinite numbers as null.
    if (b"null" in body or _can_exceed_levels(body, MAX_LEVELS)) and (reason := _explain_unstorable(value, MAX_LEVELS)):
        raise InvalidInput(reason)
    return body


def _can_exceed_levels(body: bytes, levels: int) -> bool:
    return body.count(b"{") + body.count(b"[") > levels


def _explain_unstorable(value: object, levels: int) -> str:
    """Why a value could not be read back or shown: an infinite number or NaN, or too many levels; empty if it can."""
    layer: list[tuple[str, object]] = [("", value)]
    for _ in range(levels):
        below: list[tuple[str, object]] = []
        for place, item in layer:
            parts: Iterable[tuple[object, object]] = ()
            if isinstance(item, float) and not math.isfinite(item):
                return f"{place or 'This'} is not a finite number."
            if isinstance(item, msgspec.Struct):
                parts = ((name, getattr(item, name)) for name in item.__struct_fields__)
            elif isinstance(item, Mapping):
                parts = item.items()
            elif isinstance(item, Sequence) and not isinstance(item, str | bytes):
                parts = enumerate(item)
            below += [(f"{place}.{name}" if place else str(name), part) for name, part in parts]
        if not below:
            return ""
        layer = below
    return f"This is nested more than {levels} levels deep; send something flatter."


def make_encodable(event: EventT) -> EventT:
    """The event with text that UTF-8 can hold: half of a character, such as Python makes of a file name that is not
    UTF-8, becomes a replacement character. The same object where there is none."""
    try:
        _encoder.encode(event)
    except UnicodeEncodeError:
        return msgspec.convert(_replace_half_characters(msgspec.to_builtins(event)), type(event))
    return event


def _replace_half_characters(value: object) -> object:
    if isinstance(value, str):
        return value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    if isinstance(value, dict):
        return {_replace_half_characters(key): _replace_half_characters(item) for key, item in value.items()}
    return [_replace_half_characters(item) for item in value] if isinstance(value, list | tuple) else value


def decode_event(kind: str, version: int, body: bytes | msgspec.Raw) -> Event:
    """Decode one event, upcasting an old version. Raises Damaged when it cannot be read."""
    if kind not in _KINDS:
        raise Damaged(f"unknown event type {kind!r}")
    if version == 0:  # how a store marks a body that it could not restore
        raise Damaged(f"{kind} cannot be read: its stored bytes are damaged")
    decoder = _decoders[kind]
    try:
        if version == decoder.type.VERSION:
            event = decoder.decode(body)
        else:
            event = msgspec.convert(upcast(kind, version, msgspec.json.decode(body)), decoder.type)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise Damaged(f"{kind} cannot be read: {error}") from error
    if _can_exceed_levels(bytes(body), _READ_LEVELS) and (reason := _explain_unstorable(event, _READ_LEVELS)):
        raise Damaged(f"{kind} cannot be read: {reason}")
    return event


def decode(chat: ChatId, record: Record) -> Envelope:
    """Decode a stored record. A damaged one becomes `session.record_lost` in its place: not fatal (D-06)."""
    try:
        event = decode_event(record.type, record.version, record.body)
    except Damaged as error:
        event = RecordLost(record.type, str(error))
    return Envelope(record.seq, chat, _clean_time(record.time_ms), event, record.epoch)


def _clean_time(time_ms: object) -> int:
    """The time of a record; 0 if damage has made of it what is no time."""
    return time_ms if isinstance(time_ms, int) and 0 <= time_ms < MAX_TIME_MS else 0


def make_lost_record(seq: int, reason: str) -> Record:
    return encode(Envelope(seq, ChatId(""), 0, RecordLost("", reason)))


def format_time(time_ms: int) -> str:
    moment = datetime.fromtimestamp(time_ms / 1000, UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{time_ms % 1000:03d}Z"


def parse_time(text: str) -> int:
    return round(datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp() * 1000)


def to_wire_form(value: object) -> Any:
    """A recorded value with every field in it: on the wire nothing is left to be known, in the log defaults are."""
    if isinstance(value, msgspec.Struct):
        names = zip(value.__struct_encode_fields__, value.__struct_fields__, strict=True)
        return {wire_name: to_wire_form(getattr(value, name)) for wire_name, name in names}
    if isinstance(value, dict):
        return {key: to_wire_form(item) for key, item in value.items()}
    return [to_wire_form(item) for item in value] if isinstance(value, tuple | list) else value


def to_dict(envelope: Envelope) -> dict[str, Any]:
    """The wire form as plain data, in the order in which people read it."""
    event = envelope.data
    fields: dict[str, Any] = {} if envelope.ephemeral else {"seq": envelope.seq, "id": envelope.id}
    fields |= {"chat": envelope.chat, "time": format_time(envelope.time_ms), "type": event.TYPE}
    fields["data"] = to_wire_form(event)
    if event.VERSION != 1:
        fields["version"] = event.VERSION
    if envelope.epoch:
        fields["epoch"] = envelope.epoch
    if envelope.ephemeral:
        fields["ephemeral"] = True
    return fields


def to_json(envelope: Envelope) -> bytes:
    return _encoder.encode(to_dict(envelope))


def from_json(line: bytes | str) -> Envelope:
    """Read one wire envelope. Raises Damaged with a sentence when it is none."""
    try:
        wire = _wire_decoder.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise Damaged(f"not an event: {error}") from error
    try:
        time_ms = _clean_time(parse_time(wire.time)) if wire.time else 0
    except ValueError as error:
        raise Damaged(f"not a time: {wire.time!r}") from error
    event = decode_event(wire.type, wire.version, wire.data)
    return Envelope(wire.seq, ChatId(wire.chat), time_ms, event, wire.epoch)


Upcaster = Callable[[dict[str, Any]], dict[str, Any]]


def _as_it_is(data: dict[str, Any]) -> dict[str, Any]:
    """The new version only has more fields, and they may be left out; or it stands in another place, and where it was
    recorded it stays."""
    return data


_READERS = frozenset({
    "read_file", "list_directory", "find_files", "grep_search", "get_diagnostics", "read_output", "check_command",
    "task_complete", "update_plan", "ask_user",
})  # fmt: skip


def _upcast_effect(start: dict[str, Any]) -> dict[str, Any]:
    """Until version 2 what a call does was told by the name of its tool, and of a command by its words."""
    name, command = start["name"], start.get("arguments", {}).get("command")
    looks = name == COMMAND_TOOL and isinstance(command, str) and is_read_only_command(command)
    if start.get("read_only") or name in _READERS or looks:
        return {**start, "effect": "read"}
    return {**start, "effect": "edit"} if name in EDIT_TOOLS else start


def _upcast_mode(options: dict[str, Any]) -> dict[str, Any]:
    """The mode that asked for every command and every change by its words was called `ask`."""
    return {**options, "mode": "confirm"} if options.get("mode") == "ask" else options


_FILE_EVENTS = ("files_changed", "undone", "redone", "kept")
UPCASTERS: dict[tuple[str, int], Upcaster] = {
    ("user.message", 1): _as_it_is,  # its source may be `apply`
    ("user.message", 2): _as_it_is,  # the trace that it joins
    # 1: a change says where later ones of the chat lead behind an undo. 2: it says if git tracks a file in a cache
    **{(f"workspace.{kind}", version): _as_it_is for kind in _FILE_EVENTS for version in (1, 2)},
    ("tool.execution_complete", 1): _as_it_is,  # with pictures
    ("job.ended", 1): _as_it_is,  # how many files are not committed yet
    ("user_input.requested", 1): _as_it_is,  # a tool may ask in the middle of its call
    ("tool.execution_start", 1): _as_it_is,  # read_only: the tool only reads
    ("tool.execution_start", 2): _upcast_effect,
    ("session.created", 1): _as_it_is,  # the options say which folder the root is
    ("session.created", 2): lambda data: {**data, "options": _upcast_mode(data["options"])},
    ("session.created", 3): _as_it_is,  # which call of another chat began it
    # Until version 4 a run had 20 turns unless something else was said, and what has its default is not recorded.
    ("session.created", 4): lambda data: {**data, "options": {"max_turns": 20, **data["options"]}},
    ("session.options_changed", 1): lambda data: {**data, "changes": _upcast_mode(data["changes"])},
    ("session.run_end", 1): _as_it_is,  # why, in words
    ("session.run_end", 2): _as_it_is,  # its reason may be `incomplete`
    ("session.model_call", 1): _as_it_is,  # a call may have asked
    **dict.fromkeys((("queue.changed", 1), ("session.idle", 1), ("session.idle", 2)), _as_it_is),
    ("subagent.completed", 1): _as_it_is,
    # In version 1 the end of the turn stood right behind the message and told the cost for the first time.
    ("assistant.message", 1): lambda data: {**data, "usage": None, "finish_reason": ""},
    ("assistant.turn_end", 1): _as_it_is,  # it stood before the calls of its turn
}
"""(type, version) → what makes it version + 1."""


def upcast(
    kind: str, version: int, data: dict[str, Any], upcasters: dict[tuple[str, int], Upcaster] | None = None
) -> dict[str, Any]:
    """Lift `data` from `version` step by step until no upcaster is left. A newer version is refused."""
    table = UPCASTERS if upcasters is None else upcasters
    if (kind, version) not in table:
        raise Damaged(f"{kind} has version {version}, which this Treadle does not know")
    try:
        while (step := table.get((kind, version))) is not None:
            data, version = step(data), version + 1
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise Damaged(f"{kind} of version {version} cannot be lifted to the next: {error!r}") from error
    return data
