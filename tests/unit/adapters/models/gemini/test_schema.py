"""Schemas in the subset that every Gemini server takes (M-03)."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.adapters.models.gemini.adapter import GeminiEncoder
from treadle.adapters.models.gemini.schema import reduce_schema
from treadle.adapters.stores.memory import MemoryStore
from treadle.adapters.tools.builtin import make_builtin_tools
from treadle.adapters.tools.builtin.base import ToolContext
from treadle.ports.model import ModelRequest
from treadle.protocol.content import UserEntry
from treadle.protocol.tools import ToolSpec
from treadle.testing.fake_gemini import find_complaint

STRING = {"type": "string"}


def find_schema_complaint(schema: dict[str, Any]) -> str:
    encoder = GeminiEncoder("gemini:x")
    encoder.change(reduced=True)
    return find_complaint(
        encoder.encode_body({}, ModelRequest("", [UserEntry("a")], (ToolSpec("f", "", schema),))), (), strict=False
    )


def property_of(schema: Any, **root: Any) -> Any:
    """The schema of a single argument, reduced."""
    full_schema = {"type": "object", "properties": {"x": schema}, **root}
    assert find_schema_complaint(full_schema) == ""
    return reduce_schema(full_schema)["properties"]["x"]


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({"type": "string", "$comment": "c", "examples": [1], "default": "a", "title": "X"}, STRING | {"title": "X"}),
        ({"type": "string", "format": "uri", "description": "d"}, STRING | {"description": "d"}),
        ({"type": "string", "format": "date-time"}, STRING | {"format": "date-time"}),
        ({"type": ["string", "null"], "minLength": 1}, STRING | {"nullable": True, "minLength": 1}),
        ({"type": ["string", "integer"]}, {"anyOf": [STRING, {"type": "integer"}]}),
        ({"type": "null"}, STRING),
        ({"const": "a"}, STRING | {"enum": ["a"]}),
        ({"const": 3}, {"type": "integer"}),
        ({"const": None}, STRING),
        ({"enum": ["a", None, "b"]}, STRING | {"enum": ["a", "b"]}),
        ({"type": "integer", "enum": [1, 2]}, {"type": "integer"}),
        ({"enum": [1.5]}, {"type": "number"}),
        ({"enum": [True]}, {"type": "boolean"}),
        ({"enum": [[]]}, {"type": "array", "items": STRING}),
        ({"enum": []}, STRING),
        ({"type": "integer", "exclusiveMinimum": 0, "maximum": 9}, {"type": "integer", "minimum": 1, "maximum": 9}),
        ({"type": "number", "exclusiveMaximum": 1.5}, {"type": "number", "maximum": 1.5}),
        ({"type": "number", "exclusiveMinimum": True, "minimum": 2}, {"type": "number", "minimum": 2}),
        ({"type": "array", "items": {"const": "a"}}, {"type": "array", "items": STRING | {"enum": ["a"]}}),
        ({"type": "array", "uniqueItems": True}, {"type": "array", "items": STRING}),
        ({"items": False}, {"type": "array", "items": STRING}),
        (
            {"type": "array", "prefixItems": [STRING, {"type": "integer"}]},
            {"type": "array", "items": {"anyOf": [STRING, {"type": "integer"}]}},
        ),
        ({"oneOf": [STRING, {"type": "null"}], "description": "d"}, STRING | {"nullable": True, "description": "d"}),
        ({"anyOf": [STRING, {"type": "boolean"}]}, {"anyOf": [STRING, {"type": "boolean"}]}),
        ({"anyOf": []}, STRING),
        (
            {
                "allOf": [{"properties": {"a": STRING}, "required": ["a"]}, {"properties": {"b": True}}],
                "required": ["b"],
            },
            {"type": "object", "properties": {"a": STRING, "b": STRING}, "required": ["a", "b"]},
        ),
        (
            {"type": "object", "properties": {"a": STRING}, "anyOf": [{"required": ["a"]}, {"properties": {"b": {}}}]},
            {"type": "object", "properties": {"b": STRING, "a": STRING}},
        ),
        ({"type": "object", "additionalProperties": STRING, "patternProperties": {}}, {"type": "object"}),
        ({"type": "object", "properties": {}, "required": ["gone"]}, {"type": "object"}),
        (True, STRING),
        ({}, STRING),
        ({"type": "tuple", "minItems": "many"}, STRING),
        ({"$ref": "https://example.org/x"}, STRING),
        ({"not": {}, "if": {}, "then": {}, "dependentRequired": {}}, STRING),
    ],
)
def test_what_cannot_be_said_is_translated_or_left_out(schema: Any, expected: Any) -> None:
    assert property_of(schema) == expected


def test_references_are_replaced() -> None:
    definitions = {"Name": {"type": "string", "minLength": 1}, "Alias": {"$ref": "#/$defs/Name", "title": "A"}}
    schema = property_of({"$ref": "#/$defs/Alias", "description": "d"}, **{"$defs": definitions})
    assert schema == {"type": "string", "minLength": 1, "title": "A", "description": "d"}
    assert property_of({"$ref": "#/definitions/N"}, definitions={"N": STRING}) == STRING


def test_references_may_go_in_circles() -> None:
    tree = {
        "type": "object",
        "properties": {"left": {"$ref": "#/$defs/T"}, "right": {"$ref": "#/$defs/T"}, "v": STRING},
    }
    end = {"type": "object"}
    assert property_of({"$ref": "#/$defs/T"}, **{"$defs": {"T": tree}}) == {
        "type": "object",
        "properties": {"left": end, "right": end, "v": STRING},
    }
    itself = {"$ref": "#/$defs/S"}
    assert property_of(itself, **{"$defs": {"S": itself}}) == end
    assert property_of({"allOf": [itself]}, **{"$defs": {"S": {"allOf": [itself]}}}) == end


def test_schemas_that_are_larger_than_they_look_are_bounded() -> None:
    definitions = {f"D{n}": {"properties": {side: {"$ref": f"#/$defs/D{n + 1}"} for side in "ab"}} for n in range(40)}
    raw = msgspec.json.encode(reduce_schema({"$ref": "#/$defs/D0", "$defs": definitions}))
    assert len(raw) < 100_000
    deep: dict[str, Any] = {}
    for _ in range(5_000):
        deep = {"properties": {"x": deep}}
    assert reduce_schema(deep)["type"] == "object"


def test_the_root_is_an_object() -> None:
    assert reduce_schema({}) == {"type": "object"}
    shapes = {
        "oneOf": [{"properties": {"a": STRING}}, {"$ref": "#/$defs/B"}],
        "$defs": {"B": {"properties": {"b": {}}}},
    }
    assert reduce_schema(shapes) == {"type": "object", "properties": {"a": STRING, "b": STRING}}


words = st.sampled_from(["string", "integer", "array", "object", "null", "x", 7, None, ["string", "null"], [], {}])
leaves = st.one_of(words, st.booleans(), st.integers(-2, 2), st.lists(words, max_size=3))
KEYS = [
    "type",
    "properties",
    "items",
    "anyOf",
    "oneOf",
    "allOf",
    "enum",
    "const",
    "required",
    "$ref",
    "$defs",
    "format",
]
KEYS += ["minimum", "exclusiveMinimum", "description", "prefixItems", "additionalProperties", "nullable"]
schemas = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.dictionaries(st.sampled_from(KEYS), inner, max_size=4),
        st.lists(inner, max_size=3),
        st.dictionaries(st.sampled_from(["a", "b"]), inner, max_size=2),
    ),
    max_leaves=20,
)


@given(st.dictionaries(st.sampled_from(KEYS), schemas, max_size=6))
def test_any_schema_becomes_one_that_is_taken(schema: dict[str, Any]) -> None:
    assert find_schema_complaint(schema) == ""


def test_the_tools_of_treadle_are_taken_reduced() -> None:
    tools = make_builtin_tools(
        ToolContext(lambda root: pytest.fail("no files are needed to tell of a tool"), MemoryStore())
    )
    assert len(tools) > 5
    for tool in tools:
        assert find_schema_complaint(tool.spec.parameters) == ""
