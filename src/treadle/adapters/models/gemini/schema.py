"""A tool's JSON Schema in the subset that every Gemini server accepts, for servers that refuse full JSON Schema.
Constraints that the subset cannot express are dropped: Treadle checks the arguments anyway (T-12)."""

from collections.abc import Iterator, Mapping
from typing import Any

from treadle.protocol.content import get_json_type

Schema = Mapping[str, Any]

_MOST = 1_000  # schemas may be larger than they look, by what they refer to; beyond so many parts, anything is taken
_ANY: dict[str, Any] = {"type": "string"}
_TYPES = ("string", "number", "integer", "boolean", "array", "object")
_FORMATS = ("date-time", "enum", "int32", "int64", "float", "double")
_SAID_AS_IS: Mapping[str, type | tuple[type, ...]] = {
    **{"title": str, "description": str, "pattern": str, "minItems": int, "maxItems": int},
    **{"minLength": int, "maxLength": int, "minimum": (int, float), "maximum": (int, float)},
}


def reduce_schema(schema: Schema) -> dict[str, Any]:
    try:
        return _Reducer(schema).reduce({"type": "object", **schema}, frozenset())
    except RecursionError:
        return {"type": "object"}


class _Reducer:
    def __init__(self, root: Schema) -> None:
        self._named = {
            f"#/{key}/{name}": part for key in ("$defs", "definitions") for name, part in _iterate_parts(root, key)
        }
        self._left = _MOST

    def reduce(self, schema: Any, within: frozenset[str]) -> dict[str, Any]:
        """`within` are the names of the parts that this one is a part of: a schema may refer to itself."""
        self._left -= 1
        if not isinstance(schema, Mapping) or self._left < 0:
            return dict(_ANY)
        resolved, within = self._resolve_schema(schema, within)
        result = {key: resolved[key] for key, kind in _SAID_AS_IS.items() if isinstance(resolved.get(key), kind)}
        for exclusive, inclusive, step in (("exclusiveMinimum", "minimum", 1), ("exclusiveMaximum", "maximum", -1)):
            limit = resolved.get(exclusive)
            if isinstance(limit, int | float) and not isinstance(limit, bool):
                result[inclusive] = limit + step if resolved.get("type") == "integer" else limit
        choices, null = _list_choices(resolved)
        if null:
            result["nullable"] = True
        if resolved.get("type") == "object" or "properties" in resolved:
            return result | self._reduce_object(resolved, choices, within)
        if len(choices) > 1:
            return result | {"anyOf": [self.reduce(choice, within) for choice in choices]}
        if choices:
            # Keywords of the whole override those of its only choice.
            return self.reduce(choices[0], within) | result
        return result | self._reduce_plain(resolved, within)

    def _resolve_schema(self, schema: Schema, within: frozenset[str]) -> tuple[Schema, frozenset[str]]:
        """References are replaced by what they stand for, and parts that must all hold by one that says it all."""
        while isinstance(name := schema.get("$ref"), str):
            definition = self._named.get(name) if name not in within else {"type": "object"}
            schema = {**(definition if isinstance(definition, dict) else {}), **_omit_key(schema, "$ref")}
            within |= {name}
        parts = schema.get("allOf")
        if not isinstance(parts, list):
            return schema, within
        merged: dict[str, Any] = {}
        for part in (*(part for part in parts if isinstance(part, Mapping)), _omit_key(schema, "allOf")):
            resolved, within = self._resolve_schema(part, within)
            properties = dict((*_iterate_parts(merged, "properties"), *_iterate_parts(resolved, "properties")))
            required = dict.fromkeys((*_list_names(merged.get("required")), *_list_names(resolved.get("required"))))
            merged |= resolved
            merged |= {"properties": properties} if properties else {}
            merged |= {"required": list(required)} if required else {}
        return merged, within

    def _reduce_object(self, schema: Schema, choices: list[Any], within: frozenset[str]) -> dict[str, Any]:
        """An object of several shapes is one that may have the properties of each."""
        shapes = (self._resolve_schema(choice, within)[0] for choice in choices if isinstance(choice, Mapping))
        properties = dict(part for shape in (*shapes, schema) for part in _iterate_parts(shape, "properties"))
        result: dict[str, Any] = {"type": "object"}
        if properties:
            result["properties"] = {name: self.reduce(part, within) for name, part in properties.items()}
        if required := [name for name in _list_names(schema.get("required")) if name in properties]:
            result["required"] = required
        return result

    def _reduce_plain(self, schema: Schema, within: frozenset[str]) -> dict[str, Any]:
        values = [schema["const"]] if "const" in schema else schema.get("enum")
        if isinstance(values, list) and values:
            # Only words can be listed; of other values, the kind is told.
            words = [value for value in values if isinstance(value, str)]
            return (
                {"type": "string", "enum": words}
                if words
                else self._reduce_plain({"type": get_json_type(values[0])}, within)
            )
        kind = schema.get("type")
        if kind not in _TYPES:
            kind = "array" if "items" in schema else _ANY["type"]
        result: dict[str, Any] = {"type": kind}
        if schema.get("format") in _FORMATS:
            result["format"] = schema["format"]
        if kind == "array":
            items = schema.get("prefixItems", schema.get("items"))
            result["items"] = self.reduce({"anyOf": items} if isinstance(items, list) else items, within)
        return result


def _list_choices(schema: Schema) -> tuple[list[Any], bool]:
    """The alternatives, and whether null is one of them."""
    for key in ("anyOf", "oneOf"):
        if isinstance(alternatives := schema.get(key), list):
            choices = [choice for choice in alternatives if not _is_null(choice)]
            return choices, len(choices) < len(alternatives)
    if isinstance(types := schema.get("type"), list):
        non_null = [name for name in types if name != "null"]
        return [{**schema, "type": name} for name in non_null], len(non_null) < len(types)
    return [], schema.get("nullable") is True


def _iterate_parts(schema: Schema, key: str) -> Iterator[tuple[str, Any]]:
    mapping = schema.get(key)
    return iter(mapping.items() if isinstance(mapping, dict) else ())


def _omit_key(schema: Schema, key: str) -> dict[str, Any]:
    return {name: value for name, value in schema.items() if name != key}


def _list_names(candidates: Any) -> list[str]:
    return [name for name in candidates if isinstance(name, str)] if isinstance(candidates, list) else []


def _is_null(schema: Any) -> bool:
    return isinstance(schema, Mapping) and (schema.get("type") == "null" or schema.get("enum") == [None])
