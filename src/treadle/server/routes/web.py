"""Routes for the web app: the page and its parts, signing in with a code, HTML of what chats say, copies of chats, and
what was spent by day. The page itself is in `treadle/web`."""

import asyncio
import hashlib
from functools import cache
from pathlib import Path

import msgspec
from starlette.responses import Response

from treadle.chat.state import status
from treadle.ports.store import Remembered
from treadle.protocol.http_answers import ChatView, Rendered, SignedIn, UsageDays, UsageRow
from treadle.protocol.http_requests import DaysQuery, ForkChat, Passages, SignInCode
from treadle.server.problems import Problem
from treadle.server.replies import ApiReply, reply
from treadle.server.routing import ApiRequest, Route
from treadle.server.tokens import LOCAL, owner_of
from treadle.server.usage_history import DAY_MS
from treadle.server.views import chat_view
from treadle.transfer import fork as fork_chat

FOLDER = Path(__file__).parents[2] / "web"
KINDS = {
    ".html": "text/html",
    ".js": "text/javascript",
    ".css": "text/css",
    ".svg": "image/svg+xml",
    ".webmanifest": "application/manifest+json",
}
POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "manifest-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types treadle",
    )
)
"""Scripts and styles of this server only, none of them inline; HTML is taken only from one place of one module."""


class Part(msgspec.Struct, frozen=True):
    body: bytes
    kind: str
    tag: str


@cache
def parts() -> dict[str, Part]:
    """The files of the page, read once: nothing else can be asked for."""
    found: dict[str, Part] = {}
    for path in sorted(FOLDER.iterdir()):
        if path.suffix in KINDS:
            body = path.read_bytes()
            found[path.name] = Part(body, KINDS[path.suffix], f'"{hashlib.sha256(body).hexdigest()[:32]}"')
    return found


def _sent(call: ApiRequest, name: str) -> Response:
    part = parts().get(name)
    if part is None:
        raise Problem("not_found", "The page has no such part.")
    headers = {"etag": part.tag, "cache-control": "no-cache", "content-security-policy": POLICY}
    if part.tag in call.request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    return Response(part.body, media_type=part.kind, headers=headers)


async def page(call: ApiRequest) -> Response:
    return _sent(call, "index.html")


async def page_part(call: ApiRequest) -> Response:
    return _sent(call, call.path("name"))


async def sign_in(call: ApiRequest) -> ApiReply:
    token = await asyncio.to_thread(call.service.sign_in.redeem, call.body(SignInCode).code)
    return reply(SignedIn(token=token, user=LOCAL), 201)


async def render(call: ApiRequest) -> ApiReply:
    wanted = call.body(Passages).passages
    make = call.service.rendering.html
    made = await asyncio.to_thread(
        lambda: tuple(make(each.kind, each.text, each.language, split=each.split) for each in wanted)
    )
    return reply(Rendered(html=made))


async def fork(call: ApiRequest) -> ApiReply:
    wanted = call.body(ForkChat)
    deps = call.service.agent.deps
    chat = await call.service.owned(call.user, call.path("chat"))
    changes = call.service.admission.change(call.user, {"model": wanted.model} if wanted.model else {})
    if wanted.model:
        deps.models.get(wanted.model)
    copy = await deps.log.load(await fork_chat(deps.store, chat, wanted.seq, changes, clock=deps.clock))
    done = reply(chat_view(copy, status(copy)), 201)
    if call.key is not None:
        key = call.key
        await deps.store.remember(Remembered(key.owner, key.key, key.request, 201, done.body, deps.clock.now_ms()))
    return done


async def usage_by_day(call: ApiRequest) -> ApiReply:
    since = call.service.agent.deps.clock.now_ms() - (call.query(DaysQuery).days - 1) * DAY_MS
    found = await call.service.usage_history.days(owner_of(call.user), since)
    rows = (
        UsageRow(day=day, model=model, usage=spent.usage, calls=spent.calls, model_ms=spent.model_ms)
        for day, model, spent in found
    )
    return reply(UsageDays(rows=tuple(rows)))


TAG = "web app"
ROUTES = (
    Route("GET", "/", page, "The web app.", TAG, media_type="text/html", open=True),
    Route("GET", "/web/{name}", page_part, "A part of the web app.", TAG, media_type="*/*", open=True),
    Route(
        "POST", "/api/sign-in", sign_in, "Get a token for the code that the server's terminal shows.", TAG, 201,
        SignedIn, body=SignInCode, codes=("unauthorized", "too_many_tries"), open=True,
    ),
    Route(
        "POST", "/api/render", render, "Get HTML of Markdown, code and diffs, safe to be shown.", TAG, reply=Rendered,
        body=Passages, large=True,
    ),
    Route(
        "POST", "/api/chats/{chat}/fork", fork, "Begin a new chat as a copy of this one up to an event.", TAG, 201,
        ChatView, body=ForkChat, codes=("invalid_input", "config"),
    ),
    Route(
        "GET", "/api/usage/days", usage_by_day, "See what models cost, by day.", TAG, reply=UsageDays, query=DaysQuery,
    ),
)  # fmt: skip
