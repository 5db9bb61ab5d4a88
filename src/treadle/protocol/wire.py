"""Envelopes as JSON and back: the wire form of the specification, and the stored form of a record.

Stored form: the event's own JSON (`body`) beside its type, version and time; wire form: the whole envelope.
Nothing else in Treadle encodes or decodes an event.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from typing import Any, TypeVar

import msgspec

from treadle.base.types import ChatId
from treadle.errors import Damaged, InvalidInput
from treadle.protocol import upcast
from treadle.protocol.events import LIVE, RECORDED, Envelope, Event, RecordLost

_encoder = msgspec.json.Encoder()
_KINDS = RECORDED | LIVE
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


def encode(envelope: Envelope) -> Record:
    """The stored form. InvalidInput if it could not be read back: JSON has no infinite number and no lone surrogate."""
    return _record(envelope, encode_value(envelope.data))


def encode_replacing(envelope: Envelope) -> tuple[Envelope, Record]:
    """The stored form, and the envelope that it is read back as: text that UTF-8 cannot hold is replaced (see
    `encodable`). InvalidInput for an infinite number."""
    try:
        return envelope, _record(envelope, _encode_finite(envelope.data))
    except UnicodeEncodeError:
        envelope = msgspec.structs.replace(envelope, data=encodable(envelope.data))
        return envelope, encode(envelope)


def _record(envelope: Envelope, body: bytes) -> Record:
    event = envelope.data
    return Record(envelope.seq, envelope.time_ms, event.TYPE, event.VERSION, envelope.epoch, body)


def encode_value(value: object) -> bytes:
    """The JSON of an event, a command or a part of one; InvalidInput if reading it would not give the same value."""
    try:
        return _encode_finite(value)
    except UnicodeEncodeError as error:
        raise InvalidInput(
            f"This text holds {error.object[error.start]!a}, half of a character; it cannot be stored as UTF-8."
        ) from error


def _encode_finite(value: object) -> bytes:
    body = _encoder.encode(value)
    if b"null" in body and (place := _find_non_finite(value, "")):  # the encoder writes such numbers as null
        raise InvalidInput(f"{place} is not a finite number.")
    return body


def _find_non_finite(value: object, place: str) -> str:
    """Where in a value an infinite number or NaN stands; empty if nowhere."""
    if isinstance(value, float):
        return "" if math.isfinite(value) else place or "This"
    parts: Iterable[tuple[object, object]] = ()
    if isinstance(value, msgspec.Struct):
        parts = ((name, getattr(value, name)) for name in value.__struct_fields__)
    elif isinstance(value, Mapping):
        parts = value.items()
    elif isinstance(value, Sequence) and not isinstance(value, str | bytes):
        parts = enumerate(value)
    places = (_find_non_finite(part, f"{place}.{name}" if place else str(name)) for name, part in parts)
    return next(filter(None, places), "")


def encodable(event: EventT) -> EventT:
    """The event with text that UTF-8 can hold: half of a character, such as Python makes of a file name that is not
    UTF-8, becomes a replacement character. The same object where there is none."""
    try:
        _encoder.encode(event)
    except UnicodeEncodeError:
        plain = _with_whole_characters(msgspec.to_builtins(event))
        return msgspec.convert(plain, type(event))
    return event


def _with_whole_characters(value: object) -> object:
    if isinstance(value, str):
        return value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    if isinstance(value, dict):
        return {_with_whole_characters(key): _with_whole_characters(item) for key, item in value.items()}
    return [_with_whole_characters(item) for item in value] if isinstance(value, list | tuple) else value


def decode_event(kind: str, version: int, body: bytes | msgspec.Raw) -> Event:
    """Decode one event, upcasting an old version. Raises Damaged when it cannot be read."""
    if kind not in _KINDS:
        raise Damaged(f"unknown event type {kind!r}")
    if version == 0:  # how a store marks a body that it could not restore
        raise Damaged(f"{kind} cannot be read: its stored bytes are damaged")
    decoder = _decoder(kind)
    try:
        if version == decoder.type.VERSION:
            return decoder.decode(body)
        return msgspec.convert(upcast.upcast(kind, version, msgspec.json.decode(body)), decoder.type)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise Damaged(f"{kind} cannot be read: {error}") from error


@cache
def _decoder(kind: str) -> msgspec.json.Decoder[Event]:
    """Made when the first event of its kind comes: most kinds are not in most chats."""
    return msgspec.json.Decoder(_KINDS[kind])


def decode(chat: ChatId, record: Record) -> Envelope:
    """Decode a stored record. A damaged one becomes `session.record_lost` in its place: not fatal (D-06)."""
    try:
        event = decode_event(record.type, record.version, record.body)
    except Damaged as error:
        event = RecordLost(record.type, str(error))
    return Envelope(record.seq, chat, record.time_ms, event, record.epoch)


def make_lost_record(seq: int, reason: str) -> Record:
    """Return the record that stands in for a missing one."""
    return encode(Envelope(seq, ChatId(""), 0, RecordLost("", reason)))


def iso_time(time_ms: int) -> str:
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
    fields: dict[str, Any] = {}
    if not envelope.ephemeral:
        fields |= {"seq": envelope.seq, "id": envelope.id}
    fields |= {
        "chat": envelope.chat,
        "time": iso_time(envelope.time_ms),
        "type": event.TYPE,
        "data": to_wire_form(event),
    }
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
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise Damaged(f"not an event: {error}") from error
    try:
        time_ms = parse_time(wire.time) if wire.time else 0
    except ValueError as error:
        raise Damaged(f"not a time: {wire.time!r}") from error
    event = decode_event(wire.type, wire.version, wire.data)
    return Envelope(wire.seq, ChatId(wire.chat), time_ms, event, wire.epoch)
