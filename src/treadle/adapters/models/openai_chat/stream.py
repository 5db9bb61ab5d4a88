"""Converts a Chat Completions stream to neutral deltas. Tolerates the variations of real servers. A chunk that cannot
be parsed is an error, never guessed at, because a lost fragment would truncate a call."""

from typing import Any

import msgspec

from treadle.adapters.models.wire.failures import make_error
from treadle.adapters.models.wire.reading import NO_INFO, EventReader, UsageDetails, add_write_cost
from treadle.ports.model import ModelInfo
from treadle.protocol.content import Thinking, Usage
from treadle.protocol.deltas import CallDelta, ThinkingBlock

DETAILS = "reasoning_details"
CALL_EXTRAS = "call_extras"  # in the record only: by the id of a call, or `AT` and its position, what it carried
AT = "#"
THINK_CHUNKS = "content"  # Mistral's thinking is a part of the content
_RETURNABLE = ("reasoning_content", "reasoning")
_GROWING = ("text", "summary", "data")  # the parts of a detail that come in pieces


class _ThinkChunk(msgspec.Struct):  # a part of Mistral's content that holds thinking, as far as it came
    pieces: list[str] = []
    signature: str = ""


class ReturnedFields:
    """What goes back with an answer (M-10). `field` is where the server wants all thinking; without one, thinking goes
    back with calls, in the field in which it came (vLLM, Together, Groq, Z.ai)."""

    def __init__(self, field: str = "") -> None:
        self._field = field
        self._came_in = ""
        self._text: list[str] = []
        self._think_chunks: list[_ThinkChunk] = []
        self.extras: dict[str, Any] = {}  # by call, such as the thought signature of Gemini's OpenAI endpoint
        self._opaque = ""
        self._details: dict[tuple[object, object], dict[str, Any]] = {}

    def take(self, field: str, thinking: str, opaque: str | None, details: object) -> None:
        """One piece of a stream, as far as it has any of these; `field` is where the thought stood."""
        if thinking:
            self._text.append(thinking)
            self._came_in = field
        self._opaque = opaque or self._opaque
        for detail in (each for each in (details if isinstance(details, list) else ()) if isinstance(each, dict)):
            # Pieces of one detail have its type and index in common. One without an index is whole.
            kind, index = detail.get("type"), detail.get("index")
            number = index if isinstance(index, int) else f"#{len(self._details)}"
            merged = self._details.setdefault((kind if isinstance(kind, str) else None, number), {})
            for name, value in detail.items():
                if value is None:
                    merged.setdefault(name, None)
                elif name in _GROWING and isinstance(value, str) and isinstance(merged.get(name), str):
                    merged[name] += value
                else:
                    merged[name] = value

    def take_think_chunks(self, content: object) -> None:
        """Mistral's thinking. A chunk comes in pieces; its signature, if it has one, comes last and ends it."""
        for part in content if isinstance(content, list) else ():
            thinking = _extract_chunk_text(part.get("thinking")) if isinstance(part, dict) else ""
            signature = part.get("signature") if isinstance(part, dict) and "thinking" in part else None
            if not thinking and not signature:
                continue
            if not self._think_chunks or self._think_chunks[-1].signature:
                self._think_chunks.append(_ThinkChunk())
            self._think_chunks[-1].pieces.append(thinking)
            self._think_chunks[-1].signature = signature if isinstance(signature, str) else ""

    def build_block(self, *, has_calls: bool) -> ThinkingBlock | None:
        text = "".join(self._text)
        fields: dict[str, Any] = {}
        if self._opaque:
            fields = {**({"reasoning_text": text} if text else {}), "reasoning_opaque": self._opaque}
        elif self._think_chunks and self._came_in in ("", THINK_CHUNKS):
            for chunk in self._think_chunks:
                thinking = [{"type": "text", "text": "".join(chunk.pieces)}] if any(chunk.pieces) else []
                signature = {"signature": chunk.signature} if chunk.signature else {}
                fields.setdefault(THINK_CHUNKS, []).append({"type": "thinking", "thinking": thinking, **signature})
        elif text and (self._field or (has_calls and self._came_in in _RETURNABLE and not self._details)):
            fields[self._field or self._came_in] = text
        if self.extras:
            fields[CALL_EXTRAS] = self.extras
        if self._details:
            fields[DETAILS] = list(self._details.values())
        return ThinkingBlock(Thinking(text, msgspec.json.encode(fields).decode())) if fields else None


class _ChatFunction(msgspec.Struct, gc=False):
    name: str | None = None
    arguments: str | dict[str, Any] | None = None


class _ChatCall(msgspec.Struct, gc=False):
    id: str | None = None
    index: int | None = None
    function: _ChatFunction | None = None
    extra_content: Any = None


class _ChatMessage(msgspec.Struct, gc=False):
    content: str | list[Any] | None = None
    tool_calls: list[_ChatCall] | None = None
    reasoning_content: str | None = None
    reasoning: Any = None  # text, or with some servers an object that holds it
    reasoning_text: str | None = None
    reasoning_opaque: str | None = None  # sealed thinking of GitHub Copilot, which wants it back beside its text
    reasoning_details: Any = None  # thinking with its signatures, as OpenRouter tells it and wants it back
    refusal: str | None = None


class _Choice(msgspec.Struct, gc=False):
    delta: _ChatMessage | None = None
    message: _ChatMessage | None = None  # in place of a delta, from a server that does not stream
    finish_reason: str | None = None


class _Usage(msgspec.Struct, gc=False):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    total_tokens: int | None = None
    cost: float | None = None  # USD, by OpenRouter
    cost_in_usd_ticks: int | None = None  # by xAI: ten thousand million are a dollar
    prompt_cache_hit_tokens: int | None = None  # by DeepSeek
    prompt_tokens_details: UsageDetails | None = None
    completion_tokens_details: UsageDetails | None = None


class ChatChunk(msgspec.Struct, gc=False):
    id: Any = None
    model: Any = None
    choices: list[_Choice] | None = None
    usage: _Usage | None = None
    error: Any = None


_decode = msgspec.json.Decoder(ChatChunk).decode


class ChatReader(EventReader):
    def __init__(self, host: str, info: ModelInfo = NO_INFO, thinking_field: str = "") -> None:
        super().__init__(host, info)
        self._returned_fields = ReturnedFields(thinking_field)
        self._refused = False
        self._named_calls = 0
        # True if the last piece was a name without label and arguments. A name with arguments is another call.
        self._bare_name = False
        self._unlabelled = 0  # the number of calls that got an index here because the server sent neither index nor id

    def _read(self, chunk: bytes) -> None:
        say = self.say
        for event in self._split_events(chunk):
            data = event.data
            try:
                part = _decode(data)
            except (msgspec.MsgspecError, RecursionError):
                if data.startswith("[DONE]"):
                    self.done = True
                    return
                if not data:
                    continue
                part = self._decode_part(data, ChatChunk)
            if content := _find_only_text(part):
                say(content)
            elif event.event == "error" or part.error:
                raise make_error(self._where, 200, data.encode())
            else:
                self._read_chunk(part)

    def _close(self) -> None:
        super()._close()
        if self._refused and self.finish_reason in (None, "stop"):
            self.finish_reason = "refusal"
        if (block := self._returned_fields.build_block(has_calls=self.has_calls)) is not None:
            self.put(block)

    def _read_document(self, body: bytes) -> None:
        if body.startswith(b"[") and body.endswith(b"]"):
            raise self._make_document_error(body)  # a list of errors is all that servers send in this shape
        try:
            part = _decode(body)
        except (msgspec.MsgspecError, RecursionError):
            part = self._decode_part(body, ChatChunk)
        if part.error or not part.choices:
            raise self._make_document_error(body)
        self._read_chunk(part)
        if self.finish_reason is None:
            self.done = True  # the document is whole, which is all that can be asked of it

    def _read_chunk(self, part: ChatChunk) -> None:
        """Take in a chunk that holds more than text."""
        self._identify(part.id, part.model)
        if part.choices:
            choice = part.choices[0]
            if (message := choice.delta or choice.message) is not None:
                self._take_message(message)
            self.finish_reason = choice.finish_reason or self.finish_reason
        if part.usage is not None:
            cache_writes = (part.usage.prompt_tokens_details or UsageDetails()).cache_write_tokens or 0
            self.count(add_write_cost(compute_usage(part.usage), cache_writes, self._info))

    def _take_message(self, message: _ChatMessage) -> None:
        field, thinking, text = _split_message(message)
        if thinking:
            self.think(thinking)
        self._returned_fields.take(field, thinking, message.reasoning_opaque, message.reasoning_details)
        self._returned_fields.take_think_chunks(message.content)
        if text:
            self.say(text)
        if message.refusal:
            self.say(message.refusal)
            self._refused = True
        if message.tool_calls:
            several = len(message.tool_calls) > 1 and all(_is_unlabelled(call) for call in message.tool_calls)
            for call in message.tool_calls:
                function = call.function or _ChatFunction()
                is_next = self._bare_name and _is_unlabelled(call) and function.name and function.arguments
                if several or is_next:  # several in one message are several calls, though nothing tells them apart
                    call.index, self._unlabelled = self._unlabelled, self._unlabelled + 1
                self._bare_name = _is_unlabelled(call) and bool(function.name) and not function.arguments
                arguments = function.arguments
                if isinstance(arguments, dict):  # some servers send the object itself
                    arguments = msgspec.json.encode(arguments).decode()
                self.put(CallDelta(call.id or None, call.index, function.name or None, arguments or ""))
                self._named_calls += bool(function.name)
                if isinstance(call.extra_content, dict) and call.extra_content:
                    self._returned_fields.extras[call.id or f"{AT}{self._named_calls - 1}"] = call.extra_content


def _find_only_text(part: ChatChunk) -> str | None:
    """The text of a chunk that holds nothing else: nearly every one."""
    if not part.choices or part.usage is not None or part.error:
        return None
    choice = part.choices[0]
    message = choice.delta
    if message is None or choice.finish_reason is not None or message.tool_calls is not None:
        return None
    if message.reasoning_content is not None or message.reasoning is not None or message.refusal is not None:
        return None
    if message.reasoning_text is not None or message.reasoning_opaque is not None or message.reasoning_details:
        return None
    return message.content if isinstance(message.content, str) else None


def _split_message(message: _ChatMessage) -> tuple[str, str, str]:
    """The field in which the message has thinking, the thinking, and the text."""
    parts = message.content if isinstance(message.content, list) else ()
    chunks = [part for part in parts if isinstance(part, dict)]
    content = "".join(_extract_chunk_text(part.get("text")) for part in chunks) if chunks else message.content
    text = content if isinstance(content, str) else ""
    for field in (*_RETURNABLE, "reasoning_text"):
        if reasoning := _extract_chunk_text(getattr(message, field)):
            return field, reasoning, text
    return THINK_CHUNKS, "".join(_extract_chunk_text(part.get("thinking")) for part in chunks), text


def _extract_chunk_text(value: object) -> str:
    """Text, however deep a server wraps it: a string, an object with it, or a list of such objects."""
    if isinstance(value, dict):
        value = next((value[key] for key in ("text", "content", "summary") if value.get(key)), "")
    if isinstance(value, list):
        return "".join(map(_extract_chunk_text, value))
    return value if isinstance(value, str) else ""


def _is_unlabelled(call: _ChatCall) -> bool:
    return call.index is None and not call.id


def compute_usage(usage: _Usage) -> Usage:
    prompt, answer = usage.prompt_tokens or 0, usage.completion_tokens or 0
    reasoning = (usage.completion_tokens_details or UsageDetails()).reasoning_tokens or 0
    if reasoning and (usage.total_tokens or 0) >= prompt + answer + reasoning:
        answer += reasoning  # xAI counts thinking beside the answer, others within it
    cached = (usage.prompt_tokens_details or UsageDetails()).cached_tokens or usage.prompt_cache_hit_tokens or 0
    usd = usage.cost or (usage.cost_in_usd_ticks or 0) / 10_000_000_000
    return Usage(prompt, answer, cached, reasoning, usd)
