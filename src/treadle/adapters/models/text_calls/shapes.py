"""The calls in a parsed value, in any of the shapes that models use (P-03); and the result of reading a call at a
position of a text: found, missed, or undecided until more text arrives."""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import msgspec

from treadle.adapters.models.text_calls.reader import ParsedValue, State, read, storable


class TextCall(msgspec.Struct, frozen=True):
    """One call that stood in a text. `repaired`: it was cut off or broken, and completed by guessing (P-04)."""

    name: str
    arguments: dict[str, Any]
    repaired: bool = False


class AnyName(Collection[str]):
    """Stands for unknown tool names: any valid name is a member."""

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and NAME.fullmatch(name) is not None

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0


ANY_NAME = AnyName()

NAME_KEYS = ("name", "tool", "function", "tool_name", "function_name")
ARGUMENT_KEYS = ("arguments", "args", "params", "parameters", "input", "tool_input", "kwargs")
_OBJECT_ONLY = ("input", "tool_input", "kwargs")
"""Names that a tool's own argument may have too: they hold the arguments only if they are an object."""
WRAPPER_KEYS = ("tool_calls", "tool_call", "function_call", "calls", "function")
LABEL_KEYS = ("type", "id", "index", "call_id", "tool_call_id")
OPENING_KEYS = frozenset((*NAME_KEYS, *ARGUMENT_KEYS, *WRAPPER_KEYS, *LABEL_KEYS))
"""With one of these a JSON object must begin to be taken for a call where nothing marks it as one."""

NAME = re.compile(r"[^\W\d][\w.:/-]{0,127}")
_LABELS = ("function", "tool_call", "tool_use", "function_call", "tool")
_PREFIXES = ("functions.", "function.", "default_api.", "tools.")


def calls_in(parsed: ParsedValue, tool_names: Collection[str] | None, *, marked: bool) -> list[TextCall] | None:
    """The calls that a value is; None when it is anything else. Without a mark, which says that a call is meant, its
    name must be known, and the definition of a tool is none."""
    values = _unwrap(parsed.value)
    calls: list[TextCall] = []
    for number, value in enumerate(values):
        last = number == len(values) - 1
        call = _call(value, tool_names, _repaired(parsed.state, last))
        if call is not None and (marked or (_is_known(call.name, tool_names) and not _is_definition(value))):
            calls.append(call)
        elif not (last and calls and parsed.state in ("cut", "broken")):
            return None
    return calls or None


def normalize_name(name: str, tool_names: Collection[str] | None) -> str:
    """The name without what some models put around it: `functions.read_file:0` is `read_file`."""
    name = name.strip()
    if tool_names is not None and name in tool_names:
        return name
    for prefix in _PREFIXES:
        name = name.removeprefix(prefix)
    stem, _, number = name.rpartition(":")
    return stem if stem and number.isdecimal() else name


def is_told(name: str, tool_names: Collection[str] | None) -> bool:
    """True if the name is that of a tool, or if the tools are unknown."""
    return tool_names is None or normalize_name(name, tool_names) in tool_names


def may_become_known(word: str, tool_names: Collection[str] | None) -> bool:
    """True if a name that begins with this word can be a known one."""
    if tool_names is None or tool_names is ANY_NAME:
        return tool_names is not None
    # A name may stand behind a prefix, and a number behind a name.
    return any(name.startswith(word) or word.startswith(name) for name in (*tool_names, *_PREFIXES))


def plain(value: object) -> bool:
    """True if a value can only be calls, with any tools: each item has its arguments under a key of their own and is
    not a definition."""
    return all(
        isinstance(inner, dict)
        and any(key in inner for key in ARGUMENT_KEYS if key not in _OBJECT_ONLY)
        and not _is_definition(inner)
        for inner in _unwrap(value)
    )


def call_of(name: str, arguments: Mapping[str, object], tool_names: Collection[str] | None, repaired: bool) -> TextCall:
    return TextCall(normalize_name(name, tool_names), storable(dict(arguments)), repaired)


def _is_known(name: str, tool_names: Collection[str] | None) -> bool:
    return tool_names is not None and name in tool_names


def _repaired(state: State, last: bool) -> bool:
    """A value that was cut or broken off is whole up to its last call."""
    return state == "guessed" or (last and state != "whole")


def _unwrap(value: object) -> list[object]:
    """The objects that may each be a call."""
    for _ in range(4):
        if isinstance(value, list):
            return [inner for item in value for inner in _unwrap_one(item)]
        inner = _wrapped(value)
        if inner is None:
            return [value]
        value = inner
    return [value]


def _unwrap_one(value: object) -> Iterable[object]:
    inner = _wrapped(value)
    if isinstance(inner, list):
        return inner
    return [value if inner is None else inner]


def _wrapped(value: object) -> object | None:
    """Return the content of a wrapper such as `{"type": "function", "function": {…}}`. None if it is not one."""
    if not isinstance(value, dict) or any(isinstance(value.get(key), str) for key in NAME_KEYS):
        return None
    return next((value[key] for key in WRAPPER_KEYS if isinstance(value.get(key), dict | list)), None)


def _call(value: object, tool_names: Collection[str] | None, repaired: bool) -> TextCall | None:
    if not isinstance(value, dict):
        return None
    key = _name_key(value, tool_names)
    if key is None:
        return None
    name = normalize_name(value[key], tool_names)
    if not (NAME.fullmatch(name) or _is_known(name, tool_names)):
        return None
    arguments, guessed = _arguments(value, key)
    return TextCall(name, storable(arguments), repaired or guessed)


def _name_key(value: dict[str, Any], tool_names: Collection[str] | None) -> str | None:
    """The key that holds the name: the first, unless a later one holds a name that is known."""
    keys = [key for key in NAME_KEYS if isinstance(value.get(key), str)]
    if tool_names is not None:
        keys.sort(key=lambda key: normalize_name(value[key], tool_names) not in tool_names)
    return keys[0] if keys else None


def _arguments(value: dict[str, Any], name_key: str) -> tuple[dict[str, Any], bool]:
    """The arguments, and whether they had to be guessed. Without a key of their own they lie beside the name."""
    for key in ARGUMENT_KEYS:
        if key not in value or key == name_key:
            continue
        raw_arguments = value[key]
        if isinstance(raw_arguments, dict):
            return raw_arguments, False
        if key in _OBJECT_ONLY:
            continue
        if not raw_arguments:
            return {}, False
        if isinstance(raw_arguments, str) and (parsed := _from_text(raw_arguments)) is not None:
            return parsed
    return {key: inner for key, inner in value.items() if key != name_key and not _is_label(key, inner)}, False


def _from_text(text: str) -> tuple[dict[str, Any], bool] | None:
    """Arguments as a JSON string."""
    text = text.strip()
    if not text:
        return {}, False
    if not text.startswith("{"):
        return None
    parsed = read(text, 0)
    if not isinstance(parsed.value, dict):
        return None
    return parsed.value, parsed.state != "whole" or bool(text[parsed.end :].strip())


def _is_label(key: str, value: object) -> bool:
    """True if a pair belongs to the call itself and not to its arguments."""
    if key == "type":
        return value in _LABELS if isinstance(value, str) else False
    if key in ("id", "call_id", "tool_call_id"):
        return isinstance(value, str) and value.startswith(("call", "fc_", "toolu", "chatcmpl"))
    return False


def _is_definition(value: object) -> bool:
    """True if the value is the definition of a tool and not a call: models repeat definitions from their prompt."""
    if not isinstance(value, dict):
        return False
    schema = value.get("parameters") or value.get("input_schema")
    return isinstance(schema, dict) and isinstance(schema.get("properties"), dict) and schema.get("type") == "object"


class Source(NamedTuple):
    """A text in which calls are read."""

    text: str
    tool_names: Collection[str] | None
    """The names of the tools; None if unknown."""
    final: bool
    """True if no more text will come."""


class FoundCalls(NamedTuple):
    calls: list[TextCall]
    end: int
    fenced: bool = False
    """A fence was opened with the call, whose end is yet to come."""
    begin: int = -1
    """Where the call begins, if not at the place that was asked for."""
    depth: int = 0
    """How many words of markup were opened whose ends are yet to come."""


class Missed(NamedTuple):
    """The text is not a call."""

    end: int
    """The position up to which the text was read."""
    is_cut_off: bool = False
    """True if the text ended too early to exclude a call."""


class Wrapper(NamedTuple):
    """Markup around text that is no call, as of the channel in which an answer stands: it is not shown."""

    end: int
    until: tuple[str, ...] = ()
    """Thinking, which is not shown either, up to one of these words."""


Result = FoundCalls | Missed | Wrapper | None
"""None: undecided until more text arrives."""

HEAD = 400
"""The longest text between an opener and its arguments, in characters."""

_SPACES = re.compile(r"\s*+")
_NO_SPACE = re.compile(r"\S*+\Z")


def spaces(text: str, at: int) -> int:
    """Where the spaces that begin at `at` end."""
    match = _SPACES.match(text, at)
    return match.end() if match else at


def missed_at_end(source: Source) -> Missed | None:
    """Return the result for the end of the text where more must follow."""
    return Missed(len(source.text), is_cut_off=True) if source.final else None


def short(source: Source, at: int) -> Result:
    """Return the result for a head that cannot be read: it may not have arrived completely."""
    remaining = len(source.text) - at
    if not source.final:
        return None if remaining < HEAD else Missed(at + HEAD)
    return Missed(
        at + min(remaining, HEAD), is_cut_off=remaining < HEAD and _NO_SPACE.match(source.text, at) is not None
    )
