"""Converts a Responses stream to neutral deltas. An item is announced, sent in pieces, and sent again as a whole. The
pieces are shown as they arrive; content that comes only in the whole item is taken from there. A chunk that cannot be
parsed is an error, never guessed at, because a lost fragment would truncate a call."""

from typing import Any, TypeVar

import msgspec

from treadle.adapters.models.wire.cache_writes import price_with_writes
from treadle.adapters.models.wire.failures import failure
from treadle.adapters.models.wire.json import decode_leniently, encode_json
from treadle.adapters.models.wire.reading import EventReader
from treadle.adapters.models.wire.signed_thinking import SignedBlock, seal
from treadle.errors import ModelError
from treadle.ports.model import ModelInfo
from treadle.protocol.content import Thinking, Usage
from treadle.protocol.deltas import CallDelta, NoticeDelta, ThinkingBlock

SEPARATOR = "\n\n"
"""Between two messages of one answer."""


class TextPart(msgspec.Struct, gc=False):
    """A piece of a message, of a reasoning or of its summary."""

    text: str | None = None
    refusal: str | None = None


class Item(msgspec.Struct, gc=False):
    """One item of an answer: a message, a call, some reasoning, or something that is not asked for here."""

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


class _Details(msgspec.Struct, gc=False):
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None
    reasoning_tokens: int | None = None


class _Usage(msgspec.Struct, gc=False):
    input_tokens: int | None = None
    output_tokens: int | None = None
    input_tokens_details: _Details | None = None
    output_tokens_details: _Details | None = None


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


_decode_event = msgspec.json.Decoder(StreamEvent).decode
_TROUBLE = (msgspec.MsgspecError, RecursionError, UnicodeError)
_S = TypeVar("_S", bound=msgspec.Struct)


def decode_event(data: str) -> StreamEvent | None:
    """None when it is no event at all."""
    try:
        return _decode_event(data)
    except _TROUBLE:
        return decode_leniently(data.encode("utf-8", "replace"), StreamEvent)


def decode_part(raw: bytes | msgspec.Raw, kind: type[_S]) -> _S | None:
    """An `Item` or a `Whole`; None when it is nothing of the kind."""
    try:
        return msgspec.json.decode(raw, type=kind)
    except _TROUBLE:
        return decode_leniently(raw, kind)


def text_of(parts: list[TextPart] | None, between: str = "") -> str:
    return between.join(text for part in parts or () if (text := part.text or part.refusal))


def arguments_of(item: Item) -> str:
    """The arguments of a call; some servers send the object itself."""
    if isinstance(item.arguments, dict):
        return msgspec.json.encode(item.arguments).decode()
    return item.arguments or ""


def usage_of(response: ResponseDocument, info: ModelInfo | None = None) -> Usage | None:
    usage = response.usage
    if usage is None:
        return None
    read = usage.input_tokens_details or _Details()
    counted = Usage(
        input=usage.input_tokens or 0,
        output=usage.output_tokens or 0,
        cached=read.cached_tokens or 0,
        reasoning=(usage.output_tokens_details or _Details()).reasoning_tokens or 0,
    )
    return counted if info is None else price_with_writes(counted, read.cache_write_tokens or 0, info)


_THOUGHTS = frozenset(
    f"response.{name}.delta" for name in ("reasoning_summary_text", "reasoning_text", "reasoning_summary", "reasoning")
)
_ENDS = {"response.completed", "response.incomplete", "response.failed", "response.cancelled", "response.done"}
_REASONS = {"max_output_tokens": "length", "content_filter": "content_filter"}


class _CallInProgress:
    """A call as far as it was told."""

    def __init__(self, position: int, has_name: bool) -> None:
        self.position = position
        self.named = has_name
        self.pieces: list[str] = []
        self.closed = False


class ResponsesReader(EventReader):
    def __init__(self, host: str, info: ModelInfo | None = None) -> None:
        super().__init__(host)
        self._info = info
        self._spoken: dict[int | str, int] = {}
        """The messages of which text came in pieces, and how much text stood before each."""
        self._thought: list[str] = []
        """The pieces of the reasoning that has not ended."""
        self._thought_part: int | None = None
        self._blocks = 0
        self._refused = False
        self._told: list[_CallInProgress] = []
        self._open: dict[int | str, _CallInProgress] = {}
        self._by_id: dict[str, _CallInProgress] = {}

    def _is_whole(self) -> bool:
        return self.finish_reason is not None or (self.done and all(call.closed for call in self._told))

    def _read(self, chunk: bytes) -> None:
        for event in self._body.feed(chunk):
            data = event.data
            if data.startswith("[DONE]"):
                self.done = True
            if self.done or not data:
                continue
            part = decode_event(data)
            if part is None:
                raise self._nonsense(data)
            kind = part.type or event.event
            if kind == "response.output_text.delta" and part.delta is not None:  # first, because nearly all are
                self._say(part, part.delta)
            elif kind == "error" or (not kind.startswith("response.") and _is_error(part)):
                raise failure(self._where, 200, data.encode("utf-8", "replace"))
            else:
                self._take(kind, part)

    def _read_document(self, document: bytes) -> None:
        """A server that does not stream sends the answer as a whole."""
        response = decode_part(document, ResponseDocument)
        if response is None or response.output is None:
            raise self._no_document(document)
        self._finish(response)

    def _take(self, kind: str, event: StreamEvent) -> None:
        if kind == "response.function_call_arguments.delta":
            self._argue(self._call_of(event), event.delta)
        elif kind == "response.function_call_arguments.done":
            self._settle(self._call_of(event), event.arguments or "")
        elif kind in _THOUGHTS:
            self._think(event)
        elif kind == "response.refusal.delta":
            self._say(event, event.delta or "")
            self._refused = True
        elif kind == "response.output_item.added":
            item = decode_part(event.item, Item) or Item()
            if item.type == "function_call":
                self._begin(_label(event, item), item)
        elif kind == "response.output_item.done":
            item = decode_part(event.item, Item) or Item()
            self._item(_label(event, item), item, event.item)
        elif kind in _ENDS:
            self._finish(
                decode_part(event.response, ResponseDocument) or ResponseDocument(), kind.removeprefix("response.")
            )

    def _say(self, event: StreamEvent, text: str) -> None:
        self._begin_message(_label(event))
        self._batch.say(text)

    def _begin_message(self, label: int | str) -> None:
        """A blank line separates two messages: the commentary and the answer, for instance."""
        if label not in self._spoken:
            if self._batch.text_length:
                self._batch.say(SEPARATOR)
            self._spoken[label] = self._batch.text_length

    def _think(self, event: StreamEvent) -> None:
        text = event.delta or ""
        if self._thought and event.summary_index != self._thought_part:
            text = "\n\n" + text
        self._thought_part = event.summary_index
        self._thought.append(text)
        self._batch.think(text)

    def _begin(self, label: int | str, item: Item) -> _CallInProgress:
        call = self._open[label] = self._by_id[item.call_id or ""] = _CallInProgress(self._calls, bool(item.name))
        self._told.append(call)
        self._begin_call(item.call_id, item.name)
        return call

    def _call_of(self, event: StreamEvent) -> _CallInProgress:
        label = _label(event)
        call = self._open.get(label) or (self._told[-1] if label == "" and self._told else None)
        if call is None:
            raise ModelError("cut_stream", f"{self._where} sent arguments of a call that it did not announce")
        return call

    def _argue(self, call: _CallInProgress, arguments: str | None) -> None:
        if arguments:
            call.pieces.append(arguments)
            self._batch.put(CallDelta(None, call.position, None, arguments))

    def _settle(self, call: _CallInProgress, arguments: str) -> None:
        """Complete a call: add the part of the arguments that the pieces lacked. If the pieces differ from `arguments`,
        they must be valid JSON, else the stream is damaged."""
        received = "".join(call.pieces)
        call.closed = True
        if arguments.startswith(received):
            self._argue(call, arguments[len(received) :])
        elif arguments and not _is_json(received):
            raise ModelError("cut_stream", f"{self._where} told the arguments of a call in two ways")

    def _item(self, label: int | str, item: Item, raw: msgspec.Raw) -> None:
        """Process a complete item: take from it the content that its pieces did not have."""
        if item.type == "function_call":
            call = self._open.get(label) or self._repeated(item) or self._begin(label, item)
            if not call.named and item.name:
                call.named = True
                self._batch.put(CallDelta(None, call.position, item.name))
            self._settle(call, arguments_of(item))
            self._open.pop(label, None)
        elif item.type == "message":
            if label not in self._spoken and (text := text_of(item.content)):
                self._begin_message(label)
                self._batch.say(text)
            self._refused = self._refused or any(part.refusal for part in item.content or ())
            self._end_message(item, self._spoken.pop(label, None))
        elif item.type == "reasoning":
            self._reason(item, bytes(raw))

    def _end_message(self, item: Item, start: int | None) -> None:
        """Record id, status and phase: they go back with the text, because models that mark commentary expect them."""
        if start is None or not item.id:
            return
        phase = {"phase": item.phase} if item.phase else {}
        head = encode_json(
            {"type": "message", "role": "assistant", "id": item.id, "status": item.status or "completed", **phase}
        )
        thinking, self._thought = "".join(self._thought), []
        self._batch.put(ThinkingBlock(Thinking(thinking, seal(SignedBlock(head, start, self._calls)))))

    def _repeated(self, item: Item) -> _CallInProgress | None:
        """The call that an item without a label of its own repeats: none may run twice for being told twice."""
        call = self._by_id.get(item.call_id or "")
        is_repeat = call is not None and (not call.closed or "".join(call.pieces) == arguments_of(item))
        return call if is_repeat else None

    def _reason(self, item: Item, raw: bytes) -> None:
        text = text_of(item.summary, "\n\n") or text_of(item.content) or "".join(self._thought)
        self._thought, self._thought_part = [], None
        if not text and not item.encrypted_content:
            return
        self._blocks += 1
        # Without encryption only reasoning in plain text can go back; servers do not take a summary for it.
        returns = item.encrypted_content or text_of(item.content)
        opaque = seal(SignedBlock(raw, self._batch.text_length, self._calls)) if returns else ""
        self._batch.put(ThinkingBlock(Thinking(text, opaque)))

    def _finish(self, response: ResponseDocument, kind: str = "") -> None:
        self._identify(response.id, response.model)
        if (usage := usage_of(response, self._info)) is not None:
            self._batch.count(usage)
        status = kind if kind in ("incomplete", "failed", "cancelled") else response.status
        if status in ("in_progress", "queued"):
            raise ModelError("cut_stream", f"{self._where} sent an answer that is not finished ({status})")
        if status in ("failed", "cancelled"):
            error_json = (
                bytes(response.error) if _is_error(response) else b'{"message":"the answer was %b"}' % status.encode()
            )
            raise failure(self._where, 200, b'{"error":%b}' % error_json)
        self._complete(response.output or ())
        reason = response.incomplete_details.reason if response.incomplete_details else None
        if status == "incomplete":
            self.finish_reason = _REASONS.get(reason or "", reason or "length")
            if reason and reason not in _REASONS:
                self._batch.put(NoticeDelta("incomplete", f"{self._where} ended its answer before its end: {reason}"))
        elif usage is not None and 0 < (self.sent.get("max_output_tokens") or 0) <= usage.output:
            self.finish_reason = "length"  # llama.cpp calls an answer complete that was cut at its limit
        else:
            self.finish_reason = "tool_calls" if self._calls else "refusal" if self._refused else "stop"
        self.done = True

    def _complete(self, output: "list[msgspec.Raw] | tuple[()]") -> None:
        """Take from the whole answer the kinds of items of which nothing was told before."""
        received_kinds = {
            "message": bool(self._batch.text_length),
            "function_call": bool(self._calls),
            "reasoning": bool(self._blocks or self._thought),
        }
        for number, raw in enumerate(output):
            item = decode_part(raw, Item) or Item()
            if not received_kinds.get(item.type, True):
                self._item(f"output {number}", item, raw)


def _label(event: StreamEvent, item: Item | None = None) -> int | str:
    """Return the key that identifies an item of an answer. Ids come second: some servers give one item several."""
    if event.output_index is not None:
        return event.output_index
    return event.item_id or (item and item.id) or ""


def _is_error(event: StreamEvent | ResponseDocument) -> bool:
    return bytes(event.error) not in (b"", b"null")


def _is_json(text: str) -> bool:
    try:
        msgspec.json.decode(text, type=dict[str, msgspec.Raw])
    except _TROUBLE:
        return False
    return True
