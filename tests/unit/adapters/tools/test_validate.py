"""Every input of a model becomes arguments or a sentence; nothing raises (T-12, P-06, fault 10)."""

import math
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.adapters.tools.validate import MAX_ARGUMENTS, MAX_DEPTH, coerce, find_problem, find_schema_problem, parse
from treadle.protocol.tools import ToolSpec

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "path": {"type": "string"},
        "count": {"type": "integer", "minimum": 1},
        "ratio": {"type": "number"},
        "force": {"type": "boolean"},
        "kind": {"enum": ["a", "b"]},
        "tags": {"type": "array", "items": {"type": "integer"}},
        "inner": {"type": "object", "properties": {"n": {"type": "integer"}}},
        "mixed": {"type": ["integer", "string"]},
        "maybe": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
        "either": {"type": ["integer", "boolean"]},
    },
    "required": ["path"],
    "additionalProperties": False,
}
SPEC = ToolSpec("t", parameters=SCHEMA)


# -- parse


def test_parse_reads_an_object() -> None:
    assert parse('{"a": [1, null, "ü"]}') == {"a": [1, None, "ü"]}
    assert parse("") == parse(" \n") == {}


@pytest.mark.parametrize("text", ['{"a": 1, "a": 2}', '{"b": [{"a": 1, "c": 0, "a": 1}]}'])
def test_duplicate_keys_are_not_guessed_about(text: str) -> None:  # fault 10
    assert 'the key "a" more than once' in parse(text)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"a": 1', "not valid JSON"),
        ('{"a": tru', "not valid JSON"),
        ('{"a": NaN}', "not valid JSON"),
        ("[1]", "must be one JSON object, not an array"),
        ('"text"', "not a string"),
        ("null", "not null"),
        ("[" * 100_000, "nested"),
        ('{"a":' * 65 + "1" + "}" * 65, "nested"),
        ('{"a": ' + "9" * 40 + "}", "64 bits"),
        ('{"a": "\\ud800"}', "not valid JSON"),
        ('{"a": "\ud800"}', "surrogate"),
        ('{"a": "' + "x" * MAX_ARGUMENTS + '"}', "at most 1,000,000"),
    ],
)
def test_parse_explains_what_it_cannot_read(text: str, words: str) -> None:  # fault 10
    problem_text = parse(text)
    assert isinstance(problem_text, str)
    assert words in problem_text
    assert len(problem_text) < 500


@given(st.text() | st.recursive(st.text(), lambda s: s.map(lambda t: f'{{"a":{t}}}')))
def test_parse_never_raises(text: str) -> None:
    assert isinstance(parse(text), dict | str)


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


@given(st.dictionaries(st.text(), json_values, max_size=4))
def test_parse_reads_back_what_was_written(value: dict[str, Any]) -> None:
    assert parse(msgspec.json.encode(value).decode()) == value


# -- problem


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({}, ["`path` is missing", "Expected: {path: string, count?: integer"]),
        ({"path": "a", "zz": 1}, ['no such field: "zz"']),
        ({"path": 5}, ["`path` must be a string; sent: 5"]),
        ({"path": "a", "count": 0}, ["`count`", "minimum of 1"]),
        ({"path": "a", "kind": "c"}, ['`kind` must be one of "a", "b"; sent: "c"']),
        ({"path": "a", "tags": [1, "x"]}, ['`tags[1]` must be an integer; sent: "x"']),
        ({"path": "a", "inner": {"n": None}}, ["`inner.n` must be an integer; sent: null"]),
        ({"path": "a", "maybe": "x"}, ["`maybe`"]),
        ("text", ["one JSON object, not a string"]),
        (None, ["one JSON object, not null"]),
    ],
)
def test_problems_say_field_expectation_and_what_was_sent(arguments: Any, words: list[str]) -> None:
    problem_text = find_problem(SCHEMA, arguments)
    for word in words:
        assert word in problem_text


def test_no_problem() -> None:
    assert find_problem(SCHEMA, {"path": "a", "count": 1, "tags": [], "maybe": None}) == ""


def test_problems_are_bounded() -> None:
    wrong = {"path": "x" * 100_000, "tags": ["y" * 10_000] * 1_000} | {f"z{i}" * 50: 1 for i in range(1_000)}
    problem_text = find_problem(SCHEMA, wrong)
    assert "more problems" in problem_text
    assert len(problem_text) < 5_000


def test_a_malformed_schema_constrains_nothing() -> None:  # A-01
    for schema in ({"type": 5}, {"$ref": "http://localhost:1/x"}, {"properties": {"a": {"pattern": "("}}}):
        assert find_schema_problem(schema)
        assert find_problem(schema, {"a": 1}) == ""
    assert "always an" in find_schema_problem({"type": "string"})
    assert find_schema_problem([1])
    assert find_schema_problem(SCHEMA) == ""


@given(json_values)
def test_problem_never_raises(arguments: Any) -> None:
    assert isinstance(find_problem(SCHEMA, arguments), str)


# -- coerce


@pytest.mark.parametrize("name", ["file", "filePath", "file_path"])
def test_names_for_a_path(name: str) -> None:
    assert coerce(SPEC, {name: "a", "count": 1}) == {"path": "a", "count": 1}


def test_a_schema_with_another_name_for_a_path() -> None:
    spec = ToolSpec(
        "t", parameters={"type": "object", "properties": {"file": {"type": "string"}}, "required": ["file"]}
    )
    assert coerce(spec, {"path": "a"}) == {"file": "a"}


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"count": "5"}, {"count": 5}),
        ({"count": " -5 "}, {"count": -5}),
        ({"count": 5.0}, {"count": 5.0}),
        ({"ratio": "0.5"}, {"ratio": 0.5}),
        ({"force": "true"}, {"force": True}),
        ({"force": "False"}, {"force": False}),
        ({"tags": '["1", 2]'}, {"tags": [1, 2]}),
        ({"inner": '{"n": "3"}'}, {"inner": {"n": 3}}),
        ({"count": None}, {}),
        ({"maybe": "7"}, {"maybe": 7}),
    ],
)
def test_unambiguous_types(values: dict[str, Any], expected: dict[str, Any]) -> None:  # P-06
    assert coerce(SPEC, {"path": "a"} | values) == {"path": "a"} | expected


@pytest.mark.parametrize(
    "values",
    [
        {"count": "five"},
        {"count": "5.5"},
        {"count": "0x10"},
        {"count": "\u0661"},
        {"count": True},
        {"force": 1},
        {"force": "yes"},
        {"tags": "1, 2"},
        {"tags": '{"a": 1}'},
        {"inner": "[1]"},
        {"ratio": "NaN"},
        {"kind": "A"},
        {"either": "x"},
        {"path": True},
        {"path": ["a"]},
    ],
)
def test_what_could_mean_two_things_is_left_alone(values: dict[str, Any]) -> None:
    arguments = {"path": "a"} | values
    assert coerce(SPEC, arguments) == arguments
    assert find_problem(SCHEMA, arguments)


def test_a_remark_about_the_call_is_no_argument() -> None:  # P-06
    assert coerce(SPEC, {"path": "a", "description": "Look at a."}) == {"path": "a"}
    arguments = {"path": "a", "description": 7, "other": "text"}
    assert coerce(SPEC, arguments) == arguments
    described_spec = ToolSpec("t", parameters={**SCHEMA, "properties": {**SCHEMA["properties"], "description": {}}})
    assert coerce(described_spec, {"path": 1, "description": "kept"})["description"] == "kept"


def test_two_names_for_the_path_are_ambiguous() -> None:
    for arguments in ({"file": "a", "filePath": "b"}, {"path": "a", "file": "b"}):
        assert coerce(SPEC, dict(arguments)) == arguments


names = st.sampled_from([*SCHEMA["properties"], "file", "zz"])
texts = st.sampled_from(["5", "true", "[1]", '{"n": "1"}', "{", "1e5", "null", ""]) | st.text()


@given(st.dictionaries(names, json_values | texts))
def test_coerce_never_raises_and_never_touches_what_fits(arguments: dict[str, Any]) -> None:
    old_json = msgspec.json.encode(arguments)
    fixed_arguments = coerce(SPEC, arguments)
    assert msgspec.json.encode(arguments) == old_json
    if not find_problem(SCHEMA, arguments):
        assert fixed_arguments is arguments
    assert coerce(SPEC, fixed_arguments) == fixed_arguments  # mending twice is mending once


@given(json_values)
def test_coerce_survives_any_schema(schema: Any) -> None:
    spec = ToolSpec("t", parameters={"type": "object", "properties": {"a": schema}, "required": ["a", "b"]})
    coerce(spec, {"a": "5", "file": math.pi})


def test_depth_is_no_danger() -> None:
    deep: Any = 1
    for _ in range(MAX_DEPTH - 1):
        deep = [deep]
    assert isinstance(parse(msgspec.json.encode({"path": deep}).decode()), dict)
    assert find_problem(SCHEMA, {"path": deep})
