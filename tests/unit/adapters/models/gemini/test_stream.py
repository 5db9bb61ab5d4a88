"""Gemini streams of good and of odd servers, cut and split at every byte, without a network (M-03, M-08, M-09, M-10;
faults 7, 8, 9 and 10)."""

from typing import Any

import msgspec
import pytest

from treadle.adapters.models.gemini.adapter import GeminiReader
from treadle.chat.assembly import Assembler, ModelAnswer
from treadle.errors import ModelError
from treadle.ports.model import ModelInfo
from treadle.protocol.content import Thinking, Usage
from treadle.protocol.deltas import CallDelta, FinishDelta, NoticeDelta, TextDelta, ThinkingDelta, UsageDelta

INFO = ModelInfo("gemini", "x")
REF = INFO.ref


def event(data: bytes) -> bytes:
    return b"data: " + data + b"\r\n\r\n"


def chunk(*parts: dict[str, Any], finish: str = "", **more: Any) -> bytes:
    """One chunk of an answer; it contains `raw_args` unchanged."""
    candidate: dict[str, Any] = {"content": {"role": "model", "parts": list(parts)}, "index": 0}
    if finish:
        candidate["finishReason"] = finish
    return event(msgspec.json.encode({"candidates": [candidate], **more}))


def call(name: str = "f", args: str = "{}", **more: Any) -> dict[str, Any]:
    identity = {"id": more.pop("id")} if "id" in more else {}
    return {"functionCall": {"name": name, "args": msgspec.Raw(args.encode()), **identity}, **more}


def build_thought(text: str, **more: Any) -> dict[str, Any]:
    return {"text": text, "thought": True, **more}


USAGE = {
    "promptTokenCount": 90,
    "cachedContentTokenCount": 30,
    "candidatesTokenCount": 7,
    "thoughtsTokenCount": 5,
    "totalTokenCount": 102,
}
FULL = (
    chunk(build_thought("ich über"), usageMetadata={"promptTokenCount": 90, "totalTokenCount": 90})
    + chunk(build_thought("lege"))
    + chunk({"text": "Grüße 🧵 "})
    + chunk({"text": "an {alle}"})
    + event(b'{"usageMetadata":{"promptTokenCount":90}}')
    + chunk(
        call("read_file", '{ "path": "\\u00e4.py" }', id="i1", thoughtSignature="CgA/+=="), call("read_file", '{"b":1}')
    )
    + chunk(call("read_file", '{"b":1}', id="i1"))
    + chunk({"text": ""}, finish="STOP", usageMetadata=USAGE)
)


def read(*chunks: bytes) -> ModelAnswer:
    reader, assembler = GeminiReader("api.example", INFO), Assembler(1)
    for piece in chunks:
        assembler.feed(reader.feed(piece))
    assembler.feed(reader.end())
    return assembler.finish(REF)


def requests(answer: ModelAnswer) -> list[tuple[str, str, str]]:
    return [(request.id, request.name, request.arguments) for request in answer.requests]


def test_a_whole_answer() -> None:
    answer = read(FULL)
    assert answer.text == "Grüße 🧵 an {alle}"
    assert answer.usage == Usage(90, 12, cached=30, reasoning=5)
    assert answer.finish_reason == "tool_calls"


def test_equal_calls_ids_that_come_again_and_ids_that_are_missing() -> None:  # M-08, M-09
    assert requests(read(FULL)) == [
        ("i1", "read_file", '{ "path": "\\u00e4.py" }'),  # arguments are kept as they were written
        ("", "read_file", '{"b":1}'),
        ("", "read_file", '{"b":1}'),
    ]


def test_a_signature_is_kept_exactly_with_the_part_that_carried_it() -> None:  # M-10
    place = len("Grüße 🧵 an {alle}")
    block = f'[{place},0,{{"on":"call","thoughtSignature":"CgA/+=="}}]'
    assert read(FULL).thinking == (Thinking("ich überlege", block, REF),)


def test_signatures_of_every_kind_of_part() -> None:  # M-10
    answer = read(
        chunk(build_thought("A"), build_thought("B", thoughtSignature="s1"), {"text": "one "}),
        chunk({"text": "two", "thoughtSignature": "s2"}, build_thought("C"), call(thoughtSignature="s3")),
        chunk(
            build_thought("D"),
            call("g", thoughtSignature="s4"),
            {"thoughtSignature": "s5"},
            build_thought("E"),
            finish="STOP",
        ),
    )
    assert answer.text == "one two"
    assert [(block.text, block.opaque) for block in answer.thinking] == [
        ("AB", '{"on":"thought","thoughtSignature":"s1","length":1}'),
        ("", '[4,0,{"on":"text","thoughtSignature":"s2","length":3}]'),
        ("C", '[7,0,{"on":"call","thoughtSignature":"s3"}]'),
        ("D", '[7,1,{"on":"call","thoughtSignature":"s4"}]'),
        ("", '[7,2,{"on":"text","thoughtSignature":"s5"}]'),
        ("E", ""),
    ]


def test_split_at_every_byte_and_by_byte() -> None:  # fault 7
    expected = read(FULL)
    for stream in (FULL, FULL.replace(b"\r\n", b"\n"), b"\xef\xbb\xbf" + FULL):
        assert read(*(stream[at : at + 1] for at in range(len(stream)))) == expected
    for at in range(len(FULL)):
        assert read(FULL[:at], FULL[at:]) == expected


def test_cut_at_every_byte() -> None:  # fault 7: no call of half an answer
    for at in range(len(FULL) - 2):
        with pytest.raises(ModelError) as caught:
            read(FULL[:at])
        assert caught.value.kind == "cut_stream"


def test_an_array_instead_of_events_split_and_cut_at_every_byte() -> None:
    """Without `alt=sse`, or behind a proxy that drops it."""
    stream = b"[" + b",\r\n".join(part.removeprefix(b"data: ") for part in FULL.split(b"\r\n\r\n")[:-1]) + b"]"
    expected = read(FULL)
    for at in range(len(stream)):
        assert read(stream[:at], stream[at:]) == expected
        with pytest.raises(ModelError) as caught:
            read(stream[:at])
        assert caught.value.kind == "cut_stream"


def test_a_single_document() -> None:
    document = chunk({"text": "all at once"}, finish="STOP", usageMetadata=USAGE).removeprefix(b"data: ").strip()
    assert read(document).text == "all at once"
    with pytest.raises(ModelError, match="no part of an answer"):
        read(document[:-5])


def test_text_of_one_read_is_one_delta() -> None:
    reader = GeminiReader("x", INFO)
    stream = (
        chunk({"text": "a"})
        + chunk({"text": "b"})
        + chunk(build_thought("s"), build_thought("t"))
        + chunk({"text": "c"})
    )
    assert reader.feed(stream + chunk(call(), usageMetadata=USAGE)) == [
        TextDelta("ab"),
        ThinkingDelta("st"),
        TextDelta("c"),
        CallDelta(None, 0, "f", "{}"),
        UsageDelta(Usage(90, 12, cached=30, reasoning=5)),
    ]
    assert reader.feed(chunk(finish="STOP")) == []
    assert reader.end() == [FinishDelta("tool_calls")]


@pytest.mark.parametrize(
    ("reason", "finish"),
    [
        ("STOP", "stop"),
        ("MAX_TOKENS", "length"),
        ("CONTINUATION", "length"),
        ("SAFETY", "content_filter"),
        ("RECITATION", "content_filter"),
        ("PROHIBITED_CONTENT", "content_filter"),
        ("NEW_REASON", "new_reason"),
    ],
)
def test_finish_reasons(reason: str, finish: str) -> None:
    assert read(chunk({"text": "a"}) + chunk(finish=reason)).finish_reason == finish
    reader = GeminiReader("x", INFO)
    notices = [delta for delta in reader.feed(chunk(finish=reason)) if isinstance(delta, NoticeDelta)]
    assert [reason in notice.text for notice in notices] == ([] if finish in ("stop", "length") else [True])


@pytest.mark.parametrize("reason", ["MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL", "MALFORMED_RESPONSE", "OTHER"])
def test_an_answer_that_the_model_spoiled_is_asked_for_again_and_counted(reason: str) -> None:
    reader, assembler = GeminiReader("x", INFO), Assembler(1)
    finish = b'{"candidates":[{"finishReason":"%b","finishMessage":"call:f{"}],"usageMetadata":{"promptTokenCount":8}}'
    assembler.feed(reader.feed(chunk(call(), {"text": "a"}) + event(finish % reason.encode())))
    with pytest.raises(ModelError, match=rf"{REF} could not finish its answer \({reason}: call:f{{") as caught:
        reader.end()
    assert caught.value.kind == "cut_stream"  # which is retried
    assert assembler.usage == Usage(8)


def test_a_missing_signature_at_the_end_is_a_refusal() -> None:
    with pytest.raises(ModelError, match="misses a thought signature") as caught:
        read(chunk(finish="MISSING_THOUGHT_SIGNATURE"))
    assert (caught.value.kind, caught.value.status) == ("bad_request", 400)


def test_a_question_that_is_not_answered() -> None:
    blocked = event(b'{"promptFeedback":{"blockReason":"SAFETY","blockReasonMessage":"no"},"usageMetadata":{}}')
    with pytest.raises(ModelError, match="does not answer this conversation: SAFETY no") as caught:
        read(blocked)
    assert caught.value.kind == "bad_request"
    assert read(event(b'{"promptFeedback":{"safetyRatings":[]}}') + chunk({"text": "a"}, finish="STOP")).text == "a"


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b'{"error":{"code":503,"message":"The model is overloaded.","status":"UNAVAILABLE"}}', "overloaded"),
        (b'{"error":{"code":429,"message":"slow","details":[{"retryDelay":"3s"}]}}', "rate_limit"),
        (b'{"error":{"code":400,"message":"The input token count exceeds"}}', "context_limit"),
        (b'{"error":"boom"}', "overloaded"),
    ],
)
def test_errors_inside_a_200(body: bytes, kind: str) -> None:  # fault 8
    for stream in (event(body), chunk({"text": "a"}) + event(body), b"[" + body + b"]", body):
        with pytest.raises(ModelError) as caught:
            read(stream)
        assert caught.value.kind == kind


@pytest.mark.parametrize(
    "odd",
    [
        event(b"{}"),
        event(b'{"candidates":[]}'),
        event(b'{"candidates":null,"usageMetadata":null,"error":null}'),
        event(b'{"candidates":[{"index":0}]}'),
        event(b'{"candidates":[{"content":{"role":"model"}}]}'),
        event(b'{"candidates":[{"content":{"parts":null},"finishReason":null}]}'),
        event(b'{"candidates":[{"content":[]}]}'),
        event(b'{"candidates":[{"content":{"parts":[{}]},"finishReason":"FINISH_REASON_UNSPECIFIED"}]}'),
        event(b'{"candidates":[{"content":{"parts":[{"text":""},{"inlineData":{"data":"AA=="}}]}}]}'),
        event(b'{"candidates":[{"index":1,"content":{"parts":[{"text":"other"}]},"finishReason":"STOP"}]}'),
        event(b'{"usageMetadata":{"promptTokenCount":"9","thoughtsTokenCount":"few"}}'),
        event(b'{"candidates":{"content":1},"unheard":[[]]}'),
        b": keep alive\r\n\r\n",
        b"event: ping\r\n\r\n",
        b"data:\r\n\r\n",
    ],
)
def test_odd_chunks_are_borne(odd: bytes) -> None:  # fault 9
    answer = read(odd + chunk({"text": "a"}) + odd + chunk({"text": "b"}, finish="STOP") + odd)
    assert (answer.text, answer.finish_reason, answer.requests) == ("ab", "stop", ())


def test_odd_calls() -> None:  # fault 10
    parts = (
        b'{"functionCall":{"name":"a"}},{"functionCall":{"name":"b","args":null}},{"functionCall":{"args":{"x":1}}},'
        b'{"functionCall":{"name":7,"id":7,"args":[1]}},{"functionCall":{}}'
    )
    answer = read(event(b'{"candidates":[{"content":{"parts":[' + parts + b"]}}]}") + chunk(finish="STOP"))
    assert requests(answer) == [("", "a", "{}"), ("", "b", "{}"), ("", "", '{"x":1}'), ("", "", "[1]"), ("", "", "{}")]


def test_an_end_mark_ends() -> None:
    reader = GeminiReader("x", INFO)
    reader.feed(chunk(call()) + event(b"[DONE]") + chunk({"text": "more"}))
    assert reader.done
    assert reader.end() == [FinishDelta("tool_calls")]


@pytest.mark.parametrize("nonsense", [b"{", b"nonsense", b"[1", b'"text"', b"7", b"[" * 100_000])
def test_nonsense_is_a_cut_stream(nonsense: bytes) -> None:  # fault 9
    with pytest.raises(ModelError, match="no part of an answer") as caught:
        read(chunk({"text": "a"}) + event(nonsense) + chunk(finish="STOP"))
    assert caught.value.kind == "cut_stream"
    assert len(str(caught.value)) < 200


def test_calls_in_pieces_are_refused() -> None:
    pieces = event(b'{"candidates":[{"content":{"parts":[{"functionCall":{"name":"f","willContinue":true}}]}}]}')
    with pytest.raises(ModelError, match="a call in pieces"):
        read(pieces)
