"""Events whose every string is hostile, made from the declarations of the event types: a new event or field is covered
by itself. `check_inert` says whether the bytes for a terminal are harmless (S-12, S-22)."""

import re
from collections.abc import Iterator
from typing import Any

from msgspec import inspect

from treadle.base.types import ChatId
from treadle.protocol import events as e
from treadle.protocol.files import encode_path

HOSTILE = (
    "\x1b[31mred\x1b[2J\x1b]0;title\x07\x1b]8;;https://evil.example\x1b\\link\x1b]8;;\x1b\\\x1b]52;c;aGk=\x07"
    "\x1bPdcs\x1b\\\x00\x08\x0b\x0c\x7f\x85\x90\x9b31m\x9d0;c1\x9cover\rwritten"
    "\u202eright\u2066\u2069\u200f\u061c\u200b\u2060\ufeff\u2028\u2029\xad\ue000\U000e0041"
    "[red]markup[/red] [link=https://evil.example]link[/link] @click=app.bell {brace} %s %n"
)
LONG = "0123456789" * 10_240
"""A line of 100 KB."""
TEXTS = {
    "hostile": HOSTILE,
    "several lines": f"one\n{HOSTILE}\r\n\ttwo\n",
    "long": f"{HOSTILE}{LONG}{HOSTILE}",
    "entities": "".join(f"&#{ord(each)};" for each in HOSTILE),
    "bytes": encode_path("\x1b[31mred\udcff\u202e"),
}
"""Also as entities of HTML, which Markdown decodes, and as a path that is no UTF-8."""

_SGR = re.compile(r"\x1b\[[0-9;]*m")
_FORBIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff\ue000-\uf8ff"
    "\U000e0000-\U0010ffff]"
)


def check_inert(output: str, *, styled: bool = False) -> None:
    """Fails on anything that a terminal obeys or that hides or reorders text. `styled`: colours of our own are there;
    the colour that the hostile text asks for must not be among them as it stands there."""
    assert "\x1b[31mred" not in output
    match = _FORBIDDEN.search(_SGR.sub("", output) if styled else output)
    assert match is None, (match[0], output[max(0, match.start() - 200) : match.start() + 200])


def hostile_events(text: str) -> Iterator[e.Envelope]:
    """Each type with `text` in every string; and once for every value of each field that has only a few."""
    for number, kind in enumerate((e.RECORDED | e.LIVE).values(), 1):
        info = inspect.type_info(kind)
        assert isinstance(info, inspect.StructType)
        values = {field.name: _value(field.type, text) for field in info.fields}
        yield e.Envelope(number, ChatId("c_1"), 1_700_000_000_000, kind(**values))
        for field in info.fields:
            for choice in _choices(field.type, text):
                if choice != values[field.name]:
                    yield e.Envelope(0, ChatId("c_1"), 1_700_000_000_000, kind(**values | {field.name: choice}))


def hostile(kind: Any, text: str) -> Any:
    """A value of this type with `text` in every string."""
    return _value(inspect.type_info(kind), text)


def _choices(info: inspect.Type, text: str) -> list[Any]:
    match info:
        case inspect.LiteralType(values=values):
            return list(values)
        case inspect.BoolType():
            return [False, True]
        case inspect.UnionType(types=types):
            return [_value(each, text) for each in types]
        case inspect.StrType():
            return ["", "@@ -1 +1 @@\n+" + text]
        case _:
            return []


def _value(info: inspect.Type, text: str) -> Any:
    match info:
        case inspect.StructType(cls=kind, fields=fields):
            return kind(**{field.name: _value(field.type, text) for field in fields})
        case inspect.StrType() | inspect.AnyType() | inspect.RawType():
            return text
        case inspect.LiteralType(values=values):
            return values[0]
        case inspect.DictType(key_type=key, value_type=value):
            return {_value(key, text): _value(value, text)}
        case inspect.VarTupleType(item_type=item):
            return (_value(item, text),)
        case inspect.ListType(item_type=item):
            return [_value(item, text)]
        case inspect.FrozenSetType(item_type=item):
            return frozenset((_value(item, text),))
        case inspect.TupleType(item_types=items):
            return tuple(_value(each, text) for each in items)
        case inspect.UnionType(types=types):
            return _value(next(each for each in types if not isinstance(each, inspect.NoneType)), text)
        case inspect.BoolType():
            return True
        case inspect.IntType():
            return 1
        case inspect.FloatType():
            return 1.0
        case inspect.BytesType():
            return text.encode(errors="surrogatepass")
        case inspect.NoneType():
            return None
        case _:
            raise NotImplementedError(f"{info} is in no event yet; say how it is made")
