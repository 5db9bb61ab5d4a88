"""Sending a stream, as server-sent events or over a WebSocket, from the same source of pieces. A reader that takes
nothing for too long is disconnected (`treadle.frontends.server.connections`) and can come back where it was. One
whose token is revoked is sent no more."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, suppress

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocket, WebSocketDisconnect

from treadle.base.logs import log_warning
from treadle.errors import StoreError
from treadle.frontends.server.problems import Problem
from treadle.frontends.server.service import Service
from treadle.frontends.server.sse import HEARTBEAT, MEDIA_TYPE, OPENING, event
from treadle.frontends.server.tokens import Token

RESTARTING = 1012

Piece = tuple[int, bytes]
"""The id of a piece of news, 0 for a live one; and its JSON, or nothing if only the reader's place is moved."""
Pieces = AsyncIterator[list[Piece]]
"""Some pieces at a time; none is a heartbeat."""


def position(request: Request | WebSocket, default_position: int | None) -> int | None:
    """Where a reader wants to go on: its Last-Event-ID, else `after` of its address."""
    last_event_id = request.headers.get("last-event-id", "").strip()
    if not last_event_id:
        return default_position
    if not (last_event_id.isascii() and last_event_id.isdigit() and len(last_event_id) < 17):
        raise Problem("bad_request", f"Last-Event-ID {last_event_id[:40]!r} is no seq; it is a number from the stream.")
    return int(last_event_id)


async def while_good(service: Service, token: Token, pieces: Pieces) -> Pieces:
    """The pieces, until the token is good no more: that is looked at once in a heartbeat (S-13)."""
    looked = time.monotonic()
    async with aclosing(pieces):  # type: ignore[type-var]
        async for batch in pieces:
            if time.monotonic() - looked >= service.limits.heartbeat_s:
                looked = time.monotonic()
                if not service.tokens.is_good(token):
                    return
            yield batch


class EventStream(Response):
    """Server-sent events. Open streams are counted in `run`."""

    def __init__(self, service: Service, token: Token, pieces: Callable[[], Pieces]) -> None:
        super().__init__(media_type=MEDIA_TYPE)
        del self.headers["content-length"]
        self.headers["x-accel-buffering"] = "no"
        self._service = service
        self._token = token
        self._pieces = pieces

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] == "HEAD":
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            return await _body(send, b"", last=True)
        sending = asyncio.ensure_future(self._send(send))
        leaving = asyncio.ensure_future(_wait_for_disconnect(receive))
        try:
            await asyncio.wait((sending, leaving), return_when=asyncio.FIRST_COMPLETED)
            if sending.done():
                sending.result()
        finally:
            await _cancel(sending, leaving)

    async def _send(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        try:
            with self._service.streaming(self._token.user):
                await self._pass_on(send)
        except StoreError as error:
            log_warning("a stream ends early: %s", error)
        await _body(send, OPENING, last=True)

    async def _pass_on(self, send: Send) -> None:
        await _body(send, OPENING)
        async with aclosing(while_good(self._service, self._token, self._pieces())) as pieces:  # type: ignore[type-var]
            async for batch in pieces:
                await _body(send, b"".join(event(data, id) for id, data in batch) or HEARTBEAT)


async def _body(send: Send, data: bytes, last: bool = False) -> None:
    await send({"type": "http.response.body", "body": data, "more_body": not last})


async def _wait_for_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def converse(service: Service, token: Token, socket: WebSocket, pieces: Callable[[], Pieces]) -> None:
    """The same over a WebSocket: one message a piece; an empty one is a heartbeat. Messages from the client are
    ignored."""
    with service.streaming(token.user):
        await socket.accept()
        sending = asyncio.ensure_future(_talk(socket, while_good(service, token, pieces())))
        leaving = asyncio.ensure_future(_hung_up(socket))
        try:
            await asyncio.wait((sending, leaving), return_when=asyncio.FIRST_COMPLETED)
            there = not leaving.done()
        finally:
            await _cancel(sending, leaving)
    if there:  # the last message to it takes no place among the user's streams
        with suppress(RuntimeError, WebSocketDisconnect):
            await socket.close(RESTARTING if service.draining.is_set() else 1000)


async def _talk(socket: WebSocket, pieces: Pieces) -> None:
    try:
        async with aclosing(pieces):  # type: ignore[type-var]
            async for batch in pieces:
                for _id, data in [piece for piece in batch if piece[1]] or [(0, b"")]:
                    await socket.send_text(data.decode())
    except StoreError as error:
        log_warning("a stream ends early: %s", error)
    except (WebSocketDisconnect, RuntimeError):
        pass  # the other side has left


async def _hung_up(socket: WebSocket) -> None:
    with suppress(WebSocketDisconnect):
        while True:
            if (await socket.receive())["type"] == "websocket.disconnect":
                return


async def _cancel(*tasks: "asyncio.Future[None]") -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
