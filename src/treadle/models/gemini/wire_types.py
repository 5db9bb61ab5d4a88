"""The words of a Gemini stream, as far as they matter here. Types only, and what is read from them; tolerant of servers
that send other types than they should."""

import msgspec

from treadle.models.wire.lenient import decode_leniently
from treadle.protocol.content import Usage


class FunctionCall(msgspec.Struct, gc=False, rename="camel"):
    name: str | None = None
    args: msgspec.Raw = msgspec.Raw()
    """An object, kept as it was written."""
    id: str | None = None
    will_continue: bool | None = None


class Part(msgspec.Struct, gc=False, rename="camel"):
    """One field says what it is; a signature may stand beside any."""

    text: str | None = None
    thought: bool | None = None
    thought_signature: str | None = None
    function_call: FunctionCall | None = None


class Content(msgspec.Struct, gc=False):
    parts: list[Part] | None = None


class Candidate(msgspec.Struct, gc=False, rename="camel"):
    content: Content | None = None
    finish_reason: str | None = None
    finish_message: str | None = None
    index: int | None = None


class Feedback(msgspec.Struct, gc=False, rename="camel"):
    """Why there is no answer."""

    block_reason: str | None = None
    block_reason_message: str | None = None


class Report(msgspec.Struct, gc=False, rename="camel"):
    """Tokens so far; each report replaces the one before."""

    prompt_token_count: int | None = None
    cached_content_token_count: int | None = None
    tool_use_prompt_token_count: int | None = None
    candidates_token_count: int | None = None
    thoughts_token_count: int | None = None


class Chunk(msgspec.Struct, gc=False, rename="camel"):
    candidates: list[Candidate] | None = None
    usage_metadata: Report | None = None
    prompt_feedback: Feedback | None = None
    error: msgspec.Raw = msgspec.Raw()


_decode = msgspec.json.Decoder(Chunk).decode


def decode_chunk(data: str | bytes | msgspec.Raw) -> Chunk | None:
    """None when it is no part of an answer at all."""
    try:
        return _decode(data)
    except (msgspec.MsgspecError, RecursionError, UnicodeError):
        raw = data.encode("utf-8", "replace") if isinstance(data, str) else data
        return decode_leniently(raw, Chunk)


def usage_of(report: Report) -> Usage:
    """What was thought is not in the count of what was answered, and costs the same."""
    thoughts = report.thoughts_token_count or 0
    return Usage(
        input=(report.prompt_token_count or 0) + (report.tool_use_prompt_token_count or 0),
        output=(report.candidates_token_count or 0) + thoughts,
        cached=report.cached_content_token_count or 0,
        reasoning=thoughts,
    )
