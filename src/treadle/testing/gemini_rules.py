"""What the Gemini API demands of a request, as far as clients get it wrong: fields, roles, calls and their responses,
signatures, schemas. Pure; says what is wrong in the API's own words."""

import hashlib
import re
from collections.abc import Collection, Iterator
from typing import Any

import msgspec

_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_.:-]{0,127}")
_request = msgspec.json.Decoder(dict[str, Any])
_FIELDS = {"contents", "systemInstruction", "tools", "toolConfig", "generationConfig", "safetySettings"}
_PART = {"text", "inlineData", "thought", "thoughtSignature", "functionCall", "functionResponse"}
_SCHEMA = {"type", "format", "title", "description", "nullable", "enum", "items", "properties", "required", "anyOf"}
_SCHEMA |= {"minItems", "maxItems", "minLength", "maxLength", "pattern", "minimum", "maximum"}
PASS = "skip_thought_signature_validator"
_UNSIGNED = "Function call is missing a thought_signature in functionCall parts. This is required for tools to work"
_PAIRS = "Please ensure that the number of function response parts is equal to the number of function call parts of the"


def sign(part: dict[str, Any]) -> str:
    """How the fake server signs a part, the same in every process."""
    call = part.get("functionCall", {})
    bare = [part.get("text"), part.get("thought"), call.get("name"), call.get("id")]
    return "CiQB" + hashlib.sha256(msgspec.json.encode(bare)).hexdigest() + "/+8="


def complaint(body: bytes, signatures: Collection[str], *, strict: bool) -> str:
    """Why the API would refuse the request; empty when it would not. `signatures` are good whatever they sign; a
    strict model refuses calls of the current turn that are not signed."""
    try:
        request = _request.decode(body)
    except msgspec.MsgspecError as error:
        return f"Invalid JSON payload received. {error}"
    return next(_complaints(request, signatures, strict), "")


def _complaints(request: dict[str, Any], signatures: Collection[str], strict: bool) -> Iterator[str]:
    for field in request.keys() - _FIELDS:
        yield _unknown(field, "")
    contents = request.get("contents")
    if not contents:
        yield "* GenerateContentRequest.contents: contents is not specified"
        return
    for tool in request.get("tools", []):
        for at, declared in enumerate(tool["functionDeclarations"]):
            yield from _declaration(declared, f"tools[0].function_declarations[{at}]")
    for at, content in enumerate(contents):
        yield from _content(content, at)
    yield from _turns(contents)
    yield from _signed(contents, signatures, strict)


def _unknown(field: str, where: str) -> str:
    at = f" at '{where}'" if where else ""
    return f'Invalid JSON payload received. Unknown name "{field}"{at}: Cannot find field.'


def _declaration(declared: dict[str, Any], where: str) -> Iterator[str]:
    if not _NAME.fullmatch(declared.get("name", "")):
        yield f"* GenerateContentRequest.{where}.name: Invalid function name. Must start with a letter."
    if "parameters" in declared and "parametersJsonSchema" in declared:
        yield f"{where}: parameters and parametersJsonSchema are mutually exclusive"
    yield from _schema(declared.get("parameters", {"type": "object"}), f"{where}.parameters")


def _schema(schema: dict[str, Any], where: str) -> Iterator[str]:
    for field in schema.keys() - _SCHEMA:
        yield _unknown(field, where)
    kind = schema.get("type")
    if not isinstance(kind, str) and "anyOf" not in schema:
        yield f"* GenerateContentRequest.{where}.type: schema didn't specify the schema type field"
    if kind == "array" and "items" not in schema:
        yield f"* GenerateContentRequest.{where}.items: missing field."
    if "enum" in schema and (kind != "string" or not all(isinstance(word, str) for word in schema["enum"])):
        yield f"* GenerateContentRequest.{where}.enum: only allowed for STRING type"
    properties = schema.get("properties", {})
    for name in schema.get("required", []):
        if name not in properties:
            yield f"* GenerateContentRequest.{where}.required: property is not defined: {name}"
    inner = [*properties.values(), *schema.get("anyOf", []), *([schema["items"]] if "items" in schema else [])]
    for part in inner:
        yield from _schema(part, f"{where}.properties")


def _content(content: dict[str, Any], at: int) -> Iterator[str]:
    if content.get("role") not in ("user", "model"):
        yield "Please use a valid role: user, model."
    if not content.get("parts"):
        yield f"* GenerateContentRequest.contents[{at}].parts: contents.parts must not be empty."
    for part in content.get("parts", []):
        for field in part.keys() - _PART:
            yield _unknown(field, f"contents[{at}].parts")
        data = part.keys() & {"text", "inlineData", "functionCall", "functionResponse"}
        if len(data) != 1 or (part.get("text") == "" and "thoughtSignature" not in part):
            yield f"* GenerateContentRequest.contents[{at}].parts: required oneof field 'data' must have one"
        for key, value in (("functionCall", "args"), ("functionResponse", "response")):
            if key in part and not _NAME.fullmatch(part[key].get("name", "")):
                yield f"* GenerateContentRequest.contents[{at}].parts.{key}.name: Name cannot be empty."
            if key in part and not isinstance(part[key].get(value, {}), dict):
                yield f"Invalid value at 'contents[{at}].parts' ({key}.{value}), a struct is expected"


def _turns(contents: list[dict[str, Any]]) -> Iterator[str]:
    if contents[0]["role"] != "user" or contents[-1]["role"] != "user":
        yield "Please ensure that multiturn requests begin and end with a user turn."
    asked: list[tuple[Any, Any]] = []
    for before, content in zip([{"role": ""}, *contents], contents, strict=False):
        if before["role"] == content["role"]:
            yield "Please ensure that multiturn requests alternate between user and model."
        answered = _named(content, "functionResponse")
        if len(answered) != len(asked) or answered != asked:
            yield f"{_PAIRS} function call turn."
        asked = _named(content, "functionCall")


def _named(content: dict[str, Any], key: str) -> list[tuple[Any, Any]]:
    return [(part[key].get("name"), part[key].get("id")) for part in content["parts"] if key in part]


def _signed(contents: list[dict[str, Any]], signatures: Collection[str], strict: bool) -> Iterator[str]:
    people = (at for at, content in enumerate(contents) if content["role"] == "user" and _has_text(content))
    begun = max(people, default=0)
    for at, content in enumerate(contents):
        calls = [part for part in content["parts"] if "functionCall" in part]
        if strict and at > begun and calls and "thoughtSignature" not in calls[0]:
            name = calls[0]["functionCall"]["name"]
            yield f"{_UNSIGNED} correctly. Additional data, function call `default_api:{name}`, position {at + 1}."
        for part in content["parts"]:
            given = part.get("thoughtSignature", PASS)
            if given not in (PASS, *signatures, sign(part)):
                yield "Corrupted thought signature."


def _has_text(content: dict[str, Any]) -> bool:
    return any("text" in part or "inlineData" in part for part in content["parts"])
