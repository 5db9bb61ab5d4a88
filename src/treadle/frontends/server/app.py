"""The application: the table of routes, put behind the guard. Nothing here knows how it is run."""

from collections.abc import Awaitable, Callable

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route as HttpRoute
from starlette.routing import WebSocketRoute
from starlette.types import ASGIApp
from starlette.websockets import WebSocket

from treadle.frontends.server.compression import Compression
from treadle.frontends.server.guard import Guard
from treadle.frontends.server.openapi import describe
from treadle.frontends.server.replies import Problem, problem
from treadle.frontends.server.routes import (
    actions,
    changes,
    chats,
    conversation,
    environment,
    families,
    jobs,
    operation,
    outputs,
    rules,
    streams,
    web,
    worlds,
)
from treadle.frontends.server.routing import Route, read_query, serve
from treadle.frontends.server.service import Service
from treadle.frontends.server.tokens import Token
from treadle.protocol.http_requests import Body

_MODULES = (
    *(chats, families, conversation, actions, rules, changes, jobs),
    *(worlds, streams, outputs, environment, operation, web),
)
ROUTES: tuple[Route, ...] = tuple(route for module in _MODULES for route in module.ROUTES)


def build(service: Service) -> ASGIApp:
    service.openapi = describe(ROUTES)
    routes: list[HttpRoute | WebSocketRoute] = []
    for path in dict.fromkeys(route.path for route in ROUTES):
        table = {route.method: route for route in ROUTES if route.path == path}
        routes.append(HttpRoute(path, _endpoint(service, table), methods=list(table)))
    routes += [WebSocketRoute(path, _socket(service, path, resolve, query)) for path, resolve, query in streams.SOCKETS]
    app = Starlette(routes=routes, exception_handlers={HTTPException: _unrouted})
    app.router.redirect_slashes = False
    return Guard(Compression(app), service.tokens, service.metrics, service.spend, service.hosts)


def _endpoint(service: Service, table: dict[str, Route]) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        return await serve(table["GET" if request.method == "HEAD" else request.method], service, request)

    return endpoint


def _socket(
    service: Service, path: str, resolve: streams.Resolve, query: type[Body]
) -> Callable[[WebSocket], Awaitable[None]]:
    async def endpoint(socket: WebSocket) -> None:
        socket.scope["treadle.route"] = path
        token: Token = socket.scope["treadle.token"]
        try:
            pieces = await resolve(service, token.user, socket, read_query(query, socket.query_params))
            await streams.converse(service, token, socket, pieces)
        except Exception as error:
            await socket.send_denial_response(problem(error))

    return endpoint


async def _unrouted(_request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if error.status_code == 405:
        return problem(Problem("method_not_allowed", "This route has no such method.", error.headers))
    if error.status_code == 404:
        return problem(Problem("not_found", "There is no such route; /api/docs lists them."))
    return problem(Problem("bad_request", f"{error.detail}."))
