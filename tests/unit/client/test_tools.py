"""Functions as client tools: the schema from hints and docstring, and arguments that do not fit (A-09)."""

import asyncio
from typing import Literal

import msgspec
import pytest

from treadle.base.types import ChatId
from treadle.client import Client, ClientTool, ToolCall
from treadle.client.client import Handlers
from treadle.errors import InvalidInput, ToolError
from treadle.protocol.commands import Result

CHAT = ChatId("c_1")


class Point(msgspec.Struct):
    x: int
    y: int


def call(name: str, id: str = "1.0", **arguments: object) -> ToolCall:
    return ToolCall(CHAT, id, name, arguments)


def test_the_schema_comes_from_hints_and_docstring() -> None:
    client = Client("http://127.0.0.1:1")

    @client.tool
    def draw(at: Point, colour: Literal["red", "blue"] = "red", call: ToolCall | None = None) -> None:
        """Draw a dot.

        Args:
            at: Where to.
            colour: Which colour.
        """

    @client.tool(name="clear.all")
    async def clear(call: ToolCall) -> str:
        """Clear the page."""
        return call.id

    assert list(client.tools) == ["draw", "clear.all"]
    spec = draw.spec
    assert (spec.name, spec.description) == ("draw", "Draw a dot.")
    assert spec.input_schema["required"] == ["at"]
    at = spec.input_schema["properties"]["at"]
    assert (at["description"], at["required"]) == ("Where to.", ["x", "y"])
    assert client.tools["clear.all"].spec.input_schema["properties"] == {}


@pytest.mark.parametrize("arguments", [{}, {"n": "many"}, {"n": 1, "more": 2}, {"n": None}])
async def test_arguments_that_do_not_fit_reach_no_handler(arguments: dict[str, object]) -> None:
    reached = []

    def count(n: int) -> int:
        """Count."""
        reached.append(n)
        return n

    result = await ClientTool(count).answer(ToolCall(CHAT, "1.0", "count", arguments))
    assert result.is_error
    assert "do not fit" in result.output
    assert reached == []


async def test_values_come_as_their_types_and_results_as_json() -> None:
    def middle(a: Point, b: Point) -> Point:
        """Between two points."""
        return Point((a.x + b.x) // 2, (a.y + b.y) // 2)

    result = await ClientTool(middle).answer(call("middle", a={"x": 0, "y": 0}, b={"x": 4, "y": 2}))
    assert result == Result("1.0", {"x": 2, "y": 1})


async def test_what_goes_wrong_is_a_result_for_the_model() -> None:
    def fail(kind: str) -> object:
        """Fail."""
        if kind == "tool":
            raise ToolError("There is no such city; try another.")
        if kind == "json":
            return object()
        raise KeyError("boom")

    tool = ClientTool(fail)
    results = {kind: await tool.answer(call("fail", kind=kind)) for kind in ("tool", "json", "any")}
    assert all(result.is_error for result in results.values())
    assert results["tool"].output == "There is no such city; try another."
    assert "KeyError" in results["any"].output
    assert "fail failed" in results["json"].output


async def test_a_call_is_answered_once_however_often_it_is_announced() -> None:
    calls: list[str] = []
    go = asyncio.Event()

    async def slow(call: ToolCall) -> str:
        """Take a while."""
        calls.append(call.id)
        await go.wait()
        return call.id

    handlers = Handlers({"slow": ClientTool(slow)}, concurrency=2)
    tasks = [asyncio.create_task(handlers.answer(call("slow", id))) for id in ("1.0", "1.0", "1.1", "1.2")]
    for _ in range(5):
        await asyncio.sleep(0)
    assert calls == ["1.0", "1.1"], "two at once"
    go.set()
    assert [(await task).output for task in tasks] == ["1.0", "1.0", "1.1", "1.2"]
    assert (await handlers.answer(call("slow", "1.0"))).output == "1.0"
    assert calls == ["1.0", "1.1", "1.2"]


async def test_a_tool_that_this_client_does_not_have() -> None:
    result = await Handlers({}, 1).answer(call("other"))
    assert result.is_error
    assert "'other'" in result.output


@pytest.mark.parametrize("name", ["", "with space", "x" * 65])
def test_names_that_no_provider_takes(name: str) -> None:
    def anything() -> None:
        """Nothing."""

    anything.__name__ = name
    with pytest.raises(InvalidInput):
        ClientTool(anything)


def test_two_tools_of_one_name() -> None:
    client = Client("http://127.0.0.1:1")
    client.tool(name="same")(lambda: None)
    with pytest.raises(InvalidInput, match="same"):
        client.tool(name="same")(lambda: None)
