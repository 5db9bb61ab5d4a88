"""Requests: byte-stable prefixes, unique ids, and only what servers accept (L-20, L-21, M-09, faults 10 and 23)."""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pytest

from treadle.adapters.models.openai_chat.adapter import ChatEncoder
from treadle.base.types import make_call_key
from treadle.ports.model import Encode, Memo, ModelRequest
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

TOOLS = (ToolSpec("read_file", "Reads.", {"type": "object", "properties": {"path": {"type": "string"}}}),)


def turn(number: int, *calls: tuple[str, str], size: int = 1) -> list[Entry]:
    """An assistant entry with (id, arguments) calls, and its results."""
    tool_requests = tuple(
        ToolRequest(make_call_key(number, at), "read_file", arguments, call_id)
        for at, (call_id, arguments) in enumerate(calls)
    )
    results = tuple(ToolResult(call.call, "r" * size) for call in tool_requests)
    return [
        AssistantEntry(number, f"turn {number}", (Thinking("secret"),), tool_requests),
        ResultsEntry(number, results),
    ]


def messages(
    entries: list[Entry], memo: Memo | None = None, encoder: ChatEncoder | None = None
) -> list[dict[str, Any]]:
    body = (encoder or ChatEncoder()).encode_body({"model": "m"}, ModelRequest("", entries, TOOLS, memo=memo or Memo()))
    message_list: list[dict[str, Any]] = msgspec.json.decode(body)["messages"]
    return message_list


def check_ids(message_list: list[dict[str, Any]]) -> list[str]:
    """Every call has a non-empty id of its own, answered once, right after it and in order."""
    ids: list[str] = []
    for at, message in enumerate(message_list):
        call_ids = [call["id"] for call in message.get("tool_calls", [])]
        result_ids = [answer["tool_call_id"] for answer in message_list[at + 1 : at + 1 + len(call_ids)]]
        assert result_ids == call_ids
        ids += call_ids
    assert all(ids)
    assert len(set(ids)) == len(ids)
    return ids


def test_the_shape() -> None:
    entries = [UserEntry("go"), *turn(1, ("i1", '{"path": "a"}'), ("i2", "{}")), AssistantEntry(2, "done")]
    body = ChatEncoder().encode_body({"model": "m"}, ModelRequest("be good", entries, TOOLS))
    assert msgspec.json.decode(body) == {
        "model": "m",
        "tools": [
            {
                "type": "function",
                "function": {"name": "read_file", "description": "Reads.", "parameters": TOOLS[0].parameters},
            }
        ],
        "tool_choice": "auto",
        "messages": [
            {"role": "system", "content": "be good"},
            {"role": "user", "content": "go"},
            {
                "role": "assistant",
                "content": "turn 1",
                "tool_calls": [
                    {"id": "i1", "type": "function", "function": {"name": "read_file", "arguments": '{"path": "a"}'}},
                    {"id": "i2", "type": "function", "function": {"name": "read_file", "arguments": "{}"}},
                ],
            },
            {"role": "tool", "tool_call_id": "i1", "content": "r"},
            {"role": "tool", "tool_call_id": "i2", "content": "r"},
            {"role": "assistant", "content": "done"},
        ],
    }
    assert b"secret" not in body  # M-10: thinking is not sent back on this wire


def test_sealed_thinking_goes_back_to_its_own_model_byte_exact() -> None:  # M-10
    sealed = '{"reasoning_opaque":"gA\\/==" ,"reasoning_text":"hm"}'
    block = Thinking("hm", sealed, "copilot:m")
    entries: list[Entry] = [AssistantEntry(1, "so", (block, Thinking("plain", "", "copilot:m")))]
    body = ChatEncoder("copilot:m").encode_body({"model": "m"}, ModelRequest("", entries))
    assert sealed[1:].encode() in body
    assert msgspec.json.decode(body)["messages"][0] == {
        "role": "assistant",
        "content": "so",
        "reasoning_opaque": "gA/==",
        "reasoning_text": "hm",
    }
    for other_ref in ("copilot:n", ""):
        assert b"reasoning" not in ChatEncoder(other_ref).encode_body({}, ModelRequest("", entries))


def test_no_tools_no_key() -> None:
    request_body = msgspec.json.decode(ChatEncoder().encode_body({"model": "m"}, ModelRequest("", [UserEntry("x")])))
    assert sorted(request_body) == ["messages", "model"]


@pytest.mark.parametrize("fresh", [False, True])
def test_each_request_begins_with_the_one_before(fresh: bool) -> None:  # L-21
    memo, encoder = Memo(), ChatEncoder()
    entries: list[Entry] = [UserEntry("go")]
    last_body = b""
    for number in range(1, 30):
        entries += turn(number, ("same" if number % 3 else f"i{number}", "{}"))
        if fresh:  # another process, after a kill
            memo, encoder = Memo(), ChatEncoder()
        body = encoder.encode_body({"model": "m"}, ModelRequest("system", list(entries), TOOLS, memo=memo))
        assert body.startswith(last_body.removesuffix(b"]}"))
        last_body = body


def test_ids_that_repeat_are_made_unique() -> None:  # M-09, fault 23
    entries = [*turn(1, ("same", "{}")), *turn(2, ("same", "{}")), *turn(3, ("dup", "{}"), ("dup", "{}"))]
    entries += [*turn(4, ("", "{}")), *turn(5, ("own", "{}"))]
    assert check_ids(messages(entries)) == ["same", "t00002000", "t00003000", "t00003001", "t00004000", "own"]


def test_ids_stay_paired_when_history_is_cut_or_a_result_is_masked() -> None:  # L-19, L-20
    memo, encoder = Memo(), ChatEncoder()
    first, second = turn(1, ("same", "{}")), turn(2, ("same", "{}"))
    assert check_ids(messages([*first, *second], memo, encoder)) == ["same", "t00002000"]
    masked = ResultsEntry(2, (ToolResult(make_call_key(2, 0), "[masked]"),))
    assert check_ids(messages([second[0], masked], memo, encoder)) == ["same"]
    assert check_ids(messages([*first, second[0], masked], memo, encoder)) == ["same", "t00002000"]


@pytest.mark.parametrize("arguments", ['{"a":', "", "[1]", '"text"', "null", "{'a': 1}", "[" * 5000, '{"a":1}{"b":2}'])
def test_broken_arguments_go_back_as_an_object(arguments: str) -> None:  # fault 10
    message_list = messages(turn(1, ("i", arguments)))
    sent_arguments = message_list[0]["tool_calls"][0]["function"]["arguments"]
    assert msgspec.json.decode(sent_arguments) == {"invalid_json": arguments}


def test_good_arguments_go_back_byte_exact() -> None:
    arguments = '{ "a" : 1.0,\n"a": "\\u00e4" }'
    assert messages(turn(1, ("i", arguments)))[0]["tool_calls"][0]["function"]["arguments"] == arguments


def test_odd_entries() -> None:
    nameless = AssistantEntry(1, "", (), (ToolRequest(make_call_key(1, 0), "", "{}", "i"),))
    entries: list[Entry] = [UserEntry("half \udc80 pair", images=(Image("image/png", "0" * 64),)), nameless]
    user, assistant = messages(entries)
    assert user["content"].startswith("half ? pair\n[an image (image/png)")
    assert assistant["content"] is None
    assert assistant["tool_calls"][0]["function"]["name"] == "unnamed"


class CountingMemo(Memo):
    def __init__(self) -> None:
        super().__init__()
        self.encoded: list[Entry] = []

    def encode_pieces(self, entries: Sequence[Entry], begin: Callable[[], Encode]) -> Sequence[bytes]:
        def counting() -> Encode:
            encode = begin()

            def record_and_encode(entry: Entry) -> bytes:
                self.encoded.append(entry)
                return encode(entry)

            return record_and_encode

        return super().encode_pieces(entries, counting)


def test_a_turn_costs_what_is_new_in_it() -> None:  # law 13
    memo, encoder = CountingMemo(), ChatEncoder()
    entries: list[Entry] = [UserEntry("go")]
    for number in range(1, 50):
        entries += turn(number, (f"i{number}", '{"path": "a"}'))
        memo.encoded.clear()
        encoder.encode_body({"model": "m"}, ModelRequest("s", entries, TOOLS, memo=memo))
        assert memo.encoded == (entries if number == 1 else entries[-2:])


def test_a_conversation_that_was_cut_is_encoded_anew() -> None:  # L-09, L-19
    memo, encoder = Memo(), ChatEncoder()
    old_entries: list[Entry] = [UserEntry("one"), *turn(1, ("i", "{}")), UserEntry("two")]
    encoder.encode_body({}, ModelRequest("", old_entries, memo=memo))
    new_entries: list[Entry] = [UserEntry("one"), UserEntry("other")]
    assert encoder.encode_body({}, ModelRequest("", new_entries, memo=memo)) == encoder.encode_body(
        {}, ModelRequest("", new_entries)
    )
