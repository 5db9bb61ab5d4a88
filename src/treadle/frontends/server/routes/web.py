"""Routes for the web app (`treadle/frontends/web`): its files, signing in, HTML of messages, copies of chats, costs."""

import asyncio
import hashlib
import re
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path

import msgspec
from starlette.responses import Response

from treadle.base.types import ChatId, make_chat_id
from treadle.chat.state import compute_status
from treadle.errors import ChatExists
from treadle.frontends.server.connections import accepts_gzip, pack
from treadle.frontends.server.replies import ApiReply, Problem, build_chat_view, encode_reply
from treadle.frontends.server.routing import ApiRequest, Route
from treadle.frontends.server.tokens import LOCAL, get_owner
from treadle.frontends.server.usage import DAY_MS
from treadle.library.transfer import fork_chat as fork_chat
from treadle.protocol.http_answers import ChatView, Rendered, SignedIn, UsageDays, UsageRow
from treadle.protocol.http_queries import DaysQuery
from treadle.protocol.http_requests import ForkChat, Passages, SignInCode

FOLDER = Path(__file__).parents[2] / "web"
INDEX = "index.html"
IMPORTED = re.compile(r'^import (?:[^"]+ from )?"\./([\w.-]+)"', re.MULTILINE)
COMMENTS = re.compile(rb"^[ ]*(?://.*|/\*\*(?:[^*]|\*(?!/))*\*/)\n", re.MULTILINE)
INDENTATION = re.compile(rb"^ +", re.MULTILINE)
BEST_LEVEL = 9
FOREVER = "public, max-age=31536000, immutable"
KINDS = {
    ".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml",
    ".webmanifest": "application/manifest+json",
}  # fmt: skip
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; connect-src 'self'; "
    "manifest-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types treadle"
)  # Scripts and styles of this server only, none of them inline; HTML is taken only from one place of one module.


class PageFile(msgspec.Struct, frozen=True):
    body: bytes
    packed: bytes  # The body by gzip; empty if that is not shorter.
    kind: str
    tag: str


class Page(msgspec.Struct, frozen=True):
    version: str
    parts: dict[str, PageFile]


@cache
def load_web_page() -> Page:
    """The files of the page, read once. Their folder is named after their content: a browser asks for each once."""
    bodies = {path.name: path.read_bytes() for path in sorted(FOLDER.iterdir()) if path.suffix in KINDS}
    for name in (name for name in bodies if name.endswith(".js")):
        # Comments and indentation are for those who read the source, and a seventh of the bytes. No text of a script
        # goes over several lines, so a line can be judged by itself.
        bodies[name] = INDENTATION.sub(b"", COMMENTS.sub(b"", bodies[name]))
    version = hashlib.sha256(b"".join(bodies.values())).hexdigest()[:16]
    links = "\n".join(f'<link rel="modulepreload" href="/web/{name}">' for name in find_imports(bodies, "main.js"))
    index = bodies[INDEX].decode().replace("<!-- modules -->", links).replace('"/web/', f'"/web/{version}/')
    bodies[INDEX] = index.encode()
    parts: dict[str, PageFile] = {}
    for name, body in bodies.items():
        packed, tag = pack(body, BEST_LEVEL), f'"{hashlib.sha256(body).hexdigest()[:32]}"'
        parts[name] = PageFile(body, packed if len(packed) < len(body) else b"", KINDS[Path(name).suffix], tag)
    return Page(version, parts)


def find_imports(bodies: Mapping[str, bytes], first: str) -> list[str]:
    """The modules without which this one does not start: it would ask for them one after the other."""
    needed_names = [first]
    for name in needed_names:
        needed_names += [each for each in IMPORTED.findall(bodies[name].decode()) if each not in needed_names]
    return list(dict.fromkeys(needed_names[1:]))


def _serve_part(call: ApiRequest, name: str, version: str = "") -> Response:
    page = load_web_page()
    if (part := page.parts.get(name)) is None:
        raise Problem("not_found", "The page has no such part.")
    headers = {"etag": part.tag, "cache-control": FOREVER if version == page.version else "no-cache"}
    if name == INDEX:  # its policy holds for its parts; a part alone has that of the guard, which allows nothing
        headers["content-security-policy"] = POLICY
    if part.tag in call.request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    headers["vary"] = "Accept-Encoding"
    if part.packed and accepts_gzip(call.request.headers):
        return Response(part.packed, media_type=part.kind, headers=headers | {"content-encoding": "gzip"})
    return Response(part.body, media_type=part.kind, headers=headers)


async def page(call: ApiRequest) -> Response:
    return _serve_part(call, INDEX)


async def page_part(call: ApiRequest) -> Response:
    return _serve_part(call, call.get_path_parameter("name"))


async def kept_part(call: ApiRequest) -> Response:
    return _serve_part(call, call.get_path_parameter("name"), call.get_path_parameter("version"))


async def sign_in(call: ApiRequest) -> ApiReply:
    token = await asyncio.to_thread(call.service.sign_in.redeem, call.get_body(SignInCode).code)
    return encode_reply(SignedIn(token=token, user=LOCAL), 201)


async def render(call: ApiRequest) -> ApiReply:
    make, passages = call.service.rendering.render_html, call.get_body(Passages).passages
    fragments = [await make(p.kind, p.text, p.language, split=p.split, numbered=p.numbered) for p in passages]
    return encode_reply(Rendered(html=tuple(fragments)))


async def fork(call: ApiRequest) -> ApiReply:
    body, deps = call.get_body(ForkChat), call.deps
    chat = await call.find_chat()
    changes = call.service.admission.resolve_changes(call.user, {"model": body.model} if body.model else {})
    if body.model:
        deps.models.get(body.model)
    now_ms = deps.clock.now_ms()
    id = ChatId(call.key.make_id("c", now_ms)) if call.key is not None else make_chat_id()
    with suppress(ChatExists):  # the same request has made it
        await fork_chat(deps.store, chat, body.seq, changes, clock=deps.clock, copy=id)
    copy = await deps.log.load(id)
    response = encode_reply(build_chat_view(copy, compute_status(copy)), 201)
    await call.remember(response)
    return response


async def usage_by_day(call: ApiRequest) -> ApiReply:
    since = call.deps.clock.now_ms() - (call.get_query(DaysQuery).days - 1) * DAY_MS
    daily_usage = await call.service.usage_history.list_days(get_owner(call.user), since)
    rows = (UsageRow(day=day, model=model, **msgspec.structs.asdict(spent)) for day, model, spent in daily_usage)
    return encode_reply(UsageDays(rows=tuple(rows)))


TAG = "web app"
ROUTES = (
    Route("GET", "/", page, "The web app.", media_type="text/html", open=True),
    Route("GET", "/web/{name}", page_part, "A part of the web app.", media_type="*/*", open=True),
    Route("GET", "/web/{version}/{name}", kept_part, "A part of the web app as it is in this version.",
          media_type="*/*", open=True),
    Route("POST", "/api/sign-in", sign_in, "Get a token for the code that the server's terminal shows.", 201, SignedIn,
          body=SignInCode, codes=("unauthorized", "too_many_tries"), open=True),
    Route("POST", "/api/render", render, "Get HTML of Markdown, code and diffs, safe to be shown.", reply=Rendered,
          body=Passages, large=True),
    Route("POST", "/api/chats/{chat}/fork", fork, "Begin a new chat as a copy of this one up to an event.", 201,
          ChatView, body=ForkChat, codes=("invalid_input", "config")),
    Route("GET", "/api/usage/days", usage_by_day, "See what models cost, by day.", reply=UsageDays, query=DaysQuery),
)  # fmt: skip
