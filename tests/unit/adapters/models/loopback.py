"""A raw HTTP server on loopback that says exactly what a test tells it to, byte for byte."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import msgspec

from treadle.base.stream_server import close_server, start_stream_server


class Exchange:
    """One request that came in, and the way to answer it."""

    def __init__(
        self, head: bytes, body: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, connection: int
    ) -> None:
        lines = head.decode().split("\r\n")
        self.path = lines[0].split(" ")[1]
        self.headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines[1:])}
        self.body = body
        self.connection = connection
        self._reader = reader
        self._writer = writer

    @property
    def json(self) -> dict[str, Any]:
        payload: dict[str, Any] = msgspec.json.decode(self.body)
        return payload

    async def reply(self, status: int, body: bytes, **headers: str) -> None:
        """A whole answer with its length."""
        header_lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
        self._writer.write(f"HTTP/1.1 {status} X\r\nContent-Length: {len(body)}\r\n{header_lines}\r\n".encode() + body)
        await self._writer.drain()

    async def stream(self, *pieces: bytes, end: bool = True, kind: str = "text/event-stream") -> None:
        """A chunked answer, one write per piece; without its end it stays open or is cut by `drop`."""
        self._writer.write(f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nTransfer-Encoding: chunked\r\n\r\n".encode())
        for piece in pieces:
            self._writer.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
            await self._writer.drain()
            await asyncio.sleep(0)
        if end:
            self._writer.write(b"0\r\n\r\n")
        await self._writer.drain()

    def drop(self) -> None:
        self._writer.transport.abort()

    async def hung_up(self) -> None:
        """Wait until the client has gone."""
        await self._reader.read()


Handler = Callable[[Exchange], Awaitable[None]]


class Server:
    def __init__(self, handler: Handler) -> None:
        self._handler = handler
        self._connections = 0
        self.url = ""
        self.seen: list[Exchange] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections += 1
        connection = self._connections
        while True:
            head = (await reader.readuntil(b"\r\n\r\n"))[:-4]
            if head.startswith(b"GET "):  # a question about models, which these servers do not answer
                writer.write(b"HTTP/1.1 404 X\r\nContent-Length: 2\r\n\r\n{}")
                continue
            length = int(next(x for x in head.split(b"\r\n") if x.lower().startswith(b"content-length")).split(b":")[1])
            exchange = Exchange(head, await reader.readexactly(length), reader, writer, connection)
            self.seen.append(exchange)
            await self._handler(exchange)


Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def listening(serve: Serve, tls: ssl.SSLContext | None = None) -> AsyncIterator[int]:
    """The port at which connections are served; at the end all of them are closed."""
    tasks: set[asyncio.Task[None]] = set()
    transports: list[asyncio.WriteTransport] = []

    async def serve_patiently(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        transports.append(writer.transport)
        with suppress(asyncio.IncompleteReadError, OSError):  # the client has gone
            await serve(reader, writer)

    listener = await start_stream_server(serve_patiently, "127.0.0.1", 0, ssl=tls)
    try:
        yield listener.sockets[0].getsockname()[1]
    finally:
        await close_server(listener)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for transport in transports:
            transport.abort()  # a client that does not read would keep it open


@asynccontextmanager
async def serving(handler: Handler) -> AsyncIterator[Server]:
    server = Server(handler)
    async with listening(server.serve) as port:
        server.url = f"http://127.0.0.1:{port}/v1"
        yield server


def event(**chunk: Any) -> bytes:
    return b"data: " + msgspec.json.encode(chunk) + b"\n\n"


def build_chunk(finish: str | None = None, **delta: Any) -> bytes:
    """One chunk of an answer."""
    return event(
        id="c1", object="chat.completion.chunk", choices=[{"index": 0, "delta": delta, "finish_reason": finish}]
    )


DONE = b"data: [DONE]\n\n"
