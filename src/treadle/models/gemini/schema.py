"""A tool's JSON Schema in the subset that every Gemini server takes. Servers that take JSON Schema as it is get it so;
this is for those that refuse it. What the subset cannot say is left out: arguments are checked here anyway (T-12)."""

from collections.abc import Iterator, Mapping
from typing import Any

from treadle.protocol.content import json_type

Schema = Mapping[str, Any]

_MOST = 1_000
"""Schemas may be larger than they look, by what they refer to; beyond so many parts, anything is taken."""
_ANY: dict[str, Any] = {"type": "string"}
_TYPES = ("string", "number", "integer", "boolean", "array", "object")
_FORMATS = ("date-time", "enum", "int32", "int64", "float", "double")
_SAID_AS_IS: Mapping[str, type | tuple[type, ...]] = {
    "title": str,
    "description": str,
    "pattern": str,
    "minItems": int,
    "maxItems": int,
    "minLength": int,
    "maxLength": int,
    "minimum": (int, float),
    "maximum": (int, float),
}


def reduced(schema: Schema) -> dict[str, Any]:
    """The schema of a call's arguments."""
    try:
        return _Reducer(schema).reduce({"type": "object", **schema}, frozenset())
    except RecursionError:
        return {"type": "object"}


class _Reducer:
    def __init__(self, root: Schema) -> None:
        self._named = {f"#/{key}/{name}": part for key in ("$defs", "definitions") for name, part in _parts(root, key)}
        self._left = _MOST

    def reduce(self, schema: Any, within: frozenset[str]) -> dict[str, Any]:
        """`within` are the names of the parts that this one is a part of: a schema may refer to itself."""
        self._left -= 1
        if not isinstance(schema, Mapping) or self._left < 0:
            return dict(_ANY)
        told, within = self._resolved(schema, within)
        made = {key: told[key] for key, kind in _SAID_AS_IS.items() if isinstance(told.get(key), kind)}
        made |= _bounds(told)
        choices, null = _choices(told)
        if null:
            made["nullable"] = True
        if told.get("type") == "object" or "properties" in told:
            return made | self._object(told, choices, within)
        if len(choices) > 1:
            return made | {"anyOf": [self.reduce(choice, within) for choice in choices]}
        if choices:
            # What is said of the whole stands over what is said of its only choice.
            return self.reduce(choices[0], within) | made
        return made | self._plain(told, within)

    def _resolved(self, schema: Schema, within: frozenset[str]) -> tuple[Schema, frozenset[str]]:
        """References are replaced by what they stand for, and parts that must all hold by one that says it all."""
        while isinstance(name := schema.get("$ref"), str):
            named = self._named.get(name) if name not in within else {"type": "object"}
            schema = {**(named if isinstance(named, dict) else {}), **_without(schema, "$ref")}
            within |= {name}
        parts = schema.get("allOf")
        if not isinstance(parts, list):
            return schema, within
        merged: dict[str, Any] = {}
        for part in (*(part for part in parts if isinstance(part, Mapping)), _without(schema, "allOf")):
            told, within = self._resolved(part, within)
            properties = dict((*_parts(merged, "properties"), *_parts(told, "properties")))
            required = dict.fromkeys((*_names(merged.get("required")), *_names(told.get("required"))))
            merged |= told
            merged |= {"properties": properties} if properties else {}
            merged |= {"required": list(required)} if required else {}
        return merged, within

    def _object(self, schema: Schema, choices: list[Any], within: frozenset[str]) -> dict[str, Any]:
        """An object of several shapes is one that may have the properties of each."""
        shapes = (self._resolved(choice, within)[0] for choice in choices if isinstance(choice, Mapping))
        properties = dict(part for shape in (*shapes, schema) for part in _parts(shape, "properties"))
        made: dict[str, Any] = {"type": "object"}
        if properties:
            made["properties"] = {name: self.reduce(part, within) for name, part in properties.items()}
        if required := [name for name in _names(schema.get("required")) if name in properties]:
            made["required"] = required
        return made

    def _plain(self, schema: Schema, within: frozenset[str]) -> dict[str, Any]:
        values = [schema["const"]] if "const" in schema else schema.get("enum")
        if isinstance(values, list) and values:
            # Only words can be listed; of other values, the kind is told.
            words = [value for value in values if isinstance(value, str)]
            return {"type": "string", "enum": words} if words else self._plain({"type": json_type(values[0])}, within)
        kind = schema.get("type")
        if kind not in _TYPES:
            kind = "array" if "items" in schema else _ANY["type"]
        made: dict[str, Any] = {"type": kind}
        if schema.get("format") in _FORMATS:
            made["format"] = schema["format"]
        if kind == "array":
            items = schema.get("prefixItems", schema.get("items"))
            made["items"] = self.reduce({"anyOf": items} if isinstance(items, list) else items, within)
        return made


def _choices(schema: Schema) -> tuple[list[Any], bool]:
    """The alternatives without null, and whether null is one of them."""
    for key in ("anyOf", "oneOf"):
        if isinstance(found := schema.get(key), list):
            choices = [choice for choice in found if not _is_null(choice)]
            return choices, len(choices) < len(found)
    if isinstance(types := schema.get("type"), list):
        kept = [name for name in types if name != "null"]
        return [{**schema, "type": name} for name in kept], len(kept) < len(types)
    return [], schema.get("nullable") is True


def _bounds(schema: Schema) -> dict[str, Any]:
    made = {}
    for exclusive, inclusive, step in (("exclusiveMinimum", "minimum", 1), ("exclusiveMaximum", "maximum", -1)):
        bound = schema.get(exclusive)
        if isinstance(bound, int | float) and not isinstance(bound, bool):
            made[inclusive] = bound + step if schema.get("type") == "integer" else bound
    return made


def _parts(schema: Schema, key: str) -> Iterator[tuple[str, Any]]:
    found = schema.get(key)
    return iter(found.items() if isinstance(found, dict) else ())


def _without(schema: Schema, key: str) -> dict[str, Any]:
    return {name: value for name, value in schema.items() if name != key}


def _names(found: Any) -> list[str]:
    return [name for name in found if isinstance(name, str)] if isinstance(found, list) else []


def _is_null(schema: Any) -> bool:
    return isinstance(schema, Mapping) and (schema.get("type") == "null" or schema.get("enum") == [None])
