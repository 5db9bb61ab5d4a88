"""Signing in to a server that asks for it (OAuth): once in a browser, then by what is kept, which nobody else may read;
without it the server is a notice that says what to do."""

import asyncio
import socket
import stat
import time
from pathlib import Path
from typing import Any

import httpx2
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

from tests.scenario.kit import of
from tests.scenario.mcp_servers.kit import Kit, results, seen
from treadle.models.scripted import Call, Say
from treadle.protocol import events as e

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


async def browse(address: str) -> None:
    """What a person does: opens the page, and is sent back."""
    async with httpx2.AsyncClient(follow_redirects=True) as client:
        assert (await client.get(address)).status_code == 200


async def test_a_sign_in_is_asked_for_made_once_and_kept(kit: Kit) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    serving = guarded(port)
    task = asyncio.create_task(serving.serve())
    declared = {"door": {"url": f"http://127.0.0.1:{port}/mcp"}}
    try:
        async with asyncio.timeout(60):
            while not serving.started:  # noqa: ASYNC110 - it tells nobody
                await asyncio.sleep(0.02)
        events = await seen(kit.chat(kit.agent([Say("No.")], declared)).send("Go."))
        told = [notice.text for notice in of(events, e.ModelNotice) if notice.kind == "mcp"]
        assert told == ["The MCP server door did not start: it asks you to sign in: treadle mcp login door"]
        agent = kit.agent([Call("door__secret"), Say("Done.")], declared)
        async with asyncio.timeout(60):
            assert await agent.mcp.login("door", browse, str(kit.root))
        events = await seen(kit.chat(agent).send("Go."))
        assert results(events)[0].result == "the secret"
    finally:
        for agent in kit.agents:
            await agent.close()
        kit.agents.clear()
        serving.should_exit = serving.force_exit = True
        await asyncio.gather(task, return_exceptions=True)
    kept = kit.home / "mcp-tokens.json"
    assert SECRET in kept.read_text()
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert not any(SECRET.encode() in file.read_bytes() for file in files(kit.folder) if file != kept)


def files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]
