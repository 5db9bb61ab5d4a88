"""Calls that a server interrupts with a request for input (E-01)."""

from typing import Any, cast

import mcp_types as types

from treadle.adapters.mcp.calls import Calls
from treadle.adapters.mcp.connection import McpConnection, Result
from treadle.base.types import CallKey, ChatId
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
