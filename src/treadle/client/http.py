"""HTTP requests: one session, the token, errors as ApiError, retries. Every request that changes something carries an
Idempotency-Key, so one whose answer was lost is sent again; servers may be restarted meanwhile."""

import asyncio
import io
import random
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import TypeVar

import aiohttp
import msgspec

from treadle.base.types import new_id
from treadle.errors import ApiError
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
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._patience_s = patience_s
        self._session: aiohttp.ClientSession | None = None
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
                return await self._once(method, path, body, headers, query)
            except ApiError as error:
                if (error.status and error.status not in AGAIN) or time.monotonic() > until:
                    raise
            await pause()

    async def _once(
        self, method: str, path: str, body: bytes | None, headers: Mapping[str, str], query: Mapping[str, str]
    ) -> bytes:
        limit = aiohttp.ClientTimeout(total=ANSWER_S)
        data = None if body is None else io.BytesIO(body)
        try:
            async with self._open().request(
                method, self._url + path, data=data, headers=headers, params=query, timeout=limit
            ) as response:
                answer = await response.read()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise self.unreachable(error) from error
        self.away = False
        if response.status >= 400:
            raise refusal(response.status, answer)
        return answer

    @asynccontextmanager
    async def stream(
        self, path: str, headers: Mapping[str, str], query: Mapping[str, str]
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """The bytes of a stream, as they come. ApiError: it could not be had; that it breaks is the end of them."""
        limit = aiohttp.ClientTimeout(total=None, sock_connect=ANSWER_S, sock_read=SILENCE_S)
        accepted = {"Accept": "text/event-stream", **headers}
        try:
            response = await self._open().get(self._url + path, headers=accepted, params=query, timeout=limit)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise self.unreachable(error) from error
        self.away = False
        try:
            if response.status >= 400:
                raise refusal(response.status, await _read_body(response))
            yield _pieces(response)
        finally:
            response.close()

    def unreachable(self, error: BaseException) -> ApiError:
        self.away = True
        return ApiError(0, "unreachable", f"The server {self._url} cannot be reached: {error or type(error).__name__}.")

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None or self._session.closed:
            self._session = aiohttp.ClientSession(headers=self._headers, connector=aiohttp.TCPConnector(limit=0))
        return self._session

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()


def refusal(status: int, answer: bytes) -> ApiError:
    """Return the error of an answer. An answer that is not Treadle's, such as a proxy's, is quoted."""
    try:
        error_body = msgspec.json.decode(answer, type=ErrorReply).error
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return ApiError(status, "http", f"The server answered {status}: {answer[:200].decode(errors='replace')!r}")
    return ApiError(status, error_body.code, error_body.message)


async def _read_body(response: aiohttp.ClientResponse) -> bytes:
    try:
        return await response.read()
    except (aiohttp.ClientError, TimeoutError, OSError):
        return b""


async def _pieces(response: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    try:
        async for piece in response.content.iter_any():
            yield piece
    except (aiohttp.ClientError, TimeoutError, OSError):
        return
