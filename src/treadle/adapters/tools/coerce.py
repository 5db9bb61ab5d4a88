"""Mends arguments that are wrong in only one possible way (P-06). Never raises, and never touches valid arguments;
ambiguous ones are left for the model to correct."""

import math
import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

import msgspec

from treadle.adapters.tools.validate import MAX_DEPTH, allowed_types, problem, unstorable
from treadle.protocol.content import json_type
from treadle.protocol.tools import ToolSpec

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
        case "object" | "array" if text.startswith(("{", "[")):
            with suppress(msgspec.DecodeError, ValueError, RecursionError):
                decoded = msgspec.json.decode(text)
                fits = isinstance(decoded, dict if target_type == "object" else list)
                return decoded if fits and not unstorable(decoded) else None
    return None
