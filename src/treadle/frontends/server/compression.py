"""Compression of answers by gzip, for readers that accept it. A stream is flushed with every piece, so that no event
waits for the next one. Short answers stay as they are: nothing is gained, and tokens and tickets are among them."""

import asyncio
import gzip
import zlib

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

EVENT_STREAM = "text/event-stream"
LEVEL = 5
SHORTEST = 1_024
LONG = 256 * 1024
"""An answer of this size is compressed in a thread."""
STREAM_WINDOW = 16 + 12
STREAM_MEMORY = 5
"""gzip with a window of 4 KB: 32 KB of memory for each open stream, in place of 260."""
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
            if _is_compressible(message):
                self._start = message
                return
        elif message["type"] == "http.response.body":
            if self._start is not None:
                message = await self._begin(self._start, message)
                self._start = None
            elif self._packer is not None:
                message = self._packed(message)
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
            return self._packed(body)
        packed = await asyncio.to_thread(pack, data) if len(data) >= LONG else pack(data)
        headers["content-length"] = str(len(packed))
        await self._send(start)
        return {**body, "body": packed}

    def _packed(self, message: Message) -> Message:
        assert self._packer is not None
        data, more = message.get("body", b""), message.get("more_body", False)
        packed = self._packer.compress(data)
        packed += self._packer.flush(self._flush if more else zlib.Z_FINISH)
        return {**message, "body": packed}


def _is_compressible(start: Message) -> bool:
    headers = Headers(raw=start["headers"])
    if start["status"] in _UNTOUCHED or "content-encoding" in headers:
        return False
    return headers.get("content-type", "").startswith(_TYPES)
