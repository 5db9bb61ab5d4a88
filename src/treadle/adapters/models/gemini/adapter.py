"""The Gemini API of Google, and of every server that speaks its language (M-03): system text and tools beside the
conversation, roles that alternate, signatures on the parts that carried them.

The bytes of an entry are made once, though what follows may belong to the same turn of the conversation: so a piece
leaves its turn open, and the next one goes on with it or closes it. A request begins with the very bytes of the one
before, but for its last two brackets (L-21).
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Unpack

import msgspec

from treadle.adapters.models.gemini.schema import reduced
from treadle.adapters.models.gemini.stream import GeminiReader, lay_out, signatures
from treadle.adapters.models.keys import Secret
from treadle.adapters.models.listing import list_from
from treadle.adapters.models.provider_context import ProviderContext
from treadle.adapters.models.wire.encoder import CLOSE, AlternatingConversation, Picture, RequestEncoder, without_tools
from treadle.adapters.models.wire.failures import is_refusal, refuses
from treadle.adapters.models.wire.http_model import Access, ConnectionOptions, HttpModel
from treadle.adapters.models.wire.json import encode_json, json_object, tool_name
from treadle.base.types import CallKey
from treadle.errors import ModelError
from treadle.ports.model import Encode, ModelInfo, ModelRequest, Pictures
from treadle.protocol.content import AssistantEntry, ToolResult
from treadle.protocol.deltas import NoticeDelta
from treadle.protocol.options import ReasoningEffort
from treadle.protocol.tools import ToolSpec

STAND_IN = "skip_thought_signature_validator"
"""The value that replaces a signature, for calls of other models and for signatures that were refused."""

_USER = b'{"role":"user","parts":['
_MODEL = b'{"role":"model","parts":['
_UNTOLD = b'{"text":"(The beginning of the conversation is left out.)"}'  # a conversation must begin with the user
_GO_ON = b'{"text":"Go on."}'  # and end with the user


class GeminiEncoder(RequestEncoder):
    """`stand_in` says whether calls without a signature get one that stands in."""

    def __init__(self, ref: str, *, stand_in: bool = False) -> None:
        super().__init__(ref)
        self.stand_in = stand_in
        self.reduced = False  # True if the tools' schemas are reduced to the subset that the oldest servers accept

    def body(self, parameters: dict[str, Any], request: ModelRequest) -> bytes:
        parts = [b'"generationConfig":' + encode_json(parameters)] if parameters else []
        if request.system.strip():
            parts.append(b'"systemInstruction":' + encode_json({"parts": [{"text": request.system}]}))
        if request.tools:
            parts.append(b'"tools":[{"functionDeclarations":' + self._encoded_tools(request.tools) + b"}]")
            parts.append(b'"toolConfig":{"functionCallingConfig":{"mode":"AUTO"}}')
        parts.append(b'"contents":[' + _joined(self._pieces(request)))
        return b"{" + b",".join(parts) + b"]}"

    def switch_stand_in(self) -> None:
        self.stand_in = not self.stand_in
        self._encode_anew()

    def reduce(self) -> None:
        self.reduced = True
        self._encode_anew()

    def _conversation(self, refused: frozenset[str], pictures: Pictures) -> Encode:
        return GeminiConversation(self._ref, refused, pictures, stand_in=self.stand_in)

    def _tool(self, spec: ToolSpec) -> dict[str, Any]:
        declared: dict[str, Any] = {"name": spec.name, "description": spec.description or spec.name}
        if not self.reduced:
            return declared | {"parametersJsonSchema": {"type": "object", **spec.parameters}}
        schema = reduced(spec.parameters)
        return declared | {"parameters": schema} if schema.get("properties") else declared


class GeminiConversation(AlternatingConversation):
    opening: ClassVar = {"user": _USER, "model": _MODEL}
    untold = _UNTOLD

    def __init__(self, ref: str, refused: frozenset[str], pictures: Pictures, *, stand_in: bool) -> None:
        super().__init__(ref, refused, pictures)
        self._stand_in = stand_in
        self._called: dict[CallKey, dict[str, str]] = {}  # the names and ids of the last turn's calls

    def _user(self, text: str, images: Sequence[Picture]) -> bytes:
        image_parts = [{"inlineData": {"mimeType": image.media_type, "data": image.data}} for image in images]
        text_parts = [{"text": text}] if text else []
        return self._piece("user", [encode_json(part) for part in (*image_parts, *text_parts)])

    def _assistant(self, entry: AssistantEntry, ids: Mapping[CallKey, str]) -> bytes:
        """Calls are told apart by name and order; ids are optional, and sent only where all of a turn can be."""
        has_own_ids = all(ids[call.call] == call.id for call in entry.calls)
        self._called = {
            call.call: {"id": call.id} | _encode_name(call.name) if has_own_ids else _encode_name(call.name)
            for call in entry.calls
        }
        return self._piece("model", list(self._parts(entry)))

    def _parts(self, entry: AssistantEntry) -> Iterator[bytes]:
        signed = list(signatures(self._returned(entry)))
        for on, content, signature in lay_out(entry.text, len(entry.calls), signed):
            if isinstance(content, int):
                call = entry.calls[content]
                arguments = msgspec.Raw(json_object(call.arguments).encode())
                part: dict[str, Any] = {"functionCall": self._called[call.call] | {"args": arguments}}
                if not content and not signature and self._stand_in:
                    signature = STAND_IN
            else:
                part = {"text": content, "thought": True} if on == "thought" else {"text": content}
            yield encode_json(part | {"thoughtSignature": signature} if signature else part)

    def _result(self, result: ToolResult) -> bytes:
        response = {"output": result.text} if result.success else {"error": result.text}
        called = self._called.get(result.call, _encode_name(""))
        return encode_json({"functionResponse": called | {"response": response}})


def _encode_name(name: str) -> dict[str, str]:
    safe_name = tool_name(name)
    return {"name": safe_name if safe_name[0].isalpha() or safe_name[0] == "_" else f"_{safe_name}"}


def _joined(pieces: Sequence[bytes]) -> bytes:
    """The conversation, with the last word for the user."""
    if not pieces:
        return _USER + _GO_ON + b"]}"
    last = next(piece for piece in reversed(pieces) if not piece.startswith(b","))
    by_model = last.startswith((CLOSE + _MODEL, _USER + _UNTOLD + CLOSE))
    return b"".join((*pieces, CLOSE + _USER + _GO_ON if by_model else b"", b"]}"))


BASE_URL = "https://generativelanguage.googleapis.com"
VERSION = "/v1beta"
KEY_HEADER = "x-goog-api-key"

_BUDGETS: Mapping[ReasoningEffort, int] = {
    **{"none": 0, "minimal": 512, "low": 2_048, "medium": 8_192},
    **{"high": 24_576, "xhigh": 24_576, "max": 24_576},
}
"""Tokens of thinking, for models that take no level."""
_GENERATION = re.compile(r"gemini-(\d{1,3})")
_HAS_VERSION = re.compile(r"/v\d\w*$")
_SIGNATURE = re.compile(r"thought[_ ]?signature", re.I)
_SCHEMA = re.compile(r"json_?schema|function_?declarations|\bschema\b", re.I)
_REFUSED = {
    "thinkingConfig": r"[\w.]*thinking[\w.]*|[\w.]*include_?thoughts",
    "temperature": r"[\w.]*temperature",
    "maxOutputTokens": r"[\w.]*max_?output_?tokens",
    "responseSchema": r"[\w.]*response_?schema",
    "responseMimeType": r"[\w.]*response_?mime_?type",
}
"""Patterns for the names of the parameters in error messages."""


class Gemini(HttpModel):
    """`thinking`: True to request the model's thoughts; by default the catalogue decides. `level`: the amount of
    thinking in the provider's terms (`low`, `medium`, `high`); empty leaves it to the model."""

    base_url = BASE_URL
    key_header = KEY_HEADER
    effort_words: ClassVar = (("thinkingConfig", r"[\w.]*thinking_?(?:level|budget)|thinking (?:level|budget)"),)

    def __init__(
        self, info: ModelInfo, *, thinking: bool | None = None, level: str = "", **connection: Unpack[ConnectionOptions]
    ) -> None:
        super().__init__(info, connection)
        self.path = f"/{self._resource(info.name)}:streamGenerateContent?alt=sse"
        # A model of which nothing is known is asked for its thoughts, too: it refuses once, if it has none.
        unknown = info.is_unknown and "gemini" in info.name
        self._thinking = (info.thinking or unknown) if thinking is None else thinking
        self._level = level
        # From the third generation on, calls without a signature are refused.
        generation = _GENERATION.search(info.name)
        stand_in = generation is not None and int(generation[1]) >= 3
        self._takes_levels = generation is None or stand_in
        self._encoder: GeminiEncoder = GeminiEncoder(info.ref, stand_in=stand_in)
        self._switched: set[str] = set()

    @classmethod
    def _base(cls, url: str) -> str:
        url = url.rstrip("/")
        return url if _HAS_VERSION.search(url) else url + VERSION

    def _resource(self, name: str) -> str:
        return name if name.startswith(("models/", "tunedModels/")) else f"models/{name}"

    def _parameters(self, request: ModelRequest) -> dict[str, Any]:
        how_much = self._how_much(request)
        params: dict[str, Any] = {
            "temperature": self._temperature(request),
            "maxOutputTokens": request.max_tokens or self._info.output_limit or None,
            "thinkingConfig": {"includeThoughts": True, **how_much} if self._thinking or how_much else None,
        }
        if (schema := without_tools(request)) is not None:
            params |= {"responseMimeType": "application/json", "responseSchema": reduced(schema)}
        return self._select_parameters(params)

    def _how_much(self, request: ModelRequest) -> dict[str, Any]:
        """The reasoning effort: a level, and a budget of tokens before the third generation."""
        effort = request.effort
        if effort and not self._takes_levels:
            return {"thinkingBudget": _BUDGETS[effort]}
        level = {"none": "minimal", "xhigh": "high", "max": "high"}.get(effort, effort) or self._level
        return {"thinkingLevel": level} if level else {}

    def _reader(self, host: str) -> GeminiReader:
        return GeminiReader(host, self._info.ref)

    def _mend(self, error: ModelError, sent_params: Mapping[str, Any], request: ModelRequest) -> NoticeDelta | None:
        if not is_refusal(error):
            return None
        error_text = str(error)
        if _SIGNATURE.search(error_text):
            return self._mend_signatures("missing" in error_text or "misses" in error_text, request)
        for name, words in _REFUSED.items():
            if name in sent_params and refuses(error, name, words):
                return self._drop(name)
        if request.tools and not self._encoder.reduced and _SCHEMA.search(error_text):
            self._encoder.reduce()
            return self._notice(
                "schema_reduced", "does not take the schemas of the tools as they are; they are cut down"
            )
        return None

    def _mend_signatures(self, missing: bool, request: ModelRequest) -> NoticeDelta | None:
        """Drop refused signatures, and use the stand-in for required ones: on and off at most once per model."""
        if not missing and self._encoder.drop_thinking(request):
            return self._notice("thinking_dropped", "refuses earlier thought signatures; it goes on without them")
        switch = "on" if missing else "off"
        if self._encoder.stand_in == missing or switch in self._switched:
            return None
        self._switched.add(switch)
        self._encoder.switch_stand_in()
        problem = "misses thought signatures" if missing else "refuses what stands in for thought signatures"
        return self._notice("thinking_dropped", f"{problem}; it goes on without the thinking of earlier calls")


def _access(ref: str, context: ProviderContext) -> tuple[Secret, str]:
    variable = "GOOGLE_API_KEY" if context.env.get("GOOGLE_API_KEY") and not context.env.get("GEMINI_API_KEY") else ""
    key, url = context.access(ref, variable or "GEMINI_API_KEY", "GEMINI_BASE_URL")
    return key, url or BASE_URL


def connect(name: str, context: ProviderContext) -> Gemini:
    key, url = _access(f"gemini:{name}", context)
    return Gemini(context.catalogue.look_up("gemini", name), base_url=url, api_key=key, http=context.http)


async def list_models(context: ProviderContext) -> list[ModelInfo]:
    key, url = _access("gemini", context)
    access = Access(Gemini._base(url), key, key_header=KEY_HEADER)
    return await list_from(context, "gemini", access, "/models?pageSize=1000")
