"""The page docs/reference/http-api.md, made from the table of routes."""

from collections.abc import Iterator

import msgspec
from msgspec import UNSET

from treadle.frontends.server.replies import list_codes
from treadle.frontends.server.routing import Route
from treadle.frontends.server.running import ROUTES
from treadle.protocol.http_queries import NoQuery, RootQuery
from treadle.protocol.http_requests import Body, Nothing, OptionChanges

INTRO = """\
`treadle serve` speaks HTTP/1.1 and WebSocket. How to use it is told in [the guide](../guide/http.md); the same table,
for programs, is at `/api/openapi.json`, with the shapes of all answers.

- **Token**: `Authorization: Bearer TOKEN` with every request, except where the table says `open`. On streams a ticket
  may stand in the query instead.
- **Bodies** are JSON (`application/json`), at most 256 KiB, or 16 MiB where the table says `large`. A field that is not
  known is refused.
- **Errors** are `{"error": {"code": "…", "message": "…"}}`; the code is stable, the message a sentence. A refusal
  leaves everything as it was.
- **Idempotency-Key**: on every route that changes something. The same request (method, path and bytes) under the same
  key gets the first answer for a day; another one under it gets 422. Only what was carried out is remembered: a refusal
  is judged anew.
- **Events** on the streams and in `/log` are those of [events](events.md).
- **WebSocket**: the streams, at the same addresses with the same query; one text message a piece of news, an empty one
  as a heartbeat. It ends with 1012 when the server does.
"""
WORDS = {"conversation": "The conversation", "actions": "What chats wait for", "surroundings": "Around chats"}


def http_page() -> str:
    lines = ["<!-- Made by scripts/http_reference.py from the code; do not edit. -->", "# HTTP API", "", INTRO]
    for tag in dict.fromkeys(route.tag for route in ROUTES):
        lines += [f"## {WORDS.get(tag, tag.capitalize())}", ""]
        for route in ROUTES:
            if route.tag == tag:
                lines += [*_route(route), ""]
    lines += [
        "## Options",
        "",
        "What a chat can be told to be like, each as in `session.created` of [events](events.md):",
    ]
    lines += [", ".join(_fields(OptionChanges)) + ".", ""]
    lines += ["## Codes", "", "| code | status | means |", "|---|---|---|"]
    lines += [f"| `{code}` | {status} | {meaning} |" for code, (status, meaning) in list_codes().items()]
    return "\n".join(lines).rstrip() + "\n"


def _route(route: Route) -> Iterator[str]:
    yield f"### {route.method} {route.path}"
    yield ""
    notes = [word for word, holds in (("open", route.open), ("large", route.large)) if holds]
    yield route.summary + (f" ({', '.join(notes)})" if notes else "")
    if route.query is not NoQuery:
        yield from ("", "Query: " + ", ".join(_fields(route.query)) + ".")
    if route.body is Nothing:
        yield from ("", "Body: none needed.")
    elif route.body is not None:
        yield from ("", "Body: " + ", ".join(_fields(route.body)) + ".")
    answer = route.reply.__name__ if route.reply is not None else route.media_type or "no body"
    later = f"; or 200, {route.finished.__name__}" if route.finished is not None else ""
    own = "".join(f", `{code}`" for code in route.codes)
    yield from ("", f"Answer: {route.status}, {answer}{later}" + (f". Refusals of its own: {own[2:]}." if own else "."))


def _fields(kind: type[Body]) -> Iterator[str]:
    options = (
        {field.name for field in msgspec.structs.fields(OptionChanges)}
        if kind not in (OptionChanges, RootQuery)
        else set()
    )
    fields = [field for field in msgspec.structs.fields(kind) if field.name not in options]
    if len(fields) < len(msgspec.structs.fields(kind)):
        yield "any of the [options](#options)"
    for field in fields:
        default = "" if field.required or field.default in (UNSET, None, "", (), msgspec.NODEFAULT) else field.default
        shown = f" = {msgspec.json.encode(default).decode()}" if default != "" else ""
        yield f"`{field.encode_name}`" + (" (required)" if field.required else shown)
