"""Messages streams, good and odd, cut and split at every byte, without a network (M-02, M-08, M-10, faults 7 to 10)."""

from typing import Any

import msgspec
import pytest

from treadle.adapters.models.anthropic import AnthropicReader
from treadle.chat.assembly import Assembler, ModelAnswer
from treadle.errors import ModelError
from treadle.ports.model import ModelInfo
from treadle.protocol.content import Thinking, Usage
from treadle.protocol.deltas import (
    CallDelta,
    FinishDelta,
    NoticeDelta,
    TextDelta,
    ThinkingBlock,
    ThinkingDelta,
    UsageDelta,
)
from treadle.testing.fake_anthropic import encode_event

INFO = ModelInfo("anthropic", "claude-test")
REF = INFO.ref


def start(index: int | None, **block: Any) -> bytes:
    return encode_event("content_block_start", **({} if index is None else {"index": index}), content_block=block)


def delta(index: int | None, kind: str, **piece: Any) -> bytes:
    return encode_event(
        "content_block_delta", **({} if index is None else {"index": index}), delta={"type": f"{kind}_delta", **piece}
    )


def stop(index: int | None) -> bytes:
    return encode_event("content_block_stop", **({} if index is None else {"index": index}))


def text(words: str, index: int = 0) -> bytes:
    return start(index, type="text", text="") + delta(index, "text", text=words) + stop(index)


def call(index: int, name: str, arguments: str, call_id: str = "i") -> bytes:
    head = start(index, type="tool_use", id=call_id, name=name, input={})
    return head + delta(index, "input_json", partial_json=arguments) + stop(index)


def build_stop_event(reason: str = "end_turn", **usage: Any) -> bytes:
    return encode_event("message_delta", delta={"stop_reason": reason, "stop_sequence": None}, usage=usage)


BEGIN = encode_event(
    "message_start",
    message={
        "type": "message",
        "content": [],
        "usage": {
            "input_tokens": 3,
            "cache_creation_input_tokens": 20,
            "cache_read_input_tokens": 100,
            "output_tokens": 1,
        },
    },
)
STOP = encode_event("message_stop")
SIGNED = '{"type":"thinking","thinking":"ich überlege","signature":"c2ln=="}'
FULL = (
    BEGIN
    + start(0, type="thinking", thinking="", signature="")
    + encode_event("ping")
    + delta(0, "thinking", thinking="ich über")
    + delta(0, "thinking", thinking="lege")
    + delta(0, "signature", signature="c2ln==")
    + stop(0)
    + start(1, type="redacted_thinking", data="geheim")
    + stop(1)
    + start(2, type="text", text="")
    + delta(2, "text", text="Grüße 🧵 ")
    + delta(2, "text", text="an {alle}")
    + stop(2)
    + start(3, type="tool_use", id="i1", name="read_file", input={})
    + delta(3, "input_json", partial_json="")
    + delta(3, "input_json", partial_json='{"path":')
    + delta(3, "input_json", partial_json=' "ä.py"}')
    + stop(3)
    + start(4, type="tool_use", id="i2", name="list", input={})
    + stop(4)
    + build_stop_event("tool_use", output_tokens=42, output_tokens_details={"thinking_tokens": 7})
    + STOP
)


def read(*chunks: bytes, info: ModelInfo = INFO) -> ModelAnswer:
    reader, assembler = AnthropicReader("api.example", info), Assembler(1)
    for chunk in chunks:
        assembler.feed(reader.feed(chunk))
    assembler.feed(reader.end())
    return assembler.finish(info.ref)


def requests(answer: ModelAnswer) -> list[tuple[str, str, str]]:
    return [(request.id, request.name, request.arguments) for request in answer.requests]


def test_a_whole_answer() -> None:
    answer = read(FULL)
    assert answer.text == "Grüße 🧵 an {alle}"
    assert answer.thinking == (
        Thinking("ich überlege", SIGNED, REF),
        Thinking("", '{"type":"redacted_thinking","data":"geheim"}', REF),
    )
    assert requests(answer) == [("i1", "read_file", '{"path": "ä.py"}'), ("i2", "list", "{}")]
    assert answer.usage == Usage(123, 42, cached=100, reasoning=7)
    assert answer.finish_reason == "tool_calls"


def test_split_at_every_byte_and_by_byte() -> None:  # fault 7
    expected = read(FULL)
    assert read(*(FULL[at : at + 1] for at in range(len(FULL)))) == expected
    crlf = FULL.replace(b"\n", b"\r\n")
    assert read(*(crlf[at : at + 1] for at in range(len(crlf)))) == expected
    for at in range(len(FULL)):
        assert read(FULL[:at], FULL[at:]) == expected


def test_cut_at_every_byte() -> None:  # fault 7: no half call
    over = FULL.index(b"event: message_stop")
    expected = read(FULL)
    for at in range(len(FULL)):
        if at >= over:
            assert read(FULL[:at]) == expected
            continue
        with pytest.raises(ModelError) as caught:
            read(FULL[:at])
        assert caught.value.kind == "cut_stream"


def test_what_one_read_brings_is_joined_and_stays_in_order() -> None:
    reader = AnthropicReader("x", INFO)
    parts = [
        BEGIN,
        start(0, type="thinking", thinking="", signature=""),
        delta(0, "thinking", thinking="h"),
        delta(0, "thinking", thinking="m"),
        delta(0, "signature", signature="s"),
        stop(0),
        text("a", 1),
        text("b", 2),
        start(3, type="tool_use", id="i", name="f", input={}),
        delta(3, "input_json", partial_json="{}"),
        stop(3),
        text("c", 4),
    ]
    assert reader.feed(b"".join(parts)) == [
        ThinkingDelta("hm"),
        ThinkingBlock(Thinking("hm", '{"type":"thinking","thinking":"hm","signature":"s"}')),
        TextDelta("ab"),
        CallDelta("i", 0, "f"),
        CallDelta(index=0, arguments="{}"),
        TextDelta("c"),
        ThinkingBlock(Thinking("", '[2,1,{"type":"text"}]')),  # where the text behind the call stood
        UsageDelta(Usage(123, 1, cached=100)),
    ]
    assert reader.feed(encode_event("ping")) == []
    assert reader.feed(build_stop_event("tool_use") + STOP) == [UsageDelta(Usage(123, 1, cached=100))]
    assert reader.done
    assert reader.end() == [FinishDelta("tool_calls")]


def test_thinking_that_did_not_come_first_remembers_its_place() -> None:  # M-10: interleaved
    def thinking(index: int, words: str) -> bytes:
        head = start(index, type="thinking", thinking="", signature="") + delta(index, "thinking", thinking=words)
        return head + delta(index, "signature", signature="s") + stop(index)

    body = thinking(0, "a") + text("four", 1) + thinking(2, "b") + call(3, "f", "{}") + thinking(4, "c")
    answer = read(BEGIN + body + call(5, "g", "{}", "j") + build_stop_event("tool_use") + STOP)
    places = [block.opaque.partition("{")[0] for block in answer.thinking]
    assert places == ["", "[4,0,", "[4,1,"]
    assert [block.text for block in answer.thinking] == ["a", "b", "c"]


def test_an_unsigned_thought_goes_back_as_it_came() -> None:
    body = start(0, type="thinking", thinking="h") + delta(0, "thinking", thinking="m") + stop(0)
    signed = start(1, type="thinking", thinking="", signature="whole", later="field") + stop(1)
    answer = read(BEGIN + body + signed + text("a", 2) + build_stop_event() + STOP)
    assert answer.thinking == (
        Thinking("hm", '{"type":"thinking","thinking":"hm"}', REF),
        Thinking("", '{"type":"thinking","thinking":"","signature":"whole","later":"field"}', REF),
    )


@pytest.mark.parametrize(
    ("reason", "finish"),
    [
        ("end_turn", "stop"),
        ("stop_sequence", "stop"),
        ("pause_turn", "pause_turn"),
        ("tool_use", "tool_calls"),
        ("max_tokens", "length"),
        ("model_context_window_exceeded", "length"),
        ("refusal", "content_filter"),
        ("something_new", "something_new"),
    ],
)
def test_finish_reasons(reason: str, finish: str) -> None:
    assert read(BEGIN + text("a") + build_stop_event(reason) + STOP).finish_reason == finish


def test_a_refusal_is_told() -> None:
    reader = AnthropicReader("x", INFO)
    details = {"type": "refusal", "category": "cyber", "explanation": "too sharp"}
    end = encode_event(
        "message_delta", delta={"stop_reason": "refusal", "stop_details": details}, usage={"output_tokens": 0}
    )
    assert NoticeDelta("incomplete", f"{REF} declined to answer: too sharp") in reader.feed(BEGIN + end)


def test_costs_know_the_three_kinds_of_input() -> None:  # L-11
    info = ModelInfo(
        "anthropic", "c", usd_per_million_input=4.0, usd_per_million_cached=0.2, usd_per_million_output=20.0
    )
    usage = read(FULL, info=info).usage
    assert usage is not None
    assert usage.usd == pytest.approx((3 * 4 + 20 * 5 + 100 * 0.2 + 42 * 20) / 1e6)
    haiku = ModelInfo("anthropic", "claude-haiku-5-5", usd_per_million_input=0.1, usd_per_million_output=0.5)
    for tokens, price in ((100_000, 0.1), (100_001, 0.5)):
        begin = encode_event("message_start", message={"usage": {"input_tokens": tokens, "output_tokens": 0}})
        measured_usage = read(begin + text("a") + build_stop_event() + STOP, info=haiku).usage
        assert measured_usage is not None
        assert measured_usage.usd == pytest.approx(tokens * price / 1e6)


ODD: dict[str, tuple[bytes, str, list[tuple[str, str, str]], str]] = {
    "no message_stop": (BEGIN + text("hi") + build_stop_event(), "hi", [], "stop"),
    "no message_delta": (BEGIN + text("hi") + STOP, "hi", [], "stop"),
    "no message_start": (text("hi") + build_stop_event() + STOP, "hi", [], "stop"),
    "no block starts or stops": (delta(0, "text", text="hi") + STOP, "hi", [], "stop"),
    "no event names": (
        b"".join(
            line + b"\n\n"
            for line in (BEGIN + text("hi") + build_stop_event()).split(b"\n")
            if line.startswith(b"data")
        ),
        "hi",
        [],
        "stop",
    ),
    "no types in the data": ((text("hi") + STOP).replace(b'"type":"message_stop"', b'"x":1'), "hi", [], "stop"),
    "text in the start": (start(0, type="text", text="hi") + STOP, "hi", [], "stop"),
    "bom and comments": (b"\xef\xbb\xbf: hello\n\n" + text("hi") + STOP, "hi", [], "stop"),
    "unknown events": (encode_event("new_thing", delta={"x": 1}) + text("hi") + STOP, "hi", [], "stop"),
    "unknown blocks": (
        start(0, type="server_tool_use", id="s", name="web_search", input={})
        + delta(0, "input_json", partial_json='{"q":1}')
        + stop(0)
        + start(1, type="web_search_tool_result", content=[])
        + stop(1)
        + text("hi", 2)
        + delta(2, "citations", citation={"cited_text": "x"})
        + STOP,
        "hi",
        [],
        "stop",
    ),
    "no usage, nulls": (
        encode_event("message_start", message={"usage": None, "content": None})
        + text("hi")
        + encode_event("message_delta", delta={"stop_reason": "end_turn", "stop_details": None}, usage=None),
        "hi",
        [],
        "stop",
    ),
    "no indices": (
        start(None, type="tool_use", id="i", name="f", input={})
        + delta(None, "input_json", partial_json='{"a":')
        + delta(None, "input_json", partial_json="1}")
        + stop(None)
        + start(None, type="tool_use", id="j", name="g", input={})
        + stop(None)
        + STOP,
        "",
        [("i", "f", '{"a":1}'), ("j", "g", "{}")],
        "tool_calls",
    ),
    "every index 0, no stops": (
        start(0, type="text", text="")
        + delta(0, "text", text="hi")
        + start(0, type="tool_use", id="i", name="f", input={})
        + delta(0, "input_json", partial_json="{}")
        + start(0, type="tool_use", id="j", name="f", input={})
        + delta(0, "input_json", partial_json="{}")
        + STOP,
        "hi",
        [("i", "f", "{}"), ("j", "f", "{}")],
        "tool_calls",
    ),
    "equal calls under one id": (
        call(0, "f", "{}") + call(1, "f", "{}") + call(2, "f", "") + build_stop_event("tool_use"),
        "",
        [("i", "f", "{}"), ("", "f", "{}"), ("", "f", "{}")],
        "tool_calls",
    ),
    "no ids": (call(0, "f", "{}", "") + call(1, "f", "{}", "") + STOP, "", [("", "f", "{}")] * 2, "tool_calls"),
    "input in the start": (
        start(0, type="tool_use", id="i", name="f", input={"a": [1]}) + stop(0) + STOP,
        "",
        [("i", "f", '{"a":[1]}')],
        "tool_calls",
    ),
    "input in the start and in pieces": (
        start(0, type="tool_use", id="i", name="f", input={"a": 1})
        + delta(0, "input_json", partial_json='{"a":2}')
        + STOP,
        "",
        [("i", "f", '{"a":2}')],
        "tool_calls",
    ),
    "numbers for ids, an index as text": (
        encode_event("content_block_start", index="0", content_block={"type": "tool_use", "id": 7, "name": "f"})
        + encode_event("content_block_delta", index="0", delta={"partial_json": "{}"})
        + STOP,
        "",
        [("7", "f", "{}")],
        "tool_calls",
    ),
    "a finish reason that lies": (call(0, "f", "{}") + build_stop_event("end_turn"), "", [("i", "f", "{}")], "stop"),
    "nonsense for usage": (
        text("hi") + encode_event("message_delta", delta="?", usage="free") + STOP,
        "hi",
        [],
        "stop",
    ),
    "after message_stop nothing counts": (text("hi") + STOP + text("there"), "hi", [], "stop"),
    "openai's end": (text("hi") + build_stop_event() + b"data: \n\n", "hi", [], "stop"),
}


@pytest.mark.parametrize("case", ODD)
def test_odd_servers(case: str) -> None:  # fault 9
    stream, words, calls, finish = ODD[case]
    answer = read(stream)
    assert (answer.text, requests(answer), answer.finish_reason) == (words, calls, finish)


@pytest.mark.parametrize(
    "junk",
    [
        b"data: {oops\n\n",
        b"data: 3\n\n",
        b"data: [1]\n\n",
        b"data: " + b"[" * 5000 + b"\n\n",
        encode_event("content_block_delta", index=0, delta={"type": "text_delta", "text": ["a"]}),
    ],
)
def test_an_event_that_is_none_is_a_failure_never_a_gap(junk: bytes) -> None:  # fault 9
    with pytest.raises(ModelError, match="no part of an answer") as caught:
        read(BEGIN + text("a") + junk + STOP)
    assert caught.value.kind == "cut_stream"


@pytest.mark.parametrize(
    ("kind", "message", "expected"),
    [
        ("overloaded_error", "Overloaded", "overloaded"),
        ("api_error", "Internal server error", "overloaded"),
        ("timeout_error", "took too long", "overloaded"),
        ("rate_limit_error", "slow down", "rate_limit"),
        ("authentication_error", "who are you", "auth"),
        ("permission_error", "not you", "auth"),
        ("billing_error", "pay first", "quota"),
        ("invalid_request_error", "prompt is too long: 9 tokens > 8 maximum", "context_limit"),
        ("request_too_large", "Request exceeds the maximum size", "context_limit"),
        ("invalid_request_error", "nonsense", "bad_request"),
    ],
)
def test_errors_inside_a_200(kind: str, message: str, expected: str) -> None:  # fault 8
    error = {"type": kind, "message": message}
    document = msgspec.json.encode({"type": "error", "error": error})
    for stream in (
        encode_event("error", error=error),
        BEGIN + text("so far") + encode_event("error", error=error),
        b"data: " + document + b"\n\n",
        document,
    ):
        with pytest.raises(ModelError, match=message) as caught:
            read(stream)
        assert caught.value.kind == expected


def test_what_was_said_before_a_failure_counts() -> None:  # M-11: it is paid for
    reader = AnthropicReader("x", INFO)
    error = encode_event("error", error={"type": "overloaded_error", "message": "Overloaded"})
    assert reader.feed(BEGIN + text("so far") + error + text("more")) == [
        TextDelta("so far"),
        UsageDelta(Usage(123, 1, cached=100)),
    ]
    assert reader.done
    with pytest.raises(ModelError, match="Overloaded"):
        reader.end()


def test_a_server_that_does_not_stream() -> None:
    message = {
        "type": "message",
        "role": "assistant",
        "content": [
            {"type": "thinking", "thinking": "hm", "signature": "s"},
            {"type": "text", "text": "hi"},
            {"type": "tool_use", "id": "i", "name": "f", "input": {"a": 1}},
        ],
        "stop_reason": "tool_use",
        "usage": {"input_tokens": 1, "output_tokens": 2},
    }
    document = msgspec.json.encode(message)
    for body in (document, b"\xef\xbb\xbf\n " + msgspec.json.format(document)):
        answer = read(*(body[at : at + 1] for at in range(len(body))))
        assert (answer.text, requests(answer), answer.usage) == ("hi", [("i", "f", '{"a":1}')], Usage(1, 2))
        assert answer.thinking == (Thinking("hm", '{"type":"thinking","thinking":"hm","signature":"s"}', REF),)
        assert answer.finish_reason == "tool_calls"
    for at in range(1, len(document)):
        with pytest.raises(ModelError):
            read(document[:at])
