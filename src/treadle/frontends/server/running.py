"""The server process: a socket, uvicorn, and a worker beside it. Shutting down, streams end with a hint to come back,
requests and steps that are under way are completed."""

import asyncio
import ipaddress
import logging
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial

import uvicorn
from msgspec.structs import replace
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route as HttpRoute
from starlette.routing import WebSocketRoute
from starlette.types import ASGIApp
from starlette.websockets import WebSocket

from treadle.base.logs import log_info
from treadle.base.stream_server import close_server
from treadle.engine.pool import WorkerPool
from treadle.errors import InvalidInput
from treadle.frontends.server.connections import Compression, HttpConnection, SocketConnection
from treadle.frontends.server.guard import Guard
from treadle.frontends.server.openapi import describe
from treadle.frontends.server.replies import Problem, build_problem
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

BACKLOG = 1024
KEEP_ALIVE_S = 30
HEADERS = 64 * 1024
GRACE_S = 20  # How long requests may take to end.


class _Server(uvicorn.Server):
    """Signals are ours."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.begun = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.begun.set()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for server in self.servers:
            await close_server(server)
        await super().shutdown(sockets)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def bind(host: str, port: int) -> socket.socket:
    """A listening socket. InvalidInput says why there can be none."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, protocol)
    except OSError as error:
        raise InvalidInput(f"{host} is no address of this machine: {error.strerror or error}") from error
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        reason = error.strerror or error
        raise InvalidInput(f"{host}:{port} cannot be listened on: {reason}; choose another with --port") from error
    listener.setblocking(False)
    return listener


def format_address(listening: socket.socket) -> str:
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def find_outside_address(host: str) -> str:
    """The address by which others reach a server that listens on all of them; empty if unknown. Nothing is sent."""
    if host not in ("0.0.0.0", "::"):
        return ""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
            return str(probe.getsockname()[0])
        except OSError:
            return ""


def is_loopback(host: str) -> bool:
    with suppress(ValueError):
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    return False


class Running:
    """The server and its worker, from `start` until `end` has done its work. `end` again leaves at once."""

    def __init__(self, service: Service, listening: socket.socket, drain_s: float = GRACE_S) -> None:
        self.service, self._drain_s = service, drain_s
        self._server = _Server(_make_config(service))
        self._listening = listening
        self._pool = WorkerPool(service.worker) if service.worker is not None else None
        self._hurry = asyncio.Event()
        self._serving: asyncio.Future[None] | None = None

    async def start(self) -> None:
        """Returns when requests are taken."""
        if self._pool is not None:
            self._pool.start()
        self._serving = asyncio.ensure_future(self._server.serve([self._listening]))
        startup = asyncio.ensure_future(self._server.begun.wait())
        await asyncio.wait((self._serving, startup), return_when=asyncio.FIRST_COMPLETED)
        startup.cancel()

    def end(self) -> None:
        if self.service.draining.is_set():
            self._server.force_exit = True
            self._hurry.set()
            return
        log_info("shutting down: no new requests; streams reconnect later")
        self.service.draining.set()
        self.service.feeds.end()
        self._server.should_exit = True

    async def wait(self) -> None:
        """Returns when everything has ended: requests, streams, and the steps of the worker."""
        await self.service.draining.wait()
        if self._serving is not None:
            drained = [] if self._pool is None else [self._pool.drain(self._drain_s, self._hurry)]
            await asyncio.gather(self._serving, *drained)
        self.service.rendering.close()


def _make_config(service: Service) -> uvicorn.Config:
    logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)  # we log the important messages ourselves
    return uvicorn.Config(
        build(service), http=HttpConnection, ws=SocketConnection, lifespan="off", log_config=None, access_log=False,
        server_header=False, proxy_headers=False, timeout_keep_alive=KEEP_ALIVE_S, timeout_graceful_shutdown=GRACE_S,
        h11_max_incomplete_event_size=HEADERS, ws_max_size=HEADERS, ws_ping_interval=service.limits.heartbeat_s,
        ws_per_message_deflate=True,
    )  # fmt: skip


async def run(service: Service, listening: socket.socket, ready: Callable[[], None], drain_s: float = GRACE_S) -> None:
    """Serve until a signal comes; a second one leaves at once."""
    running, loop = Running(service, listening, drain_s), asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, running.end)
    try:
        await running.start()
        ready()
        await running.wait()
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)


_MODULES = (
    *(chats, families, conversation, actions, rules, changes, jobs),
    *(worlds, streams, outputs, environment, operation, web),
)
ROUTES: tuple[Route, ...] = tuple(replace(route, tag=module.TAG) for module in _MODULES for route in module.ROUTES)


def build(service: Service) -> ASGIApp:
    service.openapi = describe(ROUTES)
    routes: list[HttpRoute | WebSocketRoute] = []
    for path in dict.fromkeys(route.path for route in ROUTES):
        table = {route.method: route for route in ROUTES if route.path == path}
        routes.append(HttpRoute(path, partial(_serve_path, service, table), methods=list(table)))
    routes += [WebSocketRoute(row[0], partial(_serve_socket, service, *row)) for row in streams.SOCKETS]
    app = Starlette(routes=routes, exception_handlers={HTTPException: _answer_routing_error})
    app.router.redirect_slashes = False
    return Guard(Compression(app), service.tokens, service.metrics, service.spend, service.hosts)


async def _serve_path(service: Service, table: dict[str, Route], request: Request) -> Response:
    return await serve(table["GET" if request.method == "HEAD" else request.method], service, request)


async def _serve_socket(
    service: Service, path: str, resolve: streams.Resolve, query: type[Body], socket: WebSocket
) -> None:
    socket.scope["treadle.route"] = path
    token: Token = socket.scope["treadle.token"]
    try:
        pieces = await resolve(service, token.user, socket, read_query(query, socket.query_params))
        await streams.converse(service, token, socket, pieces)
    except Exception as error:
        await socket.send_denial_response(build_problem(error))


async def _answer_routing_error(_request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    problems = {
        404: Problem("not_found", "There is no such route; /api/docs lists them."),
        405: Problem("method_not_allowed", "This route has no such method.", error.headers),
    }
    return build_problem(problems.get(error.status_code) or Problem("bad_request", f"{error.detail}."))
