"""A Chat Completions stream as neutral deltas. Tolerant of what servers really send; what cannot be understood is a
failure, never a guess, because a lost fragment would be half a call."""

from collections.abc import Sequence
from typing import Any

import msgspec

from treadle.errors import ModelError
from treadle.models.wire.failures import failure
from treadle.models.wire.sse import Decoder
from treadle.protocol.content import Usage
from treadle.protocol.deltas import CallDelta, Delta, FinishDelta, TextDelta, ThinkingDelta, UsageDelta


class _Function(msgspec.Struct, gc=False):
    name: str | None = None
    arguments: str | dict[str, Any] | None = None


class _ToolCall(msgspec.Struct, gc=False):
    id: str | None = None
    index: int | None = None
    function: _Function | None = None


class _Message(msgspec.Struct, gc=False):
    content: str | None = None
    tool_calls: list[_ToolCall] | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    refusal: str | None = None


class _Choice(msgspec.Struct, gc=False):
    delta: _Message | None = None
    message: _Message | None = None
    """In place of a delta, from a server that does not stream."""
    finish_reason: str | None = None


class _Details(msgspec.Struct, gc=False):
    cached_tokens: int | None = None
    reasoning_tokens: int | None = None


class _Usage(msgspec.Struct, gc=False):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: _Details | None = None
    completion_tokens_details: _Details | None = None


class _Chunk(msgspec.Struct, gc=False):
    choices: list[_Choice] | None = None
    usage: _Usage | None = None
    error: msgspec.Raw | None = None


_decode = msgspec.json.Decoder(_Chunk).decode


class StreamReader:
    """Takes bytes, gives deltas: at most one of text per read. `done` when the server said so."""

    def __init__(self, where: str) -> None:
        self._where = where
        self._events = Decoder()
        self._document: list[bytes] | None = None
        """The pieces of a body that is one JSON document: a server that ignores `stream`."""
        self._begun = False
        self._calls = False
        self.finish_reason: str | None = None
        self.done = False

    def feed(self, chunk: bytes) -> list[Delta]:
        if not self._begun:
            self._begin(chunk)
        if self._document is not None:
            self._document.append(chunk)
            return []
        out: list[Delta] = []
        text: list[str] = []
        for event in self._events.feed(chunk):
            data = event.data
            if data.startswith("[DONE]"):
                self.done = True
                continue
            if self.done or not data:
                continue
            try:
                part = _decode(data)
                content = part.choices[0].delta.content  # type: ignore[index, union-attr]
            except (msgspec.MsgspecError, RecursionError):
                part, content = self._lenient(data), None
            except (TypeError, IndexError, AttributeError):
                content = None
            if content:
                text.append(content)
                if part.choices[0].finish_reason is None and _plain(part):  # type: ignore[index]
                    continue
            if event.event == "error" or part.error is not None:
                raise failure(self._where, 200, data.encode())
            self._rest(part, out, text, said=bool(content))
        if text:
            out.append(TextDelta("".join(text)))
        return out

    def end(self) -> list[Delta]:
        """The last deltas. Raises when the stream stopped before its end."""
        out: list[Delta] = []
        if self._document is not None:
            out = self._whole(b"".join(self._document))
        if self.finish_reason is None and not self.done:
            raise ModelError("cut_stream", f"{self._where} broke off in the middle of its answer")
        out.append(FinishDelta(self.finish_reason or ("tool_calls" if self._calls else "stop")))
        return out

    def _begin(self, chunk: bytes) -> None:
        first = chunk.lstrip(b"\xef\xbb\xbf \t\r\n")[:1]
        if first:
            self._begun = True
            self._document = [] if first in (b"{", b"[") else None

    def _whole(self, body: bytes) -> list[Delta]:
        body = body.removeprefix(b"\xef\xbb\xbf")
        try:
            part = _decode(body)
        except (msgspec.MsgspecError, RecursionError):
            part = self._lenient(body.decode("utf-8", "replace"))
        if part.error is not None or not part.choices:
            raise failure(self._where, 200, body)
        out: list[Delta] = []
        text: list[str] = []
        self._rest(part, out, text, said=False)
        if text:
            out.append(TextDelta("".join(text)))
        if self.finish_reason is None:
            self.done = True  # the document is whole, which is all that can be asked of it
        return out

    def _rest(self, part: _Chunk, out: list[Delta], text: list[str], *, said: bool) -> None:
        """Everything of a chunk but its plain text, if that was `said` already."""
        if part.choices:
            choice = part.choices[0]
            message = choice.delta or choice.message
            if message is not None:
                self._message(message, out, text, said)
            if choice.finish_reason:
                self.finish_reason = choice.finish_reason
        if part.usage is not None:
            if out and isinstance(out[-1], UsageDelta):
                out.pop()
            out.append(UsageDelta(_usage(part.usage)))

    def _message(self, message: _Message, out: list[Delta], text: list[str], said: bool) -> None:
        thought = message.reasoning_content or message.reasoning
        if thought:
            _flush(text[: -1 if said else None], out)
            del text[: -1 if said else None]
            if out and isinstance(out[-1], ThinkingDelta):
                thought = out.pop().text + thought  # type: ignore[union-attr]
            out.append(ThinkingDelta(thought))
        for piece in (None if said else message.content, message.refusal):
            if piece:
                text.append(piece)
        if message.tool_calls:
            self._calls = True
            _flush(text, out)
            text.clear()
            out.extend(map(_call, message.tool_calls))

    def _lenient(self, data: str) -> _Chunk:
        """A chunk whose fields have other types than they should, as far as it can be understood."""
        try:
            found = msgspec.json.decode(data)
            if isinstance(found, dict):
                return msgspec.convert(_mended(found), _Chunk, strict=False)
        except (msgspec.MsgspecError, RecursionError, UnicodeError):
            pass
        shown = data if len(data) <= 80 else data[:80] + "…"
        raise ModelError("cut_stream", f"{self._where} sent something that is no part of an answer: {shown!r}")


def _plain(part: _Chunk) -> bool:
    """Whether a chunk holds text and nothing else."""
    message = part.choices[0].delta  # type: ignore[index]
    return (
        part.usage is None
        and part.error is None
        and message is not None
        and message.tool_calls is None
        and message.reasoning_content is None
        and message.reasoning is None
        and message.refusal is None
    )


def _flush(text: Sequence[str], out: list[Delta]) -> None:
    if text:
        out.append(TextDelta("".join(text)))


def _call(call: _ToolCall) -> CallDelta:
    function = call.function or _Function()
    arguments = function.arguments
    if isinstance(arguments, dict):  # some servers send the object itself
        arguments = msgspec.json.encode(arguments).decode()
    return CallDelta(call.id or None, call.index, function.name or None, arguments or "")


def _usage(usage: _Usage) -> Usage:
    return Usage(
        input=usage.prompt_tokens or 0,
        output=usage.completion_tokens or 0,
        cached=(usage.prompt_tokens_details or _Details()).cached_tokens or 0,
        reasoning=(usage.completion_tokens_details or _Details()).reasoning_tokens or 0,
    )


def _mended(chunk: dict[str, Any]) -> dict[str, Any]:
    """Put known oddities right: numbers as ids, text as a list of parts, nulls where objects belong."""
    mended = dict(chunk)
    choices = chunk.get("choices")
    mended["choices"] = (
        [_mended_choice(choice) for choice in choices if isinstance(choice, dict)]
        if isinstance(choices, list)
        else None
    )
    if not isinstance(chunk.get("usage"), dict):
        mended["usage"] = None
    return mended


def _mended_choice(choice: dict[str, Any]) -> dict[str, Any]:
    mended = dict(choice)
    for key in ("delta", "message"):
        message = choice.get(key)
        if not isinstance(message, dict):
            mended[key] = None
            continue
        content = message.get("content")
        if isinstance(content, list):
            content = "".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
        calls = message.get("tool_calls")
        calls = [calls] if isinstance(calls, dict) else calls
        if isinstance(calls, list):
            calls = [
                {**call, "id": str(call["id"]) if call.get("id") is not None else None}
                for call in calls
                if isinstance(call, dict)
            ]
        mended[key] = {**message, "content": content, "tool_calls": calls}
    return mended
