"""Requests to Ollama: byte-stable, with objects as arguments and named results, and nothing in them that the server's
types refuse (M-04, M-09, L-20, L-21, faults 10 and 23)."""

from typing import Any

import msgspec
import pytest

from treadle.adapters.models.ollama import OllamaEncoder
from treadle.base.types import make_call_key
from treadle.ports.model import Memo, ModelRequest
from treadle.protocol.content import (
    AssistantEntry,
    Entry,
    Image,
    ResultsEntry,
    Thinking,
    ToolRequest,
    ToolResult,
    UserEntry,
)
from treadle.protocol.tools import ToolSpec
from treadle.testing.fake_ollama import OllamaApi

TOOLS = (ToolSpec("read_file", "Reads.", {"type": "object", "properties": {"path": {"type": "string"}}}),)


def turn(number: int, *calls: tuple[str, str], name: str = "read_file") -> list[Entry]:
    """An assistant entry with (id, arguments) calls, and its results."""
    tool_requests = tuple(
        ToolRequest(make_call_key(number, at), name, arguments, call_id)
        for at, (call_id, arguments) in enumerate(calls)
    )
    results = tuple(ToolResult(call.call, f"r{at}") for at, call in enumerate(tool_requests))
    return [
        AssistantEntry(number, f"turn {number}", (Thinking("secret"),), tool_requests),
        ResultsEntry(number, results),
    ]


def encode_entries(
    entries: list[Entry], tools: tuple[ToolSpec, ...] = TOOLS, system: str = "", memo: Memo | None = None
) -> bytes:
    """The request, which the fake server must take as the real one would."""
    body = OllamaEncoder("ollama:m").encode_body(
        {"model": "m"}, ModelRequest(system, entries, tools, memo=memo or Memo())
    )
    refusal = OllamaApi().answer_other_request("POST", "/api/chat", {}, body)
    assert refusal is None, refusal
    return body


def messages(entries: list[Entry]) -> list[dict[str, Any]]:
    message_list: list[dict[str, Any]] = msgspec.json.decode(encode_entries(entries))["messages"]
    return message_list


def test_the_shape() -> None:
    entries = [UserEntry("go"), *turn(1, ("", '{"path": "a"}'), ("", "{}")), AssistantEntry(2, "done")]
    assert msgspec.json.decode(encode_entries(entries, system="be good")) == {
        "model": "m",
        "tools": [
            {
                "type": "function",
                "function": {"name": "read_file", "description": "Reads.", "parameters": TOOLS[0].parameters},
            }
        ],
        "messages": [
            {"role": "system", "content": "be good"},
            {"role": "user", "content": "go"},
            {
                "role": "assistant",
                "content": "turn 1",
                "tool_calls": [
                    {"id": "t00001000", "function": {"name": "read_file", "arguments": {"path": "a"}}},
                    {"id": "t00001001", "function": {"name": "read_file", "arguments": {}}},
                ],
            },
            {"role": "tool", "content": "r0", "tool_name": "read_file", "tool_call_id": "t00001000"},
            {"role": "tool", "content": "r1", "tool_name": "read_file", "tool_call_id": "t00001001"},
            {"role": "assistant", "content": "done"},
        ],
    }


def test_no_tools_no_word_of_them() -> None:
    assert "tools" not in msgspec.json.decode(encode_entries([UserEntry("x")], ()))


def test_the_prefix_is_byte_stable_with_and_without_a_memo() -> None:  # L-21
    entries: list[Entry] = [UserEntry("go")]
    memo, prefix = Memo(), b""
    for number in range(1, 6):
        body = encode_entries(entries, system="s", memo=memo)
        assert body == encode_entries(entries, system="s")
        assert body.startswith(prefix)
        prefix = body[:-2]  # without the end of the list
        entries += turn(number, ("same", '{"path": "a"}'))


def test_ids_that_repeat_or_are_missing_are_made_up_and_results_keep_their_names() -> None:  # M-09, fault 23
    entries = [
        UserEntry("go"),
        *turn(1, ("a", "{}"), ("b", "{}")),
        *turn(2, ("a", "{}"), name="other"),
        *turn(3, ("c", "{}"), ("c", "{}")),
    ]
    message_list = messages(entries)
    ids = [call["id"] for message in message_list for call in message.get("tool_calls", [])]
    assert ids[:2] == ["a", "b"]
    assert len(set(ids)) == 5
    assert [message["tool_call_id"] for message in message_list if message["role"] == "tool"] == ids
    names = [message["tool_name"] for message in message_list if message["role"] == "tool"]
    assert names == ["read_file", "read_file", "other", "read_file", "read_file"]


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        ('{"path": "a", "n": [1, {"x": null}]}', {"path": "a", "n": [1, {"x": None}]}),
        ('  {"a": 1}\n', {"a": 1}),
        ('{"path": "a', {"invalid_json": '{"path": "a'}),
        ("[1]", {"invalid_json": "[1]"}),
        ('"text"', {"invalid_json": '"text"'}),
        ('{"n": 1e999}', {"invalid_json": '{"n": 1e999}'}),
        ("{" * 100_000, {"invalid_json": "{" * 100_000}),
        ('{"a": "\ud800"}', {"invalid_json": '{"a": "?"}'}),
    ],
)
def test_arguments_are_always_an_object(text: str, arguments: dict[str, Any]) -> None:  # M-04, fault 10
    message_list = messages([UserEntry("go"), *turn(1, ("", text))])
    assert message_list[1]["tool_calls"][0]["function"]["arguments"] == arguments


def test_thinking_of_another_model_is_not_sent_back_and_odd_text_breaks_nothing() -> None:  # M-10
    entries = [UserEntry("half \ud800 a pair", images=(Image("image/png", "abc"),)), *turn(1, ("", "{}"), name="")]
    message_list = messages(entries)
    assert message_list[0]["content"].startswith("half ? a pair\n[an image (image/png)")
    assert "secret" not in str(message_list)
    assert message_list[1]["tool_calls"][0]["function"]["name"] == message_list[2]["tool_name"] == "unnamed"


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({"type": "object"}, {"type": "object", "properties": {}}),
        ({}, {"type": "object", "properties": {}}),
        ({"type": ["object"], "properties": None, "required": "a"}, {"type": "object", "properties": {}}),
        (
            {"type": "object", "properties": {"a": True, "b": {"type": {}, "enum": "x", "description": 3}}},
            {"type": "object", "properties": {"a": {}, "b": {}}},
        ),
        (
            {
                "properties": {
                    "a": {"anyOf": [{"type": "string"}, True], "default": 1},
                    "b": {"type": ["string", "null"], "enum": ["x", None]},
                    "c": {"type": "object", "properties": {"d": False}, "required": ["d"]},
                },
                "required": ["a"],
                "additionalProperties": False,
            },
            {
                "type": "object",
                "properties": {
                    "a": {"anyOf": [{"type": "string"}, {}], "default": 1},
                    "b": {"type": ["string", "null"], "enum": ["x", None]},
                    "c": {"type": "object", "properties": {"d": {}}, "required": ["d"]},
                },
                "required": ["a"],
                "additionalProperties": False,
            },
        ),
    ],
)
def test_schemas_are_fitted_to_the_types_of_the_server(schema: dict[str, Any], expected: dict[str, Any]) -> None:
    body = msgspec.json.decode(encode_entries([UserEntry("x")], (ToolSpec("t", "", schema),)))
    assert body["tools"][0]["function"]["parameters"] == expected
