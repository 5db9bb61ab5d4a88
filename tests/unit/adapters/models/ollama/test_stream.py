"""Streams of good and of odd servers, cut and split at every byte, without a network (M-04, M-09, faults 7, 9, 10)."""

from typing import Any

import msgspec
import pytest

from treadle.adapters.models.ollama import OllamaReader
from treadle.chat.assembly import Assembler, ModelAnswer
from treadle.errors import ModelError
from treadle.protocol.content import Thinking, Usage
from treadle.protocol.deltas import CallDelta, FinishDelta, TextDelta, ThinkingDelta, UsageDelta


def line(**part: Any) -> bytes:
    return msgspec.json.encode({"model": "m", "created_at": "t", **part}) + b"\n"


def build_line(content: str = "", **message: Any) -> bytes:
    return line(message={"role": "assistant", "content": content, **message}, done=False)


def call(name: str, arguments: Any, **more: Any) -> dict[str, Any]:
    return {"function": {"name": name, "arguments": arguments}, **more}


def build_end(reason: str | None = "stop", **more: Any) -> bytes:
    reason_field = {} if reason is None else {"done_reason": reason}
    return line(message={"role": "assistant", "content": ""}, done=True, **reason_field, **more)


END = build_end(prompt_eval_count=9, eval_count=4)
FULL = (
    build_line(thinking="ich über")
    + build_line(thinking="lege")
    + build_line("Grüße 🧵 ")
    + build_line("an {alle}")
    + build_line(tool_calls=[call("read_file", {"path": "ä.py"})])
    + build_line(tool_calls=[call("read_file", {"path": "b\n"}), call("read_file", {})])
    + END
)


def read(*chunks: bytes) -> ModelAnswer:
    reader, assembler = OllamaReader("host:11434"), Assembler(1)
    for chunk in chunks:
        assembler.feed(reader.feed(chunk))
    assembler.feed(reader.end())
    return assembler.finish("ollama:x")


def requests(answer: ModelAnswer) -> list[tuple[str, str, str]]:
    return [(request.id, request.name, request.arguments) for request in answer.requests]


def test_a_whole_answer() -> None:
    answer = read(FULL)
    assert answer.text == "Grüße 🧵 an {alle}"
    assert answer.thinking == (Thinking("ich überlege", model="ollama:x"),)
    assert requests(answer) == [
        ("", "read_file", '{"path":"ä.py"}'),
        ("", "read_file", '{"path":"b\\n"}'),
        ("", "read_file", "{}"),
    ]
    assert answer.usage == Usage(9, 4)
    assert answer.finish_reason == "tool_calls"


def test_split_at_every_byte_and_by_byte() -> None:  # fault 7
    expected = read(FULL)
    assert read(*(FULL[at : at + 1] for at in range(len(FULL)))) == expected
    ends = FULL.replace(b"\n", b"\r\n\r\n")
    assert read(*(ends[at : at + 1] for at in range(len(ends)))) == expected
    for at in range(len(FULL)):
        assert read(FULL[:at], FULL[at:]) == expected


def test_cut_at_every_byte() -> None:  # fault 7: no half call
    for at in range(len(FULL) - 1):  # the end of the last line may be missing
        with pytest.raises(ModelError) as caught:
            read(FULL[:at])
        assert caught.value.kind == "cut_stream"
    assert read(FULL[:-1]) == read(FULL)


def test_what_one_read_brings_is_joined() -> None:
    reader = OllamaReader("x")
    parts = [
        build_line("a"),
        build_line("b"),
        build_line(thinking="t"),
        build_line(thinking="u"),
        build_line("c"),
        build_line("d", tool_calls=[call("f", {})]),
    ]
    assert reader.feed(b"".join([*parts, END])) == [
        TextDelta("ab"),
        ThinkingDelta("tu"),
        TextDelta("cd"),
        CallDelta(None, 0, "f", "{}"),
        UsageDelta(Usage(9, 4)),
    ]
    assert reader.done
    assert reader.end() == [FinishDelta("tool_calls", response_model="m")]


ODD: dict[str, tuple[bytes, str, list[tuple[str, str, str]], str]] = {
    "no done_reason": (build_line("hi") + build_end(None), "hi", [], "stop"),
    "length": (build_line("hi") + build_end("length"), "hi", [], "length"),
    "length after a call": (
        build_line(tool_calls=[call("f", {})]) + build_end("length"),
        "",
        [("", "f", "{}")],
        "length",
    ),
    "a reason of its own": (build_line("hi") + build_end("bored"), "hi", [], "bored"),
    "all in the last line": (line(message={"content": "hi"}, done=True, done_reason="stop"), "hi", [], "stop"),
    "more after the end": (build_line("hi") + build_end() + build_line("!") + build_end(), "hi", [], "stop"),
    "no content, null calls": (
        line(message={"role": "assistant"}) + build_line("hi", tool_calls=None) + END,
        "hi",
        [],
        "stop",
    ),
    "no message": (line() + line(message=None) + build_line("hi") + END, "hi", [], "stop"),
    "unknown fields": (build_line("hi", images=None, audio={"x": 1}) + line(progress=3) + END, "hi", [], "stop"),
    "ids": (
        build_line(tool_calls=[call("f", {}, id="c1"), call("f", {}, id="c2")]) + END,
        "",
        [("c1", "f", "{}"), ("c2", "f", "{}")],
        "tool_calls",
    ),
    "one id for all": (
        build_line(tool_calls=[call("f", {"a": 1}, id="c"), call("g", {}, id="c")])
        + build_line(tool_calls=[call("g", {}, id="c")])
        + END,
        "",
        [("c", "f", '{"a":1}'), ("", "g", "{}"), ("", "g", "{}")],
        "tool_calls",
    ),
    "every index 0": (
        build_line(tool_calls=[{"function": {"index": 0, "name": "f", "arguments": {}}}] * 2) + END,
        "",
        [("", "f", "{}"), ("", "f", "{}")],
        "tool_calls",
    ),
    "arguments as text": (
        build_line(tool_calls=[call("f", '{"a": 1}')]) + END,
        "",
        [("", "f", '{"a": 1}')],
        "tool_calls",
    ),
    "broken arguments as text": (
        build_line(tool_calls=[call("f", '{"a": ')]) + END,
        "",
        [("", "f", '{"a": ')],
        "tool_calls",
    ),
    "null arguments": (build_line(tool_calls=[call("f", None)]) + END, "", [("", "f", "{}")], "tool_calls"),
    "empty arguments": (build_line(tool_calls=[call("f", "")]) + END, "", [("", "f", "{}")], "tool_calls"),
    "no arguments": (build_line(tool_calls=[{"function": {"name": "f"}}]) + END, "", [("", "f", "{}")], "tool_calls"),
    "no name": (
        build_line(tool_calls=[call("", {}), {"id": "i"}]) + END,
        "",
        [("", "", "{}"), ("i", "", "{}")],
        "tool_calls",
    ),
    "a list as arguments": (build_line(tool_calls=[call("f", [1])]) + END, "", [("", "f", "[1]")], "tool_calls"),
    "numbers as ids": (
        build_line(tool_calls=[call("f", {"a": 1}, id=7)]) + END,
        "",
        [("7", "f", '{"a":1}')],
        "tool_calls",
    ),
    "one call, no list": (build_line(tool_calls=call("f", {"a": 1})) + END, "", [("", "f", '{"a":1}')], "tool_calls"),
    "a flat call": (
        build_line(tool_calls=[{"id": 1, "name": "f", "arguments": {}}]) + END,
        "",
        [("1", "f", "{}")],
        "tool_calls",
    ),
    "a message that is text": (line(message="hi") + END, "hi", [], "stop"),
    "counts as floats": (build_line("hi") + build_end(prompt_eval_count=9.0, eval_count=4.0), "hi", [], "stop"),
    "bad UTF-8": (b'{"message":{"content":"a\xffb"}}\n' + END, "a\ufffdb", [], "stop"),
    "BOM": (b"\xef\xbb\xbf" + build_line("hi") + END, "hi", [], "stop"),
}


@pytest.mark.parametrize("case", ODD)
def test_odd_streams(case: str) -> None:  # faults 9 and 10
    stream, text, calls, finish = ODD[case]
    answer = read(stream)
    assert (answer.text, requests(answer), answer.finish_reason) == (text, calls, finish)
    assert read(*(stream[at : at + 1] for at in range(len(stream)))) == answer


def test_a_count_without_the_prompt_is_no_count() -> None:  # the engine then estimates
    assert read(build_line("hi") + build_end(eval_count=4)).usage is None
    assert read(build_line("hi") + build_end(prompt_eval_count=0, eval_count=4)).usage is None
    assert read(build_line("hi") + build_end(prompt_eval_count=3)).usage == Usage(3, 0)


@pytest.mark.parametrize(
    ("stream", "kind", "words"),
    [
        (line(error="an error was encountered while running the model"), "overloaded", "while running the model"),
        (
            build_line("a") + line(error="the prompt is longer than the context length currently available"),
            "context_limit",
            "longer than the context length",
        ),
        (b'{"error":{"message":"unauthorized"}}', "auth", "unauthorized"),
        (build_end("load"), "cut_stream", "an order to load"),
        (build_end("unload"), "cut_stream", "an order to unload"),
        (b"<html>Bad gateway</html>\n", "bad_request", "a web page"),
        (b"[]\n", "bad_request", "JSON of another kind"),
        (build_line("a") + b"[]\n", "cut_stream", "no part of an answer"),
        (build_line("a") + b"<html>Bad gateway</html>\n", "cut_stream", "no part of an answer"),
        (b"{" * 200_000 + b"\n", "cut_stream", "no part of an answer"),
        (b"", "cut_stream", "broke off"),
    ],
)
def test_failures_in_a_stream(stream: bytes, kind: str, words: str) -> None:  # faults 8 and 9
    with pytest.raises(ModelError, match=words) as caught:
        read(stream)
    assert caught.value.kind == kind
    assert len(str(caught.value)) < 800
