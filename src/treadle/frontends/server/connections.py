"""Connections that are aborted when the other side takes nothing (closing politely may wait for ever), and answers by
gzip. A stream is flushed with every piece; short answers stay plain: tokens and tickets are among them."""

import asyncio
import gzip
import zlib
from typing import TYPE_CHECKING, Any

import h11
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

HEADERS_S = 20.0
STALL_S = 30.0  # Between two looks: a connection with unsent bytes that took none is aborted. A stream can be resumed.

if TYPE_CHECKING:
    _Protocol = H11Protocol
else:
    _Protocol = object


class StallWatch(_Protocol):
    """A connection whose writers wait, or that is closing, can stall: there the buffer can only become smaller."""

    _paused = False
    _unsent = 0  # Bytes that were unsent at the last look, if the connection was stalled; else 0.
    _next_look: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._next_look = asyncio.get_running_loop().call_later(STALL_S, self._check_progress)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._next_look is not None:
            self._next_look.cancel()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        self._paused = True
        super().pause_writing()

    def resume_writing(self) -> None:
        self._paused, self._unsent = False, 0
        super().resume_writing()

    def _check_progress(self) -> None:
        if self.transport.get_protocol() is not self:
            return  # it has become a WebSocket, which is watched by itself
        unsent = self.transport.get_write_buffer_size() if self._paused or self.transport.is_closing() else 0
        if self._unsent and unsent >= self._unsent:
            self.transport.abort()
            return
        self._unsent = unsent
        self._next_look = asyncio.get_running_loop().call_later(STALL_S, self._check_progress)


_UNREAD_BODY = (h11.DONE, h11.SEND_BODY)


class TimedH11Protocol(H11Protocol):
    """Aborts a connection whose next request has no complete headers in time (S-20): uvicorn bounds only the pause
    between requests, so that clients that send a byte now and then could keep all connections for ever."""

    _headers_due: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._expect_headers()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._has_part():
            self._expect_headers()
        else:
            self._stop_timer()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self._has_part():
            self._expect_headers()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        super().connection_lost(exc)

    def _has_part(self) -> bool:
        """True if the next request has begun, or an answered one has not ended: its body may come for ever."""
        return self._needs_headers() and (self.conn.their_state is h11.SEND_BODY or bool(self.conn.trailing_data[0]))

    def _needs_headers(self) -> bool:
        return self.conn.their_state is h11.IDLE or (self.conn.our_state, self.conn.their_state) == _UNREAD_BODY

    def _expect_headers(self) -> None:
        if self._headers_due is None:
            self._headers_due = self.loop.call_later(HEADERS_S, self._close_if_late)

    def _stop_timer(self) -> None:
        if self._headers_due is not None:
            self._headers_due.cancel()
            self._headers_due = None

    def _close_if_late(self) -> None:
        self._headers_due = None
        transport: Any = self.transport
        if self._needs_headers() and not transport.is_closing():
            transport.abort()  # closing would wait for a client that reads nothing


class HttpConnection(StallWatch, TimedH11Protocol):
    pass


class SocketConnection(StallWatch, WebSocketsSansIOProtocol):  # type: ignore[misc]
    pass


EVENT_STREAM = "text/event-stream"
LEVEL = 5
SHORTEST = 1_024
LONG = 256 * 1024  # An answer of this size is compressed in a thread.
STREAM_WINDOW = 16 + 12
STREAM_MEMORY = 5  # gzip with a window of 4 KB: 32 KB of memory for each open stream, in place of 260.
_TYPES = ("text/", "application/json", "application/x-ndjson", "application/manifest+json", "image/svg+xml")
_UNTOUCHED = (204, 206, 304)


def accepts_gzip(headers: Headers) -> bool:
    for each in headers.get("accept-encoding", "").split(","):
        name, _, weight = each.strip().lower().partition(";")
        if name.strip() in ("gzip", "*"):
            return weight.replace(" ", "") not in ("q=0", "q=0.0", "q=0.00", "q=0.000")
    return False


def pack(data: bytes, level: int = LEVEL) -> bytes:
    return gzip.compress(data, level, mtime=0)


class Compression:
    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] == "HEAD" or not accepts_gzip(Headers(scope=scope)):
            return await self._app(scope, receive, send)
        await self._app(scope, receive, CompressedAnswer(send))


class CompressedAnswer:
    """Sends one answer. Its head waits for the first piece of the body, which tells whether it is short."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._start: Message | None = None
        self._packer: zlib._Compress | None = None
        self._flush = zlib.Z_NO_FLUSH

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = Headers(raw=message["headers"])
            is_kind = headers.get("content-type", "").startswith(_TYPES)
            if is_kind and message["status"] not in _UNTOUCHED and "content-encoding" not in headers:
                self._start = message
                return
        elif message["type"] == "http.response.body":
            if self._start is not None:
                message = await self._begin(self._start, message)
                self._start = None
            elif self._packer is not None:
                message = self._pack_message(message)
        await self._send(message)

    async def _begin(self, start: Message, body: Message) -> Message:
        headers = MutableHeaders(scope=start)
        headers.add_vary_header("Accept-Encoding")
        data, more = body.get("body", b""), body.get("more_body", False)
        if not more and len(data) < SHORTEST:
            await self._send(start)
            return body
        headers["content-encoding"] = "gzip"
        if more:
            del headers["content-length"]
            is_stream = headers.get("content-type", "").startswith(EVENT_STREAM)
            self._flush = zlib.Z_SYNC_FLUSH if is_stream else zlib.Z_NO_FLUSH
            self._packer = zlib.compressobj(LEVEL, zlib.DEFLATED, STREAM_WINDOW, STREAM_MEMORY)
            await self._send(start)
            return self._pack_message(body)
        packed = await asyncio.to_thread(pack, data) if len(data) >= LONG else pack(data)
        headers["content-length"] = str(len(packed))
        await self._send(start)
        return {**body, "body": packed}

    def _pack_message(self, message: Message) -> Message:
        assert self._packer is not None
        data, more = message.get("body", b""), message.get("more_body", False)
        packed = self._packer.compress(data)
        packed += self._packer.flush(self._flush if more else zlib.Z_FINISH)
        return {**message, "body": packed}
