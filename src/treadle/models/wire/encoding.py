"""What every adapter's request is made of: JSON bytes that nothing can break, and the bytes of a tool set, kept. Knows
no protocol."""

import re
from collections.abc import Callable
from typing import Any

import msgspec

from treadle.protocol.tools import ToolSpec

_encoder = msgspec.json.Encoder()
_object = msgspec.json.Decoder(dict[str, Any])
_TOOL_SETS_KEPT = 64
_NOT_IN_NAMES = re.compile(r"[^a-zA-Z0-9_-]")


def encode_json(value: Any) -> bytes:
    try:
        return _encoder.encode(value)
    except UnicodeEncodeError:  # half a surrogate pair, from a file name or a program's output
        return _encoder.encode(_printable(value))


def _printable(value: Any) -> Any:
    match value:
        case str():
            return value.encode("utf-8", "replace").decode()
        case dict():
            return {_printable(key): _printable(inner) for key, inner in value.items()}
        case list() | tuple():
            return [_printable(inner) for inner in value]
        case _:
            return value


def json_object(text: str) -> str:
    """A call's arguments as every server takes them. Many parse them and refuse a request with broken ones for ever;
    wrapped in an object, the model still sees what it wrote."""
    try:
        _object.decode(text)
    except (msgspec.MsgspecError, UnicodeEncodeError, RecursionError):
        return encode_json({"invalid_json": text}).decode()
    return text


def tool_name(name: str, longest: int = 128) -> str:
    """A name that the model made up may be no name at all, with which the whole chat would be stuck."""
    return _NOT_IN_NAMES.sub("_", name)[:longest] or "unnamed"


class ToolBytes:
    """The encoded tools of one model, made once per set."""

    def __init__(self, encode: Callable[[tuple[ToolSpec, ...]], bytes]) -> None:
        self._encode = encode
        self._kept: dict[tuple[int, ...], tuple[tuple[ToolSpec, ...], bytes]] = {}

    def of(self, tools: tuple[ToolSpec, ...]) -> bytes:
        key = tuple(map(id, tools))
        kept = self._kept.get(key)
        if kept is None:
            if len(self._kept) >= _TOOL_SETS_KEPT:
                self._kept.clear()
            # The tools are held, so that their ids stay theirs.
            kept = self._kept[key] = (tools, self._encode(tools))
        return kept[1]
