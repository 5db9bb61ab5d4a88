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


def said(content: str = "", **message: Any) -> bytes:
    return line(message={"role": "assistant", "content": content, **message}, done=False)


def call(name: str, arguments: Any, **more: Any) -> dict[str, Any]:
    return {"function": {"name": name, "arguments": arguments}, **more}


def ended(reason: str | None = "stop", **more: Any) -> bytes:
    given = {} if reason is None else {"done_reason": reason}
    return line(message={"role": "assistant", "content": ""}, done=True, **given, **more)


END = ended(prompt_eval_count=9, eval_count=4)
FULL = (
    said(thinking="ich über")
    + said(thinking="lege")
    + said("Grüße 🧵 ")
    + said("an {alle}")
    + said(tool_calls=[call("read_file", {"path": "ä.py"})])
    + said(tool_calls=[call("read_file", {"path": "b\n"}), call("read_file", {})])
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
    wanted = read(FULL)
    assert read(*(FULL[at : at + 1] for at in range(len(FULL)))) == wanted
    ends = FULL.replace(b"\n", b"\r\n\r\n")
    assert read(*(ends[at : at + 1] for at in range(len(ends)))) == wanted
    for at in range(len(FULL)):
        assert read(FULL[:at], FULL[at:]) == wanted


def test_cut_at_every_byte() -> None:  # fault 7: no half call
    for at in range(len(FULL) - 1):  # the end of the last line may be missing
        with pytest.raises(ModelError) as caught:
            read(FULL[:at])
        assert caught.value.kind == "cut_stream"
    assert read(FULL[:-1]) == read(FULL)


def test_what_one_read_brings_is_joined() -> None:
    reader = OllamaReader("x")
    parts = [
        said("a"),
        said("b"),
        said(thinking="t"),
        said(thinking="u"),
        said("c"),
        said("d", tool_calls=[call("f", {})]),
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
    "no done_reason": (said("hi") + ended(None), "hi", [], "stop"),
    "length": (said("hi") + ended("length"), "hi", [], "length"),
    "length after a call": (said(tool_calls=[call("f", {})]) + ended("length"), "", [("", "f", "{}")], "length"),
    "a reason of its own": (said("hi") + ended("bored"), "hi", [], "bored"),
    "all in the last line": (line(message={"content": "hi"}, done=True, done_reason="stop"), "hi", [], "stop"),
    "more after the end": (said("hi") + ended() + said("!") + ended(), "hi", [], "stop"),
    "no content, null calls": (
        line(message={"role": "assistant"}) + said("hi", tool_calls=None) + END,
        "hi",
        [],
        "stop",
    ),
    "no message": (line() + line(message=None) + said("hi") + END, "hi", [], "stop"),
    "unknown fields": (said("hi", images=None, audio={"x": 1}) + line(progress=3) + END, "hi", [], "stop"),
    "ids": (
        said(tool_calls=[call("f", {}, id="c1"), call("f", {}, id="c2")]) + END,
        "",
        [("c1", "f", "{}"), ("c2", "f", "{}")],
        "tool_calls",
    ),
    "one id for all": (
        said(tool_calls=[call("f", {"a": 1}, id="c"), call("g", {}, id="c")])
        + said(tool_calls=[call("g", {}, id="c")])
        + END,
        "",
        [("c", "f", '{"a":1}'), ("", "g", "{}"), ("", "g", "{}")],
        "tool_calls",
    ),
    "every index 0": (
        said(tool_calls=[{"function": {"index": 0, "name": "f", "arguments": {}}}] * 2) + END,
        "",
        [("", "f", "{}"), ("", "f", "{}")],
        "tool_calls",
    ),
    "arguments as text": (said(tool_calls=[call("f", '{"a": 1}')]) + END, "", [("", "f", '{"a": 1}')], "tool_calls"),
    "broken arguments as text": (said(tool_calls=[call("f", '{"a": ')]) + END, "", [("", "f", '{"a": ')], "tool_calls"),
    "null arguments": (said(tool_calls=[call("f", None)]) + END, "", [("", "f", "{}")], "tool_calls"),
    "empty arguments": (said(tool_calls=[call("f", "")]) + END, "", [("", "f", "{}")], "tool_calls"),
    "no arguments": (said(tool_calls=[{"function": {"name": "f"}}]) + END, "", [("", "f", "{}")], "tool_calls"),
    "no name": (
        said(tool_calls=[call("", {}), {"id": "i"}]) + END,
        "",
        [("", "", "{}"), ("i", "", "{}")],
        "tool_calls",
    ),
    "a list as arguments": (said(tool_calls=[call("f", [1])]) + END, "", [("", "f", "[1]")], "tool_calls"),
    "numbers as ids": (said(tool_calls=[call("f", {"a": 1}, id=7)]) + END, "", [("7", "f", '{"a":1}')], "tool_calls"),
    "one call, no list": (said(tool_calls=call("f", {"a": 1})) + END, "", [("", "f", '{"a":1}')], "tool_calls"),
    "a flat call": (
        said(tool_calls=[{"id": 1, "name": "f", "arguments": {}}]) + END,
        "",
        [("1", "f", "{}")],
        "tool_calls",
    ),
    "a message that is text": (line(message="hi") + END, "hi", [], "stop"),
    "counts as floats": (said("hi") + ended(prompt_eval_count=9.0, eval_count=4.0), "hi", [], "stop"),
    "bad UTF-8": (b'{"message":{"content":"a\xffb"}}\n' + END, "a\ufffdb", [], "stop"),
    "BOM": (b"\xef\xbb\xbf" + said("hi") + END, "hi", [], "stop"),
}


@pytest.mark.parametrize("case", ODD)
def test_odd_streams(case: str) -> None:  # faults 9 and 10
    stream, text, calls, finish = ODD[case]
    answer = read(stream)
    assert (answer.text, requests(answer), answer.finish_reason) == (text, calls, finish)
    assert read(*(stream[at : at + 1] for at in range(len(stream)))) == answer


def test_a_count_without_the_prompt_is_no_count() -> None:  # the engine then estimates
    assert read(said("hi") + ended(eval_count=4)).usage is None
    assert read(said("hi") + ended(prompt_eval_count=0, eval_count=4)).usage is None
    assert read(said("hi") + ended(prompt_eval_count=3)).usage == Usage(3, 0)


@pytest.mark.parametrize(
    ("stream", "kind", "words"),
    [
        (line(error="an error was encountered while running the model"), "overloaded", "while running the model"),
        (
            said("a") + line(error="the prompt is longer than the context length currently available"),
            "context_limit",
            "longer than the context length",
        ),
        (b'{"error":{"message":"unauthorized"}}', "auth", "unauthorized"),
        (ended("load"), "cut_stream", "an order to load"),
        (ended("unload"), "cut_stream", "an order to unload"),
        (b"<html>Bad gateway</html>\n", "bad_request", "a web page"),
        (b"[]\n", "bad_request", "JSON of another kind"),
        (said("a") + b"[]\n", "cut_stream", "no part of an answer"),
        (said("a") + b"<html>Bad gateway</html>\n", "cut_stream", "no part of an answer"),
        (b"{" * 200_000 + b"\n", "cut_stream", "no part of an answer"),
        (b"", "cut_stream", "broke off"),
    ],
)
def test_failures_in_a_stream(stream: bytes, kind: str, words: str) -> None:  # faults 8 and 9
    with pytest.raises(ModelError, match=words) as caught:
        read(stream)
    assert caught.value.kind == kind
    assert len(str(caught.value)) < 800
