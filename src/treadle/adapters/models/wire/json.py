"""JSON to and from servers: bytes that nothing can break, and the decoding of what servers send with other types than
they should. Knows no protocol."""

import re
from collections.abc import Callable
from types import UnionType
from typing import Any, TypeVar, Union, get_args, get_origin

import msgspec

_encoder = msgspec.json.Encoder()
_object = msgspec.json.Decoder(dict[str, Any])
_NOT_IN_NAMES = re.compile(r"[^a-zA-Z0-9_-]")


def encode_json(value: Any) -> bytes:
    try:
        return _encoder.encode(value)
    except UnicodeEncodeError:  # half a surrogate pair, from a file name or a program's output
        return _encoder.encode(map_texts(value, lambda text: text.encode("utf-8", "replace").decode()))


def map_texts(value: Any, convert: Callable[[str], str]) -> Any:
    match value:
        case str():
            return convert(value)
        case dict():
            return {map_texts(key, convert): map_texts(inner, convert) for key, inner in value.items()}
        case list() | tuple():
            return [map_texts(inner, convert) for inner in value]
        case _:
            return value


def ensure_json_object(text: str) -> str:
    """A call's arguments, wrapped in an object if they are broken: many servers parse them and would refuse the request
    for ever, and so the model still sees what it wrote."""
    try:
        _object.decode(text)
    except (msgspec.MsgspecError, UnicodeEncodeError, RecursionError):
        return encode_json({"invalid_json": text}).decode()
    return text


def clean_tool_name(name: str, longest: int = 128) -> str:
    """A name that the model made up may be no name at all, with which the whole chat would be stuck."""
    return _NOT_IN_NAMES.sub("_", name)[:longest] or "unnamed"


_S = TypeVar("_S", bound=msgspec.Struct)

_TROUBLE = (msgspec.MsgspecError, RecursionError, UnicodeError)


def decode_tolerantly(data: str | bytes | msgspec.Raw, decoder: msgspec.json.Decoder[_S]) -> _S | None:
    """A struct exactly, if possible, else as far as it can be understood; None when it is no JSON object."""
    try:
        return decoder.decode(data)
    except _TROUBLE:
        raw = data.encode("utf-8", "replace") if isinstance(data, str) else data
        decoded: _S | None = decode_leniently(raw, decoder.type)
        return decoded


def _decode_value(raw: bytes | msgspec.Raw, kind: Any) -> Any:
    try:
        return msgspec.json.decode(raw, type=kind, strict=False)
    except msgspec.ValidationError:
        pass
    if get_origin(kind) in (Union, UnionType):
        return _decode_value(raw, next(part for part in get_args(kind) if part is not type(None)))
    if get_origin(kind) is list:
        items = msgspec.json.decode(raw, type=list[msgspec.Raw])
        return [decoded for item in items if (decoded := decode_leniently(item, *get_args(kind))) is not None]
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        raw_fields = msgspec.json.decode(raw, type=dict[str, msgspec.Raw])
        fields = [field for field in msgspec.structs.fields(kind) if field.encode_name in raw_fields]
        values = {field.name: decode_leniently(raw_fields[field.encode_name], field.type) for field in fields}
        return kind(**{name: value for name, value in values.items() if value is not None})
    raise msgspec.ValidationError("of another type")


def decode_leniently(raw: bytes | msgspec.Raw, kind: Any) -> Any:
    """A struct whose fields all have defaults, as far as it can be understood; None when it is no JSON object."""
    try:
        return _decode_value(raw, kind)
    except _TROUBLE:
        return None


def decode_mended(data: str | bytes, kind: type[_S]) -> _S | None:
    """A struct with known oddities of servers put right: numbers as text, text as a list of parts, one object in place
    of a list, null where objects belong, a message that is text. None when anything else is wrong: nothing is left out
    that could be a part of a call."""
    try:
        document = msgspec.json.decode(data if isinstance(data, str) else data.decode("utf-8", "replace"))
        return msgspec.convert(_mend_value(document, kind), kind, strict=False) if isinstance(document, dict) else None
    except _TROUBLE:
        return None


def _mend_value(value: Any, kind: Any) -> Any:
    if get_origin(kind) in (Union, UnionType):
        parts = [part for part in get_args(kind) if part is not type(None)]
        return value if value is None or len(parts) > 1 else _mend_value(value, parts[0])
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        fields = {field.encode_name: field.type for field in msgspec.structs.fields(kind)}
        if isinstance(value, str) and "content" in fields:
            value = {"content": value}
        field_names = fields.keys() & value if isinstance(value, dict) else None
        return None if field_names is None else {name: _mend_value(value[name], fields[name]) for name in field_names}
    if get_origin(kind) is dict:
        return value if isinstance(value, dict) else None
    if get_origin(kind) is list:
        items = [value] if isinstance(value, dict) else value if isinstance(value, list) else ()
        return [_mend_value(item, *get_args(kind)) for item in items if isinstance(item, dict)]
    if kind is msgspec.Raw:
        return msgspec.Raw(msgspec.json.encode(value))
    if kind is str and isinstance(value, list) and all(isinstance(part, dict) for part in value):
        return "".join(str(part.get("text", "")) for part in value)
    return str(value) if kind is str and type(value) in (int, float) else value
