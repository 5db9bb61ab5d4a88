"""The fake Responses server refuses what the real one refuses, and counts answers however they are made up."""

from typing import Any

import msgspec
import pytest

from treadle.testing.fake_responses import Responses, find_complaint, seal

USER = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "a"}]}
SAID = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "b"}]}
CALL = {"type": "function_call", "call_id": "i", "name": "f", "arguments": "{}"}
RESULT = {"type": "function_call_output", "call_id": "i", "output": "x"}
THOUGHT = {
    "type": "reasoning",
    "id": "rs_1",
    "summary": [{"type": "summary_text", "text": "hm"}],
    "encrypted_content": seal("hm"),
}

REFUSED: dict[str, tuple[list[Any], str]] = {
    "a call without its result": ([USER, CALL], "No tool output found for function call i"),
    "a result without its call": ([USER, RESULT], "No tool call found"),
    "a result twice": ([CALL, RESULT, RESULT], "No tool call found"),
    "a call twice": ([CALL, RESULT, CALL, RESULT], "Duplicate"),
    "no id": ([{**CALL, "call_id": ""}, {**RESULT, "call_id": ""}], "call_id"),
    "a long id": ([{**CALL, "call_id": "i" * 65}], "call_id"),
    "no name": ([{**CALL, "name": ""}, RESULT], "name"),
    "arguments as an object": ([{**CALL, "arguments": {}}, RESULT], "arguments"),
    "reasoning alone": ([USER, THOUGHT], "required following item"),
    "reasoning before the user": ([THOUGHT, USER], "required following item"),
    "reasoning that was changed": ([{**THOUGHT, "encrypted_content": "x"}, SAID], "could not be verified"),
    "items that are none": (["a"], "expected one of"),
}


def encode_items(items: list[Any]) -> bytes:
    return msgspec.json.encode({"model": "m", "store": False, "input": items})


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_refused(case: str) -> None:
    items, words = REFUSED[case]
    assert words in find_complaint(encode_items(items), ())


def test_what_is_not() -> None:
    assert find_complaint(encode_items([USER, THOUGHT, CALL, RESULT, THOUGHT, SAID, USER]), ()) == ""
    assert find_complaint(encode_items([{**THOUGHT, "encrypted_content": "x"}, SAID]), {"x"}) == ""
    assert find_complaint(b'{"model":"m","input":"hi"}', ()) == ""
    assert "could not parse" in find_complaint(b"{", ())


@pytest.mark.parametrize(
    ("items", "count"),
    [
        ([USER], 0),
        ([USER, SAID, USER], 1),
        ([USER, THOUGHT, SAID, CALL, RESULT], 1),
        ([USER, THOUGHT, CALL, RESULT, CALL, RESULT, SAID], 3),
    ],
)
def test_how_many_answers_a_conversation_has(items: list[Any], count: int) -> None:
    assert Responses().count_answers({"input": items}) == count
