"""The words for endings and errors in the types of the vendors' SDKs: each has a meaning here. A newer SDK shows the
words that Treadle does not know yet (M-11)."""

import asyncio
import json
from typing import Any, get_args

import pytest

from tests.lazily import lazily
from tests.wires.case import Case, Played, play

pytestmark = pytest.mark.thorough(one_of=12)

chat = lazily("openai.types.chat.chat_completion_chunk")
response = lazily("openai.types.responses.response")
responses = lazily("openai.types.responses.response_error")
anthropic = lazily("anthropic.types.stop_reason")
genai = lazily("google.genai.types")
mistral = lazily("mistralai.client.models")

RETRIED_CODES = {
    "server_error": "overloaded",
    "vector_store_timeout": "overloaded",
    "rate_limit_exceeded": "rate_limit",
}
COMPLETE = ("stop", "tool_calls", "pause_turn")


def run(model: str, *events: dict[str, Any]) -> Played:
    return asyncio.run(play(model, Case("words", events=[json.dumps(event) for event in events])))


def assert_told(played: Played, word: str, *, complete: bool) -> None:
    """Either the answer is complete, or the user is told that it is not, or the call is made again."""
    if played.error is not None:
        assert not complete, word
        assert played.error.kind == "cut_stream", word
        return
    assert played.answer is not None
    assert (played.answer.finish_reason in COMPLETE) == complete, word
    assert ("incomplete" in played.notices) != complete, word


@pytest.mark.parametrize("model", ["openai:m", "mistral:m"])
def test_finish_reasons_of_chat_completions(model: str) -> None:
    if model.startswith("mistral"):
        words = get_args(get_args(mistral.CompletionResponseStreamChoiceFinishReason)[0])
    else:
        words = get_args(get_args(chat.Choice.model_fields["finish_reason"].annotation)[0])
    assert len(words) >= 4
    for word in words:
        played = run(model, {"choices": [{"index": 0, "delta": {"content": "Hi."}, "finish_reason": word}]})
        assert_told(played, word, complete=word in ("stop", "tool_calls", "function_call"))


def test_stop_reasons_of_anthropic() -> None:
    for word in get_args(anthropic.StopReason):
        block = {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": "Hi."}}
        end = {"type": "message_delta", "delta": {"stop_reason": word}, "usage": {"output_tokens": 1}}
        played = run("anthropic:m", block, {"type": "content_block_stop", "index": 0}, end, {"type": "message_stop"})
        if word != "pause_turn":  # it has a notice of its own
            assert_told(played, word, complete=word in ("end_turn", "stop_sequence", "tool_use"))


def test_finish_reasons_of_gemini() -> None:
    for reason in genai.FinishReason:
        if reason.value in ("FINISH_REASON_UNSPECIFIED", "MISSING_THOUGHT_SIGNATURE"):
            continue  # no ending; a fault of the request
        content = {"role": "model", "parts": [{"text": "Hi."}]}
        played = run("gemini:m", {"candidates": [{"content": content, "finishReason": reason.value, "index": 0}]})
        assert_told(played, reason.value, complete=reason.value == "STOP")


def test_reasons_of_incomplete_responses() -> None:
    words = get_args(get_args(response.IncompleteDetails.model_fields["reason"].annotation)[0])
    assert "max_output_tokens" in words
    for word in (*words, "a_word_of_tomorrow"):
        text = {"type": "response.output_text.delta", "output_index": 0, "delta": "Half"}
        response_body = {"status": "incomplete", "incomplete_details": {"reason": word}, "output": []}
        assert_told(
            run("openai-responses:m", text, {"type": "response.incomplete", "response": response_body}),
            word,
            complete=False,
        )


def test_error_codes_of_responses() -> None:
    codes = get_args(responses.ResponseError.model_fields["code"].annotation)
    assert "bio_policy" in codes
    for code in codes:
        error = {"code": code, "message": "The request failed."}
        played = run(
            "openai-responses:m", {"type": "response.failed", "response": {"status": "failed", "error": error}}
        )
        assert played.error is not None
        assert played.error.kind == RETRIED_CODES.get(code, "bad_request"), code
