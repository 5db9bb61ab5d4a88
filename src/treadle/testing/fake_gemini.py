"""A fake Gemini server on loopback, scripted for tests; it answers as Vertex AI, too. It is as strict about requests as
the real one: a request that the API would refuse (`complaint`) is refused in the same words.

In a test: `with FakeGemini([Reply(text="Hi")]) as fake:` and point a client at `fake.base_url`."""

import hashlib
import re
from collections.abc import Collection, Iterable, Iterator
from typing import Any

import msgspec

from treadle.base.types import JsonObject
from treadle.testing.fake_http import FakeResponse, Headers, encode, make_json_answer
from treadle.testing.fake_model import Dialect, FakeModelServer, Reply, Script, split_text

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


def find_complaint(body: bytes, signatures: Collection[str], *, strict: bool) -> str:
    """Why the API would refuse the request; empty if it would not. `signatures` are valid for any part; a strict model
    refuses calls of the current turn that are not signed."""
    try:
        request = _request.decode(body)
    except msgspec.MsgspecError as error:
        return f"Invalid JSON payload received. {error}"
    return next(_find_complaints(request, signatures, strict), "")


def _find_complaints(request: dict[str, Any], signatures: Collection[str], strict: bool) -> Iterator[str]:
    for field in request.keys() - _FIELDS:
        yield _describe_unknown(field, "")
    contents = request.get("contents")
    if not contents:
        yield "* GenerateContentRequest.contents: contents is not specified"
        return
    for tool in request.get("tools", []):
        for at, declared in enumerate(tool["functionDeclarations"]):
            yield from _check_declaration(declared, f"tools[0].function_declarations[{at}]")
    for at, content in enumerate(contents):
        yield from _check_content(content, at)
    yield from _check_turns(contents)
    yield from _find_unsigned_calls(contents, signatures, strict)


def _describe_unknown(field: str, path: str) -> str:
    at = f" at '{path}'" if path else ""
    return f'Invalid JSON payload received. Unknown name "{field}"{at}: Cannot find field.'


def _check_declaration(declared: dict[str, Any], path: str) -> Iterator[str]:
    if not _NAME.fullmatch(declared.get("name", "")):
        yield f"* GenerateContentRequest.{path}.name: Invalid function name. Must start with a letter."
    if "parameters" in declared and "parametersJsonSchema" in declared:
        yield f"{path}: parameters and parametersJsonSchema are mutually exclusive"
    yield from _check_schema(declared.get("parameters", {"type": "object"}), f"{path}.parameters")


def _check_schema(schema: dict[str, Any], path: str) -> Iterator[str]:
    for field in schema.keys() - _SCHEMA:
        yield _describe_unknown(field, path)
    kind = schema.get("type")
    if not isinstance(kind, str) and "anyOf" not in schema:
        yield f"* GenerateContentRequest.{path}.type: schema didn't specify the schema type field"
    if kind == "array" and "items" not in schema:
        yield f"* GenerateContentRequest.{path}.items: missing field."
    if "enum" in schema and (kind != "string" or not all(isinstance(word, str) for word in schema["enum"])):
        yield f"* GenerateContentRequest.{path}.enum: only allowed for STRING type"
    properties = schema.get("properties", {})
    for name in schema.get("required", []):
        if name not in properties:
            yield f"* GenerateContentRequest.{path}.required: property is not defined: {name}"
    inner = [*properties.values(), *schema.get("anyOf", []), *([schema["items"]] if "items" in schema else [])]
    for part in inner:
        yield from _check_schema(part, f"{path}.properties")


def _check_content(content: dict[str, Any], at: int) -> Iterator[str]:
    if content.get("role") not in ("user", "model"):
        yield "Please use a valid role: user, model."
    if not content.get("parts"):
        yield f"* GenerateContentRequest.contents[{at}].parts: contents.parts must not be empty."
    for part in content.get("parts", []):
        for field in part.keys() - _PART:
            yield _describe_unknown(field, f"contents[{at}].parts")
        data = part.keys() & {"text", "inlineData", "functionCall", "functionResponse"}
        if len(data) != 1 or (part.get("text") == "" and "thoughtSignature" not in part):
            yield f"* GenerateContentRequest.contents[{at}].parts: required oneof field 'data' must have one"
        for key, value in (("functionCall", "args"), ("functionResponse", "response")):
            if key in part and not _NAME.fullmatch(part[key].get("name", "")):
                yield f"* GenerateContentRequest.contents[{at}].parts.{key}.name: Name cannot be empty."
            if key in part and not isinstance(part[key].get(value, {}), dict):
                yield f"Invalid value at 'contents[{at}].parts' ({key}.{value}), a struct is expected"


def _check_turns(contents: list[dict[str, Any]]) -> Iterator[str]:
    if contents[0]["role"] != "user" or contents[-1]["role"] != "user":
        yield "Please ensure that multiturn requests begin and end with a user turn."
    open_calls: list[tuple[Any, Any]] = []
    for previous, content in zip([{"role": ""}, *contents], contents, strict=False):
        if previous["role"] == content["role"]:
            yield "Please ensure that multiturn requests alternate between user and model."
        responses = _list_names(content, "functionResponse")
        if len(responses) != len(open_calls) or responses != open_calls:
            yield f"{_PAIRS} function call turn."
        open_calls = _list_names(content, "functionCall")


def _list_names(content: dict[str, Any], key: str) -> list[tuple[Any, Any]]:
    return [(part[key].get("name"), part[key].get("id")) for part in content["parts"] if key in part]


def _find_unsigned_calls(contents: list[dict[str, Any]], signatures: Collection[str], strict: bool) -> Iterator[str]:
    users = ((at, content["parts"]) for at, content in enumerate(contents) if content["role"] == "user")
    people = (at for at, parts in users if any("text" in part or "inlineData" in part for part in parts))
    last_question = max(people, default=0)
    for at, content in enumerate(contents):
        calls = [part for part in content["parts"] if "functionCall" in part]
        if strict and at > last_question and calls and "thoughtSignature" not in calls[0]:
            name = calls[0]["functionCall"]["name"]
            yield f"{_UNSIGNED} correctly. Additional data, function call `default_api:{name}`, position {at + 1}."
        for part in content["parts"]:
            signature = part.get("thoughtSignature", PASS)
            if signature not in (PASS, *signatures, sign(part)):
                yield "Corrupted thought signature."


__all__ = ["FakeGemini", "GenerateContent", "Reply", "Script"]
_FINISH = {"stop": "STOP", "tool_calls": "STOP", "length": "MAX_TOKENS", "content_filter": "SAFETY"}
_STATUS = {
    400: "INVALID_ARGUMENT", 401: "UNAUTHENTICATED", 403: "PERMISSION_DENIED", 404: "NOT_FOUND",
    429: "RESOURCE_EXHAUSTED", 500: "INTERNAL", 503: "UNAVAILABLE", 504: "DEADLINE_EXCEEDED",
}  # fmt: skip
_PATH = re.compile(
    r"/v1\w*/(?:projects/[\w-]+/locations/[\w-]+/)?(?:publishers/\w+/)?models/([\w.-]+)"
    r":(streamGenerateContent|generateContent)(\?alt=sse)?"
)


class GenerateContent(Dialect):
    """Models of the third generation and later give ids to calls and sign what they say, others only where the script
    does. The path of a request says more than its body: it is kept for `pieces`, which follows at once."""

    def __init__(self) -> None:
        self._signatures: set[str] = set()  # those of the script, which sign what the script says
        self._modern = False
        self._method = ""
        self._events = False

    def count_answers(self, request: JsonObject) -> int:
        return sum(content["role"] == "model" for content in request["contents"])

    def build_pieces(self, reply: Reply, request: JsonObject, position: int) -> tuple[str, Iterable[bytes]]:
        self._signatures |= {reply.signature} - {""}
        if self._method == "generateContent":
            return "application/json", [encode(self.build_answer(reply, request, position))]
        if self._events:
            return self.content_type, self.stream(reply, request, position)
        chunks = stream_chunks(reply, position, self._modern)
        return "application/json", [b"[", b",\r\n".join(map(encode, chunks)), b"]"]

    def stream(self, reply: Reply, request: JsonObject, position: int) -> Iterator[bytes]:
        return (b"data: %b\r\n\r\n" % encode(chunk) for chunk in stream_chunks(reply, position, self._modern))

    def build_answer(self, reply: Reply, request: JsonObject, position: int) -> dict[str, Any]:
        chunks = list(stream_chunks(reply, position, self._modern))
        parts = [part for chunk in chunks for part in chunk["candidates"][0]["content"]["parts"]]
        candidate = chunks[-1]["candidates"][0] | {"content": {"role": "model", "parts": parts}}
        return chunks[-1] | {"candidates": [candidate]}

    def build_failure(self, status: int, message: str) -> JsonObject:
        return {"error": {"code": status, "message": message, "status": _STATUS.get(status, "UNKNOWN")}}

    def answer_other_request(self, method: str, path: str, headers: Headers, body: bytes) -> FakeResponse | None:
        if (method, path.partition("?")[0]) == ("GET", "/v1beta/models"):
            listed = [("gemini-2.5-pro", "generateContent"), ("gemini-embedding-001", "embedContent")]
            models = [{"name": f"models/{name}", "supportedGenerationMethods": [kind]} for name, kind in listed]
            return make_json_answer(200, {"models": models})
        match = _PATH.fullmatch(path)
        if method != "POST" or match is None:
            return self.answer_unknown_path(method, path)
        self._modern = re.match(r"gemini-[3-9]", match[1]) is not None
        self._method, self._events = match[2], match[3] is not None
        problem = find_complaint(body, self._signatures, strict=self._modern)
        return self.refuse(problem) if problem else None


class FakeGemini(FakeModelServer):
    dialect = GenerateContent


def stream_chunks(reply: Reply, position: int, modern: bool) -> Iterator[dict[str, Any]]:
    """The chunks of a streamed reply. Each chunk has token counts; those of the last one are right."""
    parts = list(_build_parts(reply, position, modern)) or [{"text": ""}]
    for at, part in enumerate(parts):
        candidate: dict[str, Any] = {"content": {"role": "model", "parts": [part]}, "index": 0}
        last = at == len(parts) - 1
        if last:
            finish = reply.finish or "stop"
            candidate["finishReason"] = _FINISH.get(finish, finish)
        chunk: dict[str, Any] = {"candidates": [candidate]}
        if reply.usage:
            chunk["usageMetadata"] = _count_tokens(reply, last)
        yield chunk | {"modelVersion": "fake", "responseId": "fake"}


def _count_tokens(reply: Reply, last: bool) -> dict[str, int]:
    input_tokens, output_tokens = reply.usage or (0, 0)
    if not last:
        return {"promptTokenCount": input_tokens, "totalTokenCount": input_tokens}
    thoughts = output_tokens // 2 if reply.thinking else 0
    counts = {"promptTokenCount": input_tokens, "candidatesTokenCount": output_tokens - thoughts}
    counts["totalTokenCount"] = input_tokens + output_tokens
    return counts | ({"thoughtsTokenCount": thoughts} if thoughts else {})


def _build_parts(reply: Reply, position: int, modern: bool) -> Iterator[dict[str, Any]]:
    for piece in split_text(reply.thinking, reply.chunk_size):
        yield {"text": piece, "thought": True}
    signed = modern or bool(reply.signature)
    texts = [{"text": piece} for piece in split_text(reply.text, reply.chunk_size)]
    if texts and signed and not reply.calls and reply.chunk_size:
        texts.append({"text": ""})  # a streamed text is signed by an empty part at its end
    yield from texts[:-1]
    for part in texts[-1:]:
        yield _sign_part(part, reply) if signed and not reply.calls else part
    for index, (name, arguments) in enumerate(reply.calls):
        call: dict[str, Any] = {"name": name}
        if modern or index < len(reply.ids):
            call["id"] = reply.ids[index] if index < len(reply.ids) else f"{position}_{index}"
        call["args"] = msgspec.Raw(arguments.encode()) if isinstance(arguments, str) else arguments
        # Of calls that may run side by side, the first is signed for all.
        yield _sign_part({"functionCall": call}, reply) if signed and not index else {"functionCall": call}


def _sign_part(part: dict[str, Any], reply: Reply) -> dict[str, Any]:
    return part | {"thoughtSignature": reply.signature or sign(part)}
