"""Streams of good and of odd servers, cut and split at every byte, without a network (M-08, faults 7, 9 and 10)."""

from typing import Any

import msgspec
import pytest

from tests.unit.adapters.models.loopback import DONE, build_chunk, event
from treadle.adapters.models.openai_chat.stream import ChatReader
from treadle.chat.assembly import Assembler, ModelAnswer
from treadle.errors import ModelError
from treadle.protocol.content import Thinking, Usage
from treadle.protocol.deltas import FinishDelta, TextDelta, ThinkingDelta, UsageDelta


def call(index: int | None = None, **function: Any) -> dict[str, Any]:
    call_delta: dict[str, Any] = {"function": function} if index is None else {"index": index, "function": function}
    return call_delta


USAGE = event(
    choices=[],
    usage={"prompt_tokens": 9, "completion_tokens": 4, "prompt_tokens_details": {"cached_tokens": 3}},
)
FULL = (
    build_chunk(role="assistant", content="")
    + build_chunk(reasoning_content="ich über")
    + build_chunk(reasoning_content="lege")
    + build_chunk(content="Grüße 🧵 ")
    + build_chunk(content="an {alle}")
    + build_chunk(tool_calls=[{**call(0, name="read_file", arguments=""), "id": "i1"}])
    + build_chunk(tool_calls=[call(0, arguments='{"path":')])
    + build_chunk(tool_calls=[call(0, arguments='"ä.py"}')])
    + build_chunk(tool_calls=[{**call(1, name="read_file", arguments='{"path":"b"}'), "id": "i2"}])
    + build_chunk("tool_calls")
    + USAGE
    + DONE
)


def read(*chunks: bytes) -> ModelAnswer:
    reader, assembler = ChatReader("api.example"), Assembler(1)
    for chunk in chunks:
        assembler.feed(reader.feed(chunk))
    assembler.feed(reader.end())
    return assembler.finish("openai:x")


def requests(answer: ModelAnswer) -> list[tuple[str, str, str]]:
    return [(request.id, request.name, request.arguments) for request in answer.requests]


def test_a_whole_answer() -> None:
    answer = read(FULL)
    assert answer.text == "Grüße 🧵 an {alle}"
    assert answer.thinking == (Thinking("ich überlege", '{"reasoning_content":"ich überlege"}', "openai:x"),)
    assert requests(answer) == [("i1", "read_file", '{"path":"ä.py"}'), ("i2", "read_file", '{"path":"b"}')]
    assert answer.usage == Usage(9, 4, cached=3)
    assert answer.finish_reason == "tool_calls"


def test_split_at_every_byte_and_by_byte() -> None:  # fault 7
    expected = read(FULL)
    assert read(*(FULL[at : at + 1] for at in range(len(FULL)))) == expected
    assert read(*(FULL.replace(b"\n", b"\r\n")[at : at + 1] for at in range(len(FULL) + FULL.count(b"\n")))) == expected
    for at in range(len(FULL)):
        assert read(FULL[:at], FULL[at:]) == expected


def test_cut_at_every_byte() -> None:  # fault 7: no half call
    end_index = FULL.index(b'"tool_calls"}]}') + len(b'"tool_calls"}]}\n\n')
    for at in range(len(FULL)):
        if at >= end_index:
            assert requests(read(FULL[:at])) == requests(read(FULL))
            continue
        with pytest.raises(ModelError) as caught:
            read(FULL[:at])
        assert caught.value.kind == "cut_stream"


def test_text_of_one_read_is_one_delta() -> None:
    reader = ChatReader("x")
    parts = [
        build_chunk(content="a"),
        build_chunk(content="b"),
        build_chunk(reasoning="t"),
        build_chunk(content="c"),
        build_chunk("stop", content="d"),
        USAGE,
    ]
    assert reader.feed(b"".join(parts)) == [
        TextDelta("ab"),
        ThinkingDelta("t"),
        TextDelta("cd"),
        UsageDelta(Usage(9, 4, cached=3)),
    ]
    assert reader.end() == [FinishDelta("stop", "c1")]


ODD: dict[str, tuple[bytes, str, list[tuple[str, str, str]], str]] = {
    "no [DONE]": (build_chunk(content="hi") + build_chunk("stop"), "hi", [], "stop"),
    "no finish reason": (build_chunk(content="hi") + DONE, "hi", [], "stop"),
    "empty choices": (event(choices=[]) + event(choices=None) + build_chunk(content="hi") + DONE, "hi", [], "stop"),
    "no choices at all": (event(id="x") + event() + build_chunk(content="hi") + DONE, "hi", [], "stop"),
    "null delta": (
        event(choices=[{"delta": None}]) + event(choices=[{}]) + build_chunk(content="hi") + DONE,
        "hi",
        [],
        "stop",
    ),
    "null fields": (
        event(
            choices=[{"delta": {"content": None, "tool_calls": None, "refusal": None}, "finish_reason": None}],
            usage=None,
        )
        + build_chunk("stop", content="hi"),
        "hi",
        [],
        "stop",
    ),
    "bom and comments": (b"\xef\xbb\xbf: PROCESSING\n\n" + build_chunk(content="hi") + DONE, "hi", [], "stop"),
    "refusal": (build_chunk(refusal="I can't") + build_chunk("stop"), "I can't", [], "refusal"),
    "missing index": (
        build_chunk(tool_calls=[{**call(name="f", arguments="{}"), "id": "i"}]) + build_chunk("tool_calls"),
        "",
        [("i", "f", "{}")],
        "tool_calls",
    ),
    "arguments as an object": (
        build_chunk(tool_calls=[call(0, name="f", arguments={"a": 1})]) + DONE,
        "",
        [("", "f", '{"a":1}')],
        "tool_calls",
    ),
    "numbers for ids, index as text": (
        event(choices=[{"delta": {"tool_calls": [{"id": 7, "index": "0", "function": {"name": "f"}}]}}]) + DONE,
        "",
        [("7", "f", "{}")],
        "tool_calls",
    ),
    "text as parts": (
        event(choices=[{"delta": {"content": [{"type": "text", "text": "h"}, {"text": "i"}]}}]) + build_chunk("stop"),
        "hi",
        [],
        "stop",
    ),
    "function is null": (
        build_chunk(tool_calls=[{"id": "i", "function": None}]) + DONE,
        "",
        [("i", "", "{}")],
        "tool_calls",
    ),
    "usage is nonsense": (event(choices=[], usage="free") + build_chunk(content="hi") + DONE, "hi", [], "stop"),
    "after [DONE] nothing counts": (build_chunk(content="hi") + DONE + build_chunk(content="there"), "hi", [], "stop"),
    "length": (build_chunk("length", content="hi"), "hi", [], "length"),
}


@pytest.mark.parametrize("case", ODD)
def test_odd_servers(case: str) -> None:  # fault 9
    stream, text, calls, finish = ODD[case]
    answer = read(stream)
    assert (answer.text, requests(answer), answer.finish_reason) == (text, calls, finish)


@pytest.mark.parametrize(
    "junk", [b"data: {oops\n\n", b"data: 3\n\n", b"data: [1]\n\n", b"data: " + b"[" * 5000 + b"\n\n"]
)
def test_a_chunk_that_is_none_is_a_failure_never_a_gap(junk: bytes) -> None:  # fault 9
    with pytest.raises(ModelError, match="no part of an answer") as caught:
        read(build_chunk(content="a") + junk + build_chunk("stop"))
    assert caught.value.kind == "cut_stream"


def test_a_server_that_does_not_stream() -> None:
    message = {"role": "assistant", "content": "hi", "tool_calls": [{**call(name="f", arguments="{}"), "id": "i"}]}
    document = msgspec.json.encode(
        {"choices": [{"message": message, "finish_reason": "tool_calls"}], "usage": {"prompt_tokens": 1}}
    )
    for body in (document, b"\xef\xbb\xbf\n " + msgspec.json.format(document)):
        answer = read(*(body[at : at + 1] for at in range(len(body))))
        assert (answer.text, requests(answer), answer.usage) == ("hi", [("i", "f", "{}")], Usage(1))
    for at in range(1, len(document)):
        with pytest.raises(ModelError):
            read(document[:at])


@pytest.mark.parametrize(
    ("stream", "kind"),
    [
        (b'{"error":{"message":"no balance","code":402}}', "quota"),
        (b'[{"error":{"message":"who are you","code":401}}]', "auth"),
        (b'data: {"error":{"message":"busy","code":503}}\n\n', "overloaded"),
        (build_chunk(content="so") + event(error={"message": "busy"}, choices=[]), "overloaded"),
        (b'event: error\ndata: {"message":"rate limit"}\n\n', "rate_limit"),
    ],
)
def test_errors_inside_a_200(stream: bytes, kind: str) -> None:  # fault 8
    with pytest.raises(ModelError) as caught:
        read(stream)
    assert caught.value.kind == kind
