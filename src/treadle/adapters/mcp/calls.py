"""Calls of MCP tools from start to result, including a person's answers in between (E-01).

A server may ask a question during a call, in two ways. The older way is a request of its own while the call runs. The
call is then parked in this process, the chat waits as for any other question, and the worker that resumes the chat in
this process passes the answer on. Another process cannot answer; the outcome of the call is then unknown. The newer way
(since revision 2026-07-28) ends the request with the required input and the server's own state. Both are in the log, so
any process can continue."""

import asyncio
from collections.abc import Collection, Coroutine
from typing import Any

import mcp_types as types
from msgspec.structs import replace
from pydantic import TypeAdapter

from treadle.adapters.mcp import elicitation
from treadle.adapters.mcp.connection import McpConnection, Reply, Result, ServerLost, Wish
from treadle.adapters.mcp.content import render_content
from treadle.adapters.mcp.elicitation import DECLINE
from treadle.base.inert import inert
from treadle.base.types import CallKey, ChatId
from treadle.errors import ToolError
from treadle.ports.model import ModelRequest
from treadle.ports.toolset import Invocation, Question
from treadle.protocol.content import AssistantEntry, UserEntry

Key = tuple[ChatId, CallKey]
Resume = tuple[types.InputResponses | None, str | None]
"""The input for a request that ended with `InputRequiredResult`: the answers, and the server's own state."""
_ROUNDS = 20
_REQUESTS: TypeAdapter[types.InputRequests] = TypeAdapter(types.InputRequests)
_RESPONSES: TypeAdapter[types.InputResponses] = TypeAdapter(types.InputResponses)
ALLOW = "allow"
_SHOWN = 4_000  # Characters of what a model is asked that a person is shown
_REFUSED = "The server wants to ask a model, which the user has not allowed (sampling)."


class Underway:
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
        """Wait for the answer. A question to a person is declined at once if the chat is not interactive."""
        if of_person and not self._interactive:
            return _decline(wish)
        async with self._one_at_a_time:
            self.pending, self._reply = wish, asyncio.get_running_loop().create_future()
            self._asked.set()
            return await self._reply

    def answer(self, reply: Reply) -> None:
        self.pending = None
        self._asked.clear()
        if self._reply is not None and not self._reply.done():
            self._reply.set_result(reply)

    async def news(self) -> Result | Wish:
        assert self._task is not None
        asking = asyncio.create_task(self._asked.wait())
        try:
            await asyncio.wait({self._task, asking}, return_when=asyncio.FIRST_COMPLETED)
            if not self._task.done() and self.pending is not None:
                return self.pending
            return await self._task
        finally:
            asking.cancel()

    async def cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if self.pending is not None:  # a server that waits for an answer serves no other call
            self.answer(_decline(self.pending))


class Calls:
    """All calls of an agent that are parked."""

    def __init__(self) -> None:
        self._parked: dict[Key, Underway] = {}

    def parked(self, chat: ChatId) -> bool:
        """True if a call of the chat is parked here and waits for an answer."""
        return any(key[0] == chat for key in self._parked)

    async def tidy(self, chat: ChatId, open_calls: Collection[CallKey]) -> None:
        for key in [key for key in self._parked if key[0] == chat and key[1] not in open_calls]:
            await self._parked.pop(key).cancel()

    async def close(self) -> None:
        for key in list(self._parked):
            await self._parked.pop(key).cancel()

    async def carry_on(
        self, connection: McpConnection, tool: str, invocation: Invocation, meta: dict[str, Any] | None = None
    ) -> types.CallToolResult | Question:
        key = (invocation.chat, invocation.call)
        parked = self._parked.pop(key, None)
        underway = parked or Underway(interactive=invocation.options.interactive)

        def begin(resumption: Resume) -> None:
            underway.begin(connection.call(tool, invocation.arguments, invocation.emit, underway, resumption, meta))

        try:
            if parked is not None and parked.pending is not None:
                answer = invocation.answers[-1] if invocation.answers else "cancel"
                reply = await _build_reply(parked.pending, answer, invocation)
                if isinstance(reply, str):
                    return self._park(key, parked, connection, reply)
                parked.answer(reply)
            else:
                resumption = await _resumed(connection, invocation)
                if isinstance(resumption, Question):
                    return resumption
                begin(resumption)
            for _ in range(_ROUNDS):
                match news := await underway.news():
                    case types.CallToolResult():
                        return news
                    case types.InputRequiredResult():
                        resumption = await _collect_input(connection, news, invocation)
                        if isinstance(resumption, Question):
                            return resumption
                        begin(resumption)
                    case types.CreateMessageRequestParams() if connection.sampling == "allow":
                        underway.answer(await _ask_model(news, invocation))
                    case _:
                        return self._park(key, underway, connection)
            raise ServerLost(f"the MCP server {connection.name} asks again and again")
        except asyncio.CancelledError:
            await underway.cancel()
            raise

    def _park(self, key: Key, underway: Underway, connection: McpConnection, again: str = "") -> Question:
        assert underway.pending is not None
        self._parked[key] = underway
        return _build_question(connection, underway.pending, again)


def _build_question(connection: McpConnection, wish: Wish, again: str) -> Question:
    if not isinstance(wish, types.CreateMessageRequestParams):
        return elicitation.build_question(connection.name, wish, again)
    messages = [("it is told", wish.system_prompt or ""), *((each.role, _render(each)) for each in wish.messages)]
    text = inert("\n".join(f"{role}: {words}" for role, words in messages if words))
    excerpt = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}\n[{len(text) - _SHOWN:,} characters more]"
    head = f"{again}\n" if again else ""
    return Question(
        f"{head}The MCP server {connection.name} wants to ask your model, at your cost:\n{excerpt}", (ALLOW, DECLINE)
    )


async def _build_reply(wish: Wish, answer: str, invocation: Invocation) -> Reply | str:
    """The reply for the server, or the reason why the answer is invalid."""
    if not isinstance(wish, types.CreateMessageRequestParams):
        return elicitation.reply(wish, answer)
    choice = answer.strip().lower()
    if choice == ALLOW:
        return await _ask_model(wish, invocation)
    return _decline(wish) if choice in (DECLINE, "cancel") else f"Answer {ALLOW} or {DECLINE}."


def _decline(wish: Wish) -> Reply:
    if isinstance(wish, types.CreateMessageRequestParams):
        return types.ErrorData(code=types.INVALID_REQUEST, message="The user does not allow it to ask the model.")
    return types.ElicitResult(action="decline")


async def _ask_model(
    params: types.CreateMessageRequestParams, invocation: Invocation
) -> types.CreateMessageResult | types.ErrorData:
    """A server asks the chat's model (sampling). The model sees nothing of the chat, only the server's words."""
    assert invocation.ask_model is not None
    messages = [(each.role, _render(each)) for each in params.messages]
    request = ModelRequest(
        params.system_prompt or "",
        [UserEntry(text) if role == "user" else AssistantEntry(0, text) for role, text in messages],
        temperature=params.temperature,
        max_tokens=params.max_tokens,
    )
    try:
        text = await invocation.ask_model(request)
    except ToolError as error:
        return types.ErrorData(code=types.INTERNAL_ERROR, message=str(error))
    content = types.TextContent(type="text", text=text)
    model = invocation.options.model or "unknown"
    return types.CreateMessageResult(role="assistant", content=content, model=model, stop_reason="endTurn")


def _render(message: types.SamplingMessage) -> str:
    """Pictures and sounds are told of, and not shown."""
    visible_types = (types.TextContent, types.ImageContent, types.AudioContent)
    return render_content([each for each in message.content_as_list if isinstance(each, visible_types)]).text


async def _collect_input(
    connection: McpConnection, result: types.InputRequiredResult, invocation: Invocation
) -> Resume | Question:
    """The input that a request needs to continue, or the question to a person about the rest."""
    requests = result.input_requests or {}
    responses: types.InputResponses = {}
    for name, request in requests.items():
        match request:
            case types.ListRootsRequest():
                responses[name] = types.ListRootsResult.model_validate({"roots": connection.roots})
            case types.CreateMessageRequest(params=wish) if connection.sampling == "allow":
                responses[name] = _require_response(await _ask_model(wish, invocation))
            case types.CreateMessageRequest() if connection.sampling == "refuse":
                raise ServerLost(_REFUSED)
            case _ if not invocation.options.interactive:
                responses[name] = _require_response(_decline(request.params))
    return _or_ask(connection, requests, responses, result.request_state)


def _require_response(reply: Reply) -> types.InputResponse:
    """Return the reply. ServerLost if it is an error: the server cannot receive one, so the request ends."""
    if isinstance(reply, types.ErrorData):
        raise ServerLost(reply.message)
    return reply


def _or_ask(
    connection: McpConnection,
    requests: types.InputRequests,
    responses: types.InputResponses,
    state: str | None,
    again: str = "",
) -> Resume | Question:
    for name, request in requests.items():
        if name not in responses and not isinstance(request, types.ListRootsRequest):
            plan = {
                "requests": _REQUESTS.dump_python(requests, mode="json", by_alias=True, exclude_none=True),
                "responses": _RESPONSES.dump_python(responses, mode="json", by_alias=True, exclude_none=True),
                "state": state,
            }
            return replace(_build_question(connection, request.params, again), plan=plan)
    return responses or None, state


async def _resumed(connection: McpConnection, invocation: Invocation) -> Resume | Question:
    """From the log: the answer goes to the first request that has none. ServerLost if another process asked."""
    if not invocation.answers:
        return None, None
    plan = invocation.plan or {}
    if not plan.get("requests"):
        raise ServerLost(f"the MCP server {connection.name} asked in a process that is gone")
    requests = _REQUESTS.validate_python(plan["requests"])
    responses = _RESPONSES.validate_python(plan.get("responses") or {})
    for name, request in requests.items():
        if name not in responses and not isinstance(request, types.ListRootsRequest):
            reply = await _build_reply(request.params, invocation.answers[-1], invocation)
            if isinstance(reply, str):
                return _or_ask(connection, requests, responses, plan.get("state"), reply)
            responses = {**responses, name: _require_response(reply)}
            break
    return _or_ask(connection, requests, responses, plan.get("state"))
