"""The common base of the adapters' answer readers: bytes in, deltas out, read by read; detects failures and truncated
answers, and prices the writes to a provider's cache (L-11). Subclasses know the protocols."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from treadle.adapters.models.wire.failures import failure, read_complaint
from treadle.adapters.models.wire.framing import EventBody, SizeExceeded, over_limit
from treadle.adapters.models.wire.json import decode_mended
from treadle.adapters.models.wire.signed_thinking import SignedBlock, seal
from treadle.errors import ModelError
from treadle.ports.model import ModelInfo
from treadle.protocol.content import Thinking, Usage
from treadle.protocol.deltas import CallDelta, Delta, FinishDelta, TextDelta, ThinkingBlock, ThinkingDelta, UsageDelta

CACHE_WRITE = 1.25
"""The price of input that is written to the cache, as a multiple of that of new input, at Anthropic and OpenAI."""


def cost_of(info: ModelInfo, fresh: int, written: int, cached: int, output: int) -> float:
    return (
        (fresh + CACHE_WRITE * written) * info.usd_per_million_input
        + cached * (info.usd_per_million_cached or info.usd_per_million_input)
        + output * info.usd_per_million_output
    ) / 1_000_000


class UsageDetails(msgspec.Struct, gc=False):
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None
    """By OpenAI and OpenRouter: input that was written to the cache, which costs more than other input."""
    reasoning_tokens: int | None = None


def price_with_writes(usage: Usage, written: int, info: ModelInfo | None) -> Usage:
    """Add the cost if a part of the input was written to the cache and the provider did not tell the cost itself."""
    if info is None or not written or usage.usd or not info.has_price:
        return usage
    fresh = max(0, usage.input - usage.cached - written)
    return replace(usage, usd=cost_of(info, fresh, written, usage.cached, usage.output))


_BROKEN = frozenset({"error", "abort", "aborted", "cancelled", "network_error", "insufficient_system_resource"})
"""The server gave up: vLLM, OpenRouter, Z.ai and DeepSeek say so in place of a reason. The call is made again."""
_SYNONYMS = {
    **dict.fromkeys(("end_turn", "eos", "eos_token", "stop_sequence", "complete", "completed"), "stop"),
    **dict.fromkeys(("tool_call", "tool_use", "function_call"), "tool_calls"),
    **dict.fromkeys(("max_tokens", "max_output_tokens", "model_length", "model_context_window_exceeded"), "length"),
    **dict.fromkeys(("safety", "sensitive", "error_toxic"), "content_filter"),
}


class Batch:
    """Collects the deltas of a read, read by read; `take` gives them out."""

    __slots__ = ("_out", "_said", "_text", "_thoughts", "_usage", "called")

    def __init__(self) -> None:
        self._out: list[Delta] = []
        self._text: list[str] = []
        self._thoughts: list[str] = []
        self._said = 0
        self._usage: Usage | None = None
        self.called = False  # True if any read had a call

    @property
    def text_length(self) -> int:
        return self._said + sum(map(len, self._text))

    def say(self, text: str) -> None:
        if self._thoughts:
            self._flush()
        self._text.append(text)

    def think(self, text: str) -> None:
        if self._text:
            self._flush()
        self._thoughts.append(text)

    def put(self, delta: Delta) -> None:
        """Append any other delta; text before it stays before it."""
        if self._text or self._thoughts:
            self._flush()
        if type(delta) is CallDelta:
            self.called = True
        self._out.append(delta)

    def count(self, usage: Usage) -> None:
        self._usage = usage

    def take(self) -> list[Delta]:
        """The end of a read: all that it brought, and the last of its counts."""
        if self._text or self._thoughts:
            self._flush()
        if self._usage is not None:
            self._out.append(UsageDelta(self._usage))
            self._usage = None
        out, self._out = self._out, []
        return out

    def _flush(self) -> None:
        if self._text:
            if text := "".join(self._text):
                self._said += len(text)
                self._out.append(TextDelta(text))
            self._text.clear()
        if self._thoughts:
            if thinking := "".join(self._thoughts):
                self._out.append(ThinkingDelta(thinking))
            self._thoughts.clear()


_S = TypeVar("_S", bound=msgspec.Struct)
_SHOWN = 80
_NAME_CHARS = 200
_HEAD = 16  # how many bytes of a body tell what it is
_BLANK = b"\xef\xbb\xbf \t\r\n"
_BEGINNINGS = (b"{", b"[", b":", b"data", b"event", b"id", b"retry")  # of JSON and of a stream of events


class AnswerReader(ABC):
    """Takes bytes, gives deltas: text and thinking of one read are joined. `done`: the server sent its last word."""

    def __init__(self, host: str) -> None:
        self._where = host
        self._batch = Batch()
        self._failure: ModelError | None = None
        self._head = b""
        self._calls = 0  # how many calls have begun
        self._ids: set[str] = set()
        self.finish_reason: str | None = None
        self.done = False
        self.response_id = ""
        self.response_model = ""
        self.server: tuple[str, int] = ("", 0)  # the address and port that the request went to
        self.sent: Mapping[str, Any] = {}  # the parameters of the request

    def feed(self, chunk: bytes) -> list[Delta]:
        try:
            if len(self._head) < _HEAD:
                # A web page is not an answer of a model, even with status 200 and a plausible type.
                self._head = (self._head + chunk).lstrip(_BLANK)[:_HEAD]
                if self._head.startswith(b"<"):
                    raise no_answer(self._where, "a web page")
            self._read(chunk)
        except ModelError as error:
            # Keep the deltas before the failure: they were received and are paid for. `end` raises it.
            self._failure, self.done = error, True
        except SizeExceeded as over:
            self._failure, self.done = over_limit(self._where, over), True
        return self._batch.take()

    def end(self) -> list[Delta]:
        """The last deltas. Raises when the stream failed or stopped before its end."""
        if self._failure is not None:
            raise self._failure
        self._close()
        if not self._is_whole():
            if not self._familiar():
                raise no_answer(self._where, repr(self._head.decode("utf-8", "replace")))
            raise ModelError("cut_stream", f"{self._where} broke off in the middle of its answer")
        reason = self.finish_reason or ("tool_calls" if self._batch.called else "stop")
        if (word := reason.lower()) in _BROKEN:
            raise ModelError("cut_stream", f"{self._where} gave up its answer: {word}")
        reason = _SYNONYMS.get(word, reason)
        self._batch.put(FinishDelta(reason, self.response_id, self.response_model, *self.server))
        return self._batch.take()

    def _identify(self, response_id: object, model: object) -> None:
        """Keep the id and the model of the answer, as the provider names them; other shapes are ignored."""
        if isinstance(response_id, str) and response_id:
            self.response_id = response_id[:_NAME_CHARS]
        if isinstance(model, str) and model:
            self.response_model = model[:_NAME_CHARS]

    @abstractmethod
    def _read(self, chunk: bytes) -> None:
        """Take in what came. Never guess at what cannot be understood: a lost fragment would be half a call."""

    @abstractmethod
    def _close(self) -> None:
        """The body has ended: take in what can be read only now."""

    def _begin_call(self, identity: str | None, name: str | None, arguments: str = "") -> None:
        """Add a call of its own. An id that was there before names another call all the same (M-09)."""
        is_repeated = identity in self._ids
        self._ids.add(identity or "")
        self._batch.put(CallDelta(None if is_repeated else identity or None, self._calls, name or None, arguments))
        self._calls += 1

    def _put_block(self, thinking: str, block: bytes, text_at: int, calls: int) -> None:
        """Add a block of thinking that goes back as it is to where it stood."""
        self._batch.put(ThinkingBlock(Thinking(thinking, seal(SignedBlock(block, text_at, calls)))))

    def _is_whole(self) -> bool:
        return self.finish_reason is not None or self.done

    @property
    def _has_answer(self) -> bool:
        return bool(self._batch.text_length or self._batch.called)

    def _familiar(self) -> bool:
        """True if the body, as far as it arrived, begins like one that may hold an answer."""
        return any(self._head.startswith(beginning[: len(self._head)]) for beginning in _BEGINNINGS)

    def _nonsense(self, data: str | bytes) -> ModelError:
        if not self._familiar():
            return no_answer(self._where, repr(_format_excerpt(data)))
        message = f"{self._where} sent something that is no part of an answer: {_format_excerpt(data)!r}"
        return ModelError("cut_stream", message)

    def _mended(self, data: str | bytes, kind: type[_S]) -> _S:
        part = decode_mended(data, kind)
        if part is None:
            raise self._nonsense(data)
        return part

    def _no_document(self, document: bytes) -> ModelError:
        """The failure for a JSON document that is no answer: it tells of a fault, is cut off, or is something else."""
        try:
            msgspec.json.decode(document, type=msgspec.Raw)
            is_complete = True
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            is_complete = False
        if self._has_answer or not is_complete:
            return self._nonsense(document)
        if read_complaint(document).is_error:
            return failure(self._where, 200, document)
        return no_answer(self._where, f"JSON of another kind ({_format_excerpt(document)})")


class EventReader(AnswerReader):
    """Of a stream of events, or of one document from a server that does not stream."""

    def __init__(self, host: str) -> None:
        super().__init__(host)
        self._body = EventBody()

    def _close(self) -> None:
        if (document := self._body.document()) is not None:
            self._read_document(document)
            if not self._is_whole() and not self._has_answer:
                raise self._no_document(document)

    @abstractmethod
    def _read_document(self, document: bytes) -> None:
        """Take in the answer as a whole."""


def no_answer(host: str, description: str) -> ModelError:
    """For a server that answers well and is none: asking again cannot help."""
    advice = "check the base URL, and whether a proxy or a sign-in page of the network stands in between"
    return ModelError(
        "bad_request", f"{host} answered with {description} where the answer of a model should be; {advice}"
    )


def _format_excerpt(data: str | bytes) -> str:
    text = data if isinstance(data, str) else data[: 4 * _SHOWN + 4].decode("utf-8", "replace")
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "…"
