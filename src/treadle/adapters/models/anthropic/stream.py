"""Converts a Messages stream to neutral deltas. Blocks come one after another, each with a start, pieces and a stop. A
chunk that cannot be parsed is an error, never guessed at, because a lost fragment would truncate a call."""

from typing import Any

import msgspec

from treadle.adapters.models.wire.cache_writes import CACHE_WRITE
from treadle.adapters.models.wire.failures import failure
from treadle.adapters.models.wire.json import encode_json
from treadle.adapters.models.wire.reading import EventReader
from treadle.adapters.models.wire.signed_thinking import TEXT_PLACE, SignedBlock, seal
from treadle.ports.model import ModelInfo
from treadle.protocol.content import Thinking, Usage
from treadle.protocol.deltas import CallDelta, NoticeDelta, ThinkingBlock

_LONG_PROMPTS: dict[str, tuple[int, float]] = {"claude-haiku-5-5": (100_000, 5.0)}
"""Models whose prompts above a length cost a multiple of the catalogue's prices."""


class Details(msgspec.Struct, gc=False):
    thinking_tokens: int | None = None


class AnthropicUsage(msgspec.Struct, gc=False):
    """A `usage` object of the wire. Counts are totals so far; a missing count has not changed."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    cache_creation_input_tokens: int | None = None
    output_tokens_details: Details | None = None


class Counter:
    """Adds the reports of one answer up."""

    def __init__(self, info: ModelInfo) -> None:
        self._info = info
        self._new = self._output = self._read = self._written = self._thinking = 0

    def take(self, report: AnthropicUsage) -> Usage:
        self._new = _newer(report.input_tokens, self._new)
        self._output = _newer(report.output_tokens, self._output)
        self._read = _newer(report.cache_read_input_tokens, self._read)
        self._written = _newer(report.cache_creation_input_tokens, self._written)
        if report.output_tokens_details is not None:
            self._thinking = _newer(report.output_tokens_details.thinking_tokens, self._thinking)
        input_tokens = self._new + self._read + self._written
        return Usage(input_tokens, self._output, self._read, self._thinking, self._cost(input_tokens))

    def _cost(self, input_tokens: int) -> float:
        info = self._info
        above, factor = _LONG_PROMPTS.get(info.name, (0, 1.0))
        usd = (
            (self._new + CACHE_WRITE * self._written) * info.usd_per_million_input
            + self._read * (info.usd_per_million_cached or info.usd_per_million_input)
            + self._output * info.usd_per_million_output
        ) / 1_000_000
        return usd * factor if input_tokens > above else usd


def _newer(reported: int | None, previous: int) -> int:
    return previous if reported is None else reported


_FINISH = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "pause_turn": "pause_turn",
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "content_filter",
}


class _Piece(msgspec.Struct, gc=False):
    """The `delta` of a block or of the message."""

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
    usage: AnthropicUsage | None = None
    error: Any = None


class _Event(msgspec.Struct, gc=False):
    type: str = ""
    index: int | None = None
    delta: _Piece | None = None
    content_block: dict[str, Any] | None = None
    message: _AnthropicMessage | None = None
    usage: AnthropicUsage | None = None
    error: Any = None


_decode = msgspec.json.Decoder(_Event).decode
_decode_message = msgspec.json.Decoder(_AnthropicMessage).decode


class _Block:
    """A block that has begun and not stopped."""

    def __init__(self, start: dict[str, Any], call: int, text_length: int) -> None:
        self.said = text_length
        """How many characters of text stood before it."""
        self.start = start
        self.kind = start.get("type")
        self.call = call
        """Which of the answer's calls it is."""
        self.pieces: list[str] = []


class AnthropicReader(EventReader):
    def __init__(self, host: str, info: ModelInfo) -> None:
        super().__init__(host)
        self._info = info
        self._counter = Counter(info)
        self._blocks: dict[int, _Block] = {}
        self._current = 0

    def _close(self) -> None:
        super()._close()
        for index in list(self._blocks):
            self._stop(index)

    def _read(self, chunk: bytes) -> None:
        for event in self._body.feed(chunk):
            data = event.data
            if self.done or not data:
                continue
            try:
                part = _decode(data)
            except (msgspec.MsgspecError, RecursionError):
                part = self._mended(data, _Event)
            piece = part.delta
            if piece is not None and piece.text is not None:  # first, because nearly all are
                self._batch.say(piece.text)
            else:
                self._take(part, part.type or event.event, data)

    def _take(self, part: _Event, kind: str, data: str) -> None:
        match kind:
            case "content_block_delta" if part.delta is not None:
                self._piece(self._blocks.get(self._index(part)), part.delta)
            case "content_block_start":
                self._start(self._index(part), part.content_block or {})
            case "content_block_stop":
                self._stop(self._index(part))
            case "message_start" if part.message is not None:
                self._identify(part.message.id, part.message.model)
                self._count(part.message.usage)
            case "message_delta":
                self._count(part.usage)
                if part.delta is not None and part.delta.stop_reason:
                    self._finish(part.delta.stop_reason, part.delta.stop_details)
            case "message_stop":
                self.done = True
            case "error":
                raise failure(self._where, 200, data.encode())
            case _ if part.error:
                raise failure(self._where, 200, data.encode())

    def _index(self, part: _Event) -> int:
        if part.index is not None:
            self._current = part.index
        return self._current

    def _start(self, index: int, start: dict[str, Any]) -> None:
        if index in self._blocks:
            self._stop(index)  # a server that says no stop, or calls every index 0
        block = self._blocks[index] = _Block(start, self._calls, self._batch.text_length)
        match block.kind:
            case "text" if isinstance(start.get("text"), str):
                self._batch.say(start["text"])
            case "thinking" if isinstance(start.get("thinking"), str):
                self._piece(block, _Piece(thinking=start["thinking"]))
            case "tool_use":
                self._begin_call(str(start.get("id") or ""), str(start.get("name") or ""))

    def _piece(self, block: _Block | None, piece: _Piece) -> None:
        if piece.thinking:
            self._batch.think(piece.thinking)
            if block is not None:
                block.pieces.append(piece.thinking)
        if piece.signature is not None and block is not None:
            block.start["signature"] = piece.signature
        if piece.partial_json and (block is None or block.kind == "tool_use"):
            if block is not None:
                block.pieces.append(piece.partial_json)
            self._batch.put(CallDelta(index=block.call if block else None, arguments=piece.partial_json))

    def _stop(self, index: int) -> None:
        block = self._blocks.pop(index, None)
        if block is None:
            return
        place = self._batch.text_length, block.call
        match block.kind:
            case "text" if block.call and self._batch.text_length > block.said:
                # Text behind a call. An answer has its text in one piece: the place of this one is recorded.
                self._batch.put(ThinkingBlock(Thinking("", seal(SignedBlock(TEXT_PLACE, block.said, block.call)))))
            case "thinking":
                text = "".join(block.pieces)
                if text or block.start.get("signature"):
                    # Servers that speak this language and do not sign demand their blocks back all the same.
                    block_json = encode_json({**block.start, "thinking": text})
                    self._batch.put(ThinkingBlock(Thinking(text, seal(SignedBlock(block_json, *place)))))
            case "redacted_thinking":
                self._batch.put(ThinkingBlock(Thinking("", seal(SignedBlock(encode_json(block.start), *place)))))
            case "tool_use" if not block.pieces and block.start.get("input"):
                self._batch.put(CallDelta(index=block.call, arguments=encode_json(block.start["input"]).decode()))

    def _finish(self, reason: str, details: Any) -> None:
        self.finish_reason = _FINISH.get(reason, reason)
        if reason == "pause_turn":
            self._batch.put(NoticeDelta("paused", f"{self._info.ref} paused a long turn; it is asked to go on"))
        if reason == "refusal":
            explanation = details.get("explanation") if isinstance(details, dict) else None
            self._batch.put(
                NoticeDelta("incomplete", f"{self._info.ref} declined to answer: {explanation or 'it gave no reason'}")
            )

    def _count(self, report: AnthropicUsage | None) -> None:
        if report is not None:
            self._batch.count(self._counter.take(report))

    def _read_document(self, body: bytes) -> None:
        """The answer of a server that does not stream."""
        try:
            message = _decode_message(body)
        except (msgspec.MsgspecError, RecursionError) as error:
            raise self._no_document(body) from error
        if message.error or message.content is None:
            raise self._no_document(body)
        self._identify(message.id, message.model)
        for index, block in enumerate(message.content):
            self._start(index, block)
            self._stop(index)
        self._count(message.usage)
        self._finish(message.stop_reason or ("tool_use" if self._calls else "end_turn"), message.stop_details)
