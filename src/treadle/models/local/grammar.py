"""What a small model may answer, as one JSON schema made of its tools: either a call with arguments that fit, or a
reply in words. The engine lets it write nothing else (M-15). Pure.

The engine gives up its grammar without a word when a schema has something that it cannot do; so only what it can is
let through. What is left out makes the grammar looser, never wrong: arguments are checked again before a tool runs.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from treadle.protocol.tools import ToolSpec

REPLY = "reply"
_GUIDANCE = {"lenient": True, "whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
"""Without them a small model fills its answer with blanks."""
_ANYTHING: dict[str, Any] = {}
_KEPT = ("type", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "const")
_COUNTS = {"minLength": 200, "maxLength": 2_000, "minItems": 200, "maxItems": 1_000}
"""Beyond these the grammar becomes too large."""
_REF = re.compile(r"#/(\$defs|definitions)/([^/]+)")
_HARD_PATTERN = re.compile(r"\(\?|\\[bB0-9kpP]|.\^|\$.", re.S)
"""Look-around, back-references and anchors in the middle."""


def reply_name(tools: Iterable[ToolSpec]) -> str:
    """The word for a reply; another one where a tool is called so."""
    taken = {tool.name for tool in tools}
    name = REPLY
    while name in taken:
        name += "_"
    return name


def answer_schema(tools: Sequence[ToolSpec]) -> dict[str, Any]:
    """The schema of one answer. The name comes first: with it the model decides whether to speak or to act."""
    shared: dict[str, Any] = {}
    text = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
    choices = [_choice(reply_name(tools), {**text, "additionalProperties": False})]
    for number, tool in enumerate(tools):
        cleaner = _Cleaner(f"t{number}_")
        choices.append(_choice(tool.name, cleaner.arguments(tool.parameters)))
        shared |= cleaner.shared
    schema: dict[str, Any] = {"anyOf": choices, "x-guidance": _GUIDANCE}
    return {**schema, "$defs": shared} if shared else schema


def _choice(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {"name": {"const": name}, "arguments": arguments},
        "required": ["name", "arguments"],
        "additionalProperties": False,
    }


class _Cleaner:
    """One tool's schema without what the engine cannot do. Definitions of all tools end up side by side, so each
    tool's have a prefix of their own."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self.shared: dict[str, Any] = {}

    def arguments(self, parameters: Mapping[str, Any]) -> dict[str, Any]:
        for key in ("$defs", "definitions"):
            for name, schema in _mapping(parameters.get(key)).items():
                self.shared[self._shared_name(name)] = self.clean(schema)
        cleaned = self.clean(parameters)
        if cleaned.get("type") != "object" and not {"$ref", "anyOf", "allOf"} & cleaned.keys():
            return {"type": "object"}
        return cleaned

    def _shared_name(self, name: str) -> str:
        return self._prefix + re.sub(r"\W", "_", name)

    def clean(self, schema: Any) -> dict[str, Any]:
        if not isinstance(schema, Mapping):
            return dict(_ANYTHING)
        if "$ref" in schema:
            return self._reference(schema["$ref"])
        kept = {key: schema[key] for key in _KEPT if key in schema}
        kept |= {key: schema[key] for key, most in _COUNTS.items() if _is_count(schema.get(key), most)}
        if isinstance(schema.get("enum"), list) and schema["enum"]:
            kept["enum"] = schema["enum"]
        if isinstance(pattern := schema.get("pattern"), str) and _is_easy(pattern):
            kept["pattern"] = pattern
        for key, word in (("anyOf", "anyOf"), ("oneOf", "anyOf"), ("allOf", "allOf")):
            if isinstance(schema.get(key), list) and schema[key]:
                kept[word] = [self.clean(part) for part in schema[key]]
        if "items" in schema and schema["items"] is not False:
            kept["items"] = self.clean(schema["items"])
        return kept | self._object(schema)

    def _object(self, schema: Mapping[str, Any]) -> dict[str, Any]:
        known = _mapping(schema.get("properties"))
        required = [name for name in schema.get("required") or () if isinstance(name, str)]
        rest = schema.get("additionalProperties", not (known or required))
        kept: dict[str, Any] = {}
        if known or required:
            properties = {name: self.clean(inner) for name, inner in known.items() if inner is not False}
            kept["properties"] = properties | {name: dict(_ANYTHING) for name in required if name not in properties}
            kept["required"] = required
            kept["additionalProperties"] = rest if isinstance(rest, bool) else self.clean(rest)
        elif isinstance(rest, Mapping):
            kept["additionalProperties"] = self.clean(rest)
        elif rest is False and schema.get("type") == "object":
            kept["additionalProperties"] = False
        return kept

    def _reference(self, target: object) -> dict[str, Any]:
        found = _REF.fullmatch(target) if isinstance(target, str) else None
        if found is None:
            return dict(_ANYTHING)
        name = self._shared_name(found[2])
        self.shared.setdefault(name, dict(_ANYTHING))
        return {"$ref": f"#/$defs/{name}"}


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _is_count(value: Any, most: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= most


def _is_easy(pattern: str) -> bool:
    try:
        re.compile(pattern)
    except re.error:
        return False
    return _HARD_PATTERN.search(pattern) is None
