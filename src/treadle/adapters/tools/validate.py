"""Turns the text that a model sent into arguments that fit a schema, or into a message that the model can act on (T-12,
P-06). Never raises: for any input, the result is arguments or a sentence. Knows no tool.

`parse` reads the text, `coerce` (in the module of that name) mends arguments that are wrong in only one possible way,
and `problem` describes the remaining errors."""

from typing import TYPE_CHECKING, Any, Final

import msgspec

from treadle.protocol.content import json_type
from treadle.protocol.tools import digest

if TYPE_CHECKING:
    import jsonschema_rs

MAX_ARGUMENTS: Final = 1_000_000  # Bytes of one call's arguments
MAX_DEPTH: Final = 64
_CACHE_LIMIT: Final = 2_048
_TOO_DEEP: Final = f"The arguments are nested more than {MAX_DEPTH} levels deep. Send a flatter object."
_SHOWN: Final = 120
_PROBLEMS_SHOWN: Final = 5


# -- reading the text -------------------------------------------------------------------------------------------


def parse(text: str) -> dict[str, Any] | str:
    """The arguments, or a sentence that says why they cannot be read. An empty text means no arguments."""
    try:
        data = text.encode()
    except UnicodeEncodeError:
        return "The arguments contain half a surrogate pair, which is no valid Unicode. Send the call again."
    if len(data) > MAX_ARGUMENTS:
        return (
            f"The arguments have {len(data):,} bytes; at most {MAX_ARGUMENTS:,} are accepted. "
            "Split the work into several smaller calls."
        )
    if not data.strip():
        return {}
    try:
        value = msgspec.json.decode(data)
    except RecursionError:
        return _TOO_DEEP
    except (msgspec.DecodeError, ValueError) as error:
        return f"The arguments are not valid JSON ({error}). Send the call again with one complete JSON object."
    if not isinstance(value, dict):
        return f"The arguments must be one JSON object, not {_a(json_type(value))}: {_format_value(value)}"
    return unstorable(value) or _said_twice(text) or value


def _said_twice(text: str) -> str:
    """The key that an object has twice; empty if none. Parsers disagree about the value, so Treadle does not guess."""
    import json  # lazily, as all here; msgspec does not tell

    repeated: list[str] = []

    def look(pairs: list[tuple[str, object]]) -> None:
        if len(pairs) != len(dict(pairs)):
            keys = [key for key, _ in pairs]
            repeated.append(next(key for key in keys if keys.count(key) > 1))

    json.loads(text, object_pairs_hook=look)
    if not repeated:
        return ""
    key = _format_value(repeated[0])
    return f"The arguments have the key {key} more than once. Send the call again, with each key once."


def unstorable(value: object) -> str:
    """Why a value cannot be kept in the log, though it is JSON; empty if it can. No recursion: it may be deep."""
    layer: list[object] = [value]
    for _ in range(MAX_DEPTH + 1):
        below: list[object] = []
        for item in layer:
            if isinstance(item, dict):
                below.extend(item.values())
            elif isinstance(item, list):
                below.extend(item)
            elif isinstance(item, int) and not -(2**63) <= item < 2**64:
                return f"The number {str(item)[:30]}… does not fit into 64 bits; send it as a string."
        if not below:
            return ""
        layer = below
    return _TOO_DEEP


# -- judging it -------------------------------------------------------------------------------------------------

_by_identity: dict[int, tuple[dict[str, Any], "jsonschema_rs.Validator | str"]] = {}
_by_digest: dict[str, "jsonschema_rs.Validator | str"] = {}


def schema_problem(schema: object) -> str:
    """Why this is no usable JSON Schema for arguments; empty if it is one. Nothing is fetched for a `$ref`."""
    if not isinstance(schema, dict):
        return "it is not a JSON object"
    if schema.get("type", "object") != "object":
        return f'its type is {_format_value(schema["type"])}, but arguments are always an "object"'
    validator = _compile(schema)
    return validator if isinstance(validator, str) else ""


def problem(schema: dict[str, Any], arguments: object) -> str:
    """The error in the arguments: the field, the expected value, the sent value. Empty if there is none."""
    if not isinstance(arguments, dict):
        return f"The arguments must be one JSON object, not {_a(json_type(arguments))}."
    validator = _validator(schema)
    if isinstance(validator, str):  # it constrains nothing
        return ""
    try:
        if validator.is_valid(arguments):
            return ""
        problems = [_say(error) for error in validator.iter_errors(arguments)]
    except (ValueError, RecursionError) as error:
        return f"The arguments cannot be checked: {_truncate_text(str(error), 200)}"
    lines = [f"- {line}" for line in dict.fromkeys(problems)]
    if len(lines) > _PROBLEMS_SHOWN:
        lines[_PROBLEMS_SHOWN:] = [f"- and {len(lines) - _PROBLEMS_SHOWN} more problems"]
    return "\n".join(["The arguments do not fit:", *lines, _expectation(schema)])


def _validator(schema: dict[str, Any]) -> "jsonschema_rs.Validator | str":
    cached = _by_identity.get(id(schema))
    if cached is not None and cached[0] is schema:
        return cached[1]
    key = digest(schema)
    if key not in _by_digest:
        _by_digest[key] = _compile(schema)
    if len(_by_identity) >= _CACHE_LIMIT:
        _by_identity.clear()
    if len(_by_digest) >= _CACHE_LIMIT:
        _by_digest.clear()
        _by_digest[key] = _compile(schema)
    _by_identity[id(schema)] = (schema, _by_digest[key])
    return _by_digest[key]


def _compile(schema: dict[str, Any]) -> "jsonschema_rs.Validator | str":
    import jsonschema_rs  # lazily: most chats start without checking anything

    try:
        return jsonschema_rs.validator_for(schema, offline=True)
    except (ValueError, jsonschema_rs.ReferencingError, RecursionError) as error:
        return _truncate_text(str(error).split("\n", 1)[0], 300)


def _say(error: "jsonschema_rs.ValidationError") -> str:
    kind = error.kind.as_dict()
    field = _field(error.instance_path)
    sent_note = f"; sent: {_format_value(error.instance)}"
    match error.kind.name:
        case "required":
            return f"{_field([*error.instance_path, kind['property']])} is missing"
        case "additionalProperties":
            names = ", ".join(_format_value(name) for name in kind["unexpected"][:10])
            return f"{field} has no such field: {names}"
        case "type":
            return f"{field} must be {' or '.join(_a(name) for name in kind['types'])}{sent_note}"
        case "enum":
            options = kind["options"]
            option_list = ", ".join(map(_format_value, options)) if isinstance(options, list) else str(options)
            return f"{field} must be one of {_truncate_text(option_list, 400)}{sent_note}"
        case _:
            return f"{field}: {_truncate_text(error.message, 300)}"


def _field(path: list[str | int]) -> str:
    path_text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path).lstrip(".")
    return f"`{_truncate_text(path_text, 100)}`" if path_text else "the arguments object"


def _expectation(schema: dict[str, Any]) -> str:
    properties = schema.get("properties")
    if not isinstance(properties, dict) or not properties:
        return "Expected: no fields." if schema.get("additionalProperties") is False else ""
    required = schema.get("required", [])
    fields = []
    for name, sub in properties.items():
        kinds = "|".join(sorted(allowed_types(sub))) if isinstance(sub, dict) else ""
        fields.append(f"{name}{'' if name in required else '?'}: {kinds or 'any'}")
    return _truncate_text(f"Expected: {{{', '.join(fields)}}}", 1_000)


# -- words ------------------------------------------------------------------------------------------------------


def _a(kind: str) -> str:
    return kind if kind == "null" else f"an {kind}" if kind[0] in "aeiou" else f"a {kind}"


def allowed_types(schema: dict[str, Any]) -> set[str]:
    """The JSON types a schema names; empty when it does not say in a simple way."""
    type_names = schema.get("type")
    if isinstance(type_names, str):
        return {type_names}
    if isinstance(type_names, list):
        return {name for name in type_names if isinstance(name, str)}
    for word in ("anyOf", "oneOf"):
        options = schema.get(word)
        if isinstance(options, list) and options and all(isinstance(option, dict) for option in options):
            kinds = [allowed_types(option) for option in options]
            return set().union(*kinds) if all(kinds) else set()
    return set()


def _format_value(value: object) -> str:
    if isinstance(value, str):
        value = value[: _SHOWN * 2]
    try:
        return _truncate_text(msgspec.json.encode(value).decode(), _SHOWN)
    except (TypeError, ValueError, RecursionError):
        return _truncate_text(repr(value), _SHOWN)


def _truncate_text(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most]}…"
