"""HTTP to providers: requests with a key, and every failure as a ModelError. `treadle.base.http` does the rest."""

import asyncio
import errno
from collections.abc import Mapping
from typing import Self
from urllib.parse import urlsplit

from treadle.adapters.models.keys import Secret
from treadle.adapters.models.wire.failures import failure
from treadle.adapters.models.wire.framing import ANSWER_BYTES, SizeExceeded, over_limit
from treadle.base.file_system import faultpoint
from treadle.base.http.client import DamagedBody, HttpClient, HttpResponse, UnknownEncoding
from treadle.base.http.connection import CutOff
from treadle.base.http.route import CONNECT_S, InvalidAddress
from treadle.errors import ModelError

BODY_CAP = 64 * 1024
"""How much of a refusal is read."""
DOCUMENT_CAP = 16 * 1024 * 1024
"""How large a document may be that is read as a whole."""
AFTER_FINISH_S = 10.0
"""How long a server may take for its closing words (usage, an end mark) once it gave its finish reason."""
CLOSE_S = 0.05
"""How long to wait for the end of the body after the end mark, so that the connection can be used again."""


class ProviderResponse:
    """An answer, as its bytes come in. Holds the connection as long as its block runs; leaving early drops it."""

    def __init__(self, host: str, response: HttpResponse) -> None:
        self._host = host
        self._response = response
        self._size = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._response.__exit__()

    async def read(self) -> bytes:
        """Return the data that arrived since the last call; empty at the end."""
        try:
            data = await self._response.read()
        except OSError as error:
            raise _broken(self._host, error) from error
        self._size += len(data)
        if self._size > ANSWER_BYTES:
            raise over_limit(self._host, SizeExceeded("an answer", ANSWER_BYTES))
        return data

    async def read_on(self) -> bytes:
        """As `read`, once the answer is finished: silence is as good as the end."""
        return await self._read_within(AFTER_FINISH_S)

    async def leave(self) -> None:
        """Give the server a moment to end the body after its last word."""
        if not self._response.at_eof():
            await self._read_within(CLOSE_S)

    async def _read_within(self, seconds: float) -> bytes:
        try:
            async with asyncio.timeout(seconds):
                return await self.read()
        except (ModelError, OSError):  # time-outs are OSErrors
            return b""


class Http:
    """The connections of one registry; they belong to the event loop in which they were made."""

    def __init__(self) -> None:
        self._client = HttpClient()

    async def post(
        self, url: str, headers: Mapping[str, str], body: bytes, key: Secret, *, key_header: str = ""
    ) -> ProviderResponse:
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
    ) -> ProviderResponse:
        host = host_of(url)
        all_headers = dict(headers)
        if key:
            all_headers[key_header or "Authorization"] = key.reveal() if key_header else f"Bearer {key.reveal()}"
        faultpoint("models.request")
        try:
            response = await self._client.request(method, url, all_headers, body)
        except UnknownEncoding as error:
            raise ModelError(
                "bad_request", f"{host} compressed its answer ({error}), which was not asked for"
            ) from error
        except OSError as error:
            raise _broken(host, error, key) from error
        except InvalidAddress as error:
            raise ModelError("bad_request", f"{host} is no address of a server; check the base URL") from error
        except ValueError as error:  # also from the names of hosts
            raise ModelError("bad_request", f"{host} cannot be asked: {error}") from error
        reply = ProviderResponse(host, response)
        if response.status == 200:
            return reply
        with reply:
            raise await _refusal(host, response, reply, key)

    async def close(self) -> None:
        await self._client.close()


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
    if isinstance(error, DamagedBody):
        return ModelError("cut_stream", f"{host} sent a compressed answer that is damaged")
    if isinstance(error, CutOff):
        return ModelError("cut_stream", f"{host} broke off in the middle of its answer")
    if isinstance(error, TimeoutError) and not str(error):
        return ModelError("network", f"{host} cannot be reached: no answer within {CONNECT_S:g} seconds")
    reason = str(error) or type(error).__name__
    # Where a name has several addresses, asyncio joins the errors of all in one text.
    refused = isinstance(error, ConnectionRefusedError) or f"[Errno {errno.ECONNREFUSED}]" in reason
    message = f"{host} cannot be reached: {key.redact(reason) if key else reason}"
    return ModelError("network", message, unreachable=refused)


async def _refusal(host: str, response: HttpResponse, reply: ProviderResponse, key: Secret) -> ModelError:
    """The error that a status other than 200 stands for. The body is read as far as it helps."""
    body = bytearray()
    try:
        async with asyncio.timeout(CONNECT_S):
            while len(body) < BODY_CAP and (piece := await reply.read()):
                body += piece
    except (ModelError, OSError):
        pass  # the status alone says enough
    redacted = key.redact(bytes(body[:BODY_CAP]).decode("utf-8", "replace")).encode()
    error = failure(host, response.status, redacted, response.headers)
    if not response.redirect:
        return error
    reason = f"{error}; it" if body.strip() else f"{host} answered {response.status}: it"
    message = f"{reason} redirects to {key.redact(response.redirect[:500])}, which is not followed; check the base URL"
    return ModelError("bad_request", message, status=response.status)
