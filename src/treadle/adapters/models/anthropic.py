"""The Messages API of Anthropic, and of every server that speaks its language (M-02): system and tools beside the
conversation, roles that alternate, thinking where it stood. An answer comes in blocks, each with a start, pieces and a
stop.

Two things move from request to request, though the bytes of an entry are made once: where a message ends, because what
follows may have to be merged into it, and where the cache breakpoints stand. So a piece ends before the closing brace
of its last block, and the next one closes the message or goes on with it. Joining the pieces with `}` makes the
conversation; a breakpoint is put between a piece and its brace. The provider's cache goes by what the blocks say, not
by their marks: the last two messages of the user are marked, the first of which ended the request before, so its
prefix is found however much came since. Without the marks, a request begins with the bytes of the one before (L-21)."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Literal, Unpack

import msgspec

from treadle.adapters.models.listing import fetch_models
from treadle.adapters.models.provider_context import ProviderContext
from treadle.adapters.models.thinking import TEXT_PLACE, lay_out
from treadle.adapters.models.wire.encoder import CLOSE, AlternatingConversation, Picture, RequestEncoder
from treadle.adapters.models.wire.failures import is_refusal, is_refusal_of, make_error
from treadle.adapters.models.wire.http import Access, HttpModel, HttpOptions
from treadle.adapters.models.wire.json import clean_tool_name, encode_json, ensure_json_object
from treadle.adapters.models.wire.reading import EventReader, compute_cost
from treadle.base.types import CallKey
from treadle.errors import ModelError
from treadle.ports.model import ModelInfo, ModelRequest
from treadle.protocol.content import AssistantEntry, ToolResult, Usage
from treadle.protocol.deltas import CallDelta, NoticeDelta
from treadle.protocol.options import ReasoningEffort
from treadle.protocol.tools import ToolSpec

# A cache breakpoint. Four are allowed: on the tools, on the system text, and on two messages.
MARK, _MARKED_MESSAGES = b',"cache_control":{"type":"ephemeral"}', 2

_USER = b'{"role":"user","content":['
_ASSISTANT = b'{"role":"assistant","content":['
_UNTOLD = b'{"type":"text","text":"(The beginning of the conversation is left out.)"}'  # the user must begin
_GO_ON = b'{"type":"text","text":"Go on."'  # and end: models refuse to go on in the middle of their own words
_ID = re.compile(r"[a-zA-Z0-9_-]{1,128}")


class AnthropicConversation(AlternatingConversation):
    """Pieces to be joined, each without the brace that ends its last block."""

    opening: ClassVar = {"user": _USER, "model": _ASSISTANT}
    untold = _UNTOLD
    _encoder: "AnthropicEncoder"

    def _encode_user(self, text: str, images: Sequence[Picture]) -> bytes:
        sources = ({"type": "base64", "media_type": image.media_type, "data": image.data} for image in images)
        parts = [encode_json({"type": "image", "source": source}) for source in sources]
        return self._join_parts("user", [*parts, _encode_text(text)] if text.strip() else parts)

    def _encode_assistant(self, entry: AssistantEntry, ids: Mapping[CallKey, str]) -> bytes:
        return self._join_parts("model", [*self._encode_blocks(entry, ids)])

    def _join_parts(self, speaker: Literal["user", "model"], parts: Sequence[bytes]) -> bytes:
        return super()._join_parts(speaker, parts)[:-1]

    def _encode_result(self, result: ToolResult) -> bytes:
        # An error without a word is refused, and so is blank text wherever it stands.
        content = result.text if result.text.strip() else "(no output)"
        block: dict[str, Any] = {"type": "tool_result", "tool_use_id": self._get_id(result), "content": content}
        return encode_json(block if result.success else {**block, "is_error": True})

    def _encode_blocks(self, entry: AssistantEntry, ids: Mapping[CallKey, str]) -> Iterator[bytes]:
        """Text and calls with the thinking put back in between."""
        returned = [sealed for _, sealed in self._unseal_thinking(entry)]
        if self._encoder.demands_thinking and not any(sealed.block != TEXT_PLACE for sealed in returned):
            text = "".join(block.text for block in entry.thinking)
            yield encode_json({"type": "thinking", "thinking": text, "signature": ""})
        for part in lay_out(entry.text, len(entry.calls), returned):
            match part:
                case bytes():
                    if part != TEXT_PLACE:
                        yield part
                case str():
                    yield _encode_text(part)
                case int():
                    call = entry.calls[part]
                    arguments = msgspec.Raw(ensure_json_object(call.arguments).encode())
                    name = clean_tool_name(call.name)
                    yield encode_json({"type": "tool_use", "id": ids[call.call], "name": name, "input": arguments})


class AnthropicEncoder(RequestEncoder):
    conversation = AnthropicConversation
    ids = _ID
    mark = MARK
    demands_thinking = False  # True if the server refuses answers without a block of thinking

    def encode_body(self, parameters: dict[str, Any], request: ModelRequest) -> bytes:
        # A request that is sent once is not worth caching: a cache write costs a quarter more.
        mark = self.mark if request.purpose == "turn" else b""
        head = encode_json(parameters)[:-1] + self._encode_tools_part(request)
        if request.system.strip():
            head += b',"system":[' + _encode_text(request.system)[:-1] + mark + b"}]"
        return b"".join((head, b',"messages":[', _join_pieces(self._encode_entries(request), mark), b"]}"))

    def _encode_tools(self, tools: tuple[ToolSpec, ...]) -> bytes:
        return super()._encode_tools(tools)[:-2] + self.mark + b"}]"

    def _describe_tool(self, spec: ToolSpec) -> dict[str, Any]:
        description = {"description": spec.description} if spec.description else {}
        return {"name": spec.name, **description, "input_schema": {"type": "object", **spec.parameters}}

    def _encode_tools_part(self, request: ModelRequest) -> bytes:
        """A request for a last answer names the tools too, and forbids them: the calls in its history need them."""
        talk = self.talk(request)
        if request.tools:
            talk.tools = request.tools
            return b',"tools":' + self._get_encoded_tools(request.tools)
        answers = (entry for entry in request.entries if isinstance(entry, AssistantEntry))
        names = dict.fromkeys(clean_tool_name(call.name) for answer in answers for call in answer.calls)
        if not names:
            return b""
        tools = self._get_encoded_tools(talk.tools) if talk.tools else self._encode_tools(tuple(map(ToolSpec, names)))
        return b',"tools":' + tools + b',"tool_choice":{"type":"none"}'


def _join_pieces(pieces: Sequence[bytes], mark: bytes) -> bytes:
    if not pieces:
        return _USER + _GO_ON + b"}]}"
    ends: list[int] = []
    last = end = len(pieces) - 1
    for at in (each for each in range(last, -1, -1) if not pieces[each].startswith(b",")):
        if not pieces[at].startswith((_USER + _UNTOLD + CLOSE, CLOSE + _ASSISTANT)):
            ends.append(end)
        end = at - 1
        if len(ends) == _MARKED_MESSAGES:
            break
    parts = list(pieces)
    for at in ends:
        parts[at] += mark
    if last not in ends:
        parts.append(CLOSE + _USER + _GO_ON)
    return b"}".join(parts) + b"}]}"


def _encode_text(text: str) -> bytes:
    return encode_json({"type": "text", "text": text})


# Models whose prompts above a length cost a multiple of the catalogue's prices.
_LONG_PROMPTS: dict[str, tuple[int, float]] = {"claude-haiku-5-5": (100_000, 5.0)}


class _Details(msgspec.Struct, gc=False):
    thinking_tokens: int | None = None


class _Usage(msgspec.Struct, gc=False):
    """Totals so far; a missing count has not changed."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    cache_creation_input_tokens: int | None = None
    output_tokens_details: _Details | None = None


class _Piece(msgspec.Struct, gc=False):
    text: str | None = None
    partial_json: str | None = None
    thinking: str | None = None
    signature: str | None = None
    stop_reason: str | None = None
    stop_details: Any = None


class _AnthropicMessage(msgspec.Struct, gc=False):
    type: str = ""
    id: Any = None
    model: Any = None
    content: list[dict[str, Any]] | None = None
    stop_reason: str | None = None
    stop_details: Any = None
    usage: _Usage | None = None
    error: Any = None


class _Event(msgspec.Struct, gc=False):
    type: str = ""
    index: int | None = None
    delta: _Piece | None = None
    content_block: dict[str, Any] | None = None
    message: _AnthropicMessage | None = None
    usage: _Usage | None = None
    error: Any = None


_decode = msgspec.json.Decoder(_Event).decode


class _Block(msgspec.Struct):
    start: dict[str, Any]
    kind: Any
    call: int  # which of the answer's calls it is
    text_before: int  # how many characters of text stood before it
    pieces: list[str] = []


class AnthropicReader(EventReader):
    def __init__(self, host: str, info: ModelInfo) -> None:
        super().__init__(host, info)
        self._totals: dict[str, int] = dict.fromkeys(_Usage.__struct_fields__, 0)  # the totals so far
        self._blocks: dict[int, _Block] = {}
        self._current = 0

    def _close(self) -> None:
        super()._close()
        for index in list(self._blocks):
            self._stop_block(index)

    def _read(self, chunk: bytes) -> None:
        for event in self._split_events(chunk):
            data = event.data
            if self.done or not data:
                continue
            try:
                part = _decode(data)
            except (msgspec.MsgspecError, RecursionError):
                part = self._decode_part(data, _Event)
            piece = part.delta
            if piece is not None and piece.text is not None:  # first, because nearly all are
                self.say(piece.text)
            else:
                self._take(part, part.type or event.event, data)

    def _take(self, part: _Event, kind: str, data: str) -> None:
        match kind:
            case "content_block_delta" if part.delta is not None:
                self._take_piece(self._blocks.get(self._get_index(part)), part.delta)
            case "content_block_start":
                self._start_block(self._get_index(part), part.content_block or {})
            case "content_block_stop":
                self._stop_block(self._get_index(part))
            case "message_start" if part.message is not None:
                self._identify(part.message.id, part.message.model)
                self._count(part.message.usage)
            case "message_delta":
                self._count(part.usage)
                if part.delta is not None and part.delta.stop_reason:
                    self._finish(part.delta.stop_reason, part.delta.stop_details)
            case "message_stop":
                self.done = True
            case _ if kind == "error" or part.error:
                raise make_error(self._where, 200, data.encode())

    def _get_index(self, part: _Event) -> int:
        if part.index is not None:
            self._current = part.index
        return self._current

    def _start_block(self, index: int, start: dict[str, Any]) -> None:
        if index in self._blocks:
            self._stop_block(index)  # a server that says no stop, or calls every index 0
        block = self._blocks[index] = _Block(start, start.get("type"), self._calls, self.text_length)
        match block.kind:
            case "text" if isinstance(start.get("text"), str):
                self.say(start["text"])
            case "thinking" if isinstance(start.get("thinking"), str):
                self._take_piece(block, _Piece(thinking=start["thinking"]))
            case "tool_use":
                self._begin_call(str(start.get("id") or ""), str(start.get("name") or ""))

    def _take_piece(self, block: _Block | None, piece: _Piece) -> None:
        if piece.thinking:
            self.think(piece.thinking)
            if block is not None:
                block.pieces.append(piece.thinking)
        if piece.signature is not None and block is not None:
            block.start["signature"] = piece.signature
        if piece.partial_json and (block is None or block.kind == "tool_use"):
            if block is not None:
                block.pieces.append(piece.partial_json)
            self.put(CallDelta(index=block.call if block else None, arguments=piece.partial_json))

    def _stop_block(self, index: int) -> None:
        block = self._blocks.pop(index, None)
        if block is None:
            return
        place = self.text_length, block.call
        match block.kind:
            case "text" if block.call and self.text_length > block.text_before:
                # Text behind a call. An answer has its text in one piece: the place of this one is recorded.
                self._put_block("", TEXT_PLACE, block.text_before, block.call)
            case "thinking":
                text = "".join(block.pieces)
                if text or block.start.get("signature"):
                    # Servers that speak this language and do not sign demand their blocks back all the same.
                    self._put_block(text, encode_json({**block.start, "thinking": text}), *place)
            case "redacted_thinking":
                self._put_block("", encode_json(block.start), *place)
            case "tool_use" if not block.pieces and block.start.get("input"):
                self.put(CallDelta(index=block.call, arguments=encode_json(block.start["input"]).decode()))

    def _finish(self, reason: str, details: Any) -> None:
        self.finish_reason = "content_filter" if reason == "refusal" else reason
        if reason == "pause_turn":
            self.put(NoticeDelta("paused", f"{self._info.ref} paused a long turn; it is asked to go on"))
        if reason == "refusal":
            explanation = details.get("explanation") if isinstance(details, dict) else None
            message = f"{self._info.ref} declined to answer: {explanation or 'it gave no reason'}"
            self.put(NoticeDelta("incomplete", message))

    def _count(self, report: _Usage | None) -> None:
        if report is None:
            return
        for name, count in msgspec.structs.asdict(report).items():
            count = count.thinking_tokens if isinstance(count, _Details) else count
            self._totals[name] = self._totals[name] if count is None else count
        fresh, output, cached, cache_writes, thinking = self._totals.values()
        above, factor = _LONG_PROMPTS.get(self._info.name, (0, 1.0))
        prompt = fresh + cached + cache_writes
        usd = compute_cost(self._info, fresh, cache_writes, cached, output) * (factor if prompt > above else 1)
        self.count(Usage(prompt, output, cached, thinking, usd))

    def _read_document(self, body: bytes) -> None:
        try:
            message = msgspec.json.decode(body, type=_AnthropicMessage)
        except (msgspec.MsgspecError, RecursionError) as error:
            raise self._make_document_error(body) from error
        if message.error or message.content is None:
            raise self._make_document_error(body)
        self._identify(message.id, message.model)
        for index, block in enumerate(message.content):
            self._start_block(index, block)
            self._stop_block(index)
        self._count(message.usage)
        self._finish(message.stop_reason or ("tool_use" if self._calls else "end_turn"), message.stop_details)


BASE_URL = "https://api.anthropic.com"
VERSION = "2023-06-01"
FALLBACK_OUTPUT = 4_096
LEAST_BUDGET = 1_024  # the smallest budget for thinking that the API takes

_BUDGETS: Mapping[ReasoningEffort, int] = {  # tokens of thinking for models that take a budget instead of a level
    **{"minimal": LEAST_BUDGET, "low": 4_096, "medium": 8_192},
    **{"high": 16_384, "xhigh": 24_576, "max": 32_000},
}
_BUDGETED = re.compile(r"claude-(?:3-7|(?:opus|sonnet|haiku)-4(?:-[0-5])?(?:-20\d{6})?$)")
"""Models that know budgets of thinking alone; all later ones are asked by the name of a level."""

_TOO_MANY = re.compile(r"max_tokens: \d+ > (\d{1,9})")
_DEMANDS_BLOCKS = re.compile(r"thinking\b.{0,60}must be passed back", re.I)  # DeepSeek, for answers of another model
_ABOUT_BLOCKS = re.compile(r"messages\.\d|signature|block", re.I)


class AnthropicMessages(HttpModel):
    """`thinking`: "adaptive" lets the model decide, a number is a budget of tokens, "" asks for none."""

    base_url = BASE_URL
    path = "/v1/messages"
    key_header = "x-api-key"
    reader = AnthropicReader
    headers: ClassVar = {"anthropic-version": VERSION}
    effort_words: ClassVar = (("output_config", r"output_config[\w.]*|effort"),)

    def __init__(
        self, info: ModelInfo, *, thinking: Literal["adaptive", ""] | int | None = None, **options: Unpack[HttpOptions]
    ) -> None:
        super().__init__(info, options)
        self._thinking = thinking if thinking is not None else ("adaptive" if info.thinking else "")
        self._encoder: AnthropicEncoder = AnthropicEncoder(info.ref)
        self._output_limit = 0  # the most that the server said it takes for an answer, once it did

    @classmethod
    def _normalize_base_url(cls, url: str) -> str:
        return url.rstrip("/").removesuffix("/messages").removesuffix("/v1")

    def _build_parameters(self, request: ModelRequest) -> dict[str, Any]:
        limit = request.max_tokens or self._info.max_output or FALLBACK_OUTPUT
        limit = min(limit, self._output_limit or limit)
        calm = self._encoder.talk(request).calm
        effort = "" if calm else request.effort
        thinking = None if calm else self._build_thinking(limit, effort)
        level = None
        if effort not in ("", "none") and not _BUDGETED.match(self._info.name):
            level = {"effort": "low" if effort == "minimal" else effort}
        temperature = self._choose_temperature(request)
        if thinking is not None and thinking["type"] != "disabled" and request.temperature is None:
            temperature = None  # the API takes none beside thinking
        optional = {"temperature": temperature, "thinking": thinking, "output_config": level}
        return {"model": self._info.name, "max_tokens": limit, "stream": True, **self._select_parameters(optional)}

    def _build_thinking(self, limit: int, effort: ReasoningEffort | Literal[""]) -> dict[str, Any] | None:
        name = self._info.name
        # Models of others that speak this protocol think unless they are told not to, and know no "adaptive".
        is_foreign = not name.startswith("claude")
        if effort == "none":
            return {"type": "disabled"} if self._thinking or is_foreign else None
        budget = self._thinking if isinstance(self._thinking, int) else 0
        if effort and (is_foreign or _BUDGETED.match(name)):
            budget = _BUDGETS[effort]
        elif effort or self._thinking == "adaptive":
            # Without this word newer models keep to themselves what they think, and what they say between calls.
            return {"type": "adaptive", "display": "summarized"}
        budget = min(budget, limit - 1)
        return {"type": "enabled", "budget_tokens": budget} if budget >= LEAST_BUDGET else None

    def _mend(self, error: ModelError, sent_params: Mapping[str, Any], request: ModelRequest) -> NoticeDelta | None:
        if not is_refusal(error):
            return None
        error_text = str(error)
        if (most := _TOO_MANY.search(error_text)) and 0 < int(most[1]) < sent_params["max_tokens"]:
            self._output_limit = int(most[1])
            return self._make_notice(
                "parameter_lowered", f"takes at most {most[1]} tokens of output; max_tokens is lowered"
            )
        about_marks = is_refusal_of(error, "cache_control", r"[\w.]*cache_control[\w.]*", inside=True)
        if about_marks and self._encoder.change(mark=b""):
            return self._make_notice("parameter_dropped", "refuses cache_control; it is no longer sent")
        if "temperature" in sent_params and is_refusal_of(error, "temperature"):
            return self._drop("temperature")
        if "thinking" not in error_text and "signature" not in error_text:
            return None
        if _DEMANDS_BLOCKS.search(error_text):
            if not self._encoder.change(demands_thinking=True):
                return None
            return self._make_notice("thinking_returned", "wants thinking with every answer; from now on it gets it")
        if _ABOUT_BLOCKS.search(error_text):
            if self._encoder.drop_thinking(request):
                return self._make_notice("thinking_dropped", "refuses earlier thinking; it goes on without it")
            if "thinking" in sent_params:
                self._encoder.talk(request).calm = True
                return self._make_notice("thinking_dropped", "misses earlier thinking; it goes on without thinking")
        elif "thinking" in sent_params and is_refusal_of(error, "thinking", r"thinking[\w.]*"):
            return self._drop("thinking")
        return None


def connect(name: str, context: ProviderContext) -> AnthropicMessages:
    key, url = context.require_access(f"anthropic:{name}", BASE_URL)
    info = context.catalogue.look_up("anthropic", name)
    return AnthropicMessages(info, base_url=url, api_key=key, http=context.http)


async def list_models(context: ProviderContext) -> list[ModelInfo]:
    key, url = context.require_access("anthropic", BASE_URL)
    access = Access(AnthropicMessages._normalize_base_url(url), key, AnthropicMessages.headers, "x-api-key")
    return await fetch_models(context, "anthropic", access, "/v1/models?limit=1000")
