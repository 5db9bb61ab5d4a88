"""HTTP to providers: one session for all models, raw bytes per network read, every failure a ModelError. The only
module that sees aiohttp, which is imported at the first request."""

import asyncio
import os
import zlib
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Self, cast

from treadle.errors import ModelError
from treadle.faultpoint import faultpoint
from treadle.models.keys import Secret
from treadle.models.wire.failures import failure
from treadle.models.wire.framing import ANSWER_BYTES, SizeExceeded, over_limit

if TYPE_CHECKING:
    import aiohttp


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
        found = b""
        while self._waiting and not found:
            found = self._inner.decompress(self._waiting, PIECE)
            self._waiting = self._inner.unconsumed_tail
            if self._inner.eof:
                self._waiting = self._inner.unused_data
                self._inner = zlib.decompressobj(_ANY_HEADER)  # a body may be several, one behind the other
        return found


CONNECT_S = 30.0
KEEPALIVE_S = 60.0
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

    __slots__ = ("_content", "_inflate", "_response", "_size", "_where")

    def __init__(self, where: str, response: "aiohttp.ClientResponse") -> None:
        self._where = where
        self._response = response
        self._content = response.content
        encoding = response.headers.get("Content-Encoding", "").strip().lower()
        if encoding not in ("", "identity", *KNOWN):
            raise ModelError("bad_request", f"{where} compressed its answer ({encoding[:40]}), which was not asked for")
        self._inflate = Inflate() if encoding in KNOWN else None
        self._size = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._response.close()

    def at_eof(self) -> bool:
        return self._content.at_eof()

    async def read(self) -> bytes:
        """What the network brought since the last call; empty at the end."""
        try:
            data = await (self._content.readany() if self._inflate is None else self._inflated(self._inflate))
        except zlib.error as error:
            raise ModelError("cut_stream", f"{self._where} sent a compressed answer that is damaged") from error
        except _trouble() as error:
            raise _broken(self._where, error) from error
        self._size += len(data)
        if self._size > ANSWER_BYTES:
            raise over_limit(self._where, SizeExceeded("an answer", ANSWER_BYTES))
        return data

    async def _inflated(self, inflate: Inflate) -> bytes:
        await asyncio.sleep(0)  # what a few bytes unfold to is read without any wait for the network
        while not (data := inflate.piece()):
            if not (came := await self._content.readany()):
                return b""
            inflate.feed(came)
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
        except _any_trouble():
            return None


class Http:
    """The session of one registry, made when it is first needed; it belongs to the event loop of that moment."""

    def __init__(self) -> None:
        self._session: aiohttp.ClientSession | None = None
        self._proxies: dict[tuple[str, str], str | None] = {}

    async def post(
        self, url: str, headers: Mapping[str, str], body: bytes, key: Secret, *, key_header: str = ""
    ) -> HttpResponse:
        """The key goes nowhere else: into the header of this name, or as a bearer token."""
        return await self._send("POST", url, {"Content-Type": "application/json", **headers}, body, key, key_header)

    async def get(self, url: str, headers: Mapping[str, str], key: Secret, *, key_header: str = "") -> bytes:
        """A whole document. It is waited for no longer than a connection: nobody watches over its silence."""
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
        session = self._open()
        where = host_of(url)
        sent = {"Accept-Encoding": "identity", **headers}
        if key:
            sent[key_header or "Authorization"] = key.reveal() if key_header else f"Bearer {key.reveal()}"
        faultpoint("models.request")
        try:
            # No redirects: a key is sent to the host that was configured and to no other.
            response = await session.request(
                method,
                url,
                data=body,
                headers=sent,
                allow_redirects=False,
                proxy=self._proxy(where, url.partition(":")[0]),
            )
        except _trouble() as error:
            raise _broken(where, error, key) from error
        try:
            if response.status != 200:
                raise await _refusal(where, response, key)
            return HttpResponse(where, response)
        except BaseException:
            response.close()
            raise

    def _proxy(self, host: str, scheme: str) -> str | None:
        if (host, scheme) not in self._proxies:
            self._proxies[host, scheme] = proxy_of(host, scheme)
        return self._proxies[host, scheme]

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    def _open(self) -> "aiohttp.ClientSession":
        if self._session is None:
            import aiohttp

            # There is no limit on a whole answer, and silence is the engine's to judge: the transport's own timer would
            # be set anew at every read.
            timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S)
            self._session = aiohttp.ClientSession(
                timeout=timeout,
                auto_decompress=False,  # a few bytes may unfold to any size: that is done here, piece by piece
                connector=_connector(asyncio.get_running_loop()),
                cookie_jar=aiohttp.DummyCookieJar(),
            )
        return self._session


def proxy_of(host: str, scheme: str) -> str | None:
    """The proxy that the user's environment names for a host (HTTPS_PROXY, NO_PROXY …); this machine needs none."""
    if not any(name.lower().endswith("_proxy") for name in os.environ):
        return None
    from urllib.request import getproxies_environment, proxy_bypass_environment  # type: ignore[attr-defined]

    name = host.rpartition("@")[2]
    bare = name[1:].partition("]")[0] if name.startswith("[") else name.partition(":")[0]
    if bare in ("localhost", "::1") or bare.startswith("127.") or proxy_bypass_environment(name):
        return None
    proxies = getproxies_environment()
    found = proxies.get(scheme) or proxies.get("all")
    return found if found is None or "://" in found else f"http://{found}"


def _connector(loop: asyncio.AbstractEventLoop) -> "aiohttp.TCPConnector":
    """As many connections as are asked for. An aiohttp that makes its handlers in another way makes its own."""
    import aiohttp
    from aiohttp.client_proto import ResponseHandler

    made = aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEPALIVE_S)
    if not hasattr(ResponseHandler, "_reading_paused"):
        return made

    class Handler(ResponseHandler):
        def resume_reading(self, resume_parser: bool = True) -> None:
            """Whoever reads calls this for each piece that was read. From aiohttp 3.14 on, that goes through the parser
            each time, though there can be something left in it only when reading was paused: a quarter of all that a
            chunk costs."""
            if self._reading_paused:
                super().resume_reading(resume_parser)

    made._factory = cast("partial[ResponseHandler]", partial(Handler, loop=loop))
    return made


def host_of(url: str) -> str:
    """The part of an address that people are told."""
    return url.split("/")[2] if "://" in url else url


def _trouble() -> tuple[type[Exception], ...]:
    """All that a transport may raise; time-outs are OSErrors. Looked up only when something was raised."""
    import aiohttp

    return (OSError, ValueError, aiohttp.ClientError, aiohttp.http_exceptions.HttpProcessingError)


def _any_trouble() -> tuple[type[Exception], ...]:
    """The same, or what was made of it already."""
    return (ModelError, *_trouble())


def _broken(where: str, error: Exception, key: Secret | None = None) -> ModelError:
    import aiohttp

    if isinstance(error, aiohttp.InvalidURL):
        return ModelError("bad_request", f"{where} is no address of a server; check the base URL")
    if isinstance(error, aiohttp.ClientPayloadError):
        return ModelError("cut_stream", f"{where} broke off in the middle of its answer")
    reason = str(getattr(error, "os_error", "") or error) or type(error).__name__
    return ModelError("network", f"{where} cannot be reached: {key.redact(reason) if key else reason}")


async def _refusal(where: str, response: "aiohttp.ClientResponse", key: Secret) -> ModelError:
    """The error that a status other than 200 stands for. The body is read as far as it helps."""
    body = bytearray()
    try:
        async with asyncio.timeout(CONNECT_S):
            reply = HttpResponse(where, response)
            while len(body) < BODY_CAP and (piece := await reply.read()):
                body += piece
    except _any_trouble():
        pass  # the status alone says enough
    shown = key.redact(bytes(body[:BODY_CAP]).decode("utf-8", "replace")).encode()
    headers = {name.lower(): value for name, value in response.headers.items()}
    return failure(where, response.status, shown, headers)
