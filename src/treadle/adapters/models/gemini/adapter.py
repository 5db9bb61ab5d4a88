"""The Gemini API of Google, and of every server that speaks its language (M-03): system text and tools beside the
conversation, roles that alternate, signatures on the parts that carried them: calls, text, often empty, or thoughts.

The bytes of an entry are made once, though what follows may belong to the same turn of the conversation: so a piece
leaves its turn open, and the next one goes on with it or closes it. A request begins with the bytes of the one before,
but for its last two brackets (L-21)."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Literal, Unpack

import msgspec

from treadle.adapters.models.gemini.schema import reduce_schema
from treadle.adapters.models.listing import fetch_models
from treadle.adapters.models.provider_context import ProviderContext
from treadle.adapters.models.wire.encoder import (
    CLOSE,
    AlternatingConversation,
    Picture,
    RequestEncoder,
    find_output_schema,
)
from treadle.adapters.models.wire.failures import is_refusal, is_refusal_of, make_error
from treadle.adapters.models.wire.http import Access, HttpModel, HttpOptions
from treadle.adapters.models.wire.json import clean_tool_name, decode_tolerantly, encode_json, ensure_json_object
from treadle.adapters.models.wire.reading import EventReader
from treadle.base.types import CallKey
from treadle.errors import ModelError
from treadle.ports.model import ModelInfo, ModelRequest
from treadle.protocol.content import AssistantEntry, ToolResult, Usage
from treadle.protocol.deltas import NoticeDelta
from treadle.protocol.options import ReasoningEffort
from treadle.protocol.tools import ToolSpec


class _Mark(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """A signature counts only on the very part that carried it (M-10). An entry has no parts, so each signature is
    recorded as a block of thinking that says where it stood."""

    on: Literal["call", "text", "thought"]
    thought_signature: str
    length: int = 0  # characters of the signed text or thought


class FunctionCall(msgspec.Struct, gc=False, rename="camel"):
    name: str | None = None
    args: msgspec.Raw = msgspec.Raw()  # an object, kept as it was written
    id: str | None = None
    will_continue: bool | None = None


class GeminiPart(msgspec.Struct, gc=False, rename="camel"):
    """One field says what it is; a signature may stand beside any."""

    text: str | None = None
    thought: bool | None = None
    thought_signature: str | None = None
    function_call: FunctionCall | None = None


class Content(msgspec.Struct, gc=False):
    parts: list[GeminiPart] | None = None


class Candidate(msgspec.Struct, gc=False, rename="camel"):
    content: Content | None = None
    finish_reason: str | None = None
    finish_message: str | None = None
    index: int | None = None


class Feedback(msgspec.Struct, gc=False, rename="camel"):
    block_reason: str | None = None
    block_reason_message: str | None = None


class GeminiUsage(msgspec.Struct, gc=False, rename="camel"):
    prompt_token_count: int | None = None
    cached_content_token_count: int | None = None
    tool_use_prompt_token_count: int | None = None
    candidates_token_count: int | None = None
    thoughts_token_count: int | None = None


class Chunk(msgspec.Struct, gc=False, rename="camel"):
    candidates: list[Candidate] | None = None
    usage_metadata: GeminiUsage | None = None
    prompt_feedback: Feedback | None = None
    error: msgspec.Raw = msgspec.Raw()
    response_id: Any = None
    model_version: Any = None


_chunk_decoder = msgspec.json.Decoder(Chunk)


def compute_usage(report: GeminiUsage) -> Usage:
    """Thought tokens are not counted in the answer but cost the same."""
    thoughts = report.thoughts_token_count or 0
    prompt = (report.prompt_token_count or 0) + (report.tool_use_prompt_token_count or 0)
    answer = (report.candidates_token_count or 0) + thoughts
    return Usage(prompt, answer, report.cached_content_token_count or 0, thoughts)


_LENGTH = ("MAX_TOKENS", "CONTINUATION")
# The model produced an unusable answer, which is withheld; a retry mostly succeeds.
_SPOILED = ("MALFORMED_FUNCTION_CALL", "MALFORMED_RESPONSE", "UNEXPECTED_TOOL_CALL", "TOO_MANY_TOOL_CALLS", "OTHER")
_FILTERED = ("SAFETY", "RECITATION", "LANGUAGE", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII")


class GeminiReader(EventReader):
    def __init__(self, host: str, info: ModelInfo) -> None:
        super().__init__(host, info)
        self._unsigned_thoughts: list[str] = []  # the thoughts since the last signature
        self._spoiled: ModelError | None = None

    def _read(self, chunk: bytes) -> None:
        for event in self._split_events(chunk):
            if event.data.startswith("[DONE]"):
                self.done = True
            elif event.data and not self.done:
                self._take(event.data)

    def _close(self) -> None:
        super()._close()
        if self._spoiled is not None:
            raise self._spoiled

    def _read_document(self, document: bytes) -> None:
        """A server that does not know of events sends an array of chunks; one that does not stream, a single one."""
        if not document.startswith(b"["):
            self._take(document)
            return
        try:
            chunks = msgspec.json.decode(document, type=list[msgspec.Raw])
        except (msgspec.MsgspecError, RecursionError) as error:
            raise self._make_nonsense_error(document) from error
        for chunk in chunks:
            self._take(bytes(chunk))

    def _take(self, data: str | bytes) -> None:
        chunk = decode_tolerantly(data, _chunk_decoder)
        if chunk is None:
            raise self._make_nonsense_error(data)
        self._identify(chunk.response_id, chunk.model_version)
        if chunk.usage_metadata is not None:
            self.count(compute_usage(chunk.usage_metadata))
        for candidate in chunk.candidates or ():
            if candidate.index:
                continue  # one answer was asked for
            for part in (candidate.content and candidate.content.parts) or ():
                if part.text and part.thought_signature is None and not part.thought:  # first, because nearly all are
                    self.say(part.text)
                else:
                    self._take_part(part)
            if candidate.finish_reason and candidate.finish_reason != "FINISH_REASON_UNSPECIFIED":
                self._finish(candidate.finish_reason, candidate.finish_message or "")
        # A chunk without an answer has counts alone, a failure, or a refusal of the question.
        if not chunk.candidates and bytes(chunk.error) not in (b"", b"null"):
            raise make_error(self._where, 200, data.encode("utf-8", "replace") if isinstance(data, str) else data)
        feedback = chunk.prompt_feedback
        if not chunk.candidates and feedback is not None and feedback.block_reason:
            reason = f"{feedback.block_reason} {feedback.block_reason_message or ''}".strip()
            raise ModelError("bad_request", f"{self._where} does not answer this conversation: {reason}", status=200)

    def _take_part(self, part: GeminiPart) -> None:
        text, place = part.text or "", (self.text_length, self._calls)
        mark = _Mark("text", part.thought_signature or "", len(text))
        if (call := part.function_call) is not None:
            mark = _Mark("call", mark.thought_signature)
            if call.will_continue:
                raise ModelError("cut_stream", f"{self._where} sent a call in pieces, which was not asked for")
            arguments = bytes(call.args).decode("utf-8", "replace")
            self._begin_call(call.id, call.name, "{}" if arguments in ("", "null") else arguments)
        elif part.thought:
            mark = _Mark("thought", mark.thought_signature, len(text))
            self.think(text)
            self._unsigned_thoughts.append(text)
        else:
            self.say(text)
        if mark.thought_signature:
            self._put_block("".join(self._unsigned_thoughts), msgspec.json.encode(mark), *place)
            self._unsigned_thoughts.clear()

    def _finish(self, reason: str, message: str) -> None:
        description = f"{reason}: {message[:200]}" if message else reason
        if reason == "STOP":
            self.finish_reason = "tool_calls" if self._calls else "stop"
        elif reason in _LENGTH:
            self.finish_reason = "length"
        elif reason == "MISSING_THOUGHT_SIGNATURE":
            raise ModelError("bad_request", f"{self._where} misses a thought signature ({description})", status=400)
        elif reason in _SPOILED:
            self.finish_reason = "error"
            self._spoiled = ModelError("cut_stream", f"{self._info.ref} could not finish its answer ({description})")
        else:
            self.finish_reason = "content_filter" if reason in _FILTERED else reason.lower()
            message = f"the answer of {self._info.ref} was stopped by its provider: {description}"
            self.put(NoticeDelta("incomplete", message))


STAND_IN = "skip_thought_signature_validator"
"""The value that replaces a signature, for calls of other models and for signatures that were refused."""

_USER = b'{"role":"user","parts":['
_MODEL = b'{"role":"model","parts":['
_UNTOLD = b'{"text":"(The beginning of the conversation is left out.)"}'  # a conversation must begin with the user
_GO_ON = b'{"text":"Go on."}'  # and end with the user


class GeminiConversation(AlternatingConversation):
    opening: ClassVar = {"user": _USER, "model": _MODEL}
    untold = _UNTOLD

    _encoder: "GeminiEncoder"
    _called: Mapping[CallKey, dict[str, str]] = {}  # the names and ids of the last turn's calls

    def _encode_user(self, text: str, images: Sequence[Picture]) -> bytes:
        image_parts = [{"inlineData": {"mimeType": image.media_type, "data": image.data}} for image in images]
        text_parts = [{"text": text}] if text else []
        return self._join_parts("user", [encode_json(part) for part in (*image_parts, *text_parts)])

    def _encode_assistant(self, entry: AssistantEntry, ids: Mapping[CallKey, str]) -> bytes:
        """Calls are told apart by name and order; ids are optional, and sent only where all of a turn can be."""
        has_own_ids = all(ids[call.call] == call.id for call in entry.calls)
        self._called = {
            call.call: {"id": call.id} | _encode_name(call.name) if has_own_ids else _encode_name(call.name)
            for call in entry.calls
        }
        return self._join_parts("model", list(self._encode_parts(entry)))

    def _encode_parts(self, entry: AssistantEntry) -> Iterator[bytes]:
        """The parts of an answer in their order. A signed part is never joined with one that is not."""
        signatures: dict[int, str] = {}  # of calls
        behind: list[tuple[int, bytes]] = []  # signed parts behind so many calls
        at = 0
        for block, sealed in self._unseal_thinking(entry):
            try:
                mark = msgspec.json.decode(sealed.block, type=_Mark)
            except msgspec.MsgspecError:
                continue  # `GeminiReader` did not write it
            if mark.on == "call":
                signatures[sealed.calls] = mark.thought_signature
                continue
            text, thought = entry.text[sealed.text : sealed.text + mark.length], block.text
            if mark.on == "thought":  # a signed thought is the end of the thoughts since the previous signature
                text = thought[max(0, len(thought) - mark.length) :]
            signed_part = _encode_text(text, mark.thought_signature, is_thought=mark.on == "thought")
            # Text is never among the calls: an entry has all its text before them.
            if sealed.calls and not (mark.on == "text" and mark.length):
                behind.append((sealed.calls, signed_part))
                continue
            if piece := entry.text[at : sealed.text]:
                yield _encode_text(piece)
            yield signed_part
            at = max(at, sealed.text + (mark.length if mark.on == "text" else 0))
        if remaining := entry.text[at:]:
            yield _encode_text(remaining)
        for number, call in enumerate(entry.calls):
            yield from (part for calls, part in behind if calls == number)
            arguments = msgspec.Raw(ensure_json_object(call.arguments).encode())
            signature = signatures.get(number, "") or (STAND_IN if not number and self._encoder.stand_in else "")
            signed = {"thoughtSignature": signature} if signature else {}
            yield encode_json({"functionCall": {**self._called[call.call], "args": arguments}, **signed})
        yield from (part for calls, part in behind if calls >= len(entry.calls))

    def _encode_result(self, result: ToolResult) -> bytes:
        response = {"output": result.text} if result.success else {"error": result.text}
        function = self._called.get(result.call, _encode_name(""))
        return encode_json({"functionResponse": function | {"response": response}})


class GeminiEncoder(RequestEncoder):
    conversation = GeminiConversation
    reduced = False  # True if the tools' schemas are reduced to the subset that the oldest servers accept

    def __init__(self, ref: str, *, stand_in: bool = False) -> None:
        super().__init__(ref)
        self.stand_in = stand_in

    def encode_body(self, parameters: dict[str, Any], request: ModelRequest) -> bytes:
        parts = [b'"generationConfig":' + encode_json(parameters)] if parameters else []
        if request.system.strip():
            parts.append(b'"systemInstruction":' + encode_json({"parts": [{"text": request.system}]}))
        if request.tools:
            parts.append(b'"tools":[{"functionDeclarations":' + self._get_encoded_tools(request.tools) + b"}]")
            parts.append(b'"toolConfig":{"functionCallingConfig":{"mode":"AUTO"}}')
        parts.append(b'"contents":[' + _join_pieces(self._encode_entries(request)))
        return b"{" + b",".join(parts) + b"]}"

    def _describe_tool(self, spec: ToolSpec) -> dict[str, Any]:
        declared: dict[str, Any] = {"name": spec.name, "description": spec.description or spec.name}
        if not self.reduced:
            return declared | {"parametersJsonSchema": {"type": "object", **spec.parameters}}
        schema = reduce_schema(spec.parameters)
        return declared | {"parameters": schema} if schema.get("properties") else declared


def _encode_text(text: str, signature: str = "", *, is_thought: bool = False) -> bytes:
    flag = {"thought": True} if is_thought else {}
    return encode_json({"text": text, **flag, **({"thoughtSignature": signature} if signature else {})})


def _encode_name(name: str) -> dict[str, str]:
    safe_name = clean_tool_name(name)
    return {"name": safe_name if safe_name[0].isalpha() or safe_name[0] == "_" else f"_{safe_name}"}


def _join_pieces(pieces: Sequence[bytes]) -> bytes:
    if not pieces:
        return _USER + _GO_ON + b"]}"
    last = next(piece for piece in reversed(pieces) if not piece.startswith(b","))
    by_model = last.startswith((CLOSE + _MODEL, _USER + _UNTOLD + CLOSE))
    return b"".join((*pieces, CLOSE + _USER + _GO_ON if by_model else b"", b"]}"))


BASE_URL = "https://generativelanguage.googleapis.com"
VERSION = "/v1beta"
KEY_HEADER = "x-goog-api-key"

_BUDGETS: Mapping[ReasoningEffort, int] = {  # tokens of thinking, for models that take no level
    **{"none": 0, "minimal": 512, "low": 2_048, "medium": 8_192},
    **{"high": 24_576, "xhigh": 24_576, "max": 24_576},
}
_GENERATION = re.compile(r"gemini-(\d{1,3})")
_HAS_VERSION = re.compile(r"/v\d\w*$")
_SIGNATURE = re.compile(r"thought[_ ]?signature", re.I)
_SCHEMA = re.compile(r"json_?schema|function_?declarations|\bschema\b", re.I)
_REFUSED = {  # patterns for the names of the parameters in error messages
    "thinkingConfig": r"[\w.]*thinking[\w.]*|[\w.]*include_?thoughts",
    "temperature": r"[\w.]*temperature",
    "maxOutputTokens": r"[\w.]*max_?output_?tokens",
    "responseSchema": r"[\w.]*response_?schema",
    "responseMimeType": r"[\w.]*response_?mime_?type",
}


class Gemini(HttpModel):
    """`thinking`: True to request thoughts; by default the catalogue decides. `level`: in the provider's words."""

    base_url = BASE_URL
    key_header = KEY_HEADER
    reader = GeminiReader
    effort_words: ClassVar = (("thinkingConfig", r"[\w.]*thinking_?(?:level|budget)|thinking (?:level|budget)"),)

    def __init__(
        self, info: ModelInfo, *, thinking: bool | None = None, level: str = "", **options: Unpack[HttpOptions]
    ) -> None:
        super().__init__(info, options)
        self.path = f"/{self._format_resource(info.name)}:streamGenerateContent?alt=sse"
        # A model of which nothing is known is asked for its thoughts, too: it refuses once, if it has none.
        unknown = info.is_unknown and "gemini" in info.name
        self._thinking = (info.thinking or unknown) if thinking is None else thinking
        self._level = level
        # From the third generation on, calls without a signature are refused.
        generation = _GENERATION.search(info.name)
        stand_in = generation is not None and int(generation[1]) >= 3
        self._takes_levels = generation is None or stand_in
        self._encoder: GeminiEncoder = GeminiEncoder(info.ref, stand_in=stand_in)
        self._switched: set[bool] = set()

    @classmethod
    def _normalize_base_url(cls, url: str) -> str:
        url = url.rstrip("/")
        return url if _HAS_VERSION.search(url) else url + VERSION

    def _format_resource(self, name: str) -> str:
        return name if name.startswith(("models/", "tunedModels/")) else f"models/{name}"

    def _build_parameters(self, request: ModelRequest) -> dict[str, Any]:
        effort = request.effort
        level = {"none": "minimal", "xhigh": "high", "max": "high"}.get(effort, effort) or self._level
        how_much: dict[str, Any] = {"thinkingLevel": level} if level else {}
        if effort and not self._takes_levels:  # before the third generation
            how_much = {"thinkingBudget": _BUDGETS[effort]}
        params: dict[str, Any] = {
            "temperature": self._choose_temperature(request),
            "maxOutputTokens": request.max_tokens or self._info.output_limit or None,
            "thinkingConfig": {"includeThoughts": True, **how_much} if self._thinking or how_much else None,
        }
        if (schema := find_output_schema(request)) is not None:
            params |= {"responseMimeType": "application/json", "responseSchema": reduce_schema(schema)}
        return self._select_parameters(params)

    def _mend(self, error: ModelError, sent_params: Mapping[str, Any], request: ModelRequest) -> NoticeDelta | None:
        if not is_refusal(error):
            return None
        error_text = str(error)
        if _SIGNATURE.search(error_text):
            return self._mend_signatures("missing" in error_text or "misses" in error_text, request)
        for name, words in _REFUSED.items():
            if name in sent_params and is_refusal_of(error, name, words):
                return self._drop(name)
        if request.tools and not self._encoder.reduced and _SCHEMA.search(error_text):
            self._encoder.change(reduced=True)
            text = "does not take the schemas of the tools as they are; they are cut down"
            return self._make_notice("schema_reduced", text)
        return None

    def _mend_signatures(self, missing: bool, request: ModelRequest) -> NoticeDelta | None:
        """Drop refused signatures, and use the stand-in for required ones: on and off at most once per model."""
        if not missing and self._encoder.drop_thinking(request):
            return self._make_notice("thinking_dropped", "refuses earlier thought signatures; it goes on without them")
        if missing in self._switched or not self._encoder.change(stand_in=missing):
            return None
        self._switched.add(missing)
        problem = "misses thought signatures" if missing else "refuses what stands in for thought signatures"
        return self._make_notice("thinking_dropped", f"{problem}; it goes on without the thinking of earlier calls")


def connect(name: str, context: ProviderContext) -> Gemini:
    key, url = context.require_access(f"gemini:{name}", BASE_URL)
    return Gemini(context.catalogue.look_up("gemini", name), base_url=url, api_key=key, http=context.http)


async def list_models(context: ProviderContext) -> list[ModelInfo]:
    key, url = context.require_access("gemini", BASE_URL)
    access = Access(Gemini._normalize_base_url(url), key, key_header=KEY_HEADER)
    return await fetch_models(context, "gemini", access, "/models?pageSize=1000")
