"""Responses requests: reasoning where it stood, byte-stable prefixes, unique ids, and only what the server accepts
(L-20, L-21, M-05, M-09, M-10; faults 10, 23 and 24)."""

from typing import Any

import msgspec
import pytest

from treadle.adapters.models.openai_responses import ResponsesEncoder
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
from treadle.testing.fake_responses import find_complaint

REF = "openai-responses:m"
TOOLS = (ToolSpec("read_file", "Reads.", {"type": "object", "properties": {"path": {"type": "string"}}}),)
ITEM = '{ "type":"reasoning", "id":"rs_1","summary":[] ,"encrypted_content":"gA\\/="}'
LATER = '{"type":"reasoning","id":"rs_2","summary":[],"encrypted_content":"gB"}'


def turn(number: int, *calls: tuple[str, str], thinking: tuple[Thinking, ...] = (), text: str = "") -> list[Entry]:
    """An assistant entry with (id, arguments) calls, and its results."""
    tool_requests = tuple(
        ToolRequest(make_call_key(number, at), "read_file", arguments, call_id)
        for at, (call_id, arguments) in enumerate(calls)
    )
    results = tuple(ToolResult(call.call, "r") for call in tool_requests)
    return [AssistantEntry(number, text, thinking, tool_requests), ResultsEntry(number, results)]


def encode(entries: list[Entry], encoder: ResponsesEncoder | None = None, memo: Memo | None = None) -> bytes:
    request = ModelRequest("be good", entries, TOOLS, memo=memo or Memo())
    body = (encoder or ResponsesEncoder(REF)).encode_body({"model": "m", "store": False}, request)
    assert not find_complaint(body, {"gA/=", "gB", "gC"})
    return body


def items(entries: list[Entry]) -> list[dict[str, Any]]:
    item_list: list[dict[str, Any]] = msgspec.json.decode(encode(entries))["input"]
    return item_list


def test_the_shape() -> None:
    entries = [UserEntry("go"), *turn(1, ("i1", '{"path": "a"}'), ("i2", "{}"), text="So."), AssistantEntry(2, "done")]
    assert msgspec.json.decode(encode(entries)) == {
        "model": "m",
        "store": False,
        "instructions": "be good",
        "tools": [
            {
                "type": "function",
                "name": "read_file",
                "description": "Reads.",
                "parameters": TOOLS[0].parameters,
                "strict": False,
            }
        ],
        "tool_choice": "auto",
        "parallel_tool_calls": True,
        "input": [
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "go"}]},
            {"type": "message", "role": "assistant", "content": "So."},
            {"type": "function_call", "call_id": "i1", "name": "read_file", "arguments": '{"path": "a"}'},
            {"type": "function_call", "call_id": "i2", "name": "read_file", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "i1", "output": "r"},
            {"type": "function_call_output", "call_id": "i2", "output": "r"},
            {"type": "message", "role": "assistant", "content": "done"},
        ],
    }


def test_no_tools_and_no_system_text_leave_nothing_behind() -> None:
    request_body = msgspec.json.decode(
        ResponsesEncoder(REF).encode_body({"model": "m"}, ModelRequest(" ", [UserEntry("x")]))
    )
    assert sorted(request_body) == ["input", "model"]


def test_reasoning_goes_back_byte_exact_before_what_it_belongs_to() -> None:  # M-10
    thinking = (Thinking("summary", ITEM, REF), Thinking("", f"[3,1,{LATER}]", REF))
    body = encode([UserEntry("go"), *turn(1, ("i1", "{}"), ("i2", "{}"), thinking=thinking, text="So.")])
    places = [body.index(part) for part in (ITEM.encode(), b'"So."', b'"i1"', LATER.encode(), b'"i2"')]
    assert places == sorted(places)
    after_text = encode(turn(1, ("i1", "{}"), thinking=(Thinking("", f"[3,0,{LATER}]", REF),), text="So."))
    places = [after_text.index(part) for part in (b'"So."', LATER.encode(), b'"i1"')]
    assert places == sorted(places)


@pytest.mark.parametrize(
    "block",
    [
        Thinking("secret", ITEM, "openai-responses:other"),
        Thinking("secret", ITEM, "copilot:m"),
        Thinking("secret", "", REF),
        Thinking("secret", "no JSON", REF),
        Thinking("secret", "[1,2", REF),
    ],
)
def test_other_thinking_is_not_sent(block: Thinking) -> None:  # M-10, fault 24
    plain = encode(turn(1, ("i", "{}")))
    assert encode(turn(1, ("i", "{}"), thinking=(block,))) == plain


def test_reasoning_that_nothing_follows_is_not_sent() -> None:  # L-07: an interrupted answer has lost its calls
    body = encode([UserEntry("a"), AssistantEntry(1, "", (Thinking("t", ITEM, REF),)), UserEntry("b")])
    assert b"rs_1" not in body
    body = encode([UserEntry("a"), AssistantEntry(1, "So.", (Thinking("t", f"[3,1,{ITEM}]", REF),)), UserEntry("b")])
    assert b"rs_1" not in body
    assert [item["role"] for item in msgspec.json.decode(body)["input"]] == ["user", "assistant", "user"]


def test_refused_reasoning_is_left_out_of_this_conversation_only() -> None:  # M-10: the record is not changed
    encoder, memo, other_memo = ResponsesEncoder(REF), Memo(), Memo()
    entries = [UserEntry("go"), *turn(1, ("i", "{}"), thinking=(Thinking("", ITEM, REF),))]
    assert ITEM.encode() in encode(entries, encoder, memo)
    assert encoder.drop_thinking(ModelRequest("", entries, memo=memo))
    assert not encoder.drop_thinking(ModelRequest("", entries, memo=memo))
    assert encode(entries, encoder, memo) == encode([UserEntry("go"), *turn(1, ("i", "{}"))])
    fresh = Thinking("", LATER, REF)
    grown = [*entries, *turn(2, ("j", "{}"), thinking=(fresh,))]
    body = encode(grown, encoder, memo)
    assert ITEM.encode() not in body
    assert LATER.encode() in body
    assert ITEM.encode() in encode(entries, encoder, other_memo)
    assert encoder.drop_thinking(ModelRequest("", grown, memo=memo))
    assert LATER.encode() not in encode(grown, encoder, memo)


@pytest.mark.parametrize("fresh", [False, True])
def test_each_request_begins_with_the_one_before(fresh: bool) -> None:  # L-21
    memo, encoder = Memo(), ResponsesEncoder(REF)
    entries: list[Entry] = [UserEntry("go")]
    last_body = b""
    for number in range(1, 30):
        thinking = (Thinking("t", ITEM, REF),) if number % 2 else ()
        entries += turn(number, ("same" if number % 3 else f"i{number}", "{}"), thinking=thinking)
        if fresh:  # another process, after a kill
            memo, encoder = Memo(), ResponsesEncoder(REF)
        body = encode(list(entries), encoder, memo)
        assert body.startswith(last_body.removesuffix(b"]}"))
        last_body = body


def test_ids_that_repeat_or_are_none_are_made_unique() -> None:  # M-09, fault 23
    entries = [*turn(1, ("same", "{}")), *turn(2, ("same", "{}")), *turn(3, ("dup", "{}"), ("dup", "{}"))]
    entries += [*turn(4, ("", "{}")), *turn(5, ("own", "{}")), *turn(6, ("x" * 65, "{}")), *turn(7, ("a b", "{}"))]
    ids = [item["call_id"] for item in items(entries) if item["type"] == "function_call"]
    assert ids[:6] == ["same", "t00002000", "t00003000", "t00003001", "t00004000", "own"]
    assert ids[6:] == ["t00006000", "t00007000"]


@pytest.mark.parametrize("arguments", ['{"a":', "", "[1]", '"text"', "{'a': 1}", "[" * 5000])
def test_broken_arguments_go_back_as_an_object(arguments: str) -> None:  # fault 10
    assert msgspec.json.decode(items(turn(1, ("i", arguments)))[0]["arguments"]) == {"invalid_json": arguments}


def test_odd_entries() -> None:
    nameless = AssistantEntry(1, " \n", (), (ToolRequest(make_call_key(1, 0), "", "{}", "i"),))
    odd = AssistantEntry(2, "", (), (ToolRequest(make_call_key(2, 0), "röad file" + "x" * 99, "{}", "j"),))
    results = [ResultsEntry(number, (ToolResult(make_call_key(number, 0), ""),)) for number in (1, 2)]
    user = UserEntry("half \udc80 pair", images=(Image("image/png", "0" * 64),))
    message, call, output, other_call, _ = items([user, nameless, results[0], AssistantEntry(3), odd, results[1]])
    assert message["content"][0]["text"].startswith("half ? pair\n[an image (image/png)")
    assert (call["name"], output["output"]) == ("unnamed", "")
    assert other_call["name"] == ("r_ad_file" + "x" * 99)[:64]


def test_a_turn_costs_what_is_new_in_it() -> None:  # law 13
    memo, encoder = Memo(), ResponsesEncoder(REF)
    entries = [UserEntry("go"), *turn(1, ("i", "{}"))]
    first = (
        memo.encode_pieces(entries, lambda: lambda _: pytest.fail("encoded anew"))
        if encode(entries, encoder, memo)
        else ()
    )
    assert len(first) == 3
