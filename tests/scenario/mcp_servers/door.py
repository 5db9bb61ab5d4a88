"""A server that asks for a sign-in, written with the SDK."""

import time
from typing import Any

import uvicorn
from mcp.server.auth.provider import (
    AccessToken,
    AuthorizationCode,
    AuthorizationParams,
    RefreshToken,
    construct_redirect_uri,
)
from mcp.server.auth.settings import AuthSettings, ClientRegistrationOptions
from mcp.server.mcpserver import MCPServer
from mcp.shared.auth import OAuthClientInformationFull, OAuthToken
from pydantic import AnyHttpUrl

SECRET = "the-access-token-0123456789"


class Doorkeeper:
    """Lets everybody in who comes with a browser."""

    def __init__(self) -> None:
        self.clients: dict[str, OAuthClientInformationFull] = {}
        self.codes: dict[str, AuthorizationCode] = {}

    async def get_client(self, client_id: str) -> OAuthClientInformationFull | None:
        return self.clients.get(client_id)

    async def register_client(self, client_info: OAuthClientInformationFull) -> None:
        self.clients[str(client_info.client_id)] = client_info

    async def authorize(self, client: OAuthClientInformationFull, params: AuthorizationParams) -> str:
        code = AuthorizationCode(
            code=f"code-{len(self.codes)}",
            scopes=params.scopes or [],
            expires_at=time.time() + 60,
            client_id=str(client.client_id),
            code_challenge=params.code_challenge,
            redirect_uri=params.redirect_uri,
            redirect_uri_provided_explicitly=params.redirect_uri_provided_explicitly,
            resource=params.resource,
        )
        self.codes[code.code] = code
        return construct_redirect_uri(str(params.redirect_uri), code=code.code, state=params.state)

    async def load_authorization_code(self, client: Any, authorization_code: str) -> AuthorizationCode | None:
        return self.codes.get(authorization_code)

    async def exchange_authorization_code(self, client: Any, authorization_code: AuthorizationCode) -> OAuthToken:
        del self.codes[authorization_code.code]
        return OAuthToken(access_token=SECRET, token_type="Bearer", expires_in=3_600)

    async def load_refresh_token(self, client: Any, refresh_token: str) -> RefreshToken | None:
        return None

    async def exchange_refresh_token(self, client: Any, refresh_token: Any, scopes: list[str]) -> OAuthToken:
        raise NotImplementedError

    async def load_access_token(self, token: str) -> AccessToken | None:
        return AccessToken(token=token, client_id="any", scopes=[]) if token == SECRET else None

    async def revoke_token(self, token: Any) -> None:
        return None


def guarded(port: int) -> uvicorn.Server:
    url = AnyHttpUrl(f"http://127.0.0.1:{port}")
    auth = AuthSettings(
        issuer_url=url,
        resource_server_url=AnyHttpUrl(f"{url}mcp"),
        client_registration_options=ClientRegistrationOptions(enabled=True),
        validate_token_resource=False,
    )
    server = MCPServer("guarded", auth_server_provider=Doorkeeper(), auth=auth)  # type: ignore[arg-type]

    @server.tool()
    async def secret() -> str:
        """Tell a secret."""
        return "the secret"

    return uvicorn.Server(uvicorn.Config(server.streamable_http_app(), port=port, log_level="critical"))
