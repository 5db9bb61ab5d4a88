"""Responses streams of good and of odd servers, cut and split at every byte, without a network (M-05, M-08, M-10;
faults 7, 8, 9 and 10)."""

from typing import Any

import msgspec
import pytest

from treadle.adapters.models.openai_responses import ResponsesReader
from treadle.chat.assembly import Assembler, ModelAnswer
from treadle.errors import ModelError
from treadle.protocol.content import Thinking, Usage
from treadle.protocol.deltas import CallDelta, FinishDelta, TextDelta, ThinkingDelta, UsageDelta

REF = "openai-responses:x"


def event(kind: str, **data: Any) -> bytes:
    return b"event: " + kind.encode() + b"\ndata: " + msgspec.json.encode({"type": kind, **data}) + b"\n\n"


def raw(kind: str, data: bytes) -> bytes:
    return b"event: " + kind.encode() + b'\ndata: {"type":"' + kind.encode() + b'",' + data + b"}\n\n"


def encode_text(text: str, index: int = 0) -> bytes:
    return event("response.output_text.delta", output_index=index, item_id=f"msg_{index}", delta=text)


def encode_thinking(text: str, part: int = 0, index: int = 0) -> bytes:
    return event("response.reasoning_summary_text.delta", output_index=index, summary_index=part, delta=text)


def encode_arguments(text: str, index: int = 0) -> bytes:
    return event("response.function_call_arguments.delta", output_index=index, delta=text)


def call(index: int | None = 0, arguments: str | None = None, call_id: str = "i", name: str = "f") -> bytes:
    """A call is announced, or with arguments: told as a whole."""
    item = {"type": "function_call", "call_id": call_id, "name": name, "arguments": arguments or ""}
    kind = "response.output_item.added" if arguments is None else "response.output_item.done"
    return event(kind, item=item) if index is None else event(kind, output_index=index, item=item)


def message(text: str, index: int = 0) -> bytes:
    item = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}
    return event("response.output_item.done", output_index=index, item=item)


def encode_completion(kind: str = "completed", **data: Any) -> bytes:
    return event(f"response.{kind}", response={"status": kind, **data})


USAGE = {
    "input_tokens": 9,
    "input_tokens_details": {"cached_tokens": 3},
    "output_tokens": 4,
    "output_tokens_details": {"reasoning_tokens": 2},
}
FIRST = b'{ "id":"rs_1", "type" : "reasoning","summary":[{"type":"summary_text","text":"ich \\u00fcberlege"},'
FIRST += b'{"type":"summary_text","text":"weiter"}], "encrypted_content":"gA\\/=="}'
SECOND = b'{"type":"reasoning","id":"rs_2","summary":[],"encrypted_content":"gB"}'
FULL = (
    event("response.created", response={"status": "in_progress", "output": []})
    + event("response.output_item.added", output_index=0, item={"type": "reasoning", "encrypted_content": "half"})
    + encode_thinking("ich über")
    + encode_thinking("lege")
    + encode_thinking("weiter", 1)
    + raw("response.output_item.done", b'"output_index":0,"item":' + FIRST)
    + event("response.output_item.added", output_index=1, item={"type": "message", "content": []})
    + encode_text("Grüße 🧵 ", 1)
    + encode_text("an {alle}", 1)
    + message("Grüße 🧵 an {alle}", 1)
    + call(2, call_id="i1", name="read_file")
    + encode_arguments('{"path":', 2)
    + encode_arguments('"ä.py"}', 2)
    + event("response.function_call_arguments.done", output_index=2, arguments='{"path":"ä.py"}')
    + call(2, '{"path":"ä.py"}', call_id="i1", name="read_file")
    + raw("response.output_item.done", b'"output_index":3,"item":' + SECOND)
    + call(4, call_id="i2", name="read_file")
    + encode_arguments('{"path":"b"}', 4)
    + call(4, '{"path":"b"}', call_id="i2", name="read_file")
    + encode_completion(usage=USAGE, output=[])
)


def read(*chunks: bytes) -> ModelAnswer:
    reader, assembler = ResponsesReader("api.example"), Assembler(1)
    for chunk in chunks:
        assembler.feed(reader.feed(chunk))
    assembler.feed(reader.end())
    return assembler.finish(REF)


def requests(answer: ModelAnswer) -> list[tuple[str, str, str]]:
    return [(request.id, request.name, request.arguments) for request in answer.requests]


def test_a_whole_answer() -> None:
    answer = read(FULL)
    assert answer.text == "Grüße 🧵 an {alle}"
    assert requests(answer) == [("i1", "read_file", '{"path":"ä.py"}'), ("i2", "read_file", '{"path":"b"}')]
    assert answer.usage == Usage(9, 4, cached=3, reasoning=2)
    assert answer.finish_reason == "tool_calls"


def test_reasoning_is_kept_byte_exact_with_its_place() -> None:  # M-10
    first, second = read(FULL).thinking
    assert first == Thinking("ich überlege\n\nweiter", FIRST.decode(), REF)
    assert second == Thinking("", f"[{len('Grüße 🧵 an {alle}')},1,{SECOND.decode()}]", REF)


@pytest.mark.thorough(one_of=8)
def test_split_at_every_byte_and_by_byte() -> None:  # fault 7
    expected = read(FULL)
    assert read(*(FULL[at : at + 1] for at in range(len(FULL)))) == expected
    returns = FULL.replace(b"\n", b"\r\n")
    assert read(*(returns[at : at + 1] for at in range(len(returns)))) == expected
    for at in range(len(FULL)):
        assert read(FULL[:at], FULL[at:]) == expected


def test_cut_at_every_byte() -> None:  # fault 7: no half call
    for at in range(len(FULL) - 1):
        with pytest.raises(ModelError) as caught:
            read(FULL[:at])
        assert caught.value.kind == "cut_stream"


def test_text_of_one_read_is_one_delta() -> None:
    reader = ResponsesReader("x")
    stream = (
        encode_text("a")
        + encode_text("b")
        + encode_thinking("t", index=1)
        + encode_text("c", 2)
        + encode_text("d", 2)
        + call(3)
        + encode_arguments("{}", 3)
    )
    assert reader.feed(stream) == [
        TextDelta("ab"),
        ThinkingDelta("t"),
        TextDelta("\n\ncd"),
        CallDelta("i", 0, "f"),
        CallDelta(None, 0, None, "{}"),
    ]
    assert reader.feed(encode_completion(usage=USAGE)) == [UsageDelta(Usage(9, 4, cached=3, reasoning=2))]
    assert reader.done
    assert reader.end() == [FinishDelta("tool_calls")]


DONE = b"data: [DONE]\n\n"
ITEMS = [
    {"type": "web_search_call", "id": "ws"},
    {"type": "message", "content": [{"type": "output_text", "text": "hi"}, {"type": "refusal", "refusal": "no"}]},
    {"type": "function_call", "call_id": "i", "name": "f", "arguments": "{}"},
]
ONE_CALL = [("i", "f", "{}")]
ODD: dict[str, tuple[bytes, str, list[tuple[str, str, str]], str]] = {
    "only the last event": (encode_completion(output=ITEMS), "hino", ONE_CALL, "tool_calls"),
    "[DONE] after the last event": (
        encode_text("hi") + encode_completion() + DONE + encode_text("there"),
        "hi",
        [],
        "stop",
    ),
    "[DONE] in place of the last event": (encode_text("hi") + DONE, "hi", [], "stop"),
    "[DONE] after a finished call": (
        call() + encode_arguments("{}") + call(0, "{}") + DONE,
        "",
        ONE_CALL,
        "tool_calls",
    ),
    "no types in the data": (
        b'event: response.output_text.delta\ndata: {"delta":"hi"}\n\nevent: response.completed\ndata: {}\n\n',
        "hi",
        [],
        "stop",
    ),
    "no names of events": (
        (encode_text("hi") + encode_completion()).replace(b"event: response", b": response"),
        "hi",
        [],
        "stop",
    ),
    "bom and comments": (b"\xef\xbb\xbf: keepalive\n\n" + encode_text("hi") + encode_completion(), "hi", [], "stop"),
    "events that nobody knows": (
        event("response.wonderful", delta="x")
        + event("keepalive")
        + event("")
        + encode_text("hi")
        + encode_completion(),
        "hi",
        [],
        "stop",
    ),
    "a message told only as a whole": (message("hi") + encode_completion(), "hi", [], "stop"),
    "two messages": (encode_text("a") + message("a") + message("b", 1) + encode_completion(), "a\n\nb", [], "stop"),
    "refusal": (
        event("response.refusal.delta", output_index=0, delta="I can't") + encode_completion(),
        "I can't",
        [],
        "refusal",
    ),
    "a call told only as a whole": (call(0, "{}") + encode_completion(output=ITEMS[2:]), "", ONE_CALL, "tool_calls"),
    "arguments that come only with their end": (
        call() + event("response.function_call_arguments.done", output_index=0, arguments="{}") + encode_completion(),
        "",
        ONE_CALL,
        "tool_calls",
    ),
    "arguments that come only with the item": (
        call() + call(0, "{}") + encode_completion(),
        "",
        ONE_CALL,
        "tool_calls",
    ),
    "pieces that stop too early": (
        call() + encode_arguments('{"a"') + call(0, '{"a":1}') + encode_completion(),
        "",
        [("i", "f", '{"a":1}')],
        "tool_calls",
    ),
    "pieces written otherwise than the whole": (
        call() + encode_arguments('{"a":1}') + call(0, '{"a": 1}') + encode_completion(),
        "",
        [("i", "f", '{"a":1}')],
        "tool_calls",
    ),
    "no indices": (
        call(None)
        + event("response.function_call_arguments.delta", delta="{}")
        + call(None, "{}")
        + encode_completion(),
        "",
        ONE_CALL,
        "tool_calls",
    ),
    "no indices and two calls": (
        call(None, "{}") + call(None, '{"a":1}', "j") + encode_completion(),
        "",
        [*ONE_CALL, ("j", "f", '{"a":1}')],
        "tool_calls",
    ),
    "an index that is lost": (
        call(1) + encode_arguments("{}", 1) + call(None, "{}") + encode_completion(),
        "",
        ONE_CALL,
        "tool_calls",
    ),
    "every index 0": (
        call()
        + encode_arguments("{}")
        + call(0, "{}")
        + call(0, call_id="j")
        + encode_arguments("{}")
        + call(0, "{}", "j")
        + encode_completion(),
        "",
        [*ONE_CALL, ("j", "f", "{}")],
        "tool_calls",
    ),
    "one id for two calls": (
        call()
        + encode_arguments("{}")
        + call(0, "{}")
        + call(1)
        + encode_arguments("{}", 1)
        + call(1, "{}")
        + encode_completion(),
        "",
        [*ONE_CALL, ("", "f", "{}")],
        "tool_calls",
    ),
    "two calls told by turns": (
        call()
        + call(1, call_id="j")
        + encode_arguments('{"a"')
        + encode_arguments("{}", 1)
        + encode_arguments(":1}")
        + encode_completion(),
        "",
        [("i", "f", '{"a":1}'), ("j", "f", "{}")],
        "tool_calls",
    ),
    "a name that comes late": (
        call(name="") + encode_arguments("{}") + call(0, "{}") + encode_completion(),
        "",
        ONE_CALL,
        "tool_calls",
    ),
    "arguments as an object": (
        event("response.output_item.done", item={**ITEMS[2], "arguments": {"a": 1}}) + encode_completion(),
        "",
        [("i", "f", '{"a":1}')],
        "tool_calls",
    ),
    "other types than they should be": (
        event("response.output_text.delta", delta="hi", output_index="0", item_id=7, summary_index="x")
        + encode_completion(usage="free", output={"no": "list"}, incomplete_details=3),
        "hi",
        [],
        "stop",
    ),
    "length": (
        encode_text("hi") + encode_completion("incomplete", incomplete_details={"reason": "max_output_tokens"}),
        "hi",
        [],
        "length",
    ),
    "filter": (
        encode_text("hi") + encode_completion("incomplete", incomplete_details={"reason": "content_filter"}),
        "hi",
        [],
        "content_filter",
    ),
    "a reason of its own": (
        encode_text("hi") + encode_completion("incomplete", incomplete_details={"reason": "moon"}),
        "hi",
        [],
        "moon",
    ),
    "incomplete for no reason": (encode_text("hi") + event("response.incomplete", response=None), "hi", [], "length"),
}


@pytest.mark.parametrize("case", ODD)
def test_odd_servers(case: str) -> None:  # fault 9
    stream, text, calls, finish = ODD[case]
    answer = read(stream)
    assert (answer.text, requests(answer), answer.finish_reason) == (text, calls, finish)
    assert read(*(stream[at : at + 1] for at in range(len(stream)))) == answer


def test_reasoning_without_encryption_is_shown_and_not_kept_for_return() -> None:  # M-10
    plain = event("response.output_item.done", output_index=0, item={"type": "reasoning", "summary": []})
    open_text = event("response.reasoning_text.delta", output_index=0, delta="hm")
    assert read(open_text + plain + encode_completion()).thinking == (Thinking("hm", "", REF),)
    assert read(open_text + encode_completion()).thinking == (Thinking("hm", "", REF),)
    assert read(plain + encode_completion()).thinking == ()


@pytest.mark.parametrize(
    "junk",
    [
        b"data: {oops\n\n",
        b"data: 3\n\n",
        b"data: [1]\n\n",
        b"data: " + b"[" * 5000 + b"\n\n",
    ],
)
def test_a_chunk_that_is_none_is_a_failure_never_a_gap(junk: bytes) -> None:  # fault 9
    with pytest.raises(ModelError, match="no part of an answer") as caught:
        read(encode_text("a") + junk + encode_completion())
    assert caught.value.kind == "cut_stream"


@pytest.mark.parametrize(
    ("stream", "words"),
    [
        (encode_arguments("{}", 5) + encode_completion(), "did not announce"),
        (call() + encode_arguments('{"a":') + call(0, '{"b":1}') + encode_completion(), "in two ways"),
        (call() + encode_arguments('{"a"') + DONE, "broke off"),
    ],
)
def test_calls_that_cannot_be_understood_are_failures(stream: bytes, words: str) -> None:  # fault 10: nothing runs
    with pytest.raises(ModelError, match=words) as caught:
        read(stream)
    assert caught.value.kind == "cut_stream"


def test_a_server_that_does_not_stream() -> None:
    document = msgspec.json.encode({"status": "completed", "output": ITEMS, "usage": USAGE, "error": None})
    for body in (document, b"\xef\xbb\xbf\n " + msgspec.json.format(document)):
        answer = read(*(body[at : at + 1] for at in range(len(body))))
        assert (answer.text, requests(answer), answer.usage) == ("hino", ONE_CALL, Usage(9, 4, 3, 2))
    for at in range(1, len(document)):
        with pytest.raises(ModelError):
            read(document[:at])


@pytest.mark.parametrize(
    ("stream", "kind", "words"),
    [
        (b'{"error":{"message":"no balance","code":402}}', "quota", "no balance"),
        (b'{"status":"failed","output":[],"error":{"code":"server_error","message":"oh"}}', "overloaded", "oh"),
        (event("error", code="rate_limit_exceeded", message="slow down", param=None), "rate_limit", "slow down"),
        (event("error", error={"type": "invalid_request_error", "message": "bad"}), "bad_request", "bad"),
        (b'data: {"error":{"message":"busy","code":503}}\n\n', "overloaded", "busy"),
        (
            encode_text("so") + encode_completion("failed", error={"code": "server_error", "message": "oops"}),
            "overloaded",
            "oops",
        ),
        (
            encode_completion("failed", error={"code": "context_length_exceeded", "message": "long"}),
            "context_limit",
            "long",
        ),
        (encode_completion("failed", error={"code": "insufficient_quota", "message": "pay"}), "quota", "pay"),
        (
            encode_completion("failed", error={"code": "invalid_prompt", "message": "not that"}),
            "bad_request",
            "not that",
        ),
        (encode_completion("failed", error=None), "overloaded", "the answer was failed"),
        (encode_completion("cancelled"), "overloaded", "the answer was cancelled"),
    ],
)
def test_errors_inside_a_200(stream: bytes, kind: str, words: str) -> None:  # fault 8
    with pytest.raises(ModelError, match=words) as caught:
        read(stream)
    assert caught.value.kind == kind


def test_what_came_before_a_failure_counts() -> None:  # M-11: the cost of every attempt
    reader = ResponsesReader("x")
    failed = encode_completion("failed", error={"code": "server_error", "message": "oops"}, usage=USAGE)
    assert reader.feed(encode_text("so") + failed) == [TextDelta("so"), UsageDelta(Usage(9, 4, cached=3, reasoning=2))]
    assert reader.done
    with pytest.raises(ModelError, match="oops"):
        reader.end()
