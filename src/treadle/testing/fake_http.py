"""A little HTTP/1.1 on loopback for fake servers: connections, a thread to serve in, answers as timed writes. Knows no
provider; a dialect makes the content of answers."""

import asyncio
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from http import HTTPStatus
from typing import Self, cast

import msgspec

from treadle.base.stream_server import close_server
from treadle.errors import ScriptError

Headers = dict[str, str]
encode = msgspec.json.Encoder().encode
END = b"0\r\n\r\n"


class FakeResponse(msgspec.Struct, frozen=True):
    """An answer ready for the wire: the bytes to write, and the delays between them."""

    writes: tuple[bytes, ...]
    delay_s: float = 0.0
    every_s: float = 0.0
    close_connection: bool = False  # close the connection at the end


def encode_head(status: int, content_type: str, headers: Mapping[str, str] | None = None) -> bytes:
    try:
        phrase = HTTPStatus(status).phrase
    except ValueError:
        phrase = "Status"
    lines = [f"HTTP/1.1 {status} {phrase}", f"Content-Type: {content_type}", "Transfer-Encoding: chunked"]
    lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


def encode_chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def make_json_answer(status: int, body: object) -> FakeResponse:
    return FakeResponse((encode_head(status, "application/json") + encode_chunk(encode(body)) + END,))


Route = Callable[[str, str, Headers, bytes], FakeResponse]  # method, path, headers (lower case), body → answer


class HttpConnection(asyncio.Protocol):
    """One client. Requests are answered one after the other; the connection is kept alive between them."""

    def __init__(self, route: Route, connections: set["HttpConnection"]) -> None:
        self._route = route
        self._connections = connections
        self._loop = asyncio.get_running_loop()
        self._buffer = bytearray()
        self._timer: asyncio.Handle | None = None
        self._busy = False
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._connections.add(self)

    def connection_lost(self, _error: Exception | None) -> None:
        self._connections.discard(self)
        if self._timer is not None:
            self._timer.cancel()

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        if not self._busy:
            self._start_request()

    def close(self) -> None:
        self._transport.abort()

    def _start_request(self) -> None:
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0:
            return
        first, *lines = self._buffer[:end].decode("latin-1").split("\r\n")
        headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        length = headers.get("content-length", "0")
        if "transfer-encoding" in headers or not length.isdecimal():
            self._buffer.clear()
            refusal = make_json_answer(411, {"error": {"message": "send a Content-Length"}})
            self._send(msgspec.structs.replace(refusal, close_connection=True))
            return
        total = end + 4 + int(length)
        if len(self._buffer) < total:
            return
        body = bytes(self._buffer[end + 4 : total])
        del self._buffer[:total]
        method, path = (*first.split(" "), "")[:2]
        self._send(self._route(method, path, headers, body))

    def _send(self, response: FakeResponse) -> None:
        self._busy, due = True, self._loop.time() + response.delay_s
        if response.delay_s:
            self._timer = self._loop.call_at(due, self._write, response, 0, due)
        else:
            self._write(response, 0, due)

    def _write(self, response: FakeResponse, position: int, due: float) -> None:
        """Write one piece and see to the next. Pieces are due at fixed times: a late one does not delay the rest."""
        if self._transport.is_closing():
            return
        self._transport.write(response.writes[position])
        position += 1
        if position == len(response.writes):
            self._busy = False
            if response.close_connection:
                self._transport.close()
            elif self._buffer:
                self._start_request()
        elif response.every_s:
            due += response.every_s
            self._timer = self._loop.call_at(due, self._write, response, position, due)
        else:
            self._timer = self._loop.call_soon(self._write, response, position, due)


async def listen(route: Route, connections: set[HttpConnection]) -> tuple[asyncio.Server, int]:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: HttpConnection(route, connections), "127.0.0.1", 0, backlog=4096)
    return server, server.sockets[0].getsockname()[1]


async def close(server: asyncio.Server, connections: set[HttpConnection]) -> None:
    await close_server(server)
    for connection in list(connections):
        connection.close()
    await server.wait_closed()
    await asyncio.sleep(0)  # aborted connections report their loss in the next round of the loop


class ThreadedServer:
    """A server in a thread of its own, for as long as its `with` block."""

    def __init__(self, route: Route) -> None:
        self._route = route
        self._started: Future[tuple[int, asyncio.AbstractEventLoop, asyncio.Event]] = Future()
        self._connections: set[HttpConnection] = set()
        self._thread = threading.Thread(target=self._run, name="fake-server", daemon=True)

    @property
    def url(self) -> str:
        if not self._started.done():
            raise ScriptError("the fake server is not running; use it in a `with` block")
        return f"http://127.0.0.1:{self._started.result()[0]}"

    @property
    def connections(self) -> int:
        return len(self._connections)

    def __enter__(self) -> Self:
        self._thread.start()
        self._started.result()
        return self

    def __exit__(self, *_raised: object) -> None:
        _, loop, stop = self._started.result()
        loop.call_soon_threadsafe(stop.set)
        self._thread.join()

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:
            if self._started.done():
                raise
            self._started.set_exception(error)

    async def _serve(self) -> None:
        stop = asyncio.Event()
        server, port = await listen(self._route, self._connections)
        self._started.set_result((port, asyncio.get_running_loop(), stop))
        await stop.wait()
        await close(server, self._connections)
