"""The strings and numbers of JSON as models write it: what is between the quotes, what a text cut off leaves of it,
and what of a value can be stored."""

import math
import re

import msgspec

QUOTES = '"', "'", "“”„‟", "‘’‚‛", "`"  # noqa: RUF001
CLOSERS = {char: group for group in QUOTES for char in group}
_ESCAPE = re.compile(r"\\(?:(u[0-9a-fA-F]{4})|(.))", re.S)
_PYTHON_ESCAPE = re.compile(r"\\(?:(u[0-9a-fA-F]{4}|x[0-9a-fA-F]{2}|U[0-9a-fA-F]{8})|(.))", re.S)
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "/": "/", "\\": "\\", "\n": ""}
_WHOLE_ESCAPES = re.compile(r"(?:[^\\]++|\\[^u]|\\u(?![0-9a-fA-F]{0,3}\Z))*+", re.S)
_SURROGATE = re.compile(r"[\ud800-\udbff][\udc00-\udfff]|[\ud800-\udfff]")


def unescape(body: str, *, python: bool = False) -> str:
    """The text of a string without its quotes. An escape that JSON does not know stays as it is: `\\d` is a regex.
    Python's own escapes are read where Python's quotes are."""
    if "\\" not in body:
        return body
    return joined((_PYTHON_ESCAPE if python else _ESCAPE).sub(_one_escape, body))


def _one_escape(match: re.Match[str]) -> str:
    code, char = match.groups()
    if code:
        return chr(min(int(code[1:], 16), 0x10FFFF))
    if char in _ESCAPED:
        return _ESCAPED[char]
    return char if char in CLOSERS else f"\\{char}"


def joined(text: str) -> str:
    """Pairs of surrogates as one character; halves, which no log can store, as the replacement character."""
    return _SURROGATE.sub(lambda m: m[0].encode("utf-16", "surrogatepass").decode("utf-16", "replace"), text)


def open_end(body: str) -> str:
    """A string that the end of the text cut off, without half an escape and without half a pair of surrogates."""
    match = _WHOLE_ESCAPES.match(body)
    raw = _ESCAPE.sub(_one_escape, match[0] if match else "")
    return joined(raw[:-1] if "\ud800" <= raw[-1:] <= "\udbff" else raw)


def number(text: str) -> object:
    plain = text.replace("_", "")
    try:
        if plain.lstrip("+-").isdecimal():
            return int(plain)
        value = float(plain)
    except ValueError:  # more digits than Python turns into a number
        return text
    return value if math.isfinite(value) else text


def storable(value: dict[str, object]) -> dict[str, object]:
    """The value without halves of surrogate pairs, which no encoder takes."""
    try:
        msgspec.json.encode(value)
    except UnicodeEncodeError:
        cleaned: dict[str, object] = _clean(value)  # type: ignore[assignment]
        return cleaned
    return value


def _clean(value: object) -> object:
    match value:
        case str():
            return joined(value)
        case dict():
            return {_clean(key): _clean(inner) for key, inner in value.items()}
        case list():
            return [_clean(inner) for inner in value]
        case _:
            return value
