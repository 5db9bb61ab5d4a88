"""HTTP requests to a server of Treadle: the token, errors as ApiError, retries. Every request that changes something
carries an Idempotency-Key, so one whose answer was lost is sent again; servers may be restarted meanwhile."""

import asyncio
import random
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import TypeVar
from urllib.parse import urlencode

import msgspec

from treadle.base.http.client import HttpClient, HttpResponse
from treadle.base.types import new_id
from treadle.errors import ApiError, InvalidInput
from treadle.protocol.http_answers import ErrorReply

T = TypeVar("T")
AGAIN = frozenset({429, 502, 503, 504})
"""The server, or what stands before it, cannot answer now."""
FIRST_S = 0.1
LONGEST_S = 3.0
ANSWER_S = 30.0
SILENCE_S = 35.0
"""Streams have a heartbeat every 10 seconds; one that is silent for so long is dead."""


class Pause:
    """How long to wait before the next try: longer each time, and never the same for all clients of a server."""

    def __init__(self) -> None:
        self._next_s = FIRST_S

    async def __call__(self) -> None:
        await asyncio.sleep(self._next_s * random.uniform(0.5, 1.0))
        self._next_s = min(self._next_s * 2, LONGEST_S)


class Http:
    """`patience_s`: for how long a server that cannot be reached is asked again."""

    def __init__(self, url: str, token: str, patience_s: float) -> None:
        self._url = url.rstrip("/")
        self._headers = {"Accept-Encoding": "gzip", **({"Authorization": f"Bearer {token}"} if token else {})}
        self._patience_s = patience_s
        self._client = HttpClient()
        self.away = False
        """True if the last attempt could not reach the server."""

    async def get(self, path: str, kind: type[T], query: Mapping[str, str] | None = None) -> T:
        return msgspec.json.decode(await self._ask("GET", path, None, {}, query or {}), type=kind)

    async def change(
        self,
        method: str,
        path: str,
        body: object,
        kind: type[T],
        key: str = "",
        query: Mapping[str, str] | None = None,
    ) -> T:
        """A request that changes something. `key`: for one that may be repeated by another process, too."""
        headers = {"Idempotency-Key": key or new_id("k"), "Content-Type": "application/json"}
        answer = await self._ask(method, path, msgspec.json.encode(body), headers, query or {})
        return msgspec.json.decode(answer or b"null", type=kind)

    async def _ask(
        self, method: str, path: str, body: bytes | None, headers: Mapping[str, str], query: Mapping[str, str]
    ) -> bytes:
        until = time.monotonic() + self._patience_s
        pause = Pause()
        while True:
            try:
                async with self._reaching(), asyncio.timeout(ANSWER_S):
                    with await self._request(method, path, headers, query, body) as response:
                        answer = await response.read_all()
                self._check(response, answer)
                return answer
            except ApiError as error:
                if (error.status and error.status not in AGAIN) or time.monotonic() > until:
                    raise
            await pause()

    @asynccontextmanager
    async def stream(
        self, path: str, headers: Mapping[str, str], query: Mapping[str, str]
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """The bytes of a stream, as they come. ApiError if it cannot be had, breaks off or falls silent."""
        async with self._reaching(), asyncio.timeout(SILENCE_S):
            response = await self._request("GET", path, {"Accept": "text/event-stream", **headers}, query)
        with response:
            if response.status >= 300:
                answer = b""
                with suppress(OSError):
                    async with asyncio.timeout(ANSWER_S):
                        answer = await response.read_all()
                self._check(response, answer)
            yield self._pieces(response)

    async def _pieces(self, response: HttpResponse) -> AsyncIterator[bytes]:
        while True:
            try:
                async with asyncio.timeout(SILENCE_S):
                    piece = await response.read()
            except OSError as error:
                reason = str(error) or type(error).__name__
                raise ApiError(0, "cut_off", f"The server {self._url} broke off its answer: {reason}.") from error
            if not piece:
                return
            yield piece

    async def _request(
        self, method: str, path: str, headers: Mapping[str, str], query: Mapping[str, str], body: bytes | None = None
    ) -> HttpResponse:
        url = f"{self._url}{path}?{urlencode(query)}" if query else self._url + path
        try:
            return await self._client.request(method, url, {**self._headers, **headers}, body)
        except ValueError as error:
            raise InvalidInput(f"The server {self._url} cannot be asked: {error}.") from error

    @asynccontextmanager
    async def _reaching(self) -> AsyncIterator[None]:
        """Notes whether the server can be reached, and says so in an ApiError if not."""
        try:
            yield
            self.away = False
        except OSError as error:  # time-outs, too
            self.away = True
            reason = str(error) or type(error).__name__
            raise ApiError(0, "unreachable", f"The server {self._url} cannot be reached: {reason}.") from error

    def _check(self, response: HttpResponse, answer: bytes) -> None:
        if response.redirect:
            message = f"The server {self._url} redirects to {response.redirect[:500]}, which is not followed."
            raise ApiError(response.status, "redirect", message)
        if response.status >= 400:
            raise refusal(response.status, answer)

    async def close(self) -> None:
        await self._client.close()


def refusal(status: int, answer: bytes) -> ApiError:
    """Return the error of an answer. An answer that is not Treadle's, such as a proxy's, is quoted."""
    try:
        error_body = msgspec.json.decode(answer, type=ErrorReply).error
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return ApiError(status, "http", f"The server answered {status}: {answer[:200].decode(errors='replace')!r}")
    return ApiError(status, error_body.code, error_body.message)
