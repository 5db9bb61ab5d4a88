"""A stream of `/api/chat` as neutral deltas: one JSON object a line, the last of which says so. A call comes whole, and
calls are told apart by their order, for they have no ids, or ids that repeat (M-09)."""

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from treadle.adapters.models.wire.failures import failure
from treadle.adapters.models.wire.framing import LineDecoder, lines_of
from treadle.adapters.models.wire.json import decode_mended
from treadle.adapters.models.wire.reading import AnswerReader
from treadle.errors import ModelError
from treadle.protocol.content import Usage

_NOTHING_SAID = ("load", "unload")
"""Why an answer ended that was none: the server took the request for an order to load the model, or to drop it."""


class _OllamaFunction(msgspec.Struct, gc=False):
    name: str | None = None
    arguments: msgspec.Raw = msgspec.Raw(b"{}")


class _OllamaCall(_OllamaFunction, gc=False):
    """Some servers put what belongs into `function` beside the id."""

    id: str | None = None
    function: _OllamaFunction | None = None


class _OllamaMessage(msgspec.Struct, gc=False):
    content: str | None = None
    thinking: str | None = None
    tool_calls: list[_OllamaCall] | None = None


class _Part(msgspec.Struct, gc=False):
    model: Any = None
    message: _OllamaMessage | None = None
    done: bool | None = None
    done_reason: str | None = None
    prompt_eval_count: int | None = None
    eval_count: int | None = None
    error: Any = None


_decoder = msgspec.json.Decoder(_Part)
_decode, _decode_lines = _decoder.decode, _decoder.decode_lines
_TROUBLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


class OllamaReader(AnswerReader):
    def __init__(self, host: str) -> None:
        super().__init__(host)
        self._lines = LineDecoder()
        self._stranger = b""
        """The first lines, if nothing in them is part of an answer."""

    def _read(self, chunk: bytes) -> None:
        lines = self._lines.take_complete_lines(chunk)
        if lines and not self.done:
            self._read_lines(lines)

    def _close(self) -> None:
        if not self.done and (line := self._lines.end()):
            self._read_lines(line)
        if self._stranger and not self._is_whole() and not self._has_answer:
            raise self._no_document(self._stranger)

    def _read_lines(self, lines: bytes) -> None:
        say = self._batch.say
        try:
            parts: Iterable[_Part] = _decode_lines(lines)  # all at once, which costs less
        except _TROUBLE:
            parts = self._one_by_one(lines)
        for part in parts:
            message = part.message
            if (
                message is not None  # first, because nearly all are nothing but text
                and message.content
                and message.thinking is None
                and message.tool_calls is None
                and not part.done
                and not part.error
            ):
                say(message.content)
            else:
                self._take(part)
                if self.done:
                    break
                if message is None:
                    self._stranger = self._stranger or lines.strip()

    def _one_by_one(self, lines: bytes) -> Iterator[_Part]:
        for line in lines_of(lines):
            try:
                yield _decode(line)
            except _TROUBLE:
                mended = decode_mended(line, _Part)  # its fields may have other types than they should
                if mended is None:
                    raise self._no_document(line) from None
                yield mended

    def _take(self, part: _Part) -> None:
        if part.error:
            raise failure(self._where, 200, msgspec.json.encode({"error": part.error}))
        message = part.message
        if message is not None:
            if message.thinking:
                self._batch.think(message.thinking)
            if message.content:
                self._batch.say(message.content)
            for call in message.tool_calls or ():
                self._call(call)
        if part.done:
            self._finish(part)

    def _finish(self, part: _Part) -> None:
        self._identify(None, part.model)
        self.done = True
        reason = part.done_reason or "stop"
        if reason in _NOTHING_SAID:
            raise ModelError(
                "cut_stream", f"{self._where} did not answer: it took the request for an order to {reason}"
            )
        self.finish_reason = "tool_calls" if reason == "stop" and self._calls else reason
        # Older servers leave the count out when the prompt was cached; then what they count is not the whole.
        if part.prompt_eval_count:
            self._batch.count(Usage(part.prompt_eval_count, part.eval_count or 0))

    def _call(self, call: _OllamaCall) -> None:
        function = call.function or call
        self._begin_call(call.id, function.name, _arguments(function.arguments))


def _arguments(raw: msgspec.Raw) -> str:
    """The text of the object. Some servers send that text as a string, as others do in other protocols."""
    text = bytes(raw).decode("utf-8", "replace").strip()
    if text.startswith('"'):
        text = msgspec.json.decode(text, type=str)
    return text if text.strip() and text != "null" else "{}"
