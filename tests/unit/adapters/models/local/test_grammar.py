"""Tools as one schema: only what the engine can do, nothing that would let a wrong call pass as another (M-15)."""

import re
from typing import Any

import jsonschema_rs
import pytest

from treadle.adapters.models.local.prompt import build_answer_schema, choose_reply_name
from treadle.adapters.stores.memory import MemoryStore
from treadle.adapters.tools.builtin import make_builtin_tools
from treadle.adapters.tools.builtin.base import ToolContext
from treadle.adapters.tools.registry import Tools
from treadle.adapters.workspace.root import Root
from treadle.protocol.options import ChatOptions
from treadle.protocol.tools import WORDS, ToolSpec

READ = ToolSpec(
    "read",
    parameters={
        "type": "object",
        "properties": {"path": {"type": "string", "minLength": 1}, "line": {"type": "integer", "minimum": 1}},
        "required": ["path"],
    },
)


def arguments_of(schema: dict[str, Any], name: str) -> dict[str, Any]:
    """The schema of one tool's arguments."""
    matches = [c["properties"]["arguments"] for c in schema["anyOf"] if c["properties"]["name"]["const"] == name]
    assert len(matches) == 1
    arguments: dict[str, Any] = matches[0]
    return arguments


def clean_parameters(parameters: dict[str, Any]) -> dict[str, Any]:
    return arguments_of(build_answer_schema([ToolSpec("t", parameters=parameters)]), "t")


@pytest.mark.parametrize(
    ("answer", "fits"),
    [
        ({"name": "reply", "arguments": {"text": "Hello."}}, True),
        ({"name": "read", "arguments": {"path": "a", "line": 3}}, True),
        ({"name": "read", "arguments": {"path": "a"}}, True),
        ({"name": "read", "arguments": {"path": ""}}, False),
        ({"name": "read", "arguments": {"path": "a", "line": 0}}, False),
        ({"name": "read", "arguments": {"path": "a", "other": 1}}, False),
        ({"name": "read", "arguments": {}}, False),
        ({"name": "read", "arguments": {"text": "Hello."}}, False),
        ({"name": "write", "arguments": {"path": "a"}}, False),
        ({"name": "reply", "arguments": {}}, False),
        ({"name": "reply"}, False),
    ],
)
def test_an_answer_is_a_reply_or_a_call_that_fits(answer: dict[str, Any], fits: bool) -> None:
    assert jsonschema_rs.is_valid(build_answer_schema([READ]), answer) is fits


def test_the_name_comes_first_so_that_it_decides() -> None:
    choices = build_answer_schema([READ])["anyOf"]
    assert choices
    for choice in choices:
        assert list(choice["properties"]) == ["name", "arguments"]


def test_a_tool_called_reply_keeps_its_name() -> None:
    tools = [ToolSpec("reply"), ToolSpec("reply_")]
    assert choose_reply_name(tools) == "reply__"
    names = [choice["properties"]["name"]["const"] for choice in build_answer_schema(tools)["anyOf"]]
    assert names == ["reply__", "reply", "reply_"]


def test_a_tool_that_is_withheld_cannot_be_called() -> None:  # L-10
    names = [
        choice["properties"]["name"]["const"]
        for choice in build_answer_schema([READ, ToolSpec("t")], {"read"})["anyOf"]
    ]
    assert names == ["reply", "t"]


@pytest.mark.parametrize(("withheld", "names"), [({WORDS}, ["read"]), ({WORDS, "read"}, ["reply"])])
def test_words_that_are_withheld_are_left_only_where_nothing_can_be_called(
    withheld: set[str], names: list[str]
) -> None:  # L-16
    assert [choice["properties"]["name"]["const"] for choice in build_answer_schema([READ], withheld)["anyOf"]] == names


def test_without_tools_there_is_only_the_reply() -> None:
    assert len(build_answer_schema([])["anyOf"]) == 1


@pytest.mark.parametrize("parameters", [{}, {"type": "object"}, {"type": "string"}, {"properties": "nonsense"}])
def test_arguments_are_an_object_whatever_is_declared(parameters: dict[str, Any]) -> None:
    assert clean_parameters(parameters) == {"type": "object"}


def test_what_the_engine_cannot_do_is_left_out() -> None:
    parameters = {
        "type": "object",
        "properties": {
            "a": {"type": "string", "format": "email", "title": "A", "default": "x", "pattern": "^[a-z]+$"},
            "b": {"type": "string", "pattern": "(?=x)y", "maxLength": 10**9},
            "c": {"not": {"type": "null"}, "examples": [1]},
            "d": {"oneOf": [{"type": "integer", "multipleOf": 2}, {"type": "null"}]},
            "e": {"type": "array", "items": {"type": "string", "enum": ["x"]}, "uniqueItems": True, "maxItems": 3},
            "f": False,
            "g": {"enum": []},
        },
        "required": ["a", "h"],
        "patternProperties": {"^x": {}},
    }
    assert clean_parameters(parameters) == {
        "type": "object",
        "properties": {
            "a": {"type": "string", "pattern": "^[a-z]+$"},
            "b": {"type": "string"},
            "c": {},
            "d": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
            "e": {"type": "array", "items": {"type": "string", "enum": ["x"]}, "maxItems": 3},
            "g": {},
            "h": {},
        },
        "required": ["a", "h"],
        "additionalProperties": False,
    }


@pytest.mark.parametrize(
    ("pattern", "is_kept"),
    [
        ("^a|b$", True),
        ("[0-9]{3}", True),
        (r"\bword\b", False),
        (r"(a)\1", False),
        ("(unclosed", False),
        ("a^b", False),
    ],
)
def test_only_easy_patterns_are_kept(pattern: str, is_kept: bool) -> None:
    inner = clean_parameters({"type": "object", "properties": {"x": {"type": "string", "pattern": pattern}}})[
        "properties"
    ]["x"]
    assert ("pattern" in inner) is is_kept


def test_definitions_of_two_tools_do_not_meet() -> None:
    def with_node(kind: str) -> dict[str, Any]:
        return {
            "type": "object",
            "properties": {"node": {"$ref": "#/$defs/no/de" if kind == "odd" else "#/$defs/Node"}},
            "$defs": {"Node": {"type": kind, "items": {"$ref": "#/$defs/Node"}}},
        }

    tools = [ToolSpec("a", parameters=with_node("array")), ToolSpec("b", parameters=with_node("string"))]
    schema = build_answer_schema(tools)
    assert schema["$defs"]["t0_Node"] == {"type": "array", "items": {"$ref": "#/$defs/t0_Node"}}
    assert jsonschema_rs.is_valid(schema, {"name": "a", "arguments": {"node": [[], [[]]]}})
    assert not jsonschema_rs.is_valid(schema, {"name": "a", "arguments": {"node": "text"}})
    assert jsonschema_rs.is_valid(schema, {"name": "b", "arguments": {"node": "text"}})
    elsewhere = ToolSpec("c", parameters=with_node("odd"))
    assert arguments_of(build_answer_schema([elsewhere]), "c")["properties"]["node"] == {}


def test_a_property_that_says_itself_that_it_is_required_breaks_nothing() -> None:
    """So schemas of the third draft have it, and those of some MCP servers."""
    parameters = {"type": "object", "properties": {"path": {"type": "string", "required": True}}}
    arguments = arguments_of(build_answer_schema([ToolSpec("read", parameters=parameters)]), "read")
    assert arguments["properties"] == {"path": {"type": "string"}}


def test_an_open_object_stays_open() -> None:
    assert clean_parameters({"type": "object", "additionalProperties": {"type": "integer"}}) == {
        "type": "object",
        "additionalProperties": {"type": "integer"},
    }
    open_schema = clean_parameters({"type": "object", "properties": {"a": {}}, "additionalProperties": True})
    assert open_schema["additionalProperties"] is True


def test_the_builtin_tools_lose_nothing_that_matters() -> None:
    """Arguments that fit the grammar fit the tool: every keyword of the built-in schemas is kept, or says nothing about
    what is valid."""
    says_nothing = {"description", "default", "title"}
    tools = Tools(make_builtin_tools(ToolContext(Root, MemoryStore())), []).list_specs(ChatOptions(root="/"))
    schema = build_answer_schema(tools)
    words = re.compile(r"'([a-zA-Z$]+)':")
    for tool in tools:
        missing_words = set(words.findall(str(tool.parameters))) - set(
            words.findall(str(arguments_of(schema, tool.name)))
        )
        assert missing_words <= says_nothing, tool.name
