"""The OpenAPI 3.1 document, made from the table of routes and the Structs, so that it matches the server."""

import re
from collections.abc import Sequence
from html import escape
from typing import Any

import msgspec

from treadle._version import __version__
from treadle.frontends.server.replies import MAX_KEY, list_codes
from treadle.frontends.server.routing import Route
from treadle.protocol.events import LIVE, RECORDED
from treadle.protocol.http_answers import ErrorReply
from treadle.protocol.http_requests import OptionalBody
from treadle.protocol.simple import WORDS

REFERENCE = "#/components/schemas/{name}"
ANYWHERE = ("bad_request", "forbidden_host", "forbidden_origin", "internal", "store", "damaged")
WITH_BODY = ("invalid_json", "too_large", "unsupported_media_type", "request_timeout", "idempotency_mismatch")
ABOUT = """\
Commands in, events out. Every error is `{"error": {"code", "message"}}` with a stable code. Every route that changes
something takes an `Idempotency-Key`: the same request under the same key gets the first answer. Streams are there as
server-sent events and, at the same address, as WebSockets.
"""
POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
STYLE = """\
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
code, pre { font: 14px/1.4 ui-monospace, monospace; }
details { border: 1px solid #8884; border-radius: .4rem; margin: .4rem 0; padding: .4rem .8rem; }
summary { cursor: pointer; }
table { border-collapse: collapse; } td, th { text-align: left; padding: .15rem 1rem .15rem 0; vertical-align: top; }
.method { display: inline-block; min-width: 4.5rem; font-weight: 600; }
pre { overflow-x: auto; background: #8881; padding: .6rem; border-radius: .3rem; }
"""
_PARAMETER = re.compile(r"{(\w+)}")
PATH_WORDS = {
    "chat": "The id of a chat.", "seq": "The seq of an event: of a message of yours, or of the result of a tool.",
    "place": "The number of the picture, from 0.", "rule": "The id of a rule.",
    "queued": "The id of a queued message.", "action": "The id of what the chat waits for.",
    "world": "The id of a world.", "version": "The version of the web app in the addresses of its files.",
    "job": "The handle of a background command.", "name": "The name of a file of the page.",
}  # fmt: skip


def describe(routes: Sequence[Route]) -> bytes:
    kinds: list[Any] = [ErrorReply]
    for route in routes:
        kinds += [kind for kind in (route.reply, route.finished, route.body, route.query) if kind is not None]
    events = RECORDED | LIVE
    kinds += [*events.values(), *WORDS]
    _, schemas = msgspec.json.schema_components(kinds, ref_template=REFERENCE)
    schemas = {name: _flatten_descriptions(schema) for name, schema in schemas.items()}
    schemas["Envelope"] = _describe_envelope(events)
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _describe_operation(route, schemas)
    info = {"title": "Treadle", "version": __version__, "description": ABOUT}
    components = {"schemas": schemas, "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}}
    head = {"openapi": "3.1.0", "info": info, "security": [{"token": []}]}
    return msgspec.json.encode({**head, "paths": paths, "components": components})


def _describe_operation(route: Route, schemas: dict[str, Any]) -> dict[str, Any]:
    known_codes = list_codes()
    answer: dict[str, Any] = {"description": "Done; there is no body."}
    if route.reply is not None:
        answer = _describe_json(route.reply, "Done." if route.status != 202 else "Recorded; it is going to be done.")
    elif route.media_type:
        answer = {"description": "Done.", "content": {route.media_type: {}}}
    operation_id = route.handler.__module__.rpartition(".")[2] + "_" + route.handler.__name__
    parameters = _list_parameters(route, schemas)
    operation: dict[str, Any] = {"operationId": operation_id, "summary": route.summary, "tags": [route.tag]}
    operation |= {"parameters": parameters, "responses": {str(route.status): answer}}
    if route.finished is not None:
        operation["responses"]["200"] = _describe_json(route.finished, "Done, and this came of it.")
    if route.open:
        operation["security"] = []
    if route.body is not None:
        content = _describe_json(route.body, "")["content"]
        operation["requestBody"] = {"required": not issubclass(route.body, OptionalBody), "content": content}
    if route.mutates:
        about = "The same request under the same key gets the first answer; another one under it is refused."
        pattern = {"type": "string", "pattern": f"^[ -~]{{1,{MAX_KEY}}}$"}
        operation["parameters"].append(_describe_header("Idempotency-Key", about, pattern))
    if route.media_type == "text/event-stream":
        number = {"type": "integer", "minimum": 0}
        last = _describe_header("Last-Event-ID", "The id of the last event you have.", number)
        operation["parameters"].append(last)
    error_codes = {*ANYWHERE, *route.codes, *(() if route.open else ("unauthorized",))}
    error_codes |= {*(WITH_BODY if route.body is not None else ()), *(("operators_only",) if route.operators else ())}
    error_codes |= {"not_found"} if "{" in route.path else set()
    by_status: dict[int, list[str]] = {}
    for code in sorted(error_codes):
        by_status.setdefault(known_codes[code][0], []).append(code)
    for status, group in sorted(by_status.items()):
        if str(status) not in operation["responses"]:
            refusal = _describe_json(ErrorReply, "; ".join(f"`{code}`: {known_codes[code][1]}" for code in group))
            if route.path == "/readyz":
                content = refusal["content"]["application/json"]
                content["schema"] = {"anyOf": [content["schema"], {"$ref": REFERENCE.format(name="Health")}]}
            operation["responses"][str(status)] = refusal
    return operation


def _describe_json(kind: type[msgspec.Struct], about: str) -> dict[str, Any]:
    schema = {"$ref": REFERENCE.format(name=kind.__name__)}
    return {"description": about, "content": {"application/json": {"schema": schema}}}


def _list_parameters(route: Route, schemas: dict[str, Any]) -> list[dict[str, Any]]:
    """The parameters of the path, and those of the query."""
    number, text = {"type": "integer", "minimum": 0}, {"type": "string", "minLength": 1}
    in_path: list[dict[str, Any]] = [
        {"name": name, "in": "path", "required": True, "description": PATH_WORDS[name]}
        | {"schema": number if name == "seq" else text}
        for name in _PARAMETER.findall(route.path)
    ]
    query = schemas.get(route.query.__name__, {})
    return in_path + [
        {"name": name, "in": "query", "required": name in query.get("required", []), "schema": _remove_null(schema)}
        for name, schema in query.get("properties", {}).items()
    ]


def _remove_null(schema: dict[str, Any]) -> dict[str, Any]:
    """In a query nothing is null: it is left out."""
    cleaned = {key: value for key, value in schema.items() if not (key == "default" and value is None)}
    if "anyOf" in cleaned:
        kinds = [kind for kind in cleaned.pop("anyOf") if kind != {"type": "null"}]
        cleaned |= kinds[0] if len(kinds) == 1 else {"anyOf": kinds}
    if "enum" in cleaned:
        cleaned["enum"] = [value for value in cleaned["enum"] if value is not None]
    return cleaned


def _describe_header(name: str, about: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "in": "header", "required": False, "description": about, "schema": schema}


def _describe_envelope(events: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of an event on the wire: the type of `data` depends on `type`."""
    variants = [
        {"properties": {"type": {"const": name}, "data": {"$ref": REFERENCE.format(name=kind.__name__)}}}
        for name, kind in sorted(events.items())
    ]
    return {
        "title": "Envelope",
        "type": "object",
        "description": "An event. Live ones have `ephemeral: true` and no `seq`.",
        "properties": {
            **{"seq": {"type": "integer"}, "id": {"type": "string"}, "chat": {"type": "string"}},
            **{"time": {"type": "string", "format": "date-time"}, "type": {"type": "string"}},
            **{"data": {"type": "object"}, "version": {"type": "integer"}, "epoch": {"type": "integer"}},
            "ephemeral": {"type": "boolean"},
        },
        "required": ["chat", "time", "type", "data"],
        "anyOf": variants,
    }


def _flatten_descriptions(schema: Any) -> Any:
    """One line of prose each, as a docstring has several."""
    if isinstance(schema, dict):
        return {
            key: " ".join(value.split())
            if key == "description" and isinstance(value, str)
            else _flatten_descriptions(value)
            for key, value in schema.items()
        }
    return [_flatten_descriptions(each) for each in schema] if isinstance(schema, list) else schema


# -- the same as a page of HTML, which loads nothing from anywhere ----------------------------------------------------


def render_docs(document: bytes) -> bytes:
    described: dict[str, Any] = msgspec.json.decode(document)
    info, schemas = described["info"], described["components"]["schemas"]
    parts = [
        "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'>",
        f"<title>{escape(info['title'])} API</title><style>{STYLE}</style>",
        f"<h1>{escape(info['title'])} API <small>{escape(info['version'])}</small></h1>",
        f"<p>{escape(info['description'])}</p><p><a href='/api/openapi.json'>openapi.json</a></p>",
    ]
    groups: dict[str, list[str]] = {}
    for path, methods in described["paths"].items():
        for method, operation in methods.items():
            groups.setdefault(operation["tags"][0], []).append(_render_operation(method, path, operation))
    for tag, operations in groups.items():
        parts += [f"<h2>{escape(tag.capitalize())}</h2>", *operations]
    parts.append("<h2>Shapes</h2>")
    parts += [_render_schema(name, schema) for name, schema in sorted(schemas.items())]
    return "\n".join(parts).encode()


def _render_operation(method: str, path: str, operation: dict[str, Any]) -> str:
    rows = [
        f"<tr><td><code>{escape(each['name'])}</code><td>{escape(each['in'])}"
        f"<td>{escape(each.get('description', ''))} {_render_type(each['schema'])}"
        for each in operation["parameters"]
    ]
    if "requestBody" in operation:
        content = operation["requestBody"]["content"]["application/json"]["schema"]
        rows.append(f"<tr><td><code>body</code><td>JSON<td>{_render_type(content)}")
    answers: list[str] = []
    for status, answer in operation["responses"].items():
        content = answer.get("content", {}).items()
        kinds = " ".join(_render_type(each["schema"]) if "schema" in each else escape(kind) for kind, each in content)
        answers.append(f"<tr><td>{escape(status)}<td>{escape(answer['description'])}<td>{kinds}")
    return (
        f"<details><summary><span class=method>{escape(method.upper())}</span> <code>{escape(path)}</code> "
        f"{escape(operation['summary'])}</summary><table>{''.join(rows)}</table>"
        f"<h4>Answers</h4><table>{''.join(answers)}</table></details>"
    )


def _render_type(schema: dict[str, Any]) -> str:
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"<a href='#{escape(name)}'>{escape(name)}</a>"
    for word in ("anyOf", "oneOf"):
        if word in schema:
            return " or ".join(_render_type(each) for each in schema[word])
    if "enum" in schema:
        return "<code>" + escape(" | ".join(map(str, schema["enum"]))) + "</code>"
    if schema.get("type") == "array" and isinstance(schema.get("items"), dict):
        return "list of " + _render_type(schema["items"])
    return escape(str(schema.get("type", "any")))


def _render_schema(name: str, schema: dict[str, Any]) -> str:
    required = schema.get("required", [])
    rows = [
        f"<tr><td><code>{escape(field)}</code><td>{'' if field in required else 'optional'}<td>{_render_type(kind)}"
        for field, kind in schema.get("properties", {}).items()
    ]
    about = escape(schema.get("description", ""))
    head = f"<summary><code>{escape(name)}</code> {about}</summary>"
    return f"<details id='{escape(name)}'>{head}<table>{''.join(rows)}</table></details>"
