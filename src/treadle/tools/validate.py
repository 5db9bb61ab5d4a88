"""From the text a model sent to arguments that fit a schema, or to words that the model can act on (T-12, P-06).
Never raises: whatever a model sends, the answer is arguments or a sentence. Knows no tool.

`parse` reads the text, `coerce` (in the module of that name) mends what is wrong in only one possible way, and
`problem` says what is left."""

from typing import TYPE_CHECKING, Any, Final

import msgspec

from treadle.protocol.content import json_type
from treadle.protocol.tools import digest

if TYPE_CHECKING:
    import jsonschema_rs

MAX_ARGUMENTS: Final = 1_000_000
"""Bytes of one call's arguments."""
MAX_DEPTH: Final = 64
_CACHE_LIMIT: Final = 2_048
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
        return _too_deep()
    except (msgspec.DecodeError, ValueError) as error:
        return f"The arguments are not valid JSON ({error}). Send the call again with one complete JSON object."
    if not isinstance(value, dict):
        return f"The arguments must be one JSON object, not {_a(json_type(value))}: {_shown(value)}"
    return unstorable(value) or _said_twice(text) or value


def _said_twice(text: str) -> str:
    """Which key an object has twice; empty if none has. Readers disagree about which one counts, so nobody guesses."""
    import json  # lazily, as all here; msgspec does not tell

    repeated: list[str] = []

    def look(pairs: list[tuple[str, object]]) -> None:
        if len(pairs) != len(dict(pairs)):
            keys = [key for key, _ in pairs]
            repeated.append(next(key for key in keys if keys.count(key) > 1))

    json.loads(text, object_pairs_hook=look)
    if not repeated:
        return ""
    return f"The arguments have the key {_shown(repeated[0])} more than once. Send the call again, with each key once."


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
    return _too_deep()


def _too_deep() -> str:
    return f"The arguments are nested more than {MAX_DEPTH} levels deep. Send a flatter object."


# -- judging it -------------------------------------------------------------------------------------------------

_by_identity: dict[int, tuple[dict[str, Any], "jsonschema_rs.Validator | str"]] = {}
_by_digest: dict[str, "jsonschema_rs.Validator | str"] = {}


def schema_problem(schema: object) -> str:
    """Why this is no usable JSON Schema for arguments; empty if it is one. Nothing is fetched for a `$ref`."""
    if not isinstance(schema, dict):
        return "it is not a JSON object"
    if schema.get("type", "object") != "object":
        return f'its type is {_shown(schema["type"])}, but arguments are always an "object"'
    made = _compile(schema)
    return made if isinstance(made, str) else ""


def problem(schema: dict[str, Any], arguments: object) -> str:
    """What is wrong with the arguments: which field, what is expected, what was sent. Empty if nothing is."""
    if not isinstance(arguments, dict):
        return f"The arguments must be one JSON object, not {_a(json_type(arguments))}."
    validator = _validator(schema)
    if isinstance(validator, str):  # it constrains nothing
        return ""
    try:
        if validator.is_valid(arguments):
            return ""
        found = [_say(error) for error in validator.iter_errors(arguments)]
    except (ValueError, RecursionError) as error:
        return f"The arguments cannot be checked: {_cut(str(error), 200)}"
    lines = [f"- {line}" for line in dict.fromkeys(found)]
    if len(lines) > _PROBLEMS_SHOWN:
        lines[_PROBLEMS_SHOWN:] = [f"- and {len(lines) - _PROBLEMS_SHOWN} more problems"]
    return "\n".join(["The arguments do not fit:", *lines, _expectation(schema)])


def _validator(schema: dict[str, Any]) -> "jsonschema_rs.Validator | str":
    """The compiled schema, or why it cannot be compiled."""
    kept = _by_identity.get(id(schema))
    if kept is not None and kept[0] is schema:
        return kept[1]
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
        return _cut(str(error).split("\n", 1)[0], 300)


def _say(error: "jsonschema_rs.ValidationError") -> str:
    kind = error.kind.as_dict()
    where = _field(error.instance_path)
    sent = f"; sent: {_shown(error.instance)}"
    match error.kind.name:
        case "required":
            return f"{_field([*error.instance_path, kind['property']])} is missing"
        case "additionalProperties":
            names = ", ".join(_shown(name) for name in kind["unexpected"][:10])
            return f"{where} has no such field: {names}"
        case "type":
            return f"{where} must be {' or '.join(_a(name) for name in kind['types'])}{sent}"
        case "enum":
            options = kind["options"]
            shown = ", ".join(_shown(option) for option in options) if isinstance(options, list) else str(options)
            return f"{where} must be one of {_cut(shown, 400)}{sent}"
        case _:
            return f"{where}: {_cut(error.message, 300)}"


def _field(path: list[str | int]) -> str:
    shown = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path).lstrip(".")
    return f"`{_cut(shown, 100)}`" if shown else "the arguments object"


def _expectation(schema: dict[str, Any]) -> str:
    properties = schema.get("properties")
    if not isinstance(properties, dict) or not properties:
        return "Expected: no fields." if schema.get("additionalProperties") is False else ""
    required = schema.get("required", [])
    fields = []
    for name, sub in properties.items():
        kinds = "|".join(sorted(allowed_types(sub))) if isinstance(sub, dict) else ""
        fields.append(f"{name}{'' if name in required else '?'}: {kinds or 'any'}")
    return _cut(f"Expected: {{{', '.join(fields)}}}", 1_000)


# -- words ------------------------------------------------------------------------------------------------------


def _a(kind: str) -> str:
    if kind == "null":
        return kind
    return f"an {kind}" if kind[0] in "aeiou" else f"a {kind}"


def allowed_types(schema: dict[str, Any]) -> set[str]:
    """The JSON types a schema names; empty when it does not say in a simple way."""
    named = schema.get("type")
    if isinstance(named, str):
        return {named}
    if isinstance(named, list):
        return {name for name in named if isinstance(name, str)}
    for word in ("anyOf", "oneOf"):
        options = schema.get(word)
        if isinstance(options, list) and options and all(isinstance(option, dict) for option in options):
            kinds = [allowed_types(option) for option in options]
            return set().union(*kinds) if all(kinds) else set()
    return set()


def _shown(value: object) -> str:
    if isinstance(value, str):
        value = value[: _SHOWN * 2]
    try:
        return _cut(msgspec.json.encode(value).decode(), _SHOWN)
    except (TypeError, ValueError, RecursionError):
        return _cut(repr(value), _SHOWN)


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most]}…"
