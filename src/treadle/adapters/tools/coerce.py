"""Mends arguments that are wrong in only one possible way (P-06). Never raises, and never touches valid arguments;
ambiguous ones are left for the model to correct."""

import math
import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from treadle.adapters.tools.synonyms import SYNONYMS
from treadle.adapters.tools.validate import MAX_DEPTH, allowed_types, problem, unstorable
from treadle.protocol.content import json_type
from treadle.protocol.tools import ToolSpec

_PATH_NAMES: Final = ("path", "file", "filePath", "file_path")
_REMARKS: Final = ("description", "explanation", "allow_freeform")
"""Remarks about a call that models trained on other tools add to it. They do not change what the call does, so they are
dropped if the schema allows no other fields."""
_INTEGER = re.compile(r"-?(0|[1-9][0-9]{0,14})")
_NUMBER = re.compile(r"-?(0|[1-9][0-9]{0,14})(\.[0-9]{1,15})?([eE][+-]?[0-9]{1,2})?")


def coerce(spec: ToolSpec, arguments: dict[str, Any]) -> dict[str, Any]:
    """The arguments with what can be meant in only one way put right: the names models use for `path`, a number or
    boolean in quotes, an object or array as JSON text, null for a field that may be left out, a remark about the call
    that no field is for. Arguments that fit are returned as they are."""
    if not problem(spec.parameters, arguments):
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


def _rename(
    properties: dict[str, Any], arguments: dict[str, Any], synonyms: Mapping[str, tuple[str, ...]]
) -> dict[str, Any]:
    """Give arguments their right names where just one was sent that can be meant."""
    for right_name, alternatives in synonyms.items():
        sent_names = [name for name in alternatives if name in arguments and name not in properties]
        if len(sent_names) == 1 and right_name not in arguments:
            arguments = {right_name if name == sent_names[0] else name: value for name, value in arguments.items()}
    return arguments


def _fit(schema: object, value: object, depth: int) -> object:
    if not isinstance(schema, dict) or depth > MAX_DEPTH:
        return value
    allowed = allowed_types(schema)
    kind = json_type(value)
    if kind not in allowed and not (kind == "integer" and "number" in allowed):
        mended = [converted for target_type in allowed if (converted := _as(target_type, value)) is not None]
        if len(mended) != 1:
            return value
        value = mended[0]
    if isinstance(value, dict):
        return _fit_object(schema, value, depth)
    if isinstance(value, list):
        return [_fit(schema.get("items"), item, depth + 1) for item in value]
    return value


def _fit_object(schema: dict[str, Any], value: dict[str, Any], depth: int) -> dict[str, Any]:
    properties = schema.get("properties")
    if not isinstance(properties, dict):
        return value
    required = schema.get("required", [])
    fitted: dict[str, Any] = {}
    for name, item in value.items():
        sub = properties.get(name)
        if item is None and isinstance(sub, dict) and name not in required:
            allowed = allowed_types(sub)
            if allowed and "null" not in allowed:
                continue
        fitted[name] = _fit(sub, item, depth + 1)
    return fitted


def _as(target_type: str, value: object) -> object | None:
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
        case "object" | "array":
            return _from_json(text, dict if target_type == "object" else list)
        case _:
            return None


def _from_json(text: str, kind: type) -> object | None:
    if not text.startswith(("{", "[")):
        return None
    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return None
    return value if isinstance(value, kind) and not unstorable(value) else None
