"""Converts a Gemini stream to neutral deltas. Every chunk holds whole parts: text, thoughts, complete calls. The
provider signs parts: a call, a piece of text, often an empty one, or a thought; a signature counts only on the very
part that carried it (M-10). An entry has no parts, so every signature is recorded as a block of thinking that says
where it stood."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal, NamedTuple

import msgspec

from treadle.adapters.models.wire.failures import failure
from treadle.adapters.models.wire.json import decode_tolerantly
from treadle.adapters.models.wire.reading import EventReader
from treadle.adapters.models.wire.signed_thinking import SignedBlock
from treadle.errors import ModelError
from treadle.protocol.content import Thinking, Usage
from treadle.protocol.deltas import NoticeDelta

On = Literal["call", "text", "thought"]


class _Mark(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    on: On
    thought_signature: str
    length: int = 0  # characters of the signed text or thought


class ThoughtSignature(NamedTuple):
    on: On
    value: str
    text: int = 0  # characters of text before the part
    calls: int = 0  # calls before the part
    length: int = 0
    thought_text: str = ""  # the thoughts since the previous signature; a signed thought is their end


class Piece(NamedTuple):
    """One part of an answer as it goes back: a call by its number, a text or a thought."""

    on: On
    content: str | int
    signature: str = ""


def signatures(blocks: Iterable[tuple[Thinking, SignedBlock]]) -> Iterator[ThoughtSignature]:
    """Read signatures from the record. Blocks that `GeminiReader` did not write are skipped."""
    for block, sealed in blocks:
        try:
            mark = msgspec.json.decode(sealed.block, type=_Mark)
        except msgspec.MsgspecError:
            continue
        yield ThoughtSignature(mark.on, mark.thought_signature, sealed.text, sealed.calls, mark.length, block.text)


def lay_out(text: str, calls: int, signed: Sequence[ThoughtSignature]) -> Iterator[Piece]:
    """The parts of an answer in their order. A signed part is never joined with one that is not."""
    by_call = {signature.calls: signature.value for signature in signed if signature.on == "call"}
    between = [signature for signature in signed if _among_calls(signature)]
    at = 0
    for signature in signed:
        if signature.on == "call" or _among_calls(signature):
            continue
        if piece := text[at : signature.text]:
            yield Piece("text", piece)
        yield _signed(signature, text)
        at = max(at, signature.text + (signature.length if signature.on == "text" else 0))
    if remaining := text[at:]:
        yield Piece("text", remaining)
    for number in range(calls):
        yield from (_signed(signature, text) for signature in between if signature.calls == number)
        yield Piece("call", number, by_call.get(number, ""))
    yield from (_signed(signature, text) for signature in between if signature.calls >= calls)


def _among_calls(signature: ThoughtSignature) -> bool:
    """True if a part is sent back after a call. Never true for text: an entry has all its text before its calls."""
    return signature.on != "call" and signature.calls > 0 and not (signature.on == "text" and signature.length)


def _signed(signature: ThoughtSignature, text: str) -> Piece:
    if signature.on == "text":
        return Piece("text", text[signature.text : signature.text + signature.length], signature.value)
    thought = signature.thought_text
    return Piece("thought", thought[max(0, len(thought) - signature.length) :], signature.value)


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


_chunk_decoder = msgspec.json.Decoder(Chunk)


def usage_of(report: GeminiUsage) -> Usage:
    """Convert the usage. Thought tokens are not counted in the answer but cost the same: add them."""
    thoughts = report.thoughts_token_count or 0
    prompt = (report.prompt_token_count or 0) + (report.tool_use_prompt_token_count or 0)
    answer = (report.candidates_token_count or 0) + thoughts
    return Usage(prompt, answer, report.cached_content_token_count or 0, thoughts)


_LENGTH = ("MAX_TOKENS", "CONTINUATION")
_SPOILED = ("MALFORMED_FUNCTION_CALL", "MALFORMED_RESPONSE", "UNEXPECTED_TOOL_CALL", "TOO_MANY_TOOL_CALLS", "OTHER")
"""The model produced an unusable answer. The answer is withheld; a retry mostly succeeds."""
_FILTERED = ("SAFETY", "RECITATION", "LANGUAGE", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII")


class GeminiReader(EventReader):
    """The end of the body is its end mark."""

    def __init__(self, host: str, ref: str) -> None:
        super().__init__(host)
        self._ref = ref
        self._report: GeminiUsage | None = None  # the last counts of this read: nearly every chunk has some
        self._thoughts: list[str] = []  # the thoughts since the last signature
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
            chunks = msgspec.json.decode(document, type=list[msgspec.Raw])
        except (msgspec.MsgspecError, RecursionError) as error:
            raise self._nonsense(document) from error
        for chunk in chunks:
            self._take(bytes(chunk))

    def _take(self, data: str | bytes) -> None:
        chunk = decode_tolerantly(data, _chunk_decoder)
        if chunk is None:
            raise self._nonsense(data)
        self._identify(chunk.response_id, chunk.model_version)
        if chunk.usage_metadata is not None:
            self._report = chunk.usage_metadata
        for candidate in chunk.candidates or ():
            if not candidate.index:  # one answer was asked for
                self._candidate(candidate)
        # A chunk without an answer has counts alone, a failure, or a refusal of the question.
        if not chunk.candidates and bytes(chunk.error) not in (b"", b"null"):
            raise failure(self._where, 200, data.encode("utf-8", "replace") if isinstance(data, str) else data)
        feedback = chunk.prompt_feedback
        if not chunk.candidates and feedback is not None and feedback.block_reason:
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
        """Take in a part, and record its signature, if it has one, with its place."""
        text, place = part.text or "", (self._batch.text_length, self._calls)
        mark = _Mark("text", part.thought_signature or "", len(text))
        if (call := part.function_call) is not None:
            mark = _Mark("call", mark.thought_signature)
            if call.will_continue:
                raise ModelError("cut_stream", f"{self._where} sent a call in pieces, which was not asked for")
            arguments = bytes(call.args).decode("utf-8", "replace")
            self._begin_call(call.id, call.name, "{}" if arguments in ("", "null") else arguments)
        elif part.thought:
            mark = _Mark("thought", mark.thought_signature, len(text))
            self._batch.think(text)
            self._thoughts.append(text)
        else:
            self._batch.say(text)
        if mark.thought_signature:
            self._put_block("".join(self._thoughts), msgspec.json.encode(mark), *place)
            self._thoughts.clear()

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
            self._spoiled = ModelError("cut_stream", f"{self._ref} could not finish its answer ({description})")
        else:
            self.finish_reason = "content_filter" if reason in _FILTERED else reason.lower()
            description = f"was stopped by its provider: {description}"
            self._batch.put(NoticeDelta("incomplete", f"the answer of {self._ref} {description}"))
