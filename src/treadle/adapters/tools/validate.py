"""Turns the text that a model sent into arguments that fit a schema, or into a message that it can act on (T-12, P-06).
Never raises. `parse` reads, `coerce` mends what is wrong in only one possible way, `find_problem` describes
the rest."""

import math
import re
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import msgspec

from treadle.protocol.content import get_json_type
from treadle.protocol.tools import ToolSpec

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
        return (
            f"The arguments must be one JSON object, not {_add_article(get_json_type(value))}: {_format_value(value)}"
        )
    return find_unstorable(value) or _find_repeated_key(text) or value


def _find_repeated_key(text: str) -> str:
    """The key that an object has twice; empty if none. Parsers disagree about the value, so Treadle does not guess."""
    import json  # lazily, as all here; msgspec does not tell

    repeated: list[str] = []

    def collect_repeated(pairs: list[tuple[str, object]]) -> None:
        if len(pairs) != len(dict(pairs)):
            keys = [key for key, _ in pairs]
            repeated.append(_format_value(next(key for key in keys if keys.count(key) > 1)))

    json.loads(text, object_pairs_hook=collect_repeated)
    sentence = "The arguments have the key {} more than once. Send the call again, with each key once."
    return sentence.format(repeated[0]) if repeated else ""


def find_unstorable(value: object) -> str:
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


def find_schema_problem(schema: object) -> str:
    """Why this is no usable JSON Schema for arguments; empty if it is one. Nothing is fetched for a `$ref`."""
    if not isinstance(schema, dict):
        return "it is not a JSON object"
    if schema.get("type", "object") != "object":
        return f'its type is {_format_value(schema["type"])}, but arguments are always an "object"'
    validator = _compile(schema)
    return validator if isinstance(validator, str) else ""


def find_problem(schema: dict[str, Any], arguments: object) -> str:
    """The error in the arguments: the field, the expected value, the sent value. Empty if there is none."""
    if not isinstance(arguments, dict):
        return f"The arguments must be one JSON object, not {_add_article(get_json_type(arguments))}."
    validator = _get_validator(schema)
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
    return "\n".join(["The arguments do not fit:", *lines, _describe_expectation(schema)])


def _get_validator(schema: dict[str, Any]) -> "jsonschema_rs.Validator | str":
    cached = _by_identity.get(id(schema))
    if cached is not None and cached[0] is schema:
        return cached[1]
    if len(_by_identity) >= _CACHE_LIMIT:
        _by_identity.clear()
    validator = _compile(schema)
    _by_identity[id(schema)] = schema, validator
    return validator


def _compile(schema: dict[str, Any]) -> "jsonschema_rs.Validator | str":
    import jsonschema_rs  # lazily: most chats start without checking anything

    try:
        return jsonschema_rs.validator_for(schema, offline=True)
    except (ValueError, jsonschema_rs.ReferencingError, RecursionError) as error:
        return _truncate_text(str(error).split("\n", 1)[0], 300)


def _say(error: "jsonschema_rs.ValidationError") -> str:
    kind = error.kind.as_dict()
    field = _format_field(error.instance_path)
    sent_note = f"; sent: {_format_value(error.instance)}"
    match error.kind.name:
        case "required":
            return f"{_format_field([*error.instance_path, kind['property']])} is missing"
        case "additionalProperties":
            names = ", ".join(_format_value(name) for name in kind["unexpected"][:10])
            return f"{field} has no such field: {names}"
        case "type":
            return f"{field} must be {' or '.join(_add_article(name) for name in kind['types'])}{sent_note}"
        case "enum":
            options = kind["options"]
            option_list = ", ".join(map(_format_value, options)) if isinstance(options, list) else str(options)
            return f"{field} must be one of {_truncate_text(option_list, 400)}{sent_note}"
        case _:
            return f"{field}: {_truncate_text(error.message, 300)}"


def _format_field(path: list[str | int]) -> str:
    path_text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path).lstrip(".")
    return f"`{_truncate_text(path_text, 100)}`" if path_text else "the arguments object"


def _describe_expectation(schema: dict[str, Any]) -> str:
    properties = schema.get("properties")
    if not isinstance(properties, dict) or not properties:
        return "Expected: no fields." if schema.get("additionalProperties") is False else ""
    required = schema.get("required", [])
    fields = []
    for name, sub in properties.items():
        kinds = "|".join(sorted(list_allowed_types(sub))) if isinstance(sub, dict) else ""
        fields.append(f"{name}{'' if name in required else '?'}: {kinds or 'any'}")
    return _truncate_text(f"Expected: {{{', '.join(fields)}}}", 1_000)


# -- words ------------------------------------------------------------------------------------------------------
def _add_article(kind: str) -> str:
    return kind if kind == "null" else f"an {kind}" if kind[0] in "aeiou" else f"a {kind}"


def list_allowed_types(schema: dict[str, Any]) -> set[str]:
    """The JSON types a schema names; empty when it does not say in a simple way."""
    type_names = schema.get("type")
    if isinstance(type_names, str):
        return {type_names}
    if isinstance(type_names, list):
        return {name for name in type_names if isinstance(name, str)}
    for word in ("anyOf", "oneOf"):
        options = schema.get(word)
        if isinstance(options, list) and options and all(isinstance(option, dict) for option in options):
            kinds = [list_allowed_types(option) for option in options]
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


_PATH_NAMES: Final = ("path", "file", "filePath", "file_path")
_REMARKS: Final = ("description", "explanation", "allow_freeform")
"""Remarks about a call that models trained on other tools add to it. They do not change what the call does, so they are
dropped if the schema allows no other fields."""
_FOLDER = (
    *("directory", "dir", "dir_path", "directory_path", "DirectoryPath", "folder", "target_directory"),
    *("relative_workspace_path", "SearchDirectory", "SearchPath", "root"),
)
_CONTENT = ("contents", "text", "file_text", "file_content", "fileContent", "CodeContent")
SYNONYMS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "read_file": {
        "start_line": ("start", "startLine", "line_start", "StartLine"),
        "end_line": ("end", "endLine", "line_end", "EndLine"),
    },
    "write_file": {"content": _CONTENT},
    "edit_file": {
        "old_str": ("old_string", "oldString", "old_text", "oldText", "search", "find", "old"),
        "new_str": ("new_string", "newString", "new_text", "newText", "replace", "replacement", "new"),
        "line": ("line_number", "lineNumber", "start_line"),
        "replace_all": ("replaceAll", "all"),
        "content": _CONTENT,
    },
    "apply_patch": {"patch": ("input", "diff", "patch_text", "patchText", "text")},
    "ask_user": {"options": ("choices",)},
    "list_directory": {"path": _FOLDER},
    "find_files": {
        "path": _FOLDER,
        "pattern": ("glob", "glob_pattern", "query", "name", "filename", "file_pattern", "Pattern"),
        "ignore_case": ("case_insensitive", "-i"),
    },
    "grep_search": {
        "path": _FOLDER,
        "pattern": ("query", "regex", "search", "search_term", "text", "q", "Query"),
        "include": ("glob", "include_pattern", "includePattern", "file_pattern", "file_glob", "Includes"),
        "ignore_case": ("case_insensitive", "CaseInsensitive", "-i"),
        "context": ("context_lines", "lines_of_context", "-C"),
        "output": ("output_mode",),
        "literal": ("fixed_strings", "-F"),
    },
}
"""Names of arguments in other products, by tool (T-09): models bring these names along. A name is only taken for
another if nothing else could be meant."""
_INTEGER = re.compile(r"-?(0|[1-9][0-9]{0,14})")
_NUMBER = re.compile(r"-?(0|[1-9][0-9]{0,14})(\.[0-9]{1,15})?([eE][+-]?[0-9]{1,2})?")


def coerce(spec: ToolSpec, arguments: dict[str, Any]) -> dict[str, Any]:
    """The arguments with what can be meant in only one way put right: names for `path`, quoted numbers and booleans,
    JSON as text, null for an optional field, remarks that no field is for."""
    if not find_problem(spec.parameters, arguments):
        return arguments
    properties = spec.parameters.get("properties")
    if not isinstance(properties, dict):
        return arguments
    if spec.parameters.get("additionalProperties") is False:
        remarks = [name for name in _REMARKS if name not in properties and isinstance(arguments.get(name), str | bool)]
        arguments = {name: value for name, value in arguments.items() if name not in remarks}
    paths = [name for name in _PATH_NAMES if name in properties]
    synonyms = {paths[0]: _PATH_NAMES} if len(paths) == 1 else {}
    renamed = _rename(properties, _rename(properties, arguments, synonyms), SYNONYMS.get(spec.name, {}))
    return _fit_object(spec.parameters, renamed, 0)


def _rename(fields: dict[str, Any], arguments: dict[str, Any], names: Mapping[str, tuple[str, ...]]) -> dict[str, Any]:
    for right_name, alternatives in names.items():
        sent_names = [name for name in alternatives if name in arguments and name not in fields]
        if len(sent_names) == 1 and right_name not in arguments:
            arguments = {right_name if name == sent_names[0] else name: value for name, value in arguments.items()}
    return arguments


def _fit(schema: object, value: object, depth: int) -> object:
    if not isinstance(schema, dict) or depth > MAX_DEPTH:
        return value
    allowed = list_allowed_types(schema)
    kind = get_json_type(value)
    if kind not in allowed and not (kind == "integer" and "number" in allowed):
        mended = [converted for target_type in allowed if (converted := _convert_value(target_type, value)) is not None]
        if len(mended) != 1:
            return value
        value = mended[0]
    if isinstance(value, dict):
        return _fit_object(schema, value, depth)
    return [_fit(schema.get("items"), item, depth + 1) for item in value] if isinstance(value, list) else value


def _fit_object(schema: dict[str, Any], value: dict[str, Any], depth: int) -> dict[str, Any]:
    properties = schema.get("properties")
    if not isinstance(properties, dict):
        return value
    required = schema.get("required", [])

    def can_go(name: str, item: object) -> bool:
        sub = properties.get(name)
        allowed = list_allowed_types(sub) if item is None and isinstance(sub, dict) and name not in required else set()
        return bool(allowed) and "null" not in allowed

    return {n: _fit(properties.get(n), item, depth + 1) for n, item in value.items() if not can_go(n, item)}


def _convert_value(target_type: str, value: object) -> object | None:
    """The value as the wanted type, where there is no doubt; None where there is."""
    if isinstance(value, float) and target_type == "integer" and math.isfinite(value) and value.is_integer():
        return int(value) if abs(value) < 2**53 else None
    if isinstance(value, int) and not isinstance(value, bool) and target_type == "string":
        return str(value)
    if not isinstance(value, str):
        return None
    text = value.strip()
    match target_type:
        case "integer":
            return int(text) if _INTEGER.fullmatch(text) else None
        case "number":
            number = float(text) if _NUMBER.fullmatch(text) else math.inf
            return number if math.isfinite(number) else None
        case "boolean":
            return {"true": True, "false": False}.get(text.lower())
        case "object" | "array" if text.startswith(("{", "[")):
            with suppress(msgspec.DecodeError, ValueError, RecursionError):
                decoded = msgspec.json.decode(text)
                fits = isinstance(decoded, dict if target_type == "object" else list)
                return decoded if fits and not find_unstorable(decoded) else None
    return None
