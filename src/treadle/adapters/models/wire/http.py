"""HTTP to providers: connections for all models, raw bytes per network read, every failure a ModelError."""

import asyncio
import errno
import zlib
from collections.abc import Mapping
from typing import Self
from urllib.parse import urlsplit

from treadle._version import __version__
from treadle.adapters.models.keys import Secret
from treadle.adapters.models.wire.connection import CutOff, Head, ServerConnection
from treadle.adapters.models.wire.failures import failure
from treadle.adapters.models.wire.framing import ANSWER_BYTES, SizeExceeded, over_limit
from treadle.adapters.models.wire.route import CONNECT_S, Pool, Route, address_of, proxy_of
from treadle.base.faultpoint import faultpoint
from treadle.errors import ModelError

PIECE = 256 * 1024
"""How much is unfolded at once."""
KNOWN = ("gzip", "x-gzip", "deflate")
_ANY_HEADER = 32 + zlib.MAX_WBITS
"""Of gzip or zlib, whichever it has."""


class Inflate:
    """Take what came with `feed`, then ask for `piece` until it is empty."""

    def __init__(self) -> None:
        self._inner = zlib.decompressobj(_ANY_HEADER)
        self._waiting = b""

    def feed(self, data: bytes) -> None:
        self._waiting += data

    def piece(self) -> bytes:
        """The next piece; empty when more must come first. zlib.error if it is nothing compressed."""
        output = b""
        while self._waiting and not output:
            output = self._inner.decompress(self._waiting, PIECE)
            self._waiting = self._inner.unconsumed_tail
            if self._inner.eof:
                self._waiting = self._inner.unused_data
                self._inner = zlib.decompressobj(_ANY_HEADER)  # a body may be several, one behind the other
        return output


_ALWAYS = {"Accept": "*/*", "Accept-Encoding": "identity", "User-Agent": f"Treadle/{__version__}"}
BODY_CAP = 64 * 1024
"""How much of a refusal is read."""
DOCUMENT_CAP = 16 * 1024 * 1024
"""How large a document may be that is read as a whole."""


AFTER_FINISH_S = 10.0
"""How long a server may take for its closing words (usage, an end mark) once it gave its finish reason."""
CLOSE_S = 0.05
"""How long to wait for the end of the body after the end mark, so that the connection can be used again."""


class HttpResponse:
    """An answer, as its bytes come in. Holds the connection as long as its block runs; leaving early drops it."""

    __slots__ = ("_connection", "_inflate", "_pool", "_route", "_size", "_where", "head")

    def __init__(self, host: str, head: Head, route: Route, connection: ServerConnection, pool: Pool) -> None:
        self.head = head
        self._where = host
        self._route, self._connection, self._pool = route, connection, pool
        encoding = head.headers.get("content-encoding", "").lower()
        if encoding not in ("", "identity", *KNOWN):
            raise ModelError("bad_request", f"{host} compressed its answer ({encoding[:40]}), which was not asked for")
        self._inflate = Inflate() if encoding in KNOWN else None
        self._size = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.give_back(self._route, self._connection)

    def at_eof(self) -> bool:
        return self._connection.at_eof

    async def read(self) -> bytes:
        """Return the data that arrived since the last call; empty at the end."""
        try:
            data = await (self._connection.read() if self._inflate is None else self._inflated(self._inflate))
        except zlib.error as error:
            raise ModelError("cut_stream", f"{self._where} sent a compressed answer that is damaged") from error
        except OSError as error:
            raise _broken(self._where, error) from error
        self._size += len(data)
        if self._size > ANSWER_BYTES:
            raise over_limit(self._where, SizeExceeded("an answer", ANSWER_BYTES))
        return data

    async def _inflated(self, inflate: Inflate) -> bytes:
        await asyncio.sleep(0)  # yield: a few bytes may inflate to much data, read without waiting for the network
        while not (data := inflate.piece()):
            if not (received := await self._connection.read()):
                return b""
            inflate.feed(received)
        return data

    async def read_on(self) -> bytes:
        """As `read`, once the answer is finished: silence is as good as the end."""
        return await self.read_within(AFTER_FINISH_S) or b""

    async def leave(self) -> None:
        """Give the server a moment to end the body after its last word."""
        if not self.at_eof():
            await self.read_within(CLOSE_S)

    async def read_within(self, seconds: float) -> bytes | None:
        """As `read`, but None when nothing comes in time."""
        try:
            async with asyncio.timeout(seconds):
                return await self.read()
        except (ModelError, OSError):  # time-outs are OSErrors
            return None


class Http:
    """The connections of one registry; they belong to the event loop in which they were made."""

    def __init__(self) -> None:
        self._pool = Pool()
        self._routes: dict[str, Route] = {}

    async def post(
        self, url: str, headers: Mapping[str, str], body: bytes, key: Secret, *, key_header: str = ""
    ) -> HttpResponse:
        """The key goes nowhere else: into the header of this name, or as a bearer token."""
        return await self._send("POST", url, {"Content-Type": "application/json", **headers}, body, key, key_header)

    async def get(self, url: str, headers: Mapping[str, str], key: Secret, *, key_header: str = "") -> bytes:
        """Fetch a whole document. The timeout is that of a connection, because no watchdog checks for silence."""
        document = bytearray()
        try:
            async with asyncio.timeout(CONNECT_S):
                with await self._send("GET", url, headers, None, key, key_header) as reply:
                    while piece := await reply.read():
                        document += piece
                        if len(document) > DOCUMENT_CAP:
                            raise ModelError("bad_request", f"{host_of(url)} answered with more than can be read")
        except TimeoutError as error:
            raise ModelError("network", f"{host_of(url)} did not answer within {CONNECT_S:g} seconds") from error
        return bytes(document)

    async def _send(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes | None, key: Secret, key_header: str
    ) -> HttpResponse:
        host = host_of(url)
        all_headers = {**_ALWAYS, **headers}
        if key:
            all_headers[key_header or "Authorization"] = key.reveal() if key_header else f"Bearer {key.reveal()}"
        if body is not None:
            all_headers["Content-Length"] = str(len(body))
        faultpoint("models.request")
        route = self._route(url, host)
        try:
            request = route.head(method, all_headers) + (body or b"")
            connection = self._pool.take(route) or await route.connect()
        except OSError as error:
            raise _broken(host, error, key) from error
        except ValueError as error:  # also from the names of hosts
            raise ModelError("bad_request", f"{host} cannot be asked: {error}") from error
        try:
            # No redirects: a key is sent to the host that was configured and to no other.
            head = await connection.send(request)
            reply = HttpResponse(host, head, route, connection, self._pool)
            if head.status != 200:
                raise await _refusal(host, reply, key)
            return reply
        except OSError as error:
            connection.close()
            raise _broken(host, error, key) from error
        except BaseException:
            self._pool.give_back(route, connection)
            raise

    def _route(self, url: str, host: str) -> Route:
        if url not in self._routes:
            try:
                to = address_of(url)
            except ValueError as error:
                raise ModelError("bad_request", f"{host} is no address of a server; check the base URL") from error
            proxy = proxy_of(host, url.partition(":")[0])
            try:
                self._routes[url] = Route(to, address_of(proxy) if proxy else None)
            except ValueError as error:
                kind = (proxy or "").partition(":")[0]
                message = f"{host} cannot be reached: a proxy must be http:// or https://, not {kind}://"
                raise ModelError("network", message) from error
        return self._routes[url]

    async def close(self) -> None:
        await self._pool.close()


def server_of(url: str) -> tuple[str, int]:
    """The address and port of a URL; empty and 0 if it has none that can be read."""
    try:
        parts = urlsplit(url)
        return parts.hostname or "", parts.port or {"https": 443, "http": 80}.get(parts.scheme, 0)
    except ValueError:
        return "", 0


def host_of(url: str) -> str:
    """The part of an address that people are told."""
    return url.split("/")[2] if "://" in url else url


def _broken(host: str, error: OSError, key: Secret | None = None) -> ModelError:
    if isinstance(error, CutOff):
        return ModelError("cut_stream", f"{host} broke off in the middle of its answer")
    if isinstance(error, TimeoutError) and not str(error):
        return ModelError("network", f"{host} cannot be reached: no answer within {CONNECT_S:g} seconds")
    reason = str(error) or type(error).__name__
    # Where a name has several addresses, asyncio joins the errors of all in one text.
    refused = isinstance(error, ConnectionRefusedError) or f"[Errno {errno.ECONNREFUSED}]" in reason
    message = f"{host} cannot be reached: {key.redact(reason) if key else reason}"
    return ModelError("network", message, unreachable=refused)


async def _refusal(host: str, reply: HttpResponse, key: Secret) -> ModelError:
    """The error that a status other than 200 stands for. The body is read as far as it helps."""
    body = bytearray()
    try:
        async with asyncio.timeout(CONNECT_S):
            while len(body) < BODY_CAP and (piece := await reply.read()):
                body += piece
    except (ModelError, OSError):
        pass  # the status alone says enough
    redacted = key.redact(bytes(body[:BODY_CAP]).decode("utf-8", "replace")).encode()
    return failure(host, reply.head.status, redacted, reply.head.headers)
