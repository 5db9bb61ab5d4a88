"""One HTTP/1.1 connection to a server: sends a request as bytes, and receives the head and then the body of the answer
as they arrive. httptools parses; this module adds limits, back-pressure, and the rule when a connection may be used
again. Knows neither addresses nor the content."""

import asyncio
import socket
from collections.abc import Callable
from typing import NamedTuple, cast

from httptools import HttpParserError, HttpResponseParser

HEAD_CAP = 64 * 1024
HINTS = 20
"""How many answers may say that the answer is still to come (100 Continue, 103 Early Hints)."""
LINE_CAP = 4 * 1024
"""The most bytes between two chunks: the line of a chunk size, trailers."""
BUFFERED = 256 * 1024
"""The most bytes of a body that are buffered for the reader before the server has to wait."""


class CutOff(ConnectionError):
    """The connection ended, or turned into nonsense, in the middle of an answer."""


class Head(NamedTuple):
    status: int
    reason: str
    headers: dict[str, str]
    """By names in lower case."""


class ClientConnection(asyncio.Protocol):
    """Carries one exchange after another: `send`, then `read` to the end, or `close` to stop earlier."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport
        self.ended = True
        """True if the answer is complete; parts of it may still be unread."""
        self.has_answer = False
        """True if at least one byte of the answer has arrived."""
        self._parser: HttpResponseParser | None = None
        self._head: Head | None = None
        self._headers: dict[str, str] = {}
        self._reason = b""
        self._hints = self._overhead = self._buffered = 0
        self._body: list[bytes] = []
        self.on_body: Callable[[bytes], None] = self._body.append
        """The parser's callback: no Python code runs for a chunk."""
        self._keeps = True
        self._closed = self._paused = self._tunnels = self._to_close = False
        self._error: OSError | None = None
        self._waiter: asyncio.Future[None] | None = None

    @property
    def is_lost(self) -> bool:
        """True if the connection is closed or closing."""
        return self._closed or self.transport.is_closing()

    @property
    def at_eof(self) -> bool:
        return self.ended and not self._body

    @property
    def is_reusable(self) -> bool:
        """True if the connection can carry another exchange: this one is complete and completely read."""
        return self.at_eof and self._keeps and not self.is_lost

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
        if self._parser is None or self._tunnels:  # in a tunnel the parser would go on reading a body
            self._parser = HttpResponseParser(self)
            # Both are unambiguous. A connection whose answer has a length and chunks is not used again.
            self._parser.set_dangerous_leniencies(lenient_chunked_length=True, lenient_spaces_after_chunk_size=True)
        self.ended = self.has_answer = self._to_close = False
        self._tunnels = tunnels
        self._head = None
        self._hints = self._overhead = 0

    async def read(self) -> bytes:
        """Return the new part of the body; empty at its end. CutOff if the body will never be complete."""
        body = self._body
        while not body:
            if self.ended:
                return b""
            if self._error is not None:
                raise self._error
            await self._more()
        data = body[0] if len(body) == 1 else b"".join(body)
        body.clear()
        self._buffered = 0
        if self._paused:
            self._paused = False
            if not self._closed:
                self.transport.resume_reading()
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

    def _fail(self, reason: str) -> None:
        if self._error is None:
            self._error = ConnectionError(reason) if self._head is None else CutOff(reason)

    # Callbacks of the event loop.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        plain = transport.get_extra_info("socket")
        if plain is not None:
            plain.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)  # an answer may be silent for long

    def data_received(self, data: bytes) -> None:
        self.has_answer = True
        if self.ended or self._parser is None:
            self._keeps = False  # bytes without a request could pass for the next answer
            return
        before = (self._head, len(self._body))
        try:
            self._parser.feed_data(data)
        except HttpParserError as error:
            if self.ended:
                self._keeps = False  # bytes after a complete answer
            else:
                self._fail(f"the answer is not valid HTTP/1.1: {error}")
        if (self._head, len(self._body)) != before:
            self._overhead = 0
        elif not self.ended:
            self._overhead += len(data)
            if self._overhead > (HEAD_CAP if self._head is None else LINE_CAP):
                self._fail("the answer has a head without an end, or too much between two chunks")
        self._buffered += len(data)
        if self._error is not None:
            self.close()
        elif self._buffered > BUFFERED and not self._paused and not self._closed:
            self._paused = True
            self.transport.pause_reading()
        self._wake()

    def connection_lost(self, exc: Exception | None) -> None:
        self._closed = True
        self._parser = None  # it refers to this object
        if not self.ended:
            if self._to_close and exc is None and self._error is None:
                self.ended = True
            else:
                self._fail(str(exc) if exc is not None else "the server closed the connection")
        self._wake()

    # Callbacks of the parser. Any exception ends the parsing.

    def on_message_begin(self) -> None:
        if self.ended:
            raise ValueError("a second answer to one request")

    def on_status(self, text: bytes) -> None:
        self._reason += text

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._head is None:  # others are trailers
            key, text = name.decode("latin-1").lower(), value.decode("latin-1").strip()
            self._headers[key] = f"{self._headers[key]}, {text}" if key in self._headers else text

    def on_headers_complete(self) -> None:
        assert self._parser is not None
        headers, self._headers = self._headers, {}
        reason, self._reason = self._reason.decode("latin-1"), b""
        status, version = self._parser.get_status_code(), self._parser.get_http_version()
        if 100 <= status < 200 and status != 101:
            self._hints += 1
            if self._hints > HINTS:
                self._refuse(f"the answer does not begin: more than {HINTS} interim answers came")
            return
        coding, length = headers.get("transfer-encoding", "").lower(), headers.get("content-length", "")
        if coding not in ("", "chunked"):
            self._refuse(f"the answer has the transfer encoding {coding[:40]!r}; only 'chunked' is supported")
        if not version.startswith("1."):
            self._refuse(f"the answer is HTTP/{version}, not HTTP/1.1")
        self._keeps = self._parser.should_keep_alive() and not (coding and length)
        self._to_close = not coding and not length and status not in (101, 204, 304)
        self._head = Head(status, reason, headers)
        self.ended = self._tunnels and 200 <= status < 300

    def on_message_complete(self) -> None:
        self.ended = self._head is not None  # it is None after an interim answer

    def _refuse(self, reason: str) -> None:
        self._fail(reason)
        raise ValueError(reason)
