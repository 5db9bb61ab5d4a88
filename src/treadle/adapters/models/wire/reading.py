"""The common base of the adapters' answer readers: bytes in, deltas out, read by read. Splits the bytes, in any chunks,
into server-sent events (by the WHATWG rules), lines, or one JSON document, within limits; detects failures and
truncated answers, and prices the writes to a provider's cache (L-11). Subclasses know the protocols.

Linear in the bytes fed, for any input: text is decoded once, a line is joined once. The common events, a `data: ` line
alone or after an `event: ` line, have fast paths."""

import codecs
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from treadle.adapters.models.thinking import SignedBlock, seal
from treadle.adapters.models.wire.failures import make_error, read_complaint
from treadle.adapters.models.wire.json import decode_mended
from treadle.errors import ModelError
from treadle.ports.model import ModelInfo
from treadle.protocol.content import Thinking, Usage
from treadle.protocol.deltas import CallDelta, Delta, FinishDelta, TextDelta, ThinkingBlock, ThinkingDelta, UsageDelta

EVENT_BYTES = 16 * 1024 * 1024  # the largest honest event repeats a whole answer with its encrypted reasoning
ANSWER_BYTES = 128 * 1024 * 1024  # decompressed; every token may come in a chunk of some hundred bytes


class SizeExceeded(Exception):
    """More than EVENT_BYTES of what it names. Raised by decoders, which do not know who sent it."""


def make_limit_error(host: str, subject: object, limit: int = EVENT_BYTES) -> ModelError:
    message = f"{host} sent {subject} of more than {limit // (1024 * 1024)} MiB; the answer was given up"
    return ModelError("answer_limit", message)


class ServerEvent(msgspec.Struct, frozen=True, gc=False):
    event: str
    data: str


class Decoder:
    """Takes bytes as they arrive and returns complete events. An unfinished event at the end is dropped."""

    def __init__(self) -> None:
        self._cut: codecs.IncrementalDecoder | None = None  # the decoder for text that is split inside a character
        self._in_character = False  # True if a character has begun that the next bytes end
        self._begun = self._after_cr = self._after_lf = False
        self._pieces: list[str] = []  # the text since the last event
        self._size = 0  # the number of characters in `_pieces`

    def feed(self, chunk: bytes) -> list[ServerEvent]:
        try:  # nearly always all there is to do, and much quicker
            text = self._decode(chunk) if self._in_character else chunk.decode()
        except UnicodeDecodeError:
            text = self._decode(chunk)
        if not self._begun and text:
            self._begun = True
            text = text.removeprefix("\ufeff")
        if text and (self._after_cr or "\r" in text):
            # Every line end becomes a LF. A CR ends its line at once; the LF after it may come with the next bytes.
            text = text[1:] if self._after_cr and text[0] == "\n" else text
            self._after_cr = text.endswith("\r")
            text = text.replace("\r\n", "\n").replace("\r", "\n")
        if "\n\n" not in text and not (self._after_lf and text.startswith("\n")):
            if text:
                self._pieces.append(text)
                self._size += len(text)
                self._after_lf = text.endswith("\n")
                if self._size > EVENT_BYTES:
                    raise SizeExceeded("an event")
            return []
        if self._pieces:
            text = "".join([*self._pieces, text])
            self._pieces.clear()
        blocks = text.split("\n\n")
        remaining = blocks.pop()
        if remaining:
            self._pieces.append(remaining)
        self._size = len(remaining)
        self._after_lf = remaining.endswith("\n")
        events: list[ServerEvent] = []
        for block in blocks:
            if block.startswith("data: ") and "\n" not in block:
                events.append(ServerEvent("message", block[6:]))
            elif block.startswith("event: ") and block.count("\n") == 1 and "\ndata: " in block:
                name, _, data = block.partition("\ndata: ")
                events.append(ServerEvent(name[7:] or "message", data))
            elif (event := _parse_event(block.split("\n"))) is not None:
                events.append(event)
        return events

    def _decode(self, chunk: bytes) -> str:
        if self._cut is None:
            self._cut = codecs.getincrementaldecoder("utf-8")("replace")
        text = self._cut.decode(chunk)
        self._in_character = bool(self._cut.getstate()[0])
        return text


def _parse_event(lines: list[str]) -> ServerEvent | None:
    """Return the event of these lines; None without data. Comments and reconnection fields are skipped."""
    kind, data = "", []
    for line in lines:
        name, _, value = line.partition(":")
        if name == "data":
            data.append(value.removeprefix(" "))
        elif name == "event":
            kind = value.removeprefix(" ")
    return ServerEvent(kind or "message", "\n".join(data)) if data else None


_BLANK = b" \t\r"
_SPACE = b" \t\r\n"
_BOM = b"\xef\xbb\xbf"


class LineDecoder:
    def __init__(self) -> None:
        self._pieces: list[bytes] = []  # the pieces of a line that has not ended
        self._size = 0
        self._begun = False

    def feed(self, chunk: bytes) -> bytes:
        """The complete lines, in one piece."""
        end = chunk.rfind(b"\n") + 1
        self._size = self._size + len(chunk) if not end else len(chunk) - end
        if self._size > EVENT_BYTES:
            raise SizeExceeded("a line")
        if not end:
            self._pieces.append(chunk)
            return b""
        lines = chunk if end == len(chunk) else chunk[:end]
        if self._pieces:
            lines = b"".join([*self._pieces, lines])
            self._pieces.clear()
        if end < len(chunk):
            self._pieces.append(chunk[end:])
        return lines if self._begun else self._tidy(lines)

    def end(self) -> bytes:
        line = self._tidy(b"".join(self._pieces)).strip(_BLANK)
        self._pieces.clear()
        return line

    def _tidy(self, lines: bytes) -> bytes:
        """A mark of the byte order may stand before the first line."""
        if not self._begun and (stripped := lines.lstrip(_SPACE)):
            self._begun = True
            return stripped.removeprefix(_BOM)
        return lines


def split_lines(body: bytes) -> list[bytes]:
    return [line for raw in body.split(b"\n") if (line := raw.strip(_BLANK))]


NO_INFO = ModelInfo("", "")
CACHE_WRITE = 1.25  # the price of input that is written to the cache, as a multiple of that of new input


def compute_cost(info: ModelInfo, fresh: int, written: int, cached: int, output: int) -> float:
    return (
        (fresh + CACHE_WRITE * written) * info.usd_per_million_input
        + cached * (info.usd_per_million_cached or info.usd_per_million_input)
        + output * info.usd_per_million_output
    ) / 1_000_000


class UsageDetails(msgspec.Struct, gc=False):
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None  # by OpenAI and OpenRouter: it costs more than other input
    reasoning_tokens: int | None = None


def add_write_cost(usage: Usage, written: int, info: ModelInfo) -> Usage:
    """Add the cost if a part of the input was written to the cache and the provider did not tell the cost itself."""
    if not written or usage.usd or not info.has_price:
        return usage
    fresh = max(0, usage.input - usage.cached - written)
    return replace(usage, usd=compute_cost(info, fresh, written, usage.cached, usage.output))


# The server gave up: vLLM, OpenRouter, Z.ai and DeepSeek say so in place of a reason. The call is made again.
_BROKEN = frozenset({"error", "abort", "aborted", "cancelled", "network_error", "insufficient_system_resource"})
_SYNONYMS = {
    **dict.fromkeys(("end_turn", "eos", "eos_token", "stop_sequence", "complete", "completed"), "stop"),
    **dict.fromkeys(("tool_call", "tool_use", "function_call"), "tool_calls"),
    **dict.fromkeys(("max_tokens", "max_output_tokens", "model_length", "model_context_window_exceeded"), "length"),
    **dict.fromkeys(("safety", "sensitive", "error_toxic"), "content_filter"),
}


_S = TypeVar("_S", bound=msgspec.Struct)
_SHOWN = 80
_NAME_CHARS = 200
_HEAD = 16  # how many bytes of a body tell what it is
_BEGINNINGS = (b"{", b"[", b":", b"data", b"event", b"id", b"retry")  # of JSON and of a stream of events


class AnswerReader(ABC):
    """Takes bytes, gives deltas: text and thinking of one read are joined. `done`: the server sent its last word."""

    def __init__(self, host: str, info: ModelInfo = NO_INFO) -> None:
        self._where, self._info = host, info
        self._out: list[Delta] = []
        self._text: list[str] = []
        self._thoughts: list[str] = []
        self._said = 0
        self._usage: Usage | None = None
        self._failure: ModelError | None = None
        self._head = b""
        self._calls = 0  # how many calls have begun with `_begin_call`
        self.has_calls = False  # True if any read had a call
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
                self._head = (self._head + chunk).lstrip(_BOM + _SPACE)[:_HEAD]
                if self._head.startswith(b"<"):
                    raise make_no_answer_error(self._where, "a web page")
            self._read(chunk)
        except ModelError as error:
            # Keep the deltas before the failure: they were received and are paid for. `end` raises it.
            self._failure, self.done = error, True
        except SizeExceeded as over:
            self._failure, self.done = make_limit_error(self._where, over), True
        return self._take_out()

    def end(self) -> list[Delta]:
        """The last deltas. Raises when the stream failed or stopped before its end."""
        if self._failure is not None:
            raise self._failure
        self._close()
        if not self._is_whole():
            if not self._is_familiar():
                raise make_no_answer_error(self._where, repr(self._head.decode("utf-8", "replace")))
            raise ModelError("cut_stream", f"{self._where} broke off in the middle of its answer")
        reason = self.finish_reason or ("tool_calls" if self.has_calls else "stop")
        if (word := reason.lower()) in _BROKEN:
            raise ModelError("cut_stream", f"{self._where} gave up its answer: {word}")
        self.put(FinishDelta(_SYNONYMS.get(word, reason), self.response_id, self.response_model, *self.server))
        return self._take_out()

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
            self.has_calls = True
        self._out.append(delta)

    def count(self, usage: Usage) -> None:
        self._usage = usage

    def _take_out(self) -> list[Delta]:
        """The end of a read: all that it brought, and the last of its counts."""
        if self._text or self._thoughts:
            self._flush()
        if self._usage is not None:
            self._out.append(UsageDelta(self._usage))
            self._usage = None
        out, self._out = self._out, []
        return out

    def _flush(self) -> None:
        if text := "".join(self._text):
            self._said += len(text)
            self._out.append(TextDelta(text))
        if thinking := "".join(self._thoughts):
            self._out.append(ThinkingDelta(thinking))
        self._text.clear()
        self._thoughts.clear()

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
        self.put(CallDelta(None if is_repeated else identity or None, self._calls, name or None, arguments))
        self._calls += 1

    def _put_block(self, thinking: str, block: bytes, text_at: int, calls: int) -> None:
        """Add a block of thinking that goes back as it is to where it stood."""
        self.put(ThinkingBlock(Thinking(thinking, seal(SignedBlock(block, text_at, calls)))))

    def _is_whole(self) -> bool:
        return self.finish_reason is not None or self.done

    @property
    def _has_answer(self) -> bool:
        return bool(self.text_length or self.has_calls)

    def _is_familiar(self) -> bool:
        """True if the body, as far as it arrived, begins like one that may hold an answer."""
        return any(self._head.startswith(beginning[: len(self._head)]) for beginning in _BEGINNINGS)

    def _make_nonsense_error(self, data: str | bytes) -> ModelError:
        if not self._is_familiar():
            return make_no_answer_error(self._where, repr(_format_excerpt(data)))
        message = f"{self._where} sent something that is no part of an answer: {_format_excerpt(data)!r}"
        return ModelError("cut_stream", message)

    def _decode_part(self, data: str | bytes, kind: type[_S]) -> _S:
        part = decode_mended(data, kind)
        if part is None:
            raise self._make_nonsense_error(data)
        return part

    def _make_document_error(self, document: bytes) -> ModelError:
        """The failure for a JSON document that is no answer: it tells of a fault, is cut off, or is something else."""
        try:
            msgspec.json.decode(document, type=msgspec.Raw)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return self._make_nonsense_error(document)
        if self._has_answer:
            return self._make_nonsense_error(document)
        if read_complaint(document).is_error:
            return make_error(self._where, 200, document)
        return make_no_answer_error(self._where, f"JSON of another kind ({_format_excerpt(document)})")


class EventReader(AnswerReader):
    """A stream of events, or one document from a server that does not stream."""

    def __init__(self, host: str, info: ModelInfo = NO_INFO) -> None:
        super().__init__(host, info)
        self._events = Decoder()
        self._pieces: list[bytes] | None = None  # of a document
        self._begun, self._size = False, 0

    def _split_events(self, chunk: bytes) -> list[ServerEvent]:
        """The events that are complete; none ever of a document. The first byte decides the format."""
        if not self._begun and (first := chunk.lstrip(_BOM + _SPACE)[:1]):
            self._begun = True
            self._pieces = [] if first in (b"{", b"[") else None
        if self._pieces is None:
            return self._events.feed(chunk)
        self._pieces.append(chunk)
        self._size += len(chunk)
        if self._size > EVENT_BYTES:
            raise SizeExceeded("a document")
        return []

    def _close(self) -> None:
        if self._pieces is not None:
            # Bytes that are no UTF-8 are replaced, as in streams.
            document = b"".join(self._pieces).removeprefix(_BOM).strip().decode("utf-8", "replace").encode()
            self._read_document(document)
            if not self._is_whole() and not self._has_answer:
                raise self._make_document_error(document)

    @abstractmethod
    def _read_document(self, document: bytes) -> None:
        """Take in the answer as a whole."""


def make_no_answer_error(host: str, description: str) -> ModelError:
    """For a server that answers well and is none: asking again cannot help."""
    advice = "check the base URL, and whether a proxy or a sign-in page of the network stands in between"
    message = f"{host} answered with {description} where the answer of a model should be; {advice}"
    return ModelError("bad_request", message)


def _format_excerpt(data: str | bytes) -> str:
    text = data if isinstance(data, str) else data[: 4 * _SHOWN + 4].decode("utf-8", "replace")
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "…"
