"""A Python function as a tool: its schema, its values, its failures (T-10)."""

import asyncio
import dataclasses
import datetime
import enum
import inspect
import threading
from collections.abc import Callable
from typing import Annotated, Any, Literal, Optional, TypedDict

import jsonschema_rs
import msgspec
import pytest

from treadle.adapters.tools.function import FunctionTool, tool
from treadle.errors import InvalidInput, ToolError
from treadle.ports.toolset import Invocation, Outcome, Tool


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Point(msgspec.Struct):
    x: int
    y: int = 0


@dataclasses.dataclass
class Box:
    corner: Point
    name: str = "box"


class Entry(TypedDict):
    text: str


class Tree(msgspec.Struct):
    value: int
    children: list["Tree"] = []


def schema_of(function: Callable[..., Any]) -> dict[str, Any]:
    return tool(function).spec.parameters


def nothing() -> None: ...
def plain(a: str, b: int, c: float, d: bool) -> None: ...
def defaults(a: str = "x", b: int = 3, c: list[int] = [1, 2], d: str | None = None) -> None: ...  # noqa: B006
def choices(a: Literal["x", "y"], b: Colour) -> None: ...
def take_bounded(a: Annotated[int, msgspec.Meta(ge=1, le=9)]) -> None: ...
def take_nested(box: Box, entries: list[Entry], table: dict[str, Point]) -> None: ...
def dates(day: datetime.date) -> None: ...
def take_unhinted(a, b=1): ...  # type: ignore[no-untyped-def]
def take_annotated(a: Annotated[int, "How many."]) -> None: ...
def keywords(a: int, /, b: int, *, c: int = 1) -> None: ...
def optional(a: Optional[int], b: int = None) -> None: ...  # type: ignore[assignment] # noqa: UP045, RUF013


STRING, INTEGER = {"type": "string"}, {"type": "integer"}
NULL = {"type": "null"}


@pytest.mark.parametrize(
    ("function", "properties", "required"),
    [
        (nothing, {}, []),
        (plain, {"a": STRING, "b": INTEGER, "c": {"type": "number"}, "d": {"type": "boolean"}}, ["a", "b", "c", "d"]),
        (
            defaults,
            {
                "a": STRING | {"default": "x"},
                "b": INTEGER | {"default": 3},
                "c": {"type": "array", "items": INTEGER, "default": [1, 2]},
                "d": {"anyOf": [STRING, NULL]},
            },
            [],
        ),
        (choices, {"a": {"enum": ["x", "y"]}, "b": {"title": "Colour", "enum": ["blue", "red"]}}, ["a", "b"]),
        (take_bounded, {"a": INTEGER | {"minimum": 1, "maximum": 9}}, ["a"]),
        (dates, {"day": STRING | {"format": "date"}}, ["day"]),
        (take_unhinted, {"a": {}, "b": {"default": 1}}, ["a"]),
        (take_annotated, {"a": INTEGER | {"description": "How many."}}, ["a"]),
        (keywords, {"a": INTEGER, "b": INTEGER, "c": INTEGER | {"default": 1}}, ["a", "b"]),
        (optional, {"a": {"anyOf": [INTEGER, NULL]}, "b": {"anyOf": [INTEGER, NULL]}}, ["a"]),
    ],
)
def test_schemas(function: Callable[..., Any], properties: dict[str, Any], required: list[str]) -> None:
    schema = schema_of(function)
    assert schema["type"] == "object"
    assert schema["additionalProperties"] is False
    assert schema["properties"] == properties
    assert sorted(schema["required"]) == required


def test_nested_types_are_inlined() -> None:
    schema = schema_of(take_nested)
    assert "$ref" not in msgspec.json.encode(schema).decode()
    jsonschema_rs.validate(
        schema, {"box": {"corner": {"x": 1}}, "entries": [{"text": "a"}], "table": {"p": {"x": 1, "y": 2}}}
    )
    with pytest.raises(jsonschema_rs.ValidationError):
        jsonschema_rs.validate(schema, {"box": {"corner": {"x": "1"}}, "entries": [], "table": {}})


def test_a_type_that_contains_itself_keeps_its_reference() -> None:
    def plant(tree: Tree) -> None: ...

    schema = schema_of(plant)
    jsonschema_rs.validate(schema, {"tree": {"value": 1, "children": [{"value": 2, "children": []}]}})
    with pytest.raises(jsonschema_rs.ValidationError):
        jsonschema_rs.validate(schema, {"tree": {"value": 1, "children": [{"value": "x"}]}})


GOOGLE = """Search the docs.

    Only the newest.

    Args:
        query (str): What to
            look for.
        limit: How many.

    Returns:
        Titles.
    """
NUMPY = """Search the docs.

    Only the newest.

    Parameters
    ----------
    query : str
        What to
        look for.
    limit : int
        How many.

    Returns
    -------
    str
        Titles.
    """
REST = """Search the docs.

    Only the newest.

    :param query: What to
        look for.
    :param limit: How many.
    :returns: Titles.
    """


@pytest.mark.parametrize("doc", [GOOGLE, NUMPY, REST])
def test_docstrings_of_three_styles(doc: str) -> None:
    def search(query: str, limit: int = 5) -> str:
        return ""

    search.__doc__ = doc
    spec = tool(search).spec
    assert spec.description == "Search the docs.\nOnly the newest.\nReturns: Titles."
    assert spec.parameters["properties"]["query"]["description"] == "What to look for."
    assert spec.parameters["properties"]["limit"]["description"] == "How many."
    assert spec.summary_argument == "query"


def test_bare_and_with_arguments() -> None:
    @tool
    def first(path: str) -> str:
        """Do it."""
        return path

    @tool(name="other", read_only=True, idempotent=True, timeout=5, needs_approval=True)
    def second(a: str, path: str) -> str:
        return a

    checked: Tool = first
    assert checked.spec.name == "first"
    assert first.spec.description == "Do it."
    assert not first.spec.read_only
    assert first.spec.timeout_s == 120
    assert first("x") == "x"
    spec = second.spec
    assert (spec.name, spec.read_only, spec.idempotent, spec.timeout_s, spec.needs_approval) == (
        "other",
        True,
        True,
        5,
        True,
    )
    assert spec.summary_argument == "path"
    assert first.spec is first.spec  # the loop asks often


def test_signatures_that_no_model_can_call() -> None:
    def stars(*args: int) -> None: ...
    def double(**kwargs: int) -> None: ...
    def strange(a: inspect.Signature) -> None: ...
    def unknown(a: "Nowhere") -> None: ...  # type: ignore[name-defined] # noqa: F821

    for function, word in ((stars, r"\*args"), (double, r"\*\*kwargs"), (strange, "Signature"), (unknown, "Nowhere")):
        with pytest.raises(InvalidInput, match=word):
            tool(function)
    with pytest.raises(InvalidInput, match="no name"):
        tool(lambda: None)
    with pytest.raises(InvalidInput, match="timeout"):
        tool(timeout=0)(nothing)
    with pytest.raises(InvalidInput, match="name for a tool"):
        tool(name="ä b")(nothing)


async def test_values_arrive_as_their_types(call) -> None:
    values: list[Any] = []

    @tool
    def take(
        box: Box, colour: Colour, day: datetime.date, number: int, mixed: int | str, /, *, label: str = "d"
    ) -> None:
        values.extend([box, colour, day, number, mixed, label])

    await take.run(call(box={"corner": {"x": 1}}, colour="red", day="2024-02-29", number=5, mixed="5"))
    assert values == [Box(Point(1)), Colour.RED, datetime.date(2024, 2, 29), 5, "5", "d"]


async def test_a_whole_number_with_a_point_is_an_integer(call) -> None:
    @tool
    def show(number: int) -> str:
        return repr(number)

    assert (await show.run(call(number=5.0))).text == "5"


async def test_arguments_that_do_not_fit_are_a_tool_error(call) -> None:
    for wrong in ({"a": "x"}, {"a": 1, "b": 2}, {}):
        with pytest.raises(ToolError, match="do not fit"):
            await tool(name="t")(take_annotated).run(call(**wrong))


async def test_the_invocation_is_injected_and_not_in_the_schema(call) -> None:
    @tool
    def describe_call(text: str, at: Invocation) -> str:
        return f"{text} {at.call}"

    assert list(describe_call.spec.parameters["properties"]) == ["text"]
    assert (await describe_call.run(call(text="hi"))).text == "hi 1.0"


async def test_sync_functions_run_in_a_thread_and_async_ones_in_the_loop(call) -> None:
    threads: list[int] = []

    @tool
    def sync() -> None:
        threads.append(threading.get_ident())

    @tool
    async def waits() -> str:
        threads.append(threading.get_ident())
        await asyncio.sleep(0)
        return "done"

    class Callable_:
        async def __call__(self, a: int) -> int:
            return a + 1

    await sync.run(call())
    assert (await waits.run(call())).text == "done"
    assert threads[0] != threading.get_ident() == threads[1]
    assert (await FunctionTool(Callable_(), name="plus").run(call(a=1))).text == "2"
    assert (await FunctionTool(lambda: waits.function(), name="around").run(call())).text == "done"


async def test_results(call) -> None:
    for value, text in (("a", "a"), (None, "null"), ({"a": [1]}, '{"a":[1]}'), (Point(1, 2), '{"x":1,"y":2}')):
        assert (await FunctionTool(lambda value=value: value, name="t").run(call())).text == text
    outcome = Outcome("x", summary="y")
    assert await FunctionTool(lambda: outcome, name="t").run(call()) is outcome
    with pytest.raises(ToolError, match="ran, but"):
        await FunctionTool(lambda: object(), name="t").run(call())


async def test_failures_are_texts_for_the_model(call) -> None:  # L-05
    @tool
    def fails() -> None:
        raise ValueError("no such city: Atlantis")

    @tool
    def mute() -> None:
        raise KeyError

    @tool
    def says() -> None:
        raise ToolError("Try again with a city.")

    for function, text in (
        (fails, "fails failed with ValueError: no such city: Atlantis"),
        (mute, "mute failed with KeyError."),
        (says, "Try again with a city."),
    ):
        with pytest.raises(ToolError) as caught:
            await function.run(call())
        assert str(caught.value) == text


async def test_cancellation_is_not_swallowed(call) -> None:
    start_event = asyncio.Event()

    @tool
    async def waits() -> None:
        start_event.set()
        await asyncio.Event().wait()

    task = asyncio.create_task(waits.run(call()))
    await start_event.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.parametrize(
    ("read_only", "idempotent", "settlement"),
    [(False, False, "unknown"), (True, False, "run_again"), (False, True, "run_again")],
)
async def test_recovery(call, read_only: bool, idempotent: bool, settlement: str) -> None:  # D-02
    function_tool = tool(read_only=read_only, idempotent=idempotent)(nothing)
    assert await function_tool.prepare(call()) is None
    assert await function_tool.settle(call()) == settlement
