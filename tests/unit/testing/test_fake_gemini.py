"""The fake Gemini server refuses what the real one refuses (M-03)."""

from typing import Any

import msgspec
import pytest

from treadle.testing.fake_gemini import PASS, find_complaint, sign

USER = {"role": "user", "parts": [{"text": "a"}]}
CALL = {"functionCall": {"name": "f", "args": {}}}
RESPONSE = {"functionResponse": {"name": "f", "response": {"output": "r"}}}


def model(*parts: dict[str, Any]) -> dict[str, Any]:
    return {"role": "model", "parts": list(parts)}


def user(*parts: dict[str, Any]) -> dict[str, Any]:
    return {"role": "user", "parts": list(parts)}


def find_contents_complaint(*contents: dict[str, Any], strict: bool = False, **more: Any) -> str:
    return find_complaint(msgspec.json.encode({"contents": contents, **more}), ["good"], strict=strict)


def test_what_is_good_is_taken() -> None:
    signed = CALL | {"thoughtSignature": sign(CALL)}
    assert find_contents_complaint(USER) == ""
    assert find_contents_complaint(USER, model(CALL), user(RESPONSE)) == ""
    for good in (signed, CALL | {"thoughtSignature": PASS}, CALL | {"thoughtSignature": "good"}):
        assert find_contents_complaint(USER, model(good, CALL), user(RESPONSE, RESPONSE), strict=True) == ""
    # Calls of earlier turns need no signature.
    assert find_contents_complaint(USER, model(CALL), user(RESPONSE), model({"text": "x"}), USER, strict=True) == ""


@pytest.mark.parametrize(
    ("contents", "words"),
    [
        ([], "contents is not specified"),
        ([{"role": "assistant", "parts": [{"text": "a"}]}], "valid role"),
        ([user()], "must not be empty"),
        ([user({"text": ""})], "oneof field 'data'"),
        ([user({"text": "a", "functionResponse": {}})], "oneof field 'data'"),
        ([user({"words": "a"})], 'Unknown name "words"'),
        ([USER, model({"functionCall": {"name": "", "args": {}}}), USER], "Name cannot be empty"),
        ([USER, model({"functionCall": {"name": "f", "args": []}}), USER], "a struct is expected"),
        ([model({"text": "a"}), USER], "begin and end with a user turn"),
        ([USER, model({"text": "a"})], "begin and end with a user turn"),
        ([USER, USER], "alternate"),
        ([USER, model(CALL), USER], "number of function response parts"),
        ([USER, model(CALL), user(RESPONSE, RESPONSE)], "number of function response parts"),
        ([user(RESPONSE)], "number of function response parts"),
        ([USER, model(CALL | {"thoughtSignature": "forged"}), user(RESPONSE)], "Corrupted thought signature"),
        ([USER, model({"text": "b", "thoughtSignature": sign({"text": "a"})}), USER], "Corrupted thought signature"),
    ],
)
def test_what_is_refused(contents: list[dict[str, Any]], words: str) -> None:
    assert words in find_contents_complaint(*contents)


def test_unsigned_calls_are_refused_by_strict_models() -> None:
    assert "missing a thought_signature" in find_contents_complaint(USER, model(CALL), user(RESPONSE), strict=True)
    signed = CALL | {"thoughtSignature": "good"}
    assert "missing" in find_contents_complaint(USER, model(CALL, signed), user(RESPONSE, RESPONSE), strict=True)


@pytest.mark.parametrize(
    ("declared", "words"),
    [
        ({"name": "9"}, "Invalid function name"),
        ({"name": "f", "parameters": {"type": "object"}, "parametersJsonSchema": {}}, "mutually exclusive"),
        ({"name": "f", "parameters": {"type": "object", "additionalProperties": False}}, 'Unknown name "additional'),
        ({"name": "f", "parameters": {"type": "object", "properties": {"a": {"type": "array"}}}}, "items: missing"),
        ({"name": "f", "parameters": {"type": "object", "properties": {"a": {}}}}, "schema type field"),
        ({"name": "f", "parameters": {"type": "object", "required": ["a"]}}, "not defined: a"),
        ({"name": "f", "parameters": {"type": "integer", "enum": [1]}}, "only allowed for STRING"),
    ],
)
def test_declarations_that_are_refused(declared: dict[str, Any], words: str) -> None:
    assert words in find_contents_complaint(USER, tools=[{"functionDeclarations": [declared]}])


def test_unknown_fields_and_broken_bodies() -> None:
    assert 'Unknown name "model"' in find_contents_complaint(USER, model="x")
    assert "Invalid JSON payload" in find_complaint(b"{", (), strict=False)
