"""Answers in a shape: schemas from types, values from words."""

from dataclasses import dataclass
from typing import Any

import msgspec
import pydantic
import pytest

from treadle.adapters.models.wire.encoder import is_strict
from treadle.errors import InvalidInput
from treadle.library.structured import Shape, Unfit


class Point(msgspec.Struct, forbid_unknown_fields=True):
    x: int
    y: int


@dataclass
class Line:
    start: Point
    end: Point


class Person(pydantic.BaseModel):
    name: str
    age: int = pydantic.Field(ge=0)


class Tree(msgspec.Struct):
    below: "list[Tree]"


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (Point, '{"x": 1, "y": 2}', Point(1, 2)),
        (Point, 'Here it is:\n```json\n{"x": 1, "y": 2}\n```\nGood luck!', Point(1, 2)),
        (Point, 'It is {"x": 1, "y": 2}, I think.', Point(1, 2)),
        (Line, '{"start": {"x": 0, "y": 0}, "end": {"x": 1, "y": 1}}', Line(Point(0, 0), Point(1, 1))),
        (Person, '{"name": "Ada", "age": 36}', Person(name="Ada", age=36)),
        (Point, 'In {x} and [y], as {"x": 0} shows: {"x": 1, "y": 2} and {z}.', Point(1, 2)),
        (dict[int, str], '{"1": "one"}', {1: "one"}),
        (list[int], "[1, 2]", [1, 2]),
        (Tree, '{"below": [{"below": []}]}', Tree([Tree([])])),
        ({"type": "object", "required": ["a"]}, '{"a": null}', {"a": None}),
    ],
)
def test_a_value_is_read_from_words(kind: Any, text: str, value: object) -> None:
    assert Shape(kind).read(text) == value


@pytest.mark.parametrize(
    ("kind", "text", "problem"),
    [
        (Point, "There is none.", "no JSON"),
        (Point, "[" * 200_000, "no JSON"),
        (Point, '{"x": 1}', '"y" is a required property'),
        (Point, '{"x": "one", "y": 2}', "x: "),
        (Person, '{"name": "Ada", "age": -1}', "age: "),
    ],
)
def test_what_does_not_fit_is_told(kind: Any, text: str, problem: str) -> None:
    with pytest.raises(Unfit, match=problem):
        Shape(kind).read(text)


def test_the_schema_has_an_object_at_its_top_and_strict_is_known() -> None:
    assert Shape(Point).schema["type"] == "object"
    assert is_strict(Shape(Point).schema)
    assert not is_strict(Shape(Line).schema)  # its object is not closed
    assert "Tree" in Shape(Tree).schema["$defs"]
    with pytest.raises(InvalidInput, match="cannot be used"):
        Shape({"type": "nothing"})
