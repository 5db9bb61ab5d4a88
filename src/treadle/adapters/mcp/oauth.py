"""Signing in to a server that asks for it (OAuth 2.1, by the SDK): the browser comes back to a port of this machine,
and the tokens are kept in the storage. Without a browser only the stored tokens are used, refreshed as needed."""

import time
from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol
from urllib.parse import parse_qs, urlsplit

import httpx2
from mcp.client.auth import AuthorizationCodeResult, OAuthClientProvider, OAuthFlowError
from mcp.client.auth.utils import union_scopes
from mcp.shared.auth import (
    OAuthClientInformationFull,
    OAuthClientMetadata,
    OAuthMetadata,
    OAuthToken,
    ProtectedResourceMetadata,
)
from pydantic import AnyUrl, Field

from treadle.base.loopback_redirect import RedirectReceiver
from treadle.errors import ConfigError

LOGIN_S = 300.0
_SECRET_METHODS = ("client_secret_basic", "client_secret_post")


class SignInRequired(ConfigError):
    """The server wants a sign-in that only a person can make."""


class Client(NamedTuple):
    """How Treadle is known to the authorization server; without an id it registers itself."""

    id: str = ""
    secret: str = ""
    scope: str = ""  # Asked for beside the scopes that the server names


class Storage(Protocol):
    """Stored data of one server: JSON objects by name."""

    def get(self, name: str) -> Mapping[str, Any] | None: ...

    def put(self, name: str, value: Mapping[str, Any]) -> None: ...


class _Tokens:
    """Implements the SDK's `TokenStorage`."""

    def __init__(self, storage: Storage, client: Client, redirect: str) -> None:
        self._storage = storage
        self._client = client
        self._redirect = redirect

    async def get_tokens(self) -> OAuthToken | None:
        stored_tokens = self._storage.get("tokens")
        return OAuthToken.model_validate(stored_tokens) if stored_tokens else None

    async def set_tokens(self, tokens: OAuthToken) -> None:
        expiry = {"expires_at": time.time() + tokens.expires_in} if tokens.expires_in is not None else {}
        self._storage.put("tokens", tokens.model_dump(mode="json", exclude_none=True) | expiry)

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        if self._client.id:
            return OAuthClientInformationFull(
                client_id=self._client.id,
                client_secret=self._client.secret or None,
                redirect_uris=[AnyUrl(self._redirect)],
                token_endpoint_auth_method="none",
            )
        stored_client = self._storage.get("client")
        return OAuthClientInformationFull.model_validate(stored_client) if stored_client else None

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self._storage.put("client", client_info.model_dump(mode="json", exclude_none=True))


class _Metadata(OAuthClientMetadata):
    """The SDK replaces the scope by the one of the server's challenge. The user's scopes are asked for as well."""

    user_scope: str = Field("", exclude=True)

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, union_scopes(value, self.user_scope or None) if name == "scope" else value)


class SignIn(OAuthClientProvider):
    """Signs requests. The SDK keeps in memory when a token expires and where it is refreshed; here both are stored, so
    that a new process refreshes it instead of asking for a new sign-in."""

    def __init__(
        self, name: str, url: str, client: Client, storage: Storage, receiver: RedirectReceiver | None
    ) -> None:
        self._name = name
        self._storage = storage
        self._receiver = receiver
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
            self.context.oauth_metadata = OAuthMetadata.model_validate(discovery["server"])
            self.context.auth_server_url = discovery.get("address")
            if resource := discovery.get("resource"):
                self.context.protected_resource_metadata = ProtectedResourceMetadata.model_validate(resource)

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
