"""Signing in to a server that asks for it (OAuth 2.1, by the SDK): the browser comes back to a port of this machine,
and what it brought is kept by whoever gives the storage. Without a person there is only what is kept already."""

from collections.abc import Mapping
from typing import Any, Protocol

from mcp.client.auth import AuthorizationCodeResult, OAuthClientProvider, OAuthFlowError
from mcp.shared.auth import OAuthClientInformationFull, OAuthClientMetadata, OAuthToken
from pydantic import AnyUrl

from treadle.errors import ConfigError
from treadle.loopback_redirect import RedirectReceiver

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


def signed_in(
    name: str, url: str, scope: str, storage: Storage, receiver: RedirectReceiver | None = None
) -> OAuthClientProvider:
    """What signs requests. Without a receiver a server that wants a new sign-in is told of, and not used."""

    async def show(address: str) -> None:
        if receiver is None:
            raise ConfigError(f"it asks you to sign in: treadle mcp login {name}")
        await receiver.show(address)

    async def came() -> AuthorizationCodeResult:
        assert receiver is not None
        given = await receiver.wait(LOGIN_S)
        if "code" not in given:
            raise OAuthFlowError(f"the server refused: {given.get('error', 'no reason')}")
        return AuthorizationCodeResult(code=given["code"], state=given.get("state"), iss=given.get("iss"))

    back = receiver.url if receiver is not None else str((storage.get("back") or {}).get("url", "http://127.0.0.1/"))
    metadata = OAuthClientMetadata(
        client_name="Treadle",
        redirect_uris=[AnyUrl(back)],
        grant_types=["authorization_code", "refresh_token"],
        response_types=["code"],
        token_endpoint_auth_method="none",
        scope=scope or None,
    )
    return OAuthClientProvider(url, metadata, _Tokens(storage), show, came)
