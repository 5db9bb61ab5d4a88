"""`${x…}`: reading the operation, and doing it on a value that is known."""

import fnmatch
import re

import msgspec

from treadle.policy.shell.model import UNKNOWN

_SHAPE = re.compile(
    r"\$\{(?P<sign>[!#]?)(?P<name>[A-Za-z_]\w*|[0-9]+|[@*#?$!-])(?P<index>\[[^\]]*\])?(?P<rest>.*)\}", re.S
)
_OPERATOR = re.compile(r":?[-=?+]|\^\^?|,,?|//?|##?|%%?|@[A-Za-z]|:")
_SLASH = {"~": "/", ".": "/"}
"""Home and working directory are kept as these names; of either the first character is a slash."""


class Operation(msgspec.Struct, frozen=True):
    name: str
    operator: str = ""
    operand: str = ""
    indirect: bool = False


def read_operation(source: str) -> Operation | None:
    """None if it is none of those known here; its value is then unknown."""
    match = _SHAPE.fullmatch(source)
    if match is None:
        return None
    name, rest = match["name"], match["rest"]
    if match["index"]:
        name += match["index"]
    if match["sign"] == "#":
        return Operation(name, "length") if not rest else None
    operator = _OPERATOR.match(rest)
    if rest and operator is None:
        return None
    symbol = operator[0] if operator else ""
    if match["sign"] == "!" and (symbol.startswith("@") or rest in ("*", "@") or match["index"]):
        return None
    return Operation(name, symbol, rest[len(symbol) :], match["sign"] == "!")


def apply(operator: str, value: str, operand: str) -> tuple[str, ...]:
    """The readings of the result."""
    unknown = UNKNOWN in value
    match operator:
        case ":-" | "-" | ":=" | "=":
            return (operand, UNKNOWN) if unknown else (value or operand,)
        case ":+" | "+":
            return ("", operand) if unknown else (operand if value else "",)
        case ":?" | "?":
            return (value,)
        case ":":
            return (_slice(value, operand),)
    if unknown or UNKNOWN in operand or value in _SLASH:
        return (UNKNOWN,)
    return (_change(operator, value, operand),)


def _change(operator: str, value: str, operand: str) -> str:
    match operator:
        case "length":
            return str(len(value))
        case "^^" | "@U":
            return value.upper()
        case ",," | "@L":
            return value.lower()
        case "^" | "@u":
            return value[:1].upper() + value[1:]
        case ",":
            return value[:1].lower() + value[1:]
        case "#" | "##" | "%" | "%%":
            return UNKNOWN if value.startswith("~") else _trim(operator, value, operand)
        case "/" | "//":
            return _replace(operator, value, operand)
        case "@Q" | "@E" | "@A" | "@a" | "@K" | "@k":
            return value if operator == "@Q" else UNKNOWN
    return UNKNOWN


def _slice(value: str, operand: str) -> str:
    match = re.fullmatch(r"\s*\(?(-?\d{1,9})\)?(?::\s*(-?\d{1,9}))?\s*", operand)
    if match is None:
        return UNKNOWN
    start, length = int(match[1]), int(match[2]) if match[2] else None
    if start == 0 and length == 1 and value[:1] in _SLASH:
        return "/"
    if UNKNOWN in value or value[:1] in _SLASH:
        return UNKNOWN
    rest = value[start:] if start >= -len(value) else ""
    return rest if length is None else rest[:length]


def _trim(operator: str, value: str, pattern: str) -> str:
    """Cuts the shortest or longest beginning or end that matches."""
    ends = range(len(value) + 1)
    if len(value) > 2_000:
        return UNKNOWN
    if operator[0] == "#":
        hits = [n for n in ends if fnmatch.fnmatchcase(value[:n], pattern)]
        return value[(hits[0] if operator == "#" else hits[-1]) :] if hits else value
    hits = [n for n in ends if fnmatch.fnmatchcase(value[n:], pattern)]
    return value[: hits[-1] if operator == "%" else hits[0]] if hits else value


def _replace(operator: str, value: str, operand: str) -> str:
    pattern, _, new = operand.partition("/")
    if not pattern or any(c in pattern for c in "*?[#%\\"):
        return UNKNOWN
    return value.replace(pattern, new) if operator == "//" else value.replace(pattern, new, 1)
