"""Request handling: query, body, the key of a repeated request, the handler, errors. The table of routes says the
rest."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TypeVar

import msgspec
from starlette.datastructures import QueryParams
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from treadle.base.file_system import reach_faultpoint
from treadle.base.types import ChatId
from treadle.chat.state import ChatState
from treadle.engine.deps import Deps
from treadle.errors import AlreadyAnswered, TreadleError
from treadle.frontends.server.guard import get_token
from treadle.frontends.server.replies import (
    HEADER,
    ApiReply,
    Key,
    Problem,
    build_problem,
    find_answer,
    parse_key,
    repeat_reply,
)
from treadle.frontends.server.service import Service
from treadle.protocol.http_queries import NoQuery
from treadle.protocol.http_requests import Body, Nothing, OptionalBody

B = TypeVar("B", bound=Body)


class ApiRequest(msgspec.Struct, frozen=True):
    service: Service
    request: Request
    user: str
    _query: Body
    _body: Body
    key: Key | None

    @property
    def deps(self) -> Deps:
        return self.service.agent.deps

    def get_path_parameter(self, name: str) -> str:
        return str(self.request.path_params[name])

    async def find_chat(self) -> ChatId:
        return await self.service.require_own_chat(self.user, self.get_path_parameter("chat"))

    async def load_state(self) -> ChatState:
        return await self.service.load_state(self.user, self.get_path_parameter("chat"))

    def get_query(self, kind: type[B]) -> B:
        assert isinstance(self._query, kind)
        return self._query

    @property
    def traceparent(self) -> str:
        """The span from which the request was sent, if it says so."""
        return self.request.headers.get("traceparent", "")

    def get_body(self, kind: type[B]) -> B:
        assert isinstance(self._body, kind)
        return self._body

    async def remember(self, reply: ApiReply) -> None:
        """Keep the answer to a request that appends to no log. AlreadyAnswered if it has one."""
        if self.key is not None:
            await self.deps.store.remember(self.key.build_remembered(reply, self.deps.clock.now_ms()))

    async def remember_step(self, name: str, reply: ApiReply) -> None:
        """Keep the answer to a step of this request, unless there is one."""
        with suppress(AlreadyAnswered):
            await msgspec.structs.replace(self, key=self.key and self.key.make_step_key(name)).remember(reply)

    async def recall_step(self, name: str) -> ApiReply | None:
        return None if self.key is None else await find_answer(self.deps.store, self.key.make_step_key(name))


Handler = Callable[[ApiRequest], Awaitable[ApiReply | Response]]
Finish = Callable[[ApiRequest, ApiReply], Awaitable[ApiReply]]


class Route(msgspec.Struct, frozen=True):
    """One row of the table. `codes` are the refusals that are its own, beside those that any route has."""

    method: str
    path: str
    handler: Handler
    summary: str
    status: int = 200
    reply: type[msgspec.Struct] | None = None
    body: type[Body] | None = None
    query: type[Body] = NoQuery
    codes: tuple[str, ...] = ()
    media_type: str = ""  # Of a reply that is no JSON object.
    large: bool = False  # True if its body may be large.
    open: bool = False  # True if it needs no token.
    operators: bool = False  # True if it is only for the operators of the server.
    finish: Finish | None = None  # Processes the finished answer, also one that was given before under the same key.
    finished: type[msgspec.Struct] | None = None  # The type of the answer after that, with the status 200.
    tag: str = ""  # That of its module.

    @property
    def mutates(self) -> bool:
        return self.method != "GET" and self.body is not None


async def serve(route: Route, service: Service, request: Request) -> Response:
    request.scope["treadle.route"] = route.path
    try:
        user = "" if route.open else get_token(request).user
        if route.operators and not service.admission.is_operator(user):
            raise Problem("operators_only", "Only who runs the server may see this.")
        query = read_query(route.query, request.query_params)
        raw = await _read(route, service, request)
        body = _decode(route, raw)
        keys = request.headers.getlist(HEADER) if route.mutates else []
        key = parse_key(keys, user, route.method, request.url.path, raw)
        return await _answer_request(route, ApiRequest(service, request, user, query, body, key))
    except ClientDisconnect:
        return Response(status_code=499)
    except Exception as error:
        return build_problem(error)


async def _answer_request(route: Route, call: ApiRequest) -> Response:
    key, store = call.key, call.service.agent.deps.store
    if key is None:
        return await _finish_answer(route, call, await route.handler(call))
    async with call.service.get_lock(key):
        answer: ApiReply | Response | None = await find_answer(store, key)
        if answer is None:
            try:
                reach_faultpoint("server.before_command")
                answer = await route.handler(call)
                reach_faultpoint("server.after_command")
            except AlreadyAnswered as error:
                answer = repeat_reply(key, error)
            except TreadleError:
                # The same request may have won meanwhile, elsewhere: then this one's refusal is only its own echo.
                if (answer := await find_answer(store, key)) is None:
                    raise
    return await _finish_answer(route, call, answer)


async def _finish_answer(route: Route, call: ApiRequest, response: ApiReply | Response) -> Response:
    if not isinstance(response, ApiReply):
        return response
    return (response if route.finish is None else await route.finish(call, response)).make_response()


def read_query(kind: type[B], params: QueryParams) -> B:
    fields: dict[str, str] = {}
    for name, value in params.multi_items():
        if name in fields:
            raise Problem("bad_request", f"The parameter {name[:80]!r} stands twice in the query.")
        fields[name] = value
    try:
        return msgspec.convert(fields, kind, strict=False)
    except msgspec.ValidationError as error:
        raise Problem("bad_request", f"The query does not fit: {error}.") from error


async def _read(route: Route, service: Service, request: Request) -> bytes:
    if route.body is None:
        return b""
    limits = service.limits
    most = limits.large_body if route.large else limits.body
    too_large = Problem("too_large", f"The body is larger than {most // 1024} KiB, the most that is taken here.")
    length = request.headers.get("content-length", "0")
    if length.isascii() and length.isdigit() and int(length) > most:
        raise too_large
    chunks: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(limits.body_s):
            async for chunk in request.stream():
                size += len(chunk)
                if size > most:
                    raise too_large
                chunks.append(chunk)
    except TimeoutError as error:
        raise Problem("request_timeout", f"The body did not come within {limits.body_s:g} seconds.") from error
    raw = b"".join(chunks)
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if raw and kind != "application/json":
        text = "Send the body as JSON, with the header Content-Type: application/json."
        raise Problem("unsupported_media_type", text)
    return raw


def _decode(route: Route, raw: bytes) -> Body:
    if route.body is None:
        return Nothing()
    if not raw and issubclass(route.body, OptionalBody):
        return route.body()
    try:
        body = msgspec.json.decode(raw, type=route.body)
        msgspec.json.encode(body)  # data that cannot be encoded again could not be recorded
    except RecursionError as error:
        raise Problem("invalid_json", "The body is nested too deeply.") from error
    except (msgspec.MsgspecError, ValueError, TypeError, OverflowError) as error:
        raise Problem("invalid_json", f"The body does not fit: {error}.") from error
    return body
