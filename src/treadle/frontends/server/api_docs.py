"""The HTML page of the API: made from the OpenAPI document, it loads nothing from anywhere."""

from html import escape
from typing import Any

import msgspec

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


def render(document: bytes) -> bytes:
    described: dict[str, Any] = msgspec.json.decode(document)
    info = described["info"]
    schemas = described["components"]["schemas"]
    parts = [
        "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'>",
        f"<title>{escape(info['title'])} API</title><style>{STYLE}</style>",
        f"<h1>{escape(info['title'])} API <small>{escape(info['version'])}</small></h1>",
        f"<p>{escape(info['description'])}</p><p><a href='/api/openapi.json'>openapi.json</a></p>",
    ]
    groups: dict[str, list[str]] = {}
    for path, methods in described["paths"].items():
        for method, operation in methods.items():
            groups.setdefault(operation["tags"][0], []).append(_operation(method, path, operation))
    for tag, operations in groups.items():
        parts += [f"<h2>{escape(tag.capitalize())}</h2>", *operations]
    parts.append("<h2>Shapes</h2>")
    parts += [_schema(name, schema) for name, schema in sorted(schemas.items())]
    return "\n".join(parts).encode()


def _operation(method: str, path: str, operation: dict[str, Any]) -> str:
    rows = [
        f"<tr><td><code>{escape(each['name'])}</code><td>{escape(each['in'])}"
        f"<td>{escape(each.get('description', ''))} {_type(each['schema'])}"
        for each in operation["parameters"]
    ]
    if "requestBody" in operation:
        content = operation["requestBody"]["content"]["application/json"]["schema"]
        rows.append(f"<tr><td><code>body</code><td>JSON<td>{_type(content)}")
    answers = [
        f"<tr><td>{escape(status)}<td>{escape(answer['description'])}<td>{_content(answer)}"
        for status, answer in operation["responses"].items()
    ]
    return (
        f"<details><summary><span class=method>{escape(method.upper())}</span> <code>{escape(path)}</code> "
        f"{escape(operation['summary'])}</summary><table>{''.join(rows)}</table>"
        f"<h4>Answers</h4><table>{''.join(answers)}</table></details>"
    )


def _content(answer: dict[str, Any]) -> str:
    content = answer.get("content", {})
    return " ".join(_type(each["schema"]) if "schema" in each else escape(kind) for kind, each in content.items())


def _type(schema: dict[str, Any]) -> str:
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"<a href='#{escape(name)}'>{escape(name)}</a>"
    for word in ("anyOf", "oneOf"):
        if word in schema:
            return " or ".join(_type(each) for each in schema[word])
    if "enum" in schema:
        return "<code>" + escape(" | ".join(map(str, schema["enum"]))) + "</code>"
    if schema.get("type") == "array" and isinstance(schema.get("items"), dict):
        return "list of " + _type(schema["items"])
    return escape(str(schema.get("type", "any")))


def _schema(name: str, schema: dict[str, Any]) -> str:
    required = schema.get("required", [])
    rows = [
        f"<tr><td><code>{escape(field)}</code><td>{'' if field in required else 'optional'}<td>{_type(kind)}"
        for field, kind in schema.get("properties", {}).items()
    ]
    about = escape(schema.get("description", ""))
    head = f"<summary><code>{escape(name)}</code> {about}</summary>"
    return f"<details id='{escape(name)}'>{head}<table>{''.join(rows)}</table></details>"
