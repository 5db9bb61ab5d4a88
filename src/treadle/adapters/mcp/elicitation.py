"""A server's question as one that a person can answer in one line, and the answer as what the server wants."""

from contextlib import suppress
from typing import Any

import mcp_types as types
import msgspec

from treadle.base.inert import inert, inert_line
from treadle.ports.toolset import Question

DECLINE = "decline"
DONE = "done"
ACCEPT = "accept"  # The answer that sends the defaults
_YES, _NO = ("yes", "true", "y", "on", "1"), ("no", "false", "n", "off", "0")


def build_question(server: str, params: types.ElicitRequestParams, again: str = "") -> Question:
    """Build the question text. `again`: the reason why the last answer was invalid."""
    head = f"{again}\n" if again else ""
    message = inert(params.message)
    if isinstance(params, types.ElicitRequestURLParams):
        text = f"{head}The MCP server {server} asks you to open a page: {message}\n{inert_line(params.url, 2_000)}"
        return Question(f"{text}\nAnswer {DONE} when you have, or {DECLINE}.", (DONE, DECLINE))
    fields = _fields(params)
    text = f"{head}The MCP server {server} asks: {message}"
    if len(fields) == 1:
        ((_, schema),) = fields.items()
        about = ", ".join(filter(None, (str(schema.get("description") or ""), _default_words(schema))))
        note = f"\n({inert_line(about, 300)})" if about else ""
        answers = _choices(schema) or ((ACCEPT,) if _can_accept(params, fields) else ())
        return Question(text + note, (*answers, DECLINE))
    if not fields:
        return Question(text, ("yes", DECLINE))
    required = params.requested_schema.get("required") or ()
    lines = [
        f"  {name}: {_describe(schema)}{'' if name in required else ', optional'}" for name, schema in fields.items()
    ]
    accept = _can_accept(params, fields)
    instructions = f"Answer as JSON, or one `name: value` a line{f'; or {ACCEPT} for the defaults' if accept else ''}."
    return Question("\n".join([text, *lines, instructions]), (ACCEPT, DECLINE) if accept else (DECLINE,))


def reply(params: types.ElicitRequestParams, answer: str) -> types.ElicitResult | str:
    """Return the reply for the server, or the reason why the answer is invalid."""
    stripped = answer.strip()
    if stripped.lower() in (DECLINE, "cancel"):
        return types.ElicitResult(action="decline" if stripped.lower() == DECLINE else "cancel")
    if isinstance(params, types.ElicitRequestURLParams):
        return types.ElicitResult(action="accept")
    fields = _fields(params)
    defaults = {name: schema["default"] for name, schema in fields.items() if "default" in schema}
    accepted = stripped.lower() in (ACCEPT, "") and _can_accept(params, fields)
    try:
        raw_values = defaults | ({} if accepted else _parse_answer(fields, stripped))
        content = {name: _value(name, fields[name], value) for name, value in raw_values.items() if name in fields}
    except ValueError as error:
        return f"That does not fit: {error}."
    missing = [name for name in params.requested_schema.get("required") or () if name not in content]
    if missing:
        return f"Still missing: {', '.join(map(inert_line, missing))}."
    return types.ElicitResult(action="accept", content=content)


def _fields(params: types.ElicitRequestFormParams) -> dict[str, dict[str, Any]]:
    properties = params.requested_schema.get("properties") or {}
    return {str(name): schema if isinstance(schema, dict) else {} for name, schema in properties.items()}


def _can_accept(params: types.ElicitRequestFormParams, fields: dict[str, dict[str, Any]]) -> bool:
    """True if there are defaults, and every required field has one."""
    required = params.requested_schema.get("required") or ()
    without = [name for name, schema in fields.items() if "default" not in schema]
    return len(without) < len(fields) and not set(without) & set(required)


def _default_words(schema: dict[str, Any]) -> str:
    """The default as a person would answer it."""
    if "default" not in schema:
        return ""
    value = schema["default"]
    if isinstance(value, bool):
        value = "yes" if value else "no"
    return f"default: {', '.join(map(str, value)) if isinstance(value, list) else value}"


def _parse_answer(fields: dict[str, dict[str, Any]], answer: str) -> dict[str, Any]:
    with suppress(msgspec.MsgspecError):
        return msgspec.json.decode(answer, type=dict[str, Any])
    if len(fields) <= 1:
        return dict.fromkeys(fields, answer)
    pairs = [line.partition(":") for line in answer.splitlines() if line.strip()]
    if any(not colon for _, colon, _ in pairs):
        raise ValueError("answer as JSON, or one `name: value` a line")
    return {name.strip(): value.strip() for name, _, value in pairs}


def _value(name: str, schema: dict[str, Any], value: Any) -> Any:
    kind = schema.get("type", "string")
    choices = _choices(schema)
    if kind == "boolean" and isinstance(value, str):
        if value.lower() not in (*_YES, *_NO):
            raise ValueError(f"{inert_line(name)} is yes or no")
        return value.lower() in _YES
    if kind in ("integer", "number") and isinstance(value, str):
        try:
            return int(value) if kind == "integer" else float(value)
        except ValueError:
            raise ValueError(f"{inert_line(name)} is a number") from None
    if kind == "array" and isinstance(value, str):
        return [part.strip() for part in value.split(",") if part.strip()]
    if choices and kind == "string" and value not in choices:
        raise ValueError(f"{inert_line(name)} is one of {', '.join(map(inert_line, choices))}")
    return value


def _choices(schema: dict[str, Any]) -> tuple[str, ...]:
    if schema.get("type") == "boolean":
        return "yes", "no"
    titled = [each.get("const") for each in schema.get("oneOf") or () if isinstance(each, dict)]
    return tuple(str(each) for each in schema.get("enum") or titled)


def _describe(schema: dict[str, Any]) -> str:
    choices = " | ".join(map(inert_line, _choices(schema)))
    about = schema.get("description") or schema.get("title") or ""
    words = f"{choices or schema.get('type', 'text')}{f' ({about})' if about else ''}"
    return inert_line(", ".join(filter(None, (words, _default_words(schema)))), 300)
