"""One HTTP/1.1 connection to a server: sends a request as bytes, and receives the head and then the body of the answer
as they arrive. Knows neither addresses nor the content.

It replaces a library whose import took a third of a run with one answer (decision 0021). A client of model servers
needs little: no redirects, no cookies, no uploads, no WebSockets.
"""

import asyncio
import socket
from collections.abc import Callable
from typing import NamedTuple, cast

HEAD_CAP = 64 * 1024
HINTS = 20
"""How many answers may say that the answer is still to come (100 Continue, 103 Early Hints)."""
LINE_CAP = 4 * 1024
"""The longest line of a chunk size or of a trailer."""
BUFFERED = 256 * 1024
"""The most bytes of a body that are buffered for the reader before the server has to wait."""


class CutOff(ConnectionError):
    """The connection ended, or turned into nonsense, in the middle of an answer."""


class Head(NamedTuple):
    status: int
    reason: str
    headers: dict[str, str]
    """By names in lower case."""


class ServerConnection(asyncio.Protocol):
    """Carries one exchange after another: `send`, then `read` to the end, or `close` to stop earlier."""

    __slots__ = (
        "_body",
        "_closed",
        "_error",
        "_head",
        "_hints",
        "_keeps",
        "_left",
        "_parse",
        "_paused",
        "_rest",
        "_tunnels",
        "_waiter",
        "_waiting",
        "ended",
        "transport",
    )

    def __init__(self) -> None:
        self.transport: asyncio.Transport
        self.ended = True
        """True if the answer is complete; parts of it may still be unread."""
        self._closed = False
        self._keeps = True
        self._tunnels = False
        self._error: OSError | None = None
        self._head: Head | None = None
        self._hints = 0
        self._parse: Callable[[bytes], bytes] = self._stray
        """Parses received bytes; returns the bytes that need more input."""
        self._rest = b""
        self._left = 0
        """How many bytes of the body, or of the chunk, are still to come."""
        self._body: list[bytes] = []
        self._waiting = 0
        self._paused = False
        self._waiter: asyncio.Future[None] | None = None

    @property
    def is_reusable(self) -> bool:
        """True if the connection can carry another exchange: this one is complete and completely read."""
        return self.at_eof and self._keeps and not self._closed and not self.transport.is_closing()

    @property
    def is_lost(self) -> bool:
        """True if the connection is closed or closing."""
        return self._closed or self.transport.is_closing()

    @property
    def at_eof(self) -> bool:
        return self.ended and not self._body

    async def send(self, request: bytes, *, tunnels: bool = False) -> Head:
        """The head of the answer to a whole request; one that `tunnels` (CONNECT) is answered without a body."""
        self._begin(tunnels)
        self.transport.write(request)
        while self._head is None:
            if self._error is not None:
                raise self._error
            await self._more()
        return self._head

    def _begin(self, tunnels: bool) -> None:
        self.ended = False
        self._tunnels = tunnels
        self._head = None
        self._hints = 0
        self._parse = self._read_head

    async def read(self) -> bytes:
        """Return the new part of the body; empty at its end. CutOff if the body will never be complete."""
        while not self._body:
            if self.ended:
                return b""
            if self._error is not None:
                raise self._error
            await self._more()
        data = self._body[0] if len(self._body) == 1 else b"".join(self._body)
        self._body.clear()
        self._waiting = 0
        if self._paused and not self._closed:
            self.transport.resume_reading()
        self._paused = False
        return data

    def close(self) -> None:
        """Abort the connection at once, without a TLS or TCP shutdown."""
        self._closed = True
        self.transport.abort()

    async def _more(self) -> None:
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    # Callbacks of the event loop.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        plain = transport.get_extra_info("socket")
        if plain is not None:
            plain.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)  # an answer may be silent for long

    def data_received(self, data: bytes) -> None:
        try:
            self._rest = self._parse(self._rest + data if self._rest else data)
        except ValueError as error:
            self._fail(str(error))
            self.close()
        if self._waiting > BUFFERED and not self._paused and not self._closed:
            self._paused = True
            self.transport.pause_reading()
        self._wake()

    def connection_lost(self, exc: Exception | None) -> None:
        self._closed = True
        if not self.ended:
            if self._parse == self._read_to_close and exc is None:
                self.ended = True
            else:
                self._fail(str(exc) if exc is not None else "the server closed the connection")
        self._wake()

    def _fail(self, reason: str) -> None:
        if self._error is None:
            self._error = ConnectionError(reason) if self._head is None else CutOff(reason)

    # How an answer is read. ValueError if it is none.

    def _read_head(self, data: bytes) -> bytes:
        end = data.find(b"\r\n\r\n")
        if end < 0:
            if len(data) > HEAD_CAP or not data.startswith(b"HTTP/"[: len(data)]):
                raise ValueError("the answer is not HTTP")
            return data
        version, head = _parse_head(data[:end])
        remaining = data[end + 4 :]
        if 100 <= head.status < 200 and head.status != 101:
            self._hints += 1
            if self._hints > HINTS:
                raise ValueError("the answer does not begin")
            return self._read_head(remaining) if remaining else b""  # the answer is still to come
        self._keeps = _keeps(version, head.headers)
        self._parse = self._body_reader(head)
        self._head = head
        return self._parse(remaining)

    def _body_reader(self, head: Head) -> Callable[[bytes], bytes]:
        coding, length = head.headers.get("transfer-encoding", ""), head.headers.get("content-length", "")
        if head.status in (101, 204, 304) or (self._tunnels and head.status == 200):
            return self._end
        if coding.lower().endswith("chunked"):
            self._keeps = self._keeps and not length  # both a length and chunked encoding are ambiguous: do not reuse
            return self._read_chunks
        if length and not coding:
            if not (length.isascii() and length.isdigit()):
                raise ValueError("the answer has an odd length")
            self._left = int(length)
            return self._read_length if self._left else self._end
        self._keeps = False
        return self._read_to_close

    def _read_length(self, data: bytes) -> bytes:
        piece = data[: self._left]
        self._left -= len(piece)
        self._take(piece)
        return b"" if self._left else self._end(data[len(piece) :])

    def _read_to_close(self, data: bytes) -> bytes:
        self._take(data)
        return b""

    def _read_chunks(self, data: bytes) -> bytes:
        at = 0
        while (end := data.find(b"\r\n", at)) >= 0:
            size = _chunk_size(data[at:end])
            start = end + 2
            if not size:
                self._parse = self._read_trailers
                return self._read_trailers(data[start:])
            at = start + size + 2
            if at > len(data):
                self._left, self._parse = size, self._read_chunk
                return self._read_chunk(data[start:])
            if data[at - 2 : at] != b"\r\n":
                raise ValueError("a chunk is longer than it said")
            self._body.append(data[start : at - 2])
            self._waiting += size
        return _unfinished_line(data[at:])

    def _read_chunk(self, data: bytes) -> bytes:
        """One that does not come all at once, and the end of its line."""
        piece, remaining = data[: self._left], data[self._left :]
        self._left -= len(piece)
        self._take(piece)
        if self._left or len(remaining) < 2:
            return remaining
        if not remaining.startswith(b"\r\n"):
            raise ValueError("a chunk is longer than it said")
        self._parse = self._read_chunks
        return self._read_chunks(remaining[2:])

    def _read_trailers(self, data: bytes) -> bytes:
        """Skip the trailers after the last chunk, up to an empty line."""
        at = 0
        while (end := data.find(b"\r\n", at)) > at:
            at = end + 2
        return _unfinished_line(data[at:]) if end < 0 else self._end(data[end + 2 :])

    def _take(self, piece: bytes) -> None:
        if piece:
            self._body.append(piece)
            self._waiting += len(piece)

    def _end(self, remaining: bytes) -> bytes:
        self.ended = True
        self._parse = self._stray
        return self._stray(remaining) if remaining else b""

    def _stray(self, data: bytes) -> bytes:
        """Discard bytes without a request; do not reuse the connection, where they could pass for an answer."""
        self._keeps = False
        return b""


def _chunk_size(line: bytes) -> int:
    if not line.isalnum():
        line = line.partition(b";")[0].strip()
        if not line.isalnum():
            raise ValueError("a chunk does not say how long it is")
    return int(line, 16)


def _unfinished_line(data: bytes) -> bytes:
    if len(data) > LINE_CAP:
        raise ValueError("a line between chunks has no end")
    return data


def _parse_head(data: bytes) -> tuple[str, Head]:
    first, *lines = data.decode("latin-1").split("\r\n")
    version, _, answer = first.partition(" ")
    status, _, reason = answer.partition(" ")
    if not (version.startswith("HTTP/1.") and len(status) == 3 and status.isascii() and status.isdigit()):
        raise ValueError("the answer is not HTTP/1.1")
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon or not name or name != name.strip():
            raise ValueError("the answer has an odd header")
        name, value = name.lower(), value.strip()
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    return version, Head(int(status), reason, headers)


def _keeps(version: str, headers: dict[str, str]) -> bool:
    """True if the connection stays open after the answer."""
    wish = headers.get("connection", "").lower()
    return "close" not in wish if version != "HTTP/1.0" else "keep-alive" in wish
