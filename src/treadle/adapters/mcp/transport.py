"""Transports to MCP servers: a program's standard streams, with a limit on its output, or streamable HTTP. The standard
error of a program is stored, to explain its failure."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

import anyio
import httpx2
from mcp.client._transport import TransportStreams
from mcp.client.auth import OAuthRegistrationError
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.message import SessionMessage
from mcp_types import METHOD_NOT_FOUND, JSONRPCError, jsonrpc_message_adapter

from treadle.adapters.mcp.oauth import SignIn, SignInRequired, sign_in_words
from treadle.base.subprocesses import start_program, terminate, uncancelled
from treadle.errors import ConfigError

LONGEST_LINE = 16 << 20  # The largest message of a program in bytes. A program that writes a longer line is ended.
SESSION_UNKNOWN = -32_098
"""The code of the error for a request whose session the server does not know: it was not carried out. No server sends
this code by itself: it stands for HTTP's 404."""
SIGN_IN_REQUIRED = -32_097
"""The code of the error for a request that the server refuses until a person signs in: it was not carried out. It
stands for HTTP's 401 and for a 403 that asks for more scopes."""
_NO_ENDPOINT = (400, 404, 405)  # Answers to the first message where an address does not speak streamable HTTP
_ERRORS_KEPT = 4_000
_SILENCE_S = 600.0


class Errors:
    """The end of what a program wrote to its standard error, and what else was odd about it."""

    def __init__(self) -> None:
        self._tail = b""

    def add(self, data: bytes) -> None:
        self._tail = (self._tail + data)[-_ERRORS_KEPT:]

    def clear(self) -> None:
        self._tail = b""

    @property
    def text(self) -> str:
        return self._tail.decode(errors="replace").strip()


@asynccontextmanager
async def program(
    argv: Sequence[str], env: Mapping[str, str], cwd: str, errors: Errors, end_event: asyncio.Event
) -> AsyncIterator[TransportStreams]:
    """Run a server's program for as long as the context; `gone` is set when it says no more. OSError if it cannot be
    started. It and all that it started are gone when the context is left."""
    process = await start_program(argv, env, cwd or None, stderr=asyncio.subprocess.PIPE, limit=LONGEST_LINE)
    to_session, incoming = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    outgoing, from_session = anyio.create_memory_object_stream[SessionMessage](0)
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    stdin, stdout, stderr = process.stdin, process.stdout, process.stderr

    async def read_line() -> bytes:
        try:
            return await stdout.readline()
        except ValueError:
            errors.add(f"\nit wrote a line of more than {LONGEST_LINE:,} bytes".encode())
            return b""

    async def read() -> None:
        async with to_session:
            with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError, ConnectionError):
                while line := await read_line():
                    with suppress(ValueError):  # a line that is not a message is debug output
                        await to_session.send(SessionMessage(jsonrpc_message_adapter.validate_json(line)))
        end_event.set()

    async def write() -> None:
        async with from_session:
            with suppress(ConnectionError, RuntimeError):
                async for message in from_session:
                    text = message.message.model_dump_json(by_alias=True, exclude_unset=True)
                    stdin.write(text.encode() + b"\n")
                    await stdin.drain()
                return
        end_event.set()

    async def listen() -> None:
        while data := await stderr.read(1 << 16):
            errors.add(data)

    async def end() -> None:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await terminate(process)

    tasks = [asyncio.create_task(each()) for each in (read, write, listen)]
    try:
        yield incoming, outgoing
    finally:
        for stream in (incoming, outgoing, to_session, from_session):
            stream.close()
        await uncancelled(end())


class _SessionClient(httpx2.AsyncClient):
    """Turns two refusals into errors of their own: an unknown session, and a sign-in that a person must make."""

    def __init__(self, name: str, *, legacy: bool = False, **options: Any) -> None:
        super().__init__(**options)
        self.first_status: int | None = None  # The answer to the first message
        self._name = name
        self._legacy = legacy

    async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        if isinstance(self.auth, SignIn):
            self.auth.load_newer_tokens()
        try:
            response = await super().send(request, **options)
        except SignInRequired as error:
            return _refusal(request, httpx2.codes.UNAUTHORIZED, SIGN_IN_REQUIRED, str(error))
        except OAuthRegistrationError as error:
            raise ConfigError(
                "it knows registered clients only: register Treadle there and name its client id "
                f"(treadle mcp add {self._name} --url URL --client-id ID); it said: {error}"
            ) from error
        if request.method != "POST":
            if self._legacy and response.status_code == httpx2.codes.UNAUTHORIZED:
                raise SignInRequired(sign_in_words(self._name))
            return response
        if self.first_status is None:
            self.first_status = response.status_code
        if response.status_code == httpx2.codes.UNAUTHORIZED:
            await response.aclose()
            return _refusal(request, httpx2.codes.UNAUTHORIZED, SIGN_IN_REQUIRED, sign_in_words(self._name))
        if "mcp-session-id" not in request.headers or response.status_code != httpx2.codes.NOT_FOUND:
            return response
        if response.headers.get("content-type", "").startswith("application/json"):
            with suppress(ValueError):
                refusal = jsonrpc_message_adapter.validate_json(await response.aread(), by_name=False)
                if isinstance(refusal, JSONRPCError) and refusal.error.code == METHOD_NOT_FOUND:
                    return response
        await response.aclose()
        return _refusal(request, httpx2.codes.NOT_FOUND, SESSION_UNKNOWN, "The server does not know the session.")


def _refusal(request: httpx2.Request, status: int, code: int, message: str) -> httpx2.Response:
    error = {"code": code, "message": message}
    return httpx2.Response(status, json={"jsonrpc": "2.0", "id": None, "error": error}, request=request)


@asynccontextmanager
async def http(
    name: str, url: str, headers: Mapping[str, str], auth: SignIn | None = None
) -> AsyncIterator[TransportStreams]:
    """A server by streamable HTTP. A stream may be silent for long: the caller bounds the time of a call."""
    client = _SessionClient(name, headers=dict(headers), timeout=httpx2.Timeout(30.0, read=_SILENCE_S), auth=auth)
    async with client:
        try:
            async with streamable_http_client(url, http_client=client) as streams:
                yield streams
        except Exception as error:
            if client.first_status in _NO_ENDPOINT and await _is_legacy(client, url):
                raise ConfigError(
                    'its address speaks the older transport HTTP+SSE: declare it with "type": "sse"'
                ) from error
            raise


async def _is_legacy(client: httpx2.AsyncClient, url: str) -> bool:
    """True if the address answers as a server of the transport that came before streamable HTTP."""
    with suppress(httpx2.HTTPError, TimeoutError):
        async with asyncio.timeout(5), client.stream("GET", url, headers={"accept": "text/event-stream"}) as response:
            return response.is_success and response.headers.get("content-type", "").startswith("text/event-stream")
    return False


@asynccontextmanager
async def legacy_sse(
    name: str, url: str, headers: Mapping[str, str], auth: SignIn | None = None
) -> AsyncIterator[TransportStreams]:
    """A server that is reached by HTTP+SSE, the transport of revision 2024-11-05."""

    def create_client(
        headers: dict[str, str] | None = None, timeout: httpx2.Timeout | None = None, auth: httpx2.Auth | None = None
    ) -> httpx2.AsyncClient:
        return _SessionClient(name, legacy=True, headers=headers, timeout=timeout, auth=auth)

    async with sse_client(
        url, dict(headers), timeout=30.0, sse_read_timeout=_SILENCE_S, httpx_client_factory=create_client, auth=auth
    ) as streams:
        yield streams
