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
        self.valid: dict[str, list[str]] = {}
        """The scopes of each access token that counts."""
        self.grants: list[str] = []
        """The kind of each grant, in order."""

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
        return self._grant("code", authorization_code.scopes)

    async def load_refresh_token(self, client: Any, refresh_token: str) -> RefreshToken | None:
        return RefreshToken(token=refresh_token, client_id=str(client.client_id), scopes=[])

    async def exchange_refresh_token(self, client: Any, refresh_token: Any, scopes: list[str]) -> OAuthToken:
        return self._grant("refresh", scopes)

    def _grant(self, kind: str, scopes: list[str]) -> OAuthToken:
        self.grants.append(kind)
        token = f"{SECRET}{'' if len(self.grants) == 1 else len(self.grants)}"
        self.valid = {token: scopes}
        return OAuthToken(
            access_token=token,
            token_type="Bearer",
            expires_in=3_600,
            refresh_token="the-refresh-token",
            scope=" ".join(scopes) or None,
        )

    async def load_access_token(self, token: str) -> AccessToken | None:
        is_valid = token in self.valid
        return AccessToken(token=token, client_id="any", scopes=self.valid[token]) if is_valid else None

    async def revoke_token(self, token: Any) -> None:
        return None


def make_guarded_server(port: int, keeper: Doorkeeper | None = None, *, call_scope: str = "") -> uvicorn.Server:
    """`keeper`: with clients it knows those alone. `call_scope`: needed by a call, and by nothing else."""
    keeper = keeper or Doorkeeper()
    url = AnyHttpUrl(f"http://127.0.0.1:{port}")
    auth = AuthSettings(
        issuer_url=url,
        resource_server_url=AnyHttpUrl(f"{url}mcp"),
        client_registration_options=ClientRegistrationOptions(enabled=not keeper.clients),
        validate_token_resource=False,
    )
    server = MCPServer("guarded", auth_server_provider=keeper, auth=auth)  # type: ignore[arg-type]

    @server.tool()
    async def secret() -> str:
        """Tell a secret."""
        return "the secret"

    app: Any = server.streamable_http_app()
    config = uvicorn.Config(_step_up(app, keeper, call_scope) if call_scope else app, port=port, log_level="critical")
    return uvicorn.Server(config)


def _step_up(app: Any, keeper: Doorkeeper, scope: str) -> Any:
    """Refuses calls with a token that has not the scope (RFC 6750)."""

    async def check_scope(connection: Any, receive: Any, send: Any) -> None:
        message = await receive() if connection["type"] == "http" else None
        if message is not None and b'"tools/call"' in message.get("body", b""):
            token = dict(connection["headers"]).get(b"authorization", b"").decode().removeprefix("Bearer ")
            if scope not in keeper.valid.get(token, ()):
                challenge = f'Bearer error="insufficient_scope", scope="{scope}"'
                headers = [(b"www-authenticate", challenge.encode())]
                await send({"type": "http.response.start", "status": 403, "headers": headers})
                await send({"type": "http.response.body", "body": b""})
                return
        unread = [message] if message is not None else []

        async def receive_again() -> Any:
            return unread.pop() if unread else await receive()

        await app(connection, receive_again, send)

    return check_scope
