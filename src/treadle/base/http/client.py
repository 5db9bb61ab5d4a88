"""The HTTP client: requests, answers that are read as they arrive, and connections that are kept for the next request.
Redirects are not followed: a key is sent to the host that was configured and to no other."""

import asyncio
import time
import zlib
from collections import defaultdict, deque
from collections.abc import Coroutine, Mapping
from typing import Any, Self

from treadle._version import __version__
from treadle.base.http.connection import Address, ClientConnection, CutOff, Head, ServerRoute, find_proxy, parse_address

KEEPALIVE_S = 60.0
INFLATE_BYTES = 256 * 1024  # how much is decompressed at once
_DEFAULTS = {"Accept": "*/*", "Accept-Encoding": "identity", "User-Agent": f"Treadle/{__version__}"}
_COMPRESSED = ("gzip", "x-gzip", "deflate")
_ANY_HEADER = 32 + zlib.MAX_WBITS  # zlib recognizes the headers of gzip and of zlib


class UnknownEncoding(ConnectionError):
    """The answer is compressed in a way that was not asked for; the text is its name."""


class DamagedBody(CutOff):
    """The body is not what its compression requires."""


class HttpResponse:
    """An answer, as its bytes come in. Holds the connection as long as its block runs; leaving early drops it."""

    def __init__(self, head: Head, route: ServerRoute, connection: ClientConnection, client: "HttpClient") -> None:
        self.status, self.reason, self.headers = head
        self._route, self._connection, self._client = route, connection, client
        encoding = self.headers.get("content-encoding", "").lower()
        if encoding not in ("", "identity", *_COMPRESSED):
            raise UnknownEncoding(encoding[:40])
        self._inflater = zlib.decompressobj(_ANY_HEADER) if encoding in _COMPRESSED else None
        self._compressed, self._is_inflating = b"", False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.give_back(self._route, self._connection)

    @property
    def redirect(self) -> str:
        """The address to which the server redirects, or nothing."""
        return self.headers.get("location", "") if 300 <= self.status < 400 else ""

    def is_at_eof(self) -> bool:
        return self._connection.at_eof

    def read(self) -> Coroutine[Any, Any, bytes]:
        """Return the data that arrived since the last call; empty at the end. OSError if the answer breaks off."""
        return self._connection.read() if self._inflater is None else self._read_inflated()

    async def read_all(self) -> bytes:
        pieces = []
        while piece := await self.read():
            pieces.append(piece)
        return b"".join(pieces)

    async def _read_inflated(self) -> bytes:
        await asyncio.sleep(0)  # yield: a few bytes may inflate to much data, read without waiting for the network
        try:
            while not (data := self._inflate()):
                if not (received := await self._connection.read()):
                    if self._is_inflating:
                        raise DamagedBody("the compressed answer is cut off")
                    return b""
                self._compressed += received
        except zlib.error as error:
            raise DamagedBody("the compressed answer is damaged") from error
        return data

    def _inflate(self) -> bytes:
        """The next piece; empty when more must arrive first."""
        output = b""
        while self._compressed and not output:
            assert self._inflater is not None
            output = self._inflater.decompress(self._compressed, INFLATE_BYTES)
            self._compressed, self._is_inflating = self._inflater.unconsumed_tail, not self._inflater.eof
            if self._inflater.eof:  # a body may be several compressed streams, one behind the other
                self._compressed = self._inflater.unused_data
                self._inflater = zlib.decompressobj(_ANY_HEADER)
        return output


class HttpClient:
    """Its connections belong to the event loop in which they were made."""

    def __init__(self) -> None:
        self._idle: dict[tuple[object, ...], deque[tuple[float, ClientConnection]]] = defaultdict(deque)
        self._sweep: asyncio.TimerHandle | None = None
        self._proxies: dict[tuple[str, str], Address | None] = {}

    async def request(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes | None = None
    ) -> HttpResponse:
        """Send a request and return the head of the answer. OSError if the server cannot be reached or answers
        nonsense; ValueError if the request cannot be sent. Time-outs are the caller's, except for connecting. A request
        on a used connection is sent once more, on a new one, if no byte of an answer came: the server may have closed
        it meanwhile."""
        to = parse_address(url)
        place = (to.scheme, to.host_header)
        if place not in self._proxies:
            self._proxies[place] = find_proxy(to.host_header, to.scheme)
        route = ServerRoute(to, self._proxies[place])
        length = {} if body is None else {"Content-Length": str(len(body))}
        message = route.encode_head(method, {**_DEFAULTS, **headers, **length}) + (body or b"")
        connection = self._take(route)
        if connection is not None:
            try:
                return await self._exchange(route, connection, message)
            except OSError:
                if connection.has_answer:
                    raise
        return await self._exchange(route, await route.connect(), message)

    async def _exchange(self, route: ServerRoute, connection: ClientConnection, message: bytes) -> HttpResponse:
        try:
            return HttpResponse(await connection.send(message), route, connection, self)
        except BaseException:
            connection.close()
            raise

    def _take(self, route: ServerRoute) -> ClientConnection | None:
        """The one that was used last: servers close those that rest."""
        idle = self._idle[route.key]
        while idle:
            since, connection = idle.pop()
            if connection.is_reusable and time.monotonic() - since < KEEPALIVE_S:
                return connection
            connection.close()
        return None

    def give_back(self, route: ServerRoute, connection: ClientConnection) -> None:
        if not connection.is_reusable:
            connection.close()
            return
        self._idle[route.key].append((time.monotonic(), connection))
        if self._sweep is None:
            self._sweep = asyncio.get_running_loop().call_later(KEEPALIVE_S, self._drop_old)

    def _drop_old(self) -> None:
        """Close the connections that were idle too long, and repeat as long as some are left."""
        self._sweep = None
        for key, idle in list(self._idle.items()):
            while idle and (time.monotonic() - idle[0][0] >= KEEPALIVE_S or not idle[0][1].is_reusable):
                idle.popleft()[1].close()
            if not idle:
                del self._idle[key]
        if self._idle:
            self._sweep = asyncio.get_running_loop().call_later(KEEPALIVE_S / 2, self._drop_old)

    async def close(self) -> None:
        for idle in self._idle.values():
            for _, connection in idle:
                connection.close()
        self._idle.clear()
        if self._sweep is not None:
            self._sweep.cancel()
            self._sweep = None
        await asyncio.sleep(0)  # the event loop closes the sockets
