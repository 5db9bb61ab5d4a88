"""A client's own tools: what is accepted, what is warned about, what is refused (A-01)."""

import pytest

from treadle.adapters.tools.registry import declare
from treadle.errors import InvalidInput
from treadle.protocol.tools import DynamicTool


def test_declared_tools_become_client_specs_in_order() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string"}}}
    specs, warnings = declare([DynamicTool("b.c-d_1", "Does it.", schema), DynamicTool("a")], ())
    assert [(s.name, s.kind, s.description) for s in specs] == [("b.c-d_1", "client", "Does it."), ("a", "client", "")]
    assert specs[0].parameters == schema
    assert warnings == []


@pytest.mark.parametrize("name", ["", "a b", "ä", "x" * 65, "a/b", "a\n"])
def test_bad_names_are_refused(name: str) -> None:
    with pytest.raises(InvalidInput):
        declare([DynamicTool(name)], ())


def test_names_are_unique_and_not_too_many() -> None:
    with pytest.raises(InvalidInput, match="twice"):
        declare([DynamicTool("a"), DynamicTool("a")], ())
    many = [DynamicTool(f"t{i}") for i in range(251)]
    assert len(declare(many[:250], ())[0]) == 250
    with pytest.raises(InvalidInput, match="at most 250"):
        declare(many, ())


@pytest.mark.parametrize("schema", [{"type": "nope"}, {"type": "string"}, {"properties": 5}, {"$ref": "#/nope"}])
def test_a_malformed_schema_is_a_warning_and_means_no_constraints(schema: dict[str, object]) -> None:
    specs, warnings = declare([DynamicTool("a", "", schema)], ())
    assert specs[0].parameters == {"type": "object"}
    assert "'a'" in warnings[0]
    assert "not checked" in warnings[0]


def test_an_empty_schema_is_an_object() -> None:
    specs, warnings = declare([DynamicTool("a", "", {})], ())
    assert (specs[0].parameters, warnings) == ({"type": "object"}, [])


def test_a_builtin_wins_a_collision() -> None:
    specs, warnings = declare([DynamicTool("read_file"), DynamicTool("mine")], {"read_file"})
    assert [s.name for s in specs] == ["mine"]
    assert "'read_file' is ignored" in warnings[0]
