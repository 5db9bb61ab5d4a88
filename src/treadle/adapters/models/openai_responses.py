"""The Responses API of OpenAI, and of every server that speaks its language (M-05). Nothing is kept by the provider:
each request carries the whole conversation, a flat list of items, with encrypted reasoning where it stood (M-10).

In an answer an item is announced, sent in pieces, and sent again as a whole. The pieces are shown as they arrive;
content that comes only in the whole item is taken from there."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Unpack

import msgspec

from treadle.adapters.models.listing import fetch_models
from treadle.adapters.models.provider_context import ProviderContext
from treadle.adapters.models.thinking import SignedBlock, lay_out, seal
from treadle.adapters.models.wire.encoder import ConversationEncoder, Picture, RequestEncoder, build_schema_format
from treadle.adapters.models.wire.failures import is_refusal_of, make_error
from treadle.adapters.models.wire.http import Access, HttpModel, HttpOptions
from treadle.adapters.models.wire.json import clean_tool_name, decode_tolerantly, encode_json, ensure_json_object
from treadle.adapters.models.wire.reading import NO_INFO, EventReader, UsageDetails, add_write_cost
from treadle.base.types import CallKey
from treadle.errors import ModelError
from treadle.ports.model import ModelInfo, ModelRequest
from treadle.protocol.content import AssistantEntry, Thinking, ToolResult, Usage
from treadle.protocol.deltas import CallDelta, NoticeDelta, ThinkingBlock
from treadle.protocol.tools import ToolSpec

SEPARATOR = "\n\n"  # between two messages of one answer
LONGEST_NAME = 64
_HEAD = b'{"type":"message"'  # how the record of a message begins that goes back with its id and its phase
_ID = re.compile(r"[a-zA-Z0-9_-]{1,64}")


class ResponsesConversation(ConversationEncoder):
    """Each entry is one or more items."""

    def _encode_user(self, text: str, images: Sequence[Picture]) -> bytes:
        text_parts = [{"type": "input_text", "text": text}] if text or not images else []
        return _encode_message(
            "user", [*text_parts, *({"type": "input_image", "image_url": image.url} for image in images)]
        )

    def _encode_assistant(self, entry: AssistantEntry, ids: Mapping[CallKey, str]) -> bytes:
        return b",".join(self._encode_items(entry, ids))

    def _encode_items(self, entry: AssistantEntry, ids: Mapping[CallKey, str]) -> Iterator[bytes]:
        parts = [*lay_out(entry.text, len(entry.calls), [sealed for _, sealed in self._unseal_thinking(entry)])]
        head = b""
        messages = sum(isinstance(part, bytes) and part.startswith(_HEAD) for part in parts)
        for part in parts:
            match part:
                case bytes() if part.startswith(_HEAD):
                    head, messages = part, messages - 1
                case bytes():
                    yield part
                case str():
                    text = part.removesuffix(SEPARATOR) if messages else part  # it was put before the next message
                    if head:
                        content = encode_json([{"type": "output_text", "text": text, "annotations": []}])
                        yield head[:-1] + b',"content":' + content + b"}"
                    else:
                        yield _encode_message("assistant", text)
                    head = b""
                case int():
                    head, call = b"", entry.calls[part]
                    name, arguments = clean_tool_name(call.name, LONGEST_NAME), ensure_json_object(call.arguments)
                    item = {"type": "function_call", "call_id": ids[call.call], "name": name, "arguments": arguments}
                    yield encode_json(item)

    def _encode_result(self, result: ToolResult) -> bytes:
        return encode_json({"type": "function_call_output", "call_id": self._get_id(result), "output": result.text})


class ResponsesEncoder(RequestEncoder):
    conversation = ResponsesConversation
    ids = _ID

    def encode_body(self, parameters: dict[str, Any], request: ModelRequest) -> bytes:
        parts = [encode_json(parameters)[:-1]]
        if request.system.strip():
            parts.append(b',"instructions":' + encode_json(request.system))
        if request.tools:
            tools = self._get_encoded_tools(request.tools)
            parts += (b',"tools":', tools, b',"tool_choice":"auto","parallel_tool_calls":true')
        return b"".join((*parts, b',"input":[', b",".join(self._encode_entries(request)), b"]}"))

    def _describe_tool(self, spec: ToolSpec) -> dict[str, Any]:
        """Not strict: strict schemas must name every property as required, which those of tools do not."""
        return {"type": "function", **super()._describe_tool(spec)["function"], "strict": False}


def _encode_message(role: str, content: str | Sequence[dict[str, str]]) -> bytes:
    """A message without an id. That of an assistant is plain text: parts are for messages with id and status."""
    return encode_json({"type": "message", "role": role, "content": content})


class TextPart(msgspec.Struct, gc=False):  # of a message, of a reasoning or of its summary
    text: str | None = None
    refusal: str | None = None


class Item(msgspec.Struct, gc=False):
    type: str = ""
    id: str | None = None
    call_id: str | None = None
    name: str | None = None
    arguments: str | dict[str, Any] | None = None
    content: list[TextPart] | None = None
    summary: list[TextPart] | None = None
    encrypted_content: str | None = None
    status: str | None = None
    phase: str | None = None


class _Usage(msgspec.Struct, gc=False):
    input_tokens: int | None = None
    output_tokens: int | None = None
    input_tokens_details: UsageDetails | None = None
    output_tokens_details: UsageDetails | None = None


class _Incomplete(msgspec.Struct, gc=False):
    reason: str | None = None


class ResponseDocument(msgspec.Struct, gc=False):
    """The answer as a whole, which stands in the last event and in a document that is no stream."""

    id: Any = None
    model: Any = None
    status: str | None = None
    output: list[msgspec.Raw] | None = None
    usage: _Usage | None = None
    incomplete_details: _Incomplete | None = None
    error: msgspec.Raw = msgspec.Raw()


class StreamEvent(msgspec.Struct, gc=False):
    type: str = ""
    delta: str | None = None
    output_index: int | None = None
    item_id: str | None = None
    summary_index: int | None = None
    arguments: str | None = None
    item: msgspec.Raw = msgspec.Raw()
    response: msgspec.Raw = msgspec.Raw()
    error: msgspec.Raw = msgspec.Raw()


_event_decoder = msgspec.json.Decoder(StreamEvent)
_item_decoder = msgspec.json.Decoder(Item)
_document_decoder = msgspec.json.Decoder(ResponseDocument)


def join_texts(parts: list[TextPart] | None, between: str = "") -> str:
    return between.join(text for part in parts or () if (text := part.text or part.refusal))


def get_arguments(item: Item) -> str:
    is_object = isinstance(item.arguments, dict)  # so some servers send them
    return msgspec.json.encode(item.arguments).decode() if is_object else str(item.arguments or "")


def compute_usage(usage: _Usage, info: ModelInfo) -> Usage:
    read, written = usage.input_tokens_details or UsageDetails(), usage.output_tokens_details or UsageDetails()
    cached, reasoning = read.cached_tokens or 0, written.reasoning_tokens or 0
    counts = Usage(usage.input_tokens or 0, usage.output_tokens or 0, cached, reasoning)
    return add_write_cost(counts, read.cache_write_tokens or 0, info)


_THOUGHTS = frozenset(
    f"response.{name}.delta" for name in ("reasoning_summary_text", "reasoning_text", "reasoning_summary", "reasoning")
)
_ENDS = {"response.completed", "response.incomplete", "response.failed", "response.cancelled", "response.done"}
_REASONS = {"max_output_tokens": "length", "content_filter": "content_filter"}


class _CallInProgress(msgspec.Struct):
    position: int
    named: bool
    pieces: list[str] = []
    closed: bool = False


class ResponsesReader(EventReader):
    def __init__(self, host: str, info: ModelInfo = NO_INFO) -> None:
        super().__init__(host, info)
        self._spoken: dict[int | str, int] = {}  # messages with text in pieces, and how much text stood before each
        self._thought: list[str] = []  # the pieces of the reasoning that has not ended
        self._thought_part: int | None = None
        self._blocks = 0
        self._refused = False
        self._told: list[_CallInProgress] = []
        self._open: dict[int | str, _CallInProgress] = {}
        self._by_id: dict[str, _CallInProgress] = {}

    def _is_whole(self) -> bool:
        return self.finish_reason is not None or (self.done and all(call.closed for call in self._told))

    def _read(self, chunk: bytes) -> None:
        for event in self._split_events(chunk):
            data = event.data
            if data.startswith("[DONE]"):
                self.done = True
            if self.done or not data:
                continue
            part = decode_tolerantly(data, _event_decoder)
            if part is None:
                raise self._make_nonsense_error(data)
            kind = part.type or event.event
            if kind == "response.output_text.delta" and part.delta is not None:  # first, because nearly all are
                self._say(_get_label(part), part.delta)
            elif kind == "error" or (not kind.startswith("response.") and _is_error(part)):
                raise make_error(self._where, 200, data.encode("utf-8", "replace"))
            else:
                self._take(kind, part)

    def _read_document(self, document: bytes) -> None:
        """A server that does not stream sends the answer as a whole."""
        response = decode_tolerantly(document, _document_decoder)
        if response is None or response.output is None:
            raise self._make_document_error(document)
        self._finish(response)

    def _take(self, kind: str, event: StreamEvent) -> None:
        if kind == "response.function_call_arguments.delta":
            self._argue(self._require_call(event), event.delta)
        elif kind == "response.function_call_arguments.done":
            self._settle(self._require_call(event), event.arguments or "")
        elif kind in _THOUGHTS:
            text = event.delta or ""
            if self._thought and event.summary_index != self._thought_part:
                text = "\n\n" + text
            self._thought_part = event.summary_index
            self._thought.append(text)
            self.think(text)
        elif kind == "response.refusal.delta":
            self._say(_get_label(event), event.delta or "")
            self._refused = True
        elif kind == "response.output_item.added":
            item = decode_tolerantly(event.item, _item_decoder) or Item()
            if item.type == "function_call":
                self._begin(_get_label(event, item), item)
        elif kind == "response.output_item.done":
            item = decode_tolerantly(event.item, _item_decoder) or Item()
            self._take_item(_get_label(event, item), item, event.item)
        elif kind in _ENDS:
            response = decode_tolerantly(event.response, _document_decoder) or ResponseDocument()
            self._finish(response, kind.removeprefix("response."))

    def _say(self, label: int | str, text: str) -> None:
        """A blank line separates two messages: the commentary and the answer, for instance."""
        if label not in self._spoken:
            if self.text_length:
                self.say(SEPARATOR)
            self._spoken[label] = self.text_length
        self.say(text)

    def _begin(self, label: int | str, item: Item) -> _CallInProgress:
        call = self._open[label] = self._by_id[item.call_id or ""] = _CallInProgress(self._calls, bool(item.name))
        self._told.append(call)
        self._begin_call(item.call_id, item.name)
        return call

    def _require_call(self, event: StreamEvent) -> _CallInProgress:
        label = _get_label(event)
        call = self._open.get(label) or (self._told[-1] if label == "" and self._told else None)
        if call is None:
            raise ModelError("cut_stream", f"{self._where} sent arguments of a call that it did not announce")
        return call

    def _argue(self, call: _CallInProgress, arguments: str | None) -> None:
        if arguments:
            call.pieces.append(arguments)
            self.put(CallDelta(None, call.position, None, arguments))

    def _settle(self, call: _CallInProgress, arguments: str) -> None:
        """Complete a call: add the part of the arguments that the pieces lacked. If the pieces differ from `arguments`,
        they must be valid JSON, else the stream is damaged."""
        received = "".join(call.pieces)
        call.closed = True
        if arguments.startswith(received):
            self._argue(call, arguments[len(received) :])
        elif arguments and ensure_json_object(received) != received:
            raise ModelError("cut_stream", f"{self._where} told the arguments of a call in two ways")

    def _take_item(self, label: int | str, item: Item, raw: msgspec.Raw) -> None:
        """Process a complete item: take from it the content that its pieces did not have."""
        if item.type == "function_call":
            call = self._open.get(label)
            if call is None:
                # An item without a label of its own may repeat a call: none may run twice for being told twice.
                call = self._by_id.get(item.call_id or "")
                if call is None or (call.closed and "".join(call.pieces) != get_arguments(item)):
                    call = self._begin(label, item)
            if not call.named and item.name:
                call.named = True
                self.put(CallDelta(None, call.position, item.name))
            self._settle(call, get_arguments(item))
            self._open.pop(label, None)
        elif item.type == "message":
            if label not in self._spoken and (text := join_texts(item.content)):
                self._say(label, text)
            self._refused = self._refused or any(part.refusal for part in item.content or ())
            start = self._spoken.pop(label, None)
            if start is not None and item.id:
                # Id, status and phase go back with the text: models that mark commentary expect them.
                head = {"type": "message", "role": "assistant", "id": item.id, "status": item.status or "completed"}
                thinking, self._thought = "".join(self._thought), []
                head |= {"phase": item.phase} if item.phase else {}
                self._put_block(thinking, encode_json(head), start, self._calls)
        elif item.type == "reasoning":
            text = join_texts(item.summary, "\n\n") or join_texts(item.content) or "".join(self._thought)
            self._thought, self._thought_part = [], None
            if text or item.encrypted_content:
                self._blocks += 1
                # Without encryption only reasoning in plain text can go back; servers do not take a summary for it.
                returns = item.encrypted_content or join_texts(item.content)
                opaque = seal(SignedBlock(bytes(raw), self.text_length, self._calls)) if returns else ""
                self.put(ThinkingBlock(Thinking(text, opaque)))

    def _finish(self, response: ResponseDocument, kind: str = "") -> None:
        self._identify(response.id, response.model)
        usage = None if response.usage is None else compute_usage(response.usage, self._info)
        if usage is not None:
            self.count(usage)
        status = kind if kind in ("incomplete", "failed", "cancelled") else response.status
        if status in ("in_progress", "queued"):
            raise ModelError("cut_stream", f"{self._where} sent an answer that is not finished ({status})")
        if status in ("failed", "cancelled"):
            has_error = _is_error(response)
            error_json = bytes(response.error) if has_error else b'{"message":"the answer was %b"}' % status.encode()
            raise make_error(self._where, 200, b'{"error":%b}' % error_json)
        # Take from the whole answer the kinds of items of which nothing was told before.
        received_kinds = {
            "message": bool(self.text_length),
            "function_call": bool(self._calls),
            "reasoning": bool(self._blocks or self._thought),
        }
        for number, raw in enumerate(response.output or ()):
            item = decode_tolerantly(raw, _item_decoder) or Item()
            if not received_kinds.get(item.type, True):
                self._take_item(f"output {number}", item, raw)
        reason = response.incomplete_details.reason if response.incomplete_details else None
        if status == "incomplete":
            self.finish_reason = _REASONS.get(reason or "", reason or "length")
            if reason and reason not in _REASONS:
                self.put(NoticeDelta("incomplete", f"{self._where} ended its answer before its end: {reason}"))
        elif usage is not None and 0 < (self.sent.get("max_output_tokens") or 0) <= usage.output:
            self.finish_reason = "length"  # llama.cpp calls an answer complete that was cut at its limit
        else:
            self.finish_reason = "tool_calls" if self._calls else "refusal" if self._refused else "stop"
        self.done = True


def _get_label(event: StreamEvent, item: Item | None = None) -> int | str:
    """Return the key that identifies an item of an answer. Ids come second: some servers give one item several."""
    if event.output_index is not None:
        return event.output_index
    return event.item_id or (item and item.id) or ""


def _is_error(event: StreamEvent | ResponseDocument) -> bool:
    return bytes(event.error) not in (b"", b"null")


BASE_URL = "https://api.openai.com/v1"
LEAST_OUTPUT = 16  # the smallest output limit that the API takes

_ABOUT_ITEMS = re.compile(r"encrypted[_ ]content|'reasoning'|reasoning item|\brs_\w", re.I)
_DROPPABLE = ("include", "reasoning", "temperature", "max_output_tokens", "store", "text")


class OpenAIResponses(HttpModel):
    """`thinking`: True for a reasoning model; by default the catalogue decides. `effort`: in the provider's words."""

    base_url = BASE_URL
    path = "/responses"
    reader = ResponsesReader
    effort_words: ClassVar = (("reasoning", r"reasoning[._]effort|effort"),)

    def __init__(
        self, info: ModelInfo, *, thinking: bool | None = None, effort: str = "", **options: Unpack[HttpOptions]
    ) -> None:
        super().__init__(info, options)
        self._thinking = info.thinking if thinking is None else thinking
        # A model of which nothing is known is asked for its reasoning, too: it refuses once, if it has none.
        self._include = self._thinking or info.is_unknown
        self._effort = effort
        self._encoder = ResponsesEncoder(info.ref)

    def _build_parameters(self, request: ModelRequest) -> dict[str, Any]:
        limit = request.max_tokens or self._info.output_limit
        shape = build_schema_format(request)
        level = request.effort or self._effort
        effort = {"effort": level} if level else {}
        params = {
            "stream": True,
            "store": False,
            # Without these words, what a model thought is lost with its answer, and must be thought again.
            "include": ["reasoning.encrypted_content"] if self._include else None,
            "reasoning": {**effort, "summary": "auto"} if self._thinking or effort else None,
            "temperature": self._choose_temperature(request),
            "text": {"format": {"type": "json_schema", **shape}} if shape is not None else None,
            "max_output_tokens": max(limit, LEAST_OUTPUT) if limit else None,
        }
        return {"model": self._info.name, **self._select_parameters(params)}

    def _mend(self, error: ModelError, sent_params: Mapping[str, Any], request: ModelRequest) -> NoticeDelta | None:
        """Earlier reasoning that is refused is left out in this conversation (M-10)."""
        name = next((name for name in _DROPPABLE if name in sent_params and is_refusal_of(error, name)), None)
        about_items = error.status in (400, 404, 422) and _ABOUT_ITEMS.search(str(error))
        if about_items and name != "include" and self._encoder.drop_thinking(request):
            return self._make_notice("thinking_dropped", "refuses earlier reasoning; it goes on without it")
        return None if name is None else self._drop(name)


def connect(name: str, context: ProviderContext) -> OpenAIResponses:
    key, url = context.require_access(f"openai-responses:{name}", BASE_URL)
    info = context.catalogue.look_up("openai-responses", name)
    return OpenAIResponses(info, base_url=url, api_key=key, http=context.http)


async def list_models(context: ProviderContext, provider: str = "openai-responses") -> list[ModelInfo]:
    """List the models that the server offers; both of its protocols share one list."""
    key, url = context.require_access(provider, BASE_URL)
    base_url = url.rstrip("/").removesuffix("/chat/completions").removesuffix("/responses")
    return await fetch_models(context, provider, Access(base_url, key), "/models")
