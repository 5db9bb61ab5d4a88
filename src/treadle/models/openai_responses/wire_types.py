"""The words of a Responses stream: its events and the items that they speak of, as far as they matter here. Types
only, and what is read from them; tolerant of servers that send other types than they should."""

from contextlib import suppress
from typing import Any, TypeVar, get_type_hints

import msgspec

from treadle.protocol.content import Usage


class Part(msgspec.Struct, gc=False):
    """A piece of a message, of a reasoning or of its summary."""

    text: str | None = None
    refusal: str | None = None


class Item(msgspec.Struct, gc=False):
    """One item of an answer: a message, a call, some reasoning, or something that is not asked for here."""

    type: str = ""
    id: str | None = None
    call_id: str | None = None
    name: str | None = None
    arguments: str | dict[str, Any] | None = None
    content: list[Part] | None = None
    summary: list[Part] | None = None
    encrypted_content: str | None = None


class _Details(msgspec.Struct, gc=False):
    cached_tokens: int | None = None
    reasoning_tokens: int | None = None


class _Usage(msgspec.Struct, gc=False):
    input_tokens: int | None = None
    output_tokens: int | None = None
    input_tokens_details: _Details | None = None
    output_tokens_details: _Details | None = None


class _Incomplete(msgspec.Struct, gc=False):
    reason: str | None = None


class Whole(msgspec.Struct, gc=False):
    """The answer as a whole, which stands in the last event and in a document that is no stream."""

    status: str | None = None
    output: list[msgspec.Raw] | None = None
    usage: _Usage | None = None
    incomplete_details: _Incomplete | None = None
    error: msgspec.Raw = msgspec.Raw()


class StreamEvent(msgspec.Struct, gc=False):
    type: str = ""
    delta: str | None = None
    output_index: int | None = None
    item_id: str | None = None
    summary_index: int | None = None
    arguments: str | None = None
    item: msgspec.Raw = msgspec.Raw()
    response: msgspec.Raw = msgspec.Raw()
    error: msgspec.Raw = msgspec.Raw()


_S = TypeVar("_S", bound=msgspec.Struct)
_fields = msgspec.json.Decoder(dict[str, msgspec.Raw])
_decode_event = msgspec.json.Decoder(StreamEvent).decode


def decode_event(data: str) -> StreamEvent | None:
    """None when it is no event at all."""
    try:
        return _decode_event(data)
    except (msgspec.MsgspecError, RecursionError, UnicodeError):
        return _lenient(data.encode("utf-8", "replace"), StreamEvent)


def decode_part(raw: bytes | msgspec.Raw, kind: type[_S]) -> _S | None:
    """An `Item` or a `Whole`; None when it is nothing of the kind."""
    try:
        return msgspec.json.decode(raw, type=kind)
    except (msgspec.MsgspecError, RecursionError, UnicodeError):
        return _lenient(raw, kind)


def _lenient(raw: bytes | msgspec.Raw, kind: type[_S]) -> _S | None:
    """Field by field: those whose types are wrong are left out."""
    try:
        found = _fields.decode(raw)
    except (msgspec.MsgspecError, RecursionError, UnicodeError):
        return None
    made = kind()
    for name, type_ in get_type_hints(kind).items():
        if name in found:
            with suppress(msgspec.MsgspecError, RecursionError, UnicodeError):
                setattr(made, name, msgspec.json.decode(found[name], type=type_, strict=False))
    return made


def text_of(parts: list[Part] | None, between: str = "") -> str:
    return between.join(text for part in parts or () if (text := part.text or part.refusal))


def arguments_of(item: Item) -> str:
    """The arguments of a call; some servers send the object itself."""
    if isinstance(item.arguments, dict):
        return msgspec.json.encode(item.arguments).decode()
    return item.arguments or ""


def usage_of(whole: Whole) -> Usage | None:
    usage = whole.usage
    if usage is None:
        return None
    return Usage(
        input=usage.input_tokens or 0,
        output=usage.output_tokens or 0,
        cached=(usage.input_tokens_details or _Details()).cached_tokens or 0,
        reasoning=(usage.output_tokens_details or _Details()).reasoning_tokens or 0,
    )
