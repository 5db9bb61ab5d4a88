"""Converts a Gemini stream to neutral deltas. Every chunk holds whole parts: text, thoughts, complete calls. A chunk
that cannot be parsed is an error, never guessed at, because a lost part could be a lost call."""

from typing import Any

import msgspec

from treadle.adapters.models.gemini.signature import On, ThoughtSignature
from treadle.adapters.models.wire.failures import failure
from treadle.adapters.models.wire.json import decode_leniently
from treadle.adapters.models.wire.reading import EventReader
from treadle.errors import ModelError
from treadle.protocol.content import Usage
from treadle.protocol.deltas import NoticeDelta, ThinkingBlock


class FunctionCall(msgspec.Struct, gc=False, rename="camel"):
    name: str | None = None
    args: msgspec.Raw = msgspec.Raw()
    """An object, kept as it was written."""
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
    """Why there is no answer."""

    block_reason: str | None = None
    block_reason_message: str | None = None


class GeminiUsage(msgspec.Struct, gc=False, rename="camel"):
    """Tokens so far; each report replaces the one before."""

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


_decode = msgspec.json.Decoder(Chunk).decode


def decode_chunk(data: str | bytes | msgspec.Raw) -> Chunk | None:
    """None when it is no part of an answer at all."""
    try:
        return _decode(data)
    except (msgspec.MsgspecError, RecursionError, UnicodeError):
        raw = data.encode("utf-8", "replace") if isinstance(data, str) else data
        return decode_leniently(raw, Chunk)


def usage_of(report: GeminiUsage) -> Usage:
    """Convert the usage. Thought tokens are not counted in the answer but cost the same: add them."""
    thoughts = report.thoughts_token_count or 0
    return Usage(
        input=(report.prompt_token_count or 0) + (report.tool_use_prompt_token_count or 0),
        output=(report.candidates_token_count or 0) + thoughts,
        cached=report.cached_content_token_count or 0,
        reasoning=thoughts,
    )


_LENGTH = ("MAX_TOKENS", "CONTINUATION")
_SPOILED = ("MALFORMED_FUNCTION_CALL", "MALFORMED_RESPONSE", "UNEXPECTED_TOOL_CALL", "TOO_MANY_TOOL_CALLS", "OTHER")
"""The model produced an unusable answer. The answer is withheld; a retry mostly succeeds."""
_FILTERED = ("SAFETY", "RECITATION", "LANGUAGE", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII")
_UNSIGNED = "MISSING_THOUGHT_SIGNATURE"
_documents = msgspec.json.Decoder(list[msgspec.Raw])


class GeminiReader(EventReader):
    """The end of the body is its end mark."""

    def __init__(self, host: str, ref: str) -> None:
        super().__init__(host)
        self._ref = ref
        self._report: GeminiUsage | None = None
        """The last counts of this read: nearly every chunk has some."""
        self._thoughts: list[str] = []
        """The thoughts since the last signature."""
        self._spoiled: ModelError | None = None

    def _read(self, chunk: bytes) -> None:
        try:
            for event in self._body.feed(chunk):
                if event.data.startswith("[DONE]"):
                    self.done = True
                elif event.data and not self.done:
                    self._take(event.data)
        finally:
            self._count()

    def _close(self) -> None:
        super()._close()
        self._count()
        if self._spoiled is not None:
            raise self._spoiled

    def _count(self) -> None:
        if self._report is not None:
            self._batch.count(usage_of(self._report))
            self._report = None

    def _read_document(self, document: bytes) -> None:
        """A server that does not know of events sends an array of chunks; one that does not stream, a single one."""
        if not document.startswith(b"["):
            self._take(document)
            return
        try:
            chunks = _documents.decode(document)
        except (msgspec.MsgspecError, RecursionError) as error:
            raise self._nonsense(document) from error
        for chunk in chunks:
            self._take(bytes(chunk))

    def _take(self, data: str | bytes) -> None:
        chunk = decode_chunk(data)
        if chunk is None:
            raise self._nonsense(data)
        self._identify(chunk.response_id, chunk.model_version)
        if chunk.usage_metadata is not None:
            self._report = chunk.usage_metadata
        for candidate in chunk.candidates or ():
            if not candidate.index:  # one answer was asked for
                self._candidate(candidate)
        if not chunk.candidates:
            self._nothing(chunk, data)

    def _nothing(self, chunk: Chunk, data: str | bytes) -> None:
        """A chunk without an answer: counts alone, a failure, or a refusal of the question."""
        if bytes(chunk.error) not in (b"", b"null"):
            raise failure(self._where, 200, data.encode("utf-8", "replace") if isinstance(data, str) else data)
        feedback = chunk.prompt_feedback
        if feedback is not None and feedback.block_reason:
            reason = f"{feedback.block_reason} {feedback.block_reason_message or ''}".strip()
            raise ModelError("bad_request", f"{self._where} does not answer this conversation: {reason}", status=200)

    def _candidate(self, candidate: Candidate) -> None:
        for part in (candidate.content and candidate.content.parts) or ():
            if part.text and part.thought_signature is None and not part.thought:  # first, because nearly all are
                self._batch.say(part.text)
            else:
                self._part(part)
        if candidate.finish_reason and candidate.finish_reason != "FINISH_REASON_UNSPECIFIED":
            self._finish(candidate.finish_reason, candidate.finish_message or "")

    def _part(self, part: GeminiPart) -> None:
        signature, text = part.thought_signature or "", part.text or ""
        if part.function_call is not None:
            place = self._batch.text_length, self._calls
            self._call(part.function_call)
            self._sign("call", signature, *place)
        elif part.thought:
            self._batch.think(text)
            self._thoughts.append(text)
            self._sign("thought", signature, self._batch.text_length, self._calls, len(text))
        else:
            place = self._batch.text_length, self._calls
            self._batch.say(text)
            self._sign("text", signature, *place, len(text))

    def _call(self, call: FunctionCall) -> None:
        if call.will_continue:
            raise ModelError("cut_stream", f"{self._where} sent a call in pieces, which was not asked for")
        arguments = bytes(call.args).decode("utf-8", "replace")
        self._begin_call(call.id, call.name, "{}" if arguments in ("", "null") else arguments)

    def _sign(self, on: On, value: str, text: int, calls: int, length: int = 0) -> None:
        if value:
            thinking = "".join(self._thoughts)
            self._thoughts.clear()
            self._batch.put(ThinkingBlock(ThoughtSignature(on, value, text, calls, length, thinking).record()))

    def _finish(self, reason: str, message: str) -> None:
        description = f"{reason}: {message[:200]}" if message else reason
        if reason == "STOP":
            self.finish_reason = "tool_calls" if self._calls else "stop"
        elif reason in _LENGTH:
            self.finish_reason = "length"
        elif reason == _UNSIGNED:
            raise ModelError("bad_request", f"{self._where} misses a thought signature ({description})", status=400)
        elif reason in _SPOILED:
            self.finish_reason = "error"
            self._spoiled = ModelError("cut_stream", f"{self._ref} could not finish its answer ({description})")
        else:
            self.finish_reason = "content_filter" if reason in _FILTERED else reason.lower()
            self._batch.put(
                NoticeDelta("incomplete", f"the answer of {self._ref} was stopped by its provider: {description}")
            )
