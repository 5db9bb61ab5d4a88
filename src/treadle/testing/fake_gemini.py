"""A fake Gemini server on loopback, scripted for tests; it answers as Vertex AI, too. It is as strict as the real one
about what it is asked: whatever the API would refuse, it refuses in the same words (see `gemini_rules`).

In a test: `with FakeGemini([Reply(text="Hi")]) as fake:` and point a client at `fake.base_url`.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from treadle.testing.fake_http import Answer, Headers, json_answer
from treadle.testing.fake_model import FakeModelServer, Reply, Script, cut
from treadle.testing.gemini_rules import complaint, sign
from treadle.types import JsonObject

__all__ = ["FakeGemini", "GenerateContent", "Reply", "Script"]

_encode = msgspec.json.Encoder().encode
_FINISH = {"stop": "STOP", "tool_calls": "STOP", "length": "MAX_TOKENS", "content_filter": "SAFETY"}
_STATUS = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    429: "RESOURCE_EXHAUSTED",
    500: "INTERNAL",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}
_PATH = re.compile(
    r"/v1\w*/(?:projects/[\w-]+/locations/[\w-]+/)?(?:publishers/\w+/)?models/([\w.-]+)"
    r":(streamGenerateContent|generateContent)(\?alt=sse)?"
)


class FakeGemini(FakeModelServer):
    """A scripted server. Models of the third generation and later give ids to calls and sign what they say, others only
    where the script does."""

    def __init__(self, script: Script = (), *, in_order: bool = False) -> None:
        super().__init__(GenerateContent(), script, in_order=in_order)

    @property
    def base_url(self) -> str:
        return self.url


class GenerateContent:
    """Implements `treadle.testing.fake_model.Dialect`. The path of a request says more than its body: it is kept from
    `other` to `pieces`, which follows at once."""

    def __init__(self) -> None:
        self._signatures: set[str] = set()
        """Those of the script, which sign what the script says."""
        self._modern = False
        self._method = ""
        self._events = False

    def position(self, request: JsonObject) -> int:
        return sum(content["role"] == "model" for content in request["contents"])

    def pieces(self, reply: Reply, request: JsonObject, position: int) -> tuple[str, Iterable[bytes]]:
        self._signatures |= {reply.signature} - {""}
        chunks = list(stream_chunks(reply, position, self._modern))
        if self._method == "generateContent":
            return "application/json", [_encode(_whole(chunks))]
        if self._events:
            return "text/event-stream", [b"data: %b\r\n\r\n" % _encode(chunk) for chunk in chunks]
        return "application/json", [b"[", b",\r\n".join(map(_encode, chunks)), b"]"]

    def failure(self, status: int, message: str) -> JsonObject:
        return {"error": {"code": status, "message": message, "status": _STATUS.get(status, "UNKNOWN")}}

    def other(self, method: str, path: str, headers: Headers, body: bytes) -> Answer | None:
        if (method, path.partition("?")[0]) == ("GET", "/v1beta/models"):
            listed = [("gemini-2.5-pro", "generateContent"), ("gemini-embedding-001", "embedContent")]
            models = [{"name": f"models/{name}", "supportedGenerationMethods": [can]} for name, can in listed]
            return json_answer(200, {"models": models})
        found = _PATH.fullmatch(path)
        if method != "POST" or found is None:
            return json_answer(404, self.failure(404, f"the fake server has no {method} {path}"))
        self._modern = re.match(r"gemini-[3-9]", found[1]) is not None
        self._method, self._events = found[2], found[3] is not None
        said = complaint(body, self._signatures, strict=self._modern)
        return json_answer(400, self.failure(400, said)) if said else None


def stream_chunks(reply: Reply, position: int, modern: bool) -> Iterator[dict[str, Any]]:
    """What a streamed reply is made of. Counts are in every chunk, the last of them is right."""
    parts = list(_parts(reply, position, modern)) or [{"text": ""}]
    for at, part in enumerate(parts):
        candidate: dict[str, Any] = {"content": {"role": "model", "parts": [part]}, "index": 0}
        last = at == len(parts) - 1
        if last:
            finish = reply.finish or "stop"
            candidate["finishReason"] = _FINISH.get(finish, finish)
        chunk: dict[str, Any] = {"candidates": [candidate]}
        if reply.usage:
            chunk["usageMetadata"] = _counts(reply, last)
        yield chunk | {"modelVersion": "fake", "responseId": "fake"}


def _counts(reply: Reply, last: bool) -> dict[str, int]:
    given, made = reply.usage or (0, 0)
    if not last:
        return {"promptTokenCount": given, "totalTokenCount": given}
    thoughts = made // 2 if reply.thinking else 0
    counts = {"promptTokenCount": given, "candidatesTokenCount": made - thoughts, "totalTokenCount": given + made}
    return counts | ({"thoughtsTokenCount": thoughts} if thoughts else {})


def _parts(reply: Reply, position: int, modern: bool) -> Iterator[dict[str, Any]]:
    for piece in cut(reply.thinking, reply.chunk_size):
        yield {"text": piece, "thought": True}
    signed = modern or bool(reply.signature)
    texts = [{"text": piece} for piece in cut(reply.text, reply.chunk_size)]
    if texts and signed and not reply.calls and reply.chunk_size:
        texts.append({"text": ""})  # a streamed text is signed by an empty part at its end
    yield from texts[:-1]
    for part in texts[-1:]:
        yield _signed(part, reply) if signed and not reply.calls else part
    for index, (name, arguments) in enumerate(reply.calls):
        call: dict[str, Any] = {"name": name}
        if modern or index < len(reply.ids):
            call["id"] = reply.ids[index] if index < len(reply.ids) else f"{position}_{index}"
        call["args"] = msgspec.Raw(arguments.encode()) if isinstance(arguments, str) else arguments
        # Of calls that may run side by side, the first is signed for all.
        yield _signed({"functionCall": call}, reply) if signed and not index else {"functionCall": call}


def _signed(part: dict[str, Any], reply: Reply) -> dict[str, Any]:
    return part | {"thoughtSignature": reply.signature or sign(part)}


def _whole(chunks: list[dict[str, Any]]) -> dict[str, Any]:
    parts = [part for chunk in chunks for part in chunk["candidates"][0]["content"]["parts"]]
    candidate = chunks[-1]["candidates"][0] | {"content": {"role": "model", "parts": parts}}
    return chunks[-1] | {"candidates": [candidate]}
