"""Calls that a server interrupts with a request for input (E-01)."""

import asyncio
from typing import Any, cast

import mcp_types as types
import pytest

from treadle.adapters.mcp.calls import Calls
from treadle.adapters.mcp.connection import Asker, McpConnection, Reply, Result, ServerLost
from treadle.base.types import CallKey, ChatId
from treadle.errors import StoreError
from treadle.ports.model import ModelRequest
from treadle.ports.toolset import Invocation
from treadle.protocol.options import ChatOptions


class AsksForRoots:
    """The server's side: it needs the roots before it answers."""

    name, sampling, roots = "odd", "refuse", [{"uri": "file:///p", "name": "p"}]

    def __init__(self) -> None:
        self.metas: list[Any] = []

    async def call(self, *arguments: Any) -> Result:
        self.metas.append(arguments[5] if len(arguments) > 5 else None)
        if len(self.metas) == 1:
            requests = {"r": types.ListRootsRequest()}
            return types.InputRequiredResult(input_requests=requests, request_state="s")
        return types.CallToolResult(content=[])


async def test_what_is_told_beside_the_arguments_is_told_after_a_request_for_input_too() -> None:
    server = AsksForRoots()
    invocation = Invocation(ChatId("c"), CallKey("1.0"), "odd__x", {}, options=ChatOptions(model="scripted:test"))
    meta = {"traceparent": "00-1-2-01"}
    await Calls().carry_on(cast(McpConnection, server), "x", invocation, meta)
    assert server.metas == [meta, meta]


class AsksTheModel:
    """The server's side: its questions come beside the call, as on a real connection. The first call to be under way
    gets them."""

    name, sampling, roots = "odd", "allow", ()

    def __init__(self, questions: int, *, answers_anyway: bool = False) -> None:
        self.askers: list[Asker] = []
        self.replies: list[Reply] = []
        self.asking: list[asyncio.Task[None]] = []
        self._questions, self._answers_anyway = questions, answers_anyway

    async def call(self, _tool: str, _arguments: Any, _emit: Any, asker: Asker, *_: Any) -> Result:
        self.askers.append(asker)
        try:
            self.asking = [asyncio.create_task(self._ask()) for _ in range(self._questions)]
            await asyncio.sleep(0)
            if self._answers_anyway:
                return types.CallToolResult(content=[])
            await asyncio.Event().wait()
            raise AssertionError
        finally:
            self.askers.remove(asker)

    async def _ask(self) -> None:
        message = types.SamplingMessage(role="user", content=types.TextContent(type="text", text="Well?"))
        wish = types.CreateMessageRequestParams(messages=[message], max_tokens=10)
        self.replies.append(await self.askers[0].ask(wish, of_person=False))


async def answer_well(_request: ModelRequest) -> str:
    return "Well."


async def lose_the_store(_request: ModelRequest) -> str:
    raise StoreError("the store is away")


@pytest.mark.parametrize(("ask_model", "error"), [(answer_well, ServerLost), (lose_the_store, StoreError)])
async def test_a_call_that_is_given_up_is_cancelled_and_its_questions_are_declined(
    ask_model: Any, error: type[Exception]
) -> None:
    """It would get the questions of the next call, and a server that waits for an answer serves no call."""
    server = AsksTheModel(questions=30)
    options = ChatOptions(model="scripted:test")
    invocation = Invocation(ChatId("c"), CallKey("1.0"), "odd__x", {}, options=options, ask_model=ask_model)
    with pytest.raises(error):
        await Calls().carry_on(cast(McpConnection, server), "x", invocation)
    assert server.askers == []
    async with asyncio.timeout(30):
        await asyncio.gather(*server.asking)
    assert [type(reply) for reply in server.replies[20:]] == [types.ErrorData] * 10


async def test_questions_of_a_call_that_has_its_result_are_declined() -> None:
    server = AsksTheModel(questions=3, answers_anyway=True)
    options = ChatOptions(model="scripted:test")
    invocation = Invocation(ChatId("c"), CallKey("1.0"), "odd__x", {}, options=options, ask_model=answer_well)
    assert isinstance(await Calls().carry_on(cast(McpConnection, server), "x", invocation), types.CallToolResult)
    async with asyncio.timeout(30):
        await asyncio.gather(*server.asking)
    assert len(server.replies) == 3
