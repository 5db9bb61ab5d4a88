"""Transports to MCP servers: a program's standard streams, with a limit on its output, or streamable HTTP. And signing
in (OAuth 2.1, by the SDK): the browser comes back to a port of this machine; without one, stored tokens are used."""

import asyncio
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any, NamedTuple, Protocol
from urllib.parse import parse_qs, urlsplit

import anyio
import httpx2
from mcp.client._transport import TransportStreams
from mcp.client.auth import AuthorizationCodeResult, OAuthClientProvider, OAuthFlowError, OAuthRegistrationError
from mcp.client.auth.utils import union_scopes
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared import auth as shared_auth
from mcp.shared.message import SessionMessage
from mcp_types import METHOD_NOT_FOUND, JSONRPCError, jsonrpc_message_adapter
from pydantic import AnyUrl, Field

from treadle.base.loopback_redirect import RedirectReceiver
from treadle.base.subprocesses import finish_uncancelled, start_program, terminate
from treadle.errors import ConfigError

LOGIN_S = 300.0
_SECRET_METHODS = ("client_secret_basic", "client_secret_post")


class SignInRequired(ConfigError):
    """The server wants a sign-in that only a person can make."""


class ClientCredentials(NamedTuple):
    """How Treadle is known to the authorization server; without an id it registers itself."""

    id: str = ""
    secret: str = ""
    scope: str = ""  # Asked for beside the scopes that the server names


class Storage(Protocol):
    def get(self, name: str) -> Mapping[str, Any] | None: ...

    def put(self, name: str, value: Mapping[str, Any]) -> None: ...


class _Tokens:
    """Implements the SDK's `TokenStorage`."""

    def __init__(self, storage: Storage, client: ClientCredentials, redirect: str) -> None:
        self._storage, self._client, self._redirect = storage, client, redirect

    async def get_tokens(self) -> shared_auth.OAuthToken | None:
        stored_tokens = self._storage.get("tokens")
        return shared_auth.OAuthToken.model_validate(stored_tokens) if stored_tokens else None

    async def set_tokens(self, tokens: shared_auth.OAuthToken) -> None:
        expiry = {"expires_at": time.time() + tokens.expires_in} if tokens.expires_in is not None else {}
        self._storage.put("tokens", tokens.model_dump(mode="json", exclude_none=True) | expiry)

    async def get_client_info(self) -> shared_auth.OAuthClientInformationFull | None:
        if self._client.id:
            return shared_auth.OAuthClientInformationFull(
                client_id=self._client.id,
                client_secret=self._client.secret or None,
                redirect_uris=[AnyUrl(self._redirect)],
                token_endpoint_auth_method="none",
            )
        stored_client = self._storage.get("client")
        return shared_auth.OAuthClientInformationFull.model_validate(stored_client) if stored_client else None

    async def set_client_info(self, client_info: shared_auth.OAuthClientInformationFull) -> None:
        self._storage.put("client", client_info.model_dump(mode="json", exclude_none=True))


class _Metadata(shared_auth.OAuthClientMetadata):
    """The SDK replaces the scope by the one of the server's challenge. The user's scopes are asked for as well."""

    user_scope: str = Field("", exclude=True)

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, union_scopes(value, self.user_scope or None) if name == "scope" else value)


class SignIn(OAuthClientProvider):
    """Signs requests. Stores what the SDK keeps in memory (expiry, where to refresh), for the next process."""

    def __init__(
        self, name: str, url: str, client: ClientCredentials, storage: Storage, receiver: RedirectReceiver | None
    ) -> None:
        self._name, self._storage, self._receiver = name, storage, receiver
        self._loaded: Mapping[str, Any] | None = None
        redirect = receiver.url if receiver is not None else (storage.get("back") or {}).get("url", "http://127.0.0.1/")
        metadata = _Metadata(
            client_name="Treadle",
            redirect_uris=[AnyUrl(str(redirect))],
            grant_types=["authorization_code", "refresh_token"],
            response_types=["code"],
            token_endpoint_auth_method="none",
            user_scope=client.scope,
        )
        self._client = client
        tokens = _Tokens(storage, client, str(redirect))
        super().__init__(url, metadata, tokens, self._show_page, self._receive_code)

    def load_newer_tokens(self) -> None:
        """Another process may have signed in or refreshed the tokens meanwhile."""
        if self._storage.get("tokens") != self._loaded:
            self._initialized = False

    async def _initialize(self) -> None:
        await super()._initialize()
        self._loaded = self._storage.get("tokens")
        self.context.token_expiry_time = (self._loaded or {}).get("expires_at")
        discovery = self._storage.get("discovery")
        if discovery is not None and self.context.oauth_metadata is None:
            self.context.oauth_metadata = shared_auth.OAuthMetadata.model_validate(discovery["server"])
            self.context.auth_server_url = discovery.get("address")
            if resource := discovery.get("resource"):
                metadata = shared_auth.ProtectedResourceMetadata.model_validate(resource)
                self.context.protected_resource_metadata = metadata

    async def _handle_token_response(self, response: httpx2.Response) -> None:
        await super()._handle_token_response(response)
        self._loaded = self._storage.get("tokens")
        if (server := self.context.oauth_metadata) is not None:
            resource = self.context.protected_resource_metadata
            discovery = {
                "server": server.model_dump(mode="json", exclude_none=True),
                "resource": resource.model_dump(mode="json", exclude_none=True) if resource is not None else None,
                "address": self.context.auth_server_url,
            }
            self._storage.put("discovery", discovery)

    async def _handle_refresh_response(self, response: httpx2.Response) -> bool:
        refreshed = await super()._handle_refresh_response(response)
        self._loaded = self._storage.get("tokens")
        return refreshed

    async def _perform_authorization(self) -> httpx2.Request:
        self._choose_secret_method()
        return await super()._perform_authorization()

    async def _refresh_token(self) -> httpx2.Request:
        self._choose_secret_method()
        return await super()._refresh_token()

    def _choose_secret_method(self) -> None:
        """A client of the settings has its secret sent in the way that the authorization server takes (RFC 8414)."""
        if not self._client.secret or self.context.client_info is None:
            return
        server = self.context.oauth_metadata
        accepted = (server.token_endpoint_auth_methods_supported if server is not None else None) or _SECRET_METHODS[:1]
        method = next((each for each in _SECRET_METHODS if each in accepted), "")
        if not method:
            raise OAuthFlowError(f"the authorization server takes no client secret, only: {', '.join(accepted)}")
        self.context.client_info.token_endpoint_auth_method = method

    async def _show_page(self, address: str) -> None:
        if self._receiver is not None:
            await self._receiver.show_page(address)
            return
        scope = parse_qs(urlsplit(address).query).get("scope", [""])[0]
        granted = set((self.context.current_tokens.scope or "").split()) if self.context.current_tokens else set()
        missing = [each for each in scope.split() if each not in granted]
        if not granted or not missing:
            raise SignInRequired(sign_in_words(self._name))
        self._storage.put("wanted", {"scope": scope})  # the next sign-in asks for it
        raise SignInRequired(sign_in_words(self._name, f" for more permissions ({', '.join(missing)})"))

    async def _receive_code(self) -> AuthorizationCodeResult:
        assert self._receiver is not None
        query = await self._receiver.wait(LOGIN_S)
        if "code" not in query:
            raise OAuthFlowError(f"the server refused: {query.get('error', 'no reason')}")
        return AuthorizationCodeResult(code=query["code"], state=query.get("state"), iss=query.get("iss"))


def sign_in_words(name: str, purpose: str = "") -> str:
    return f"it asks you to sign in{purpose}: treadle mcp login {name}"


LONGEST_LINE = 16 << 20  # The largest message of a program in bytes. A program that writes a longer line is ended.
SESSION_UNKNOWN = -32_098  # the server does not know the session: not carried out (HTTP 404); no server sends it
SIGN_IN_REQUIRED = -32_097  # a person must sign in: not carried out (HTTP 401, or 403 that asks for more scopes)
_NO_ENDPOINT = (400, 404, 405)  # Answers to the first message where an address does not speak streamable HTTP
_ERRORS_KEPT = 4_000
_SILENCE_S = 600.0


class Errors:
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
async def open_program(
    argv: Sequence[str], env: Mapping[str, str], cwd: str, errors: Errors, end_event: asyncio.Event
) -> AsyncIterator[TransportStreams]:
    """Run a server's program within the context; `end_event`: it says no more. OSError if it cannot be started."""
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
                    stdin.write(message.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n")
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
        await finish_uncancelled(end())


class _SessionClient(httpx2.AsyncClient):
    """Turns two refusals into errors of their own: an unknown session, and a sign-in that a person must make."""

    def __init__(self, name: str, *, legacy: bool = False, **options: Any) -> None:
        super().__init__(**options)
        self.first_status: int | None = None  # The answer to the first message
        self._name, self._legacy = name, legacy

    async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        if isinstance(self.auth, SignIn):
            self.auth.load_newer_tokens()
        try:
            response = await super().send(request, **options)
        except SignInRequired as error:
            return _make_refusal(request, httpx2.codes.UNAUTHORIZED, SIGN_IN_REQUIRED, str(error))
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
            return _make_refusal(request, httpx2.codes.UNAUTHORIZED, SIGN_IN_REQUIRED, sign_in_words(self._name))
        if "mcp-session-id" not in request.headers or response.status_code != httpx2.codes.NOT_FOUND:
            return response
        if response.headers.get("content-type", "").startswith("application/json"):
            with suppress(ValueError):
                refusal = jsonrpc_message_adapter.validate_json(await response.aread(), by_name=False)
                if isinstance(refusal, JSONRPCError) and refusal.error.code == METHOD_NOT_FOUND:
                    return response
        await response.aclose()
        return _make_refusal(request, httpx2.codes.NOT_FOUND, SESSION_UNKNOWN, "The server does not know the session.")


def _make_refusal(request: httpx2.Request, status: int, code: int, message: str) -> httpx2.Response:
    error = {"code": code, "message": message}
    return httpx2.Response(status, json={"jsonrpc": "2.0", "id": None, "error": error}, request=request)


@asynccontextmanager
async def open_http(
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
    with suppress(httpx2.HTTPError, TimeoutError):
        async with asyncio.timeout(5), client.stream("GET", url, headers={"accept": "text/event-stream"}) as response:
            return response.is_success and response.headers.get("content-type", "").startswith("text/event-stream")
    return False


@asynccontextmanager
async def open_legacy_sse(
    name: str, url: str, headers: Mapping[str, str], auth: SignIn | None = None
) -> AsyncIterator[TransportStreams]:
    factory = partial(_SessionClient, name, legacy=True)
    async with sse_client(
        url, dict(headers), timeout=30.0, sse_read_timeout=_SILENCE_S, httpx_client_factory=factory, auth=auth
    ) as streams:
        yield streams
