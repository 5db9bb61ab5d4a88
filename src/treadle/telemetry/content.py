"""What was said, in the shapes of the GenAI conventions: only for who asked for it. It comes from the log, so secrets
are out of it already (S-11)."""

from typing import Any

import msgspec

from treadle.protocol import events as e
from treadle.telemetry import names
from treadle.telemetry.spans import Span


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


def _text(text: str) -> dict[str, str]:
    return {"type": "text", "content": text}


def heard(attributes: dict[str, Any], message: e.UserMessage) -> None:
    """Add what the user says to what was said before in the run."""
    said = msgspec.json.decode(attributes.get(names.INPUT_MESSAGES, "[]"))
    attributes[names.INPUT_MESSAGES] = _json([*said, {"role": "user", "parts": [_text(message.content)]}])


def spoken(message: e.AssistantMessage) -> dict[str, Any]:
    parts: list[dict[str, Any]] = [_text(message.content)] if message.content else []
    for asked in message.tool_requests:
        parts.append({"type": "tool_call", "id": asked.id, "name": asked.name, "arguments": asked.arguments})
    answer = {"role": "assistant", "parts": parts, "finish_reason": message.finish_reason}
    return {names.OUTPUT_MESSAGES: _json([answer])}


def last_words(run: Span | None, said: dict[str, Any]) -> None:
    """The last message of a run is what came of it."""
    if run is not None:
        run.attributes[names.OUTPUT_MESSAGES] = said[names.OUTPUT_MESSAGES]


def arguments(start: e.ExecutionStart) -> dict[str, str]:
    return {names.ARGUMENTS: _json(start.arguments)}


def result(complete: e.ExecutionComplete) -> dict[str, str]:
    return {names.RESULT: complete.result or complete.error}
