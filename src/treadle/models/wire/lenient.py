"""Decoding of what servers send with other types than they should: what fits is kept, what does not is left out. Knows
no protocol; only what the strict decoder refused comes here."""

from types import UnionType
from typing import Any, TypeVar, Union, get_args, get_origin

import msgspec

_S = TypeVar("_S", bound=msgspec.Struct)
_fields = msgspec.json.Decoder(dict[str, msgspec.Raw])
_items = msgspec.json.Decoder(list[msgspec.Raw])
_TROUBLE = (msgspec.MsgspecError, RecursionError, UnicodeError)


def decode_leniently(raw: bytes | msgspec.Raw, kind: type[_S]) -> _S | None:
    """A struct whose fields all have defaults, as far as it can be understood; None when it is no JSON object."""
    try:
        found: _S | None = _value(raw, kind)
    except _TROUBLE:
        return None
    return found


def _value(raw: bytes | msgspec.Raw, kind: Any) -> Any:
    try:
        return msgspec.json.decode(raw, type=kind, strict=False)
    except msgspec.ValidationError:
        pass
    if get_origin(kind) in (Union, UnionType):
        return _value(raw, next(part for part in get_args(kind) if part is not type(None)))
    if get_origin(kind) is list:
        return [found for item in _items.decode(raw) if (found := _attempt(item, *get_args(kind))) is not None]
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return _struct(raw, kind)
    raise msgspec.ValidationError("of another type")


def _struct(raw: bytes | msgspec.Raw, kind: type[msgspec.Struct]) -> msgspec.Struct:
    told = _fields.decode(raw)
    read = {
        field.name: value
        for field in msgspec.structs.fields(kind)
        if field.encode_name in told and (value := _attempt(told[field.encode_name], field.type)) is not None
    }
    return kind(**read)


def _attempt(raw: msgspec.Raw, kind: Any) -> Any:
    try:
        return _value(raw, kind)
    except _TROUBLE:
        return None
