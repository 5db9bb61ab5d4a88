"""The middleware that every request passes first: host names (against DNS rebinding), origins, the token, headers."""

import ipaddress
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from time import perf_counter
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders, QueryParams
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from treadle.frontends.server.replies import Problem, build_problem
from treadle.frontends.server.tokens import Token, Tokens
from treadle.frontends.server.usage import Metrics

OPEN = frozenset({"/", "/healthz", "/readyz", "/api/openapi.json", "/api/docs", "/api/sign-in", "/favicon.ico"})
"""Paths that need no token: their content belongs to no user, or a code takes the place of the token."""
PAGE_PARTS = "/web/"  # Below this lie the parts of the web app: the same for everybody.
STREAMS = ("/events", "/watch")  # How the paths of streams end: there a ticket may stand for the token.
SAFE_HEADERS = {
    "x-content-type-options": "nosniff", "cache-control": "no-store", "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
}  # fmt: skip


Spend = Callable[[str], Awaitable[bool]]  # Uses a ticket up; False if it was used before.


class Guard:
    """`hosts`: names of the server, beside `localhost` and addresses. A rebound page has its own site's name."""

    def __init__(self, app: ASGIApp, tokens: Tokens, metrics: Metrics, spend: Spend, hosts: Iterable[str] = ()) -> None:
        self._app, self._spend, self._tokens, self._metrics = app, spend, tokens, metrics
        self._hosts = {"localhost", *map(str.lower, hosts)}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            return await self._app(scope, receive, send)
        began, status = perf_counter(), 500

        async def send_with_headers(message: Message) -> None:
            nonlocal status
            if message["type"] in ("http.response.start", "websocket.http.response.start"):
                status = message["status"]
                headers = MutableHeaders(scope=message)
                for name, value in SAFE_HEADERS.items():
                    headers.setdefault(name, value)
            elif message["type"] == "websocket.accept":
                status = 101
            await send(message)

        try:
            refusal = await self._check(scope)
            app = self._app if refusal is None else refusal
            await app(scope, receive, send_with_headers)
        finally:
            self._metrics.count_request(scope.get("treadle.route", "other"), scope, status, perf_counter() - began)

    async def _check(self, scope: Scope) -> Response | None:
        try:
            headers = Headers(scope=scope)
            self._check_origin(headers, self._require_host(headers))
            if scope["path"] not in OPEN and not scope["path"].startswith(PAGE_PARTS):
                scope["treadle.token"] = await self._require_token(scope, headers)
        except Exception as error:
            return build_problem(error)
        return None

    def _require_host(self, headers: Headers) -> str:
        hosts = headers.getlist("host")
        host = hosts[0].strip().lower() if len(hosts) == 1 else ""
        with suppress(ValueError):
            parts = urlsplit(f"//{host}")
            name, _port = parts.hostname or "", parts.port  # a port that is none is an error
            if parts.netloc == host and "@" not in host:
                if name not in self._hosts and host not in self._hosts:
                    ipaddress.ip_address(name)
                return host
        raise Problem("forbidden_host", "This server does not answer to that name; its operator can add it.")

    def _check_origin(self, headers: Headers, host: str) -> None:
        """A browser tells the origin of the page that sends; it must be a page of this server."""
        origins = [urlsplit(each.strip().lower() if each.isascii() else "") for each in headers.getlist("origin")]
        is_foreign = any(each.scheme not in ("http", "https") or each.netloc != host for each in origins)
        if headers.get("sec-fetch-mode") != "navigate":  # a link that a person followed carries no token
            is_foreign |= headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none")
        if is_foreign:
            raise Problem("forbidden_origin", "Pages of another origin may not use this server.")

    async def _require_token(self, scope: Scope, headers: Headers) -> Token:
        authorizations = headers.getlist("authorization")
        kind, _, secret = authorizations[0].partition(" ") if len(authorizations) == 1 else ("", "", "")
        if kind.lower() == "bearer" and (token := self._tokens.find(secret.strip())) is not None:
            return token
        if not authorizations and scope["path"].endswith(STREAMS):
            ticket = QueryParams(scope["query_string"]).get("ticket", "")
            if (token := self._tokens.redeem(ticket)) is not None and await self._spend(ticket):
                return token
        text = "Send a token that this server knows: Authorization: Bearer TOKEN. A ticket is good once, for a minute."
        raise Problem("unauthorized", text, {"www-authenticate": "Bearer"})


def get_token(request: Request) -> Token:
    token: Token = request.scope["treadle.token"]
    return token
