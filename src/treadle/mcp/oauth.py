"""Signing in to a server that asks for it (OAuth 2.1, by the SDK): the browser comes back to a port of this machine,
and what it brought is kept by whoever gives the storage. Without a person there is only what is kept already."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol
from urllib.parse import parse_qs, urlsplit

from mcp.client.auth import AuthorizationCodeResult, OAuthClientProvider, OAuthFlowError
from mcp.shared.auth import OAuthClientInformationFull, OAuthClientMetadata, OAuthToken
from pydantic import AnyUrl

from treadle.errors import ConfigError

_PAGE = b"<!doctype html><meta charset=utf-8><title>Treadle</title><p>Signed in. You can close this page."
_MOST = 16_384
LOGIN_S = 300.0


class Storage(Protocol):
    """What is kept of one server: JSON by a name."""

    def get(self, name: str) -> Mapping[str, Any] | None: ...

    def put(self, name: str, value: Mapping[str, Any]) -> None: ...


class _Tokens:
    """Implements the SDK's `TokenStorage`."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    async def get_tokens(self) -> OAuthToken | None:
        kept = self._storage.get("tokens")
        return OAuthToken.model_validate(kept) if kept else None

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self._storage.put("tokens", tokens.model_dump(mode="json", exclude_none=True))

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        kept = self._storage.get("client")
        return OAuthClientInformationFull.model_validate(kept) if kept else None

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self._storage.put("client", client_info.model_dump(mode="json", exclude_none=True))


class Browser:
    """Waits on a port of this machine for the browser to come back."""

    def __init__(self, show: Callable[[str], Awaitable[None]]) -> None:
        self.back = ""
        """The address to come back to."""
        self._show = show
        self._came: asyncio.Future[AuthorizationCodeResult] = asyncio.get_running_loop().create_future()
        self._server: asyncio.Server | None = None

    async def open(self) -> None:
        self._server = await asyncio.start_server(self._answer, "127.0.0.1", 0)
        self.back = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/callback"

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()

    async def show(self, address: str) -> None:
        await self._show(address)

    async def wait(self) -> AuthorizationCodeResult:
        async with asyncio.timeout(LOGIN_S):
            return await self._came

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        line = (await reader.read(_MOST)).split(b"\r\n", 1)[0].decode(errors="replace")
        target = urlsplit(line.split(" ")[1] if line.count(" ") >= 2 else "")
        given = {name: values[0] for name, values in parse_qs(target.query).items()}
        came = target.path == "/callback" and bool(given)
        writer.write(b"HTTP/1.1 " + (b"200 OK" if came else b"404 Not Found") + b"\r\ncontent-type: text/html\r\n")
        writer.write(b"connection: close\r\n\r\n" + (_PAGE if came else b""))
        await writer.drain()
        writer.close()
        if came and not self._came.done():
            if "code" in given:
                found = AuthorizationCodeResult(code=given["code"], state=given.get("state"), iss=given.get("iss"))
                self._came.set_result(found)
            else:
                self._came.set_exception(OAuthFlowError(f"the server refused: {given.get('error', 'no reason')}"))


def signed_in(name: str, url: str, scope: str, storage: Storage, browser: Browser | None = None) -> OAuthClientProvider:
    """What signs requests. Without a browser a server that wants a new sign-in is told of, and not used."""

    async def nobody(_address: str) -> None:
        raise ConfigError(f"it asks you to sign in: treadle mcp login {name}")

    async def no_answer() -> AuthorizationCodeResult:
        raise ConfigError(f"it asks you to sign in: treadle mcp login {name}")

    back = browser.back if browser is not None else str((storage.get("back") or {}).get("url", "http://127.0.0.1/"))
    metadata = OAuthClientMetadata(
        client_name="Treadle",
        redirect_uris=[AnyUrl(back)],
        grant_types=["authorization_code", "refresh_token"],
        response_types=["code"],
        token_endpoint_auth_method="none",
        scope=scope or None,
    )
    shown = browser.show if browser is not None else nobody
    came = browser.wait if browser is not None else no_answer
    return OAuthClientProvider(url, metadata, _Tokens(storage), shown, came)
