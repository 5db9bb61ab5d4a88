"""Calls of servers' tools from their beginning to their result, with a person's answers in between (E-01).

A server may ask something in the middle of a call. The older way is a request of its own while the call goes on: then
the call is parked here, the chat waits like for any other question, and whoever takes it up in this process hands the
answer over. In another process there is nothing to hand it to, and what the call did is unknown. The newer way (since
revision 2026-07-28) ends the request with what is needed and a state of the server's own: both stand in the log, so any
process can go on.
"""

import asyncio
from collections.abc import Collection, Coroutine
from typing import Any

import mcp_types as types
from pydantic import TypeAdapter

from treadle.mcp import elicitation, sampling
from treadle.mcp.connection import Lost, Reply, Result, ServerConnection, Wish
from treadle.ports.toolset import Invocation, Question
from treadle.types import CallKey, ChatId

Key = tuple[ChatId, CallKey]
_ROUNDS = 20
_REQUESTS: TypeAdapter[types.InputRequests] = TypeAdapter(types.InputRequests)
_RESPONSES: TypeAdapter[types.InputResponses] = TypeAdapter(types.InputResponses)
_REFUSED = "The server wants to ask a model, which the user has not allowed (sampling)."


class Underway:
    """One call that a server works on."""

    def __init__(self, *, interactive: bool) -> None:
        self.pending: Wish | None = None
        self._interactive = interactive
        self._one_at_a_time = asyncio.Lock()
        self._asked = asyncio.Event()
        self._reply: asyncio.Future[Reply] | None = None
        self._task: asyncio.Task[Result] | None = None

    def begin(self, work: Coroutine[Any, Any, Result]) -> None:
        self._task = asyncio.create_task(work)

    async def ask(self, wish: Wish, *, of_person: bool) -> Reply:
        """The server asks; nobody is there to answer, or somebody will be."""
        if of_person and not self._interactive:
            return _declined(wish)
        async with self._one_at_a_time:
            self.pending, self._reply = wish, asyncio.get_running_loop().create_future()
            self._asked.set()
            return await self._reply

    def answer(self, said: Reply) -> None:
        self.pending = None
        self._asked.clear()
        if self._reply is not None and not self._reply.done():
            self._reply.set_result(said)

    async def news(self) -> Result | Wish:
        """What the call came to, or what is asked in its middle."""
        assert self._task is not None
        asked = asyncio.create_task(self._asked.wait())
        try:
            await asyncio.wait({self._task, asked}, return_when=asyncio.FIRST_COMPLETED)
            if not self._task.done() and self.pending is not None:
                return self.pending
            return await self._task
        finally:
            asked.cancel()

    async def cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if self.pending is not None:  # a server that waits for an answer serves nobody else
            self.answer(_declined(self.pending))


class Calls:
    """All calls of an agent that are parked."""

    def __init__(self) -> None:
        self._parked: dict[Key, Underway] = {}

    def parked(self, chat: ChatId) -> bool:
        """Whether a call of the chat waits for an answer here."""
        return any(key[0] == chat for key in self._parked)

    async def tidy(self, chat: ChatId, open_calls: Collection[CallKey]) -> None:
        """Give up calls of the chat that nobody will go on with."""
        for key in [key for key in self._parked if key[0] == chat and key[1] not in open_calls]:
            await self._parked.pop(key).cancel()

    async def close(self) -> None:
        for key in list(self._parked):
            await self._parked.pop(key).cancel()

    async def carry_on(
        self, connection: ServerConnection, tool: str, invocation: Invocation, meta: dict[str, Any] | None = None
    ) -> types.CallToolResult | Question:
        """Begin a call, or go on with it after an answer."""
        key = (invocation.chat, invocation.call)
        parked = self._parked.pop(key, None)
        underway = parked or Underway(interactive=invocation.options.interactive)
        try:
            if parked is not None and parked.pending is not None:
                answer = invocation.answers[-1] if invocation.answers else "cancel"
                said = await _replied(parked.pending, answer, invocation)
                if isinstance(said, str):
                    return self._park(key, parked, connection, said)
                parked.answer(said)
            else:
                found = await _resumed(connection, invocation)
                if isinstance(found, Question):
                    return found
                underway.begin(connection.call(tool, invocation.arguments, invocation.emit, underway, found, meta))
            return await self._on(key, underway, connection, tool, invocation, meta)
        except asyncio.CancelledError:
            await underway.cancel()
            raise

    async def _on(
        self,
        key: Key,
        underway: Underway,
        connection: ServerConnection,
        tool: str,
        invocation: Invocation,
        meta: dict[str, Any] | None,
    ) -> types.CallToolResult | Question:
        for _ in range(_ROUNDS):
            news = await underway.news()
            match news:
                case types.CallToolResult():
                    return news
                case types.InputRequiredResult():
                    found = await _needed(connection, news, invocation)
                    if isinstance(found, Question):
                        return found
                    underway.begin(connection.call(tool, invocation.arguments, invocation.emit, underway, found, meta))
                case types.CreateMessageRequestParams() if connection.sampling == "allow":
                    underway.answer(await sampling.sampled(news, invocation))
                case _:
                    return self._park(key, underway, connection)
        raise Lost(f"the MCP server {connection.name} asks again and again")

    def _park(self, key: Key, underway: Underway, connection: ServerConnection, again: str = "") -> Question:
        assert underway.pending is not None
        self._parked[key] = underway
        asked = _asked(connection, underway.pending, again)
        return Question(asked.question, asked.options)


def _asked(connection: ServerConnection, wish: Wish, again: str) -> elicitation.Asked:
    if isinstance(wish, types.CreateMessageRequestParams):
        return sampling.asked(connection.name, wish, again)
    return elicitation.asked(connection.name, wish, again)


async def _replied(wish: Wish, answer: str, invocation: Invocation) -> Reply | str:
    """What the server is told; or what is wrong with the answer."""
    if isinstance(wish, types.CreateMessageRequestParams):
        return await sampling.reply(wish, answer, invocation)
    return elicitation.reply(wish, answer)


def _declined(wish: Wish) -> Reply:
    if isinstance(wish, types.CreateMessageRequestParams):
        return sampling.refusal()
    return types.ElicitResult(action="decline")


Resume = tuple[types.InputResponses | None, str | None]
"""What is told to a server whose request had ended with what it needs: the answers, and its own state."""


async def _needed(
    connection: ServerConnection, result: types.InputRequiredResult, invocation: Invocation
) -> Resume | Question:
    """What a request needs to go on: answered at once as far as that is possible."""
    requests = result.input_requests or {}
    responses: types.InputResponses = {}
    for name, request in requests.items():
        match request:
            case types.ListRootsRequest():
                responses[name] = types.ListRootsResult.model_validate({"roots": connection.roots})
            case types.CreateMessageRequest(params=wish) if connection.sampling == "allow":
                responses[name] = _answered(await sampling.sampled(wish, invocation))
            case types.CreateMessageRequest() if connection.sampling == "refuse":
                raise Lost(_REFUSED)
            case _ if not invocation.options.interactive:
                responses[name] = _answered(_declined(request.params))
            case _:
                pass
    return _or_ask(connection, requests, responses, result.request_state)


def _answered(reply: Reply) -> types.InputResponse:
    """Lost, if there is none: the server has no way to hear of that, and so nobody goes on."""
    if isinstance(reply, types.ErrorData):
        raise Lost(reply.message)
    return reply


def _or_ask(
    connection: ServerConnection,
    requests: types.InputRequests,
    responses: types.InputResponses,
    state: str | None,
    again: str = "",
) -> Resume | Question:
    for name, request in requests.items():
        if name not in responses and not isinstance(request, types.ListRootsRequest):
            asked = _asked(connection, request.params, again)
            plan = {
                "requests": _REQUESTS.dump_python(requests, mode="json", by_alias=True, exclude_none=True),
                "responses": _RESPONSES.dump_python(responses, mode="json", by_alias=True, exclude_none=True),
                "state": state,
            }
            return Question(asked.question, asked.options, plan)
    return responses or None, state


async def _resumed(connection: ServerConnection, invocation: Invocation) -> Resume | Question:
    """From what the log says: the answer goes to the first request that has none. Lost, if that was another process's
    to hear."""
    if not invocation.answers:
        return None, None
    plan = invocation.plan or {}
    if not plan.get("requests"):
        raise Lost(f"the MCP server {connection.name} asked in a process that is gone")
    requests = _REQUESTS.validate_python(plan["requests"])
    responses = _RESPONSES.validate_python(plan.get("responses") or {})
    for name, request in requests.items():
        if name not in responses and not isinstance(request, types.ListRootsRequest):
            said = await _replied(request.params, invocation.answers[-1], invocation)
            if isinstance(said, str):
                return _or_ask(connection, requests, responses, plan.get("state"), said)
            responses = {**responses, name: _answered(said)}
            break
    return _or_ask(connection, requests, responses, plan.get("state"))
