"""Calls of MCP tools from start to result, including a person's answers in between (E-01). A server may ask in two
ways. The older is a request while the call runs: the call is parked in this process, and only this process can pass the
answer on. The newer (since 2026-07-28) ends the request with the required input and the server's state, which are in
the log, so any process can continue. The types that servers declare for content are not trusted."""

import asyncio
import base64
import binascii
import math
from collections.abc import Collection, Coroutine, Iterable, Sequence
from contextlib import suppress
from typing import Any

import mcp_types as types
import msgspec
from msgspec.structs import replace
from pydantic import TypeAdapter

from treadle.adapters.mcp.connection import McpConnection, Reply, Result, ServerLost, Wish
from treadle.base.inert import make_inert, make_inert_line
from treadle.base.types import CallKey, ChatId
from treadle.errors import ToolError
from treadle.ports.model import ModelRequest
from treadle.ports.toolset import Invocation, Question
from treadle.protocol.content import PICTURE_KINDS, AssistantEntry, UserEntry

DECLINE = "decline"
DONE = "done"
ACCEPT = "accept"  # The answer that sends the defaults
_YES, _NO = ("yes", "true", "y", "on", "1"), ("no", "false", "n", "off", "0")


def build_form_question(server: str, params: types.ElicitRequestParams, again: str = "") -> Question:
    """Build the question text. `again`: the reason why the last answer was invalid."""
    head = f"{again}\n" if again else ""
    message = make_inert(params.message)
    if isinstance(params, types.ElicitRequestURLParams):
        text = f"{head}The MCP server {server} asks you to open a page: {message}\n{make_inert_line(params.url, 2_000)}"
        return Question(f"{text}\nAnswer {DONE} when you have, or {DECLINE}.", (DONE, DECLINE))
    fields, accept = _read_fields(params), _can_accept(params)
    text = f"{head}The MCP server {server} asks: {message}"
    if len(fields) == 1:
        (schema,) = fields.values()
        about = ", ".join(filter(None, (str(schema.get("description") or ""), _format_default(schema))))
        note = f"\n({make_inert_line(about, 300)})" if about else ""
        return Question(text + note, (*(_list_choices(schema) or ((ACCEPT,) if accept else ())), DECLINE))
    if not fields:
        return Question(text, ("yes", DECLINE))
    required = _get_list(params.requested_schema, "required")
    lines = [
        f"  {name}: {_describe(schema)}{'' if name in required else ', optional'}" for name, schema in fields.items()
    ]
    instructions = f"Answer as JSON, or one `name: value` a line{f'; or {ACCEPT} for the defaults' if accept else ''}."
    return Question("\n".join([text, *lines, instructions]), (ACCEPT, DECLINE) if accept else (DECLINE,))


def read_form_answer(params: types.ElicitRequestParams, answer: str) -> types.ElicitResult | str:
    """Return the reply for the server, or the reason why the answer is invalid."""
    stripped = answer.strip()
    if stripped.lower() in (DECLINE, "cancel"):
        return types.ElicitResult(action="decline" if stripped.lower() == DECLINE else "cancel")
    if isinstance(params, types.ElicitRequestURLParams):
        return types.ElicitResult(action="accept")
    fields = _read_fields(params)
    defaults = {name: schema["default"] for name, schema in fields.items() if "default" in schema}
    accepted = stripped.lower() in (ACCEPT, "") and _can_accept(params)
    try:
        raw_values = defaults | ({} if accepted else _parse_answer(fields, stripped))
        content = {
            name: _parse_value(name, fields[name], value) for name, value in raw_values.items() if name in fields
        }
    except ValueError as error:
        return f"That does not fit: {error}."
    missing = [
        name for name in fields if name in _get_list(params.requested_schema, "required") and name not in content
    ]
    if missing:
        return f"Still missing: {', '.join(map(make_inert_line, missing))}."
    return types.ElicitResult(action="accept", content=content)


def _read_fields(params: types.ElicitRequestFormParams) -> dict[str, dict[str, Any]]:
    properties = params.requested_schema.get("properties")
    pairs = properties.items() if isinstance(properties, dict) else ()
    return {str(name): schema if isinstance(schema, dict) else {} for name, schema in pairs}


def _get_list(schema: dict[str, Any], name: str) -> list[Any]:
    values = schema.get(name)
    return values if isinstance(values, list) else []


def _can_accept(params: types.ElicitRequestFormParams) -> bool:
    """True if there are defaults, and every required field has one."""
    fields, required = _read_fields(params), _get_list(params.requested_schema, "required")
    without = [name for name, schema in fields.items() if "default" not in schema]
    return len(without) < len(fields) and not any(name in required for name in without)


def _format_default(schema: dict[str, Any]) -> str:
    value = schema.get("default")
    if isinstance(value, bool):
        value = "yes" if value else "no"
    words = f"default: {', '.join(map(str, value)) if isinstance(value, list) else value}"
    return words if "default" in schema else ""


def _parse_answer(fields: dict[str, dict[str, Any]], answer: str) -> dict[str, Any]:
    with suppress(msgspec.MsgspecError, RecursionError):
        return msgspec.json.decode(answer, type=dict[str, Any])
    if len(fields) <= 1:
        return dict.fromkeys(fields, answer)
    pairs = [line.partition(":") for line in answer.splitlines() if line.strip()]
    if any(not colon for _, colon, _ in pairs):
        raise ValueError("answer as JSON, or one `name: value` a line")
    return {name.strip(): value.strip() for name, _, value in pairs}


def _parse_value(name: str, schema: dict[str, Any], value: Any) -> Any:
    kind = schema.get("type", "string")
    choices = _list_choices(schema)
    if kind == "boolean" and isinstance(value, str):
        if value.lower() not in (*_YES, *_NO):
            raise ValueError(f"{make_inert_line(name)} is yes or no")
        return value.lower() in _YES
    if kind in ("integer", "number") and isinstance(value, str):
        try:
            value = int(value) if kind == "integer" else float(value)
        except ValueError:
            raise ValueError(f"{make_inert_line(name)} is a number") from None
    if kind == "array" and isinstance(value, str):
        return [part.strip() for part in value.split(",") if part.strip()]
    if choices and kind == "string" and value not in choices:
        raise ValueError(f"{make_inert_line(name)} is one of {', '.join(map(make_inert_line, choices))}")
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{make_inert_line(name)} is a finite number")
    parts = value if isinstance(value, list) else ()
    if isinstance(value, dict) or not all(isinstance(part, str) for part in parts):
        raise ValueError(f"{make_inert_line(name)} is a text, a number, yes or no, or a list of texts")
    return value


def _list_choices(schema: dict[str, Any]) -> tuple[str, ...]:
    if schema.get("type") == "boolean":
        return "yes", "no"
    titled = [each.get("const") for each in _get_list(schema, "oneOf") if isinstance(each, dict)]
    return tuple(str(each) for each in _get_list(schema, "enum") or titled)


def _describe(schema: dict[str, Any]) -> str:
    choices = " | ".join(map(make_inert_line, _list_choices(schema)))
    about = schema.get("description") or schema.get("title") or ""
    words = f"{choices or schema.get('type', 'text')}{f' ({about})' if about else ''}"
    return make_inert_line(", ".join(filter(None, (words, _format_default(schema)))), 300)


MAX_PICTURES = 8
MAX_PICTURE_BYTES = 4 << 20


class RenderedContent(msgspec.Struct, frozen=True):
    text: str
    pictures: tuple[tuple[str, bytes], ...] = ()  # Each with its media type


def render_content(blocks: Sequence[types.ContentBlock], structured: object = None) -> RenderedContent:
    pictures: list[tuple[str, bytes]] = []
    texts = [_render_block(block, pictures) for block in blocks]
    if structured is not None and not any(isinstance(block, types.TextContent) for block in blocks):
        texts.append(msgspec.json.encode(structured).decode())
    return RenderedContent("\n".join(text for text in texts if text), tuple(pictures))


def _render_block(block: types.ContentBlock, pictures: list[tuple[str, bytes]]) -> str:
    match block:
        case types.TextContent(text=text):
            return text
        case types.ImageContent(data=data, mime_type=kind):
            return _render_picture(data, kind, pictures)
        case types.AudioContent(data=data, mime_type=kind):
            return f"[a sound, {make_inert_line(kind, 80)}, about {len(data) * 3 // 4:,} bytes; it cannot be shown]"
        case types.ResourceLink(uri=uri, name=name, description=text):
            about = f": {text}" if text else ""
            return f"[the resource {make_inert_line(name, 200)} at {make_inert_line(str(uri), 500)}{about}]"
        case types.EmbeddedResource(resource=resource):
            return render_resources([resource], pictures)


def render_resources(
    resources: Iterable[types.TextResourceContents | types.BlobResourceContents], pictures: list[tuple[str, bytes]]
) -> str:
    texts = []
    for each in resources:
        if isinstance(each, types.TextResourceContents):
            text = each.text
        else:
            text = _render_picture(each.blob, each.mime_type or "", pictures)
        texts.append(f"[{make_inert_line(str(each.uri), 500)}]\n{text}")
    return "\n".join(texts)


def _render_picture(data: str, kind: str, pictures: list[tuple[str, bytes]]) -> str:
    try:
        content = base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        return "[bytes that cannot be read]"
    description = f"{make_inert_line(kind, 80) or 'bytes'}, {len(content):,} bytes"
    if kind not in PICTURE_KINDS or len(content) > MAX_PICTURE_BYTES or len(pictures) >= MAX_PICTURES:
        return f"[{description}; it cannot be shown]"
    pictures.append((kind, content))
    return f"[picture {len(pictures)}: {description}; shown below]"


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
        self._ended = False  # True if the call has its result or was given up: no reader of questions is left
        self._one_at_a_time = asyncio.Lock()
        self._asked = asyncio.Event()
        self._reply: asyncio.Future[Reply] | None = None
        self._task: asyncio.Task[Result] | None = None

    def begin(self, work: Coroutine[Any, Any, Result]) -> None:
        self._task = asyncio.create_task(work)

    async def ask(self, wish: Wish, *, of_person: bool) -> Reply:
        """Wait for the answer. A question to a person is declined at once if the chat is not interactive, and every
        question once the call has ended."""
        if of_person and not self._interactive:
            return _decline(wish)
        async with self._one_at_a_time:
            if self._ended:
                return _decline(wish)
            self.pending, self._reply = wish, asyncio.get_running_loop().create_future()
            self._asked.set()
            return await self._reply

    def answer(self, reply: Reply) -> None:
        self.pending = None
        self._asked.clear()
        if self._reply is not None and not self._reply.done():
            self._reply.set_result(reply)

    async def wait_for_news(self) -> Result | Wish:
        assert self._task is not None
        asking = asyncio.create_task(self._asked.wait())
        try:
            await asyncio.wait({self._task, asking}, return_when=asyncio.FIRST_COMPLETED)
            return self.pending if not self._task.done() and self.pending is not None else await self._task
        finally:
            asking.cancel()

    async def end(self) -> None:
        """Cancel the call if it is still under way, and decline its questions."""
        self._ended = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if self.pending is not None:  # a server that waits for an answer serves no other call
            self.answer(_decline(self.pending))


class Calls:
    def __init__(self) -> None:
        self._parked: dict[Key, Underway] = {}

    def has_parked_calls(self, chat: ChatId) -> bool:
        return any(key[0] == chat for key in self._parked)

    async def tidy(self, chat: ChatId | None = None, open_calls: Collection[CallKey] = ()) -> None:
        """Cancel the parked calls of a chat that are not open any more; without a chat, all."""
        for key in [key for key in self._parked if chat is None or (key[0] == chat and key[1] not in open_calls)]:
            await self._parked.pop(key).end()

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
                resumption = await _rebuild_resumption(connection, invocation)
                if isinstance(resumption, Question):
                    return resumption
                begin(resumption)
            for _ in range(_ROUNDS):
                match news := await underway.wait_for_news():
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
        finally:
            if self._parked.get(key) is not underway:
                await underway.end()

    def _park(self, key: Key, underway: Underway, connection: McpConnection, again: str = "") -> Question:
        assert underway.pending is not None
        self._parked[key] = underway
        return _build_question(connection, underway.pending, again)


def _build_question(connection: McpConnection, wish: Wish, again: str) -> Question:
    if not isinstance(wish, types.CreateMessageRequestParams):
        return build_form_question(connection.name, wish, again)
    messages = [("it is told", wish.system_prompt or ""), *((each.role, _render(each)) for each in wish.messages)]
    text = make_inert("\n".join(f"{role}: {words}" for role, words in messages if words))
    excerpt = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}\n[{len(text) - _SHOWN:,} characters more]"
    head = f"{again}\n" if again else ""
    return Question(
        f"{head}The MCP server {connection.name} wants to ask your model, at your cost:\n{excerpt}", (ALLOW, DECLINE)
    )


async def _build_reply(wish: Wish, answer: str, invocation: Invocation) -> Reply | str:
    if not isinstance(wish, types.CreateMessageRequestParams):
        return read_form_answer(wish, answer)
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
    visible_types = (types.TextContent, types.ImageContent, types.AudioContent)
    return render_content([each for each in message.content_as_list if isinstance(each, visible_types)]).text


async def _collect_input(
    connection: McpConnection, result: types.InputRequiredResult, invocation: Invocation
) -> Resume | Question:
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
    return _resume_or_ask(connection, requests, responses, result.request_state)


def _require_response(reply: Reply) -> types.InputResponse:
    """Return the reply. ServerLost if it is an error: the server cannot receive one, so the request ends."""
    if isinstance(reply, types.ErrorData):
        raise ServerLost(reply.message)
    return reply


def _resume_or_ask(
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


async def _rebuild_resumption(connection: McpConnection, invocation: Invocation) -> Resume | Question:
    """From the log: the answer goes to the first request that has none. ServerLost if another process asked."""
    if not invocation.answers:
        return None, None
    plan = invocation.plan or {}
    if not plan.get("requests"):
        raise ServerLost(f"the MCP server {connection.name} asked in a process that is gone")
    requests = _REQUESTS.validate_python(plan["requests"])
    responses, again = _RESPONSES.validate_python(plan.get("responses") or {}), ""
    for name, request in requests.items():
        if name not in responses and not isinstance(request, types.ListRootsRequest):
            reply = await _build_reply(request.params, invocation.answers[-1], invocation)
            if isinstance(reply, str):
                again = reply
            else:
                responses = {**responses, name: _require_response(reply)}
            break
    return _resume_or_ask(connection, requests, responses, plan.get("state"), again)
