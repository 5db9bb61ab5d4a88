"""Events come out the same however the bytes were cut (fault 7, fault 9)."""

import itertools
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.adapters.models.anthropic import AnthropicReader
from treadle.adapters.models.gemini.adapter import GeminiReader
from treadle.adapters.models.openai_chat.stream import ChatReader
from treadle.adapters.models.openai_responses import ResponsesReader
from treadle.adapters.models.wire.reading import Decoder, EventReader, ServerEvent
from treadle.ports.model import ModelInfo
from treadle.protocol.deltas import FinishDelta, TextDelta


def decode(*chunks: bytes) -> list[ServerEvent]:
    decoder = Decoder()
    return [event for chunk in chunks for event in decoder.feed(chunk)]


def message(data: str, event: str = "message") -> ServerEvent:
    return ServerEvent(event, data)


TABLE: dict[str, tuple[bytes, list[ServerEvent]]] = {
    "common": (b'data: {"a":1}\n\ndata: {"b":2}\n\n', [message('{"a":1}'), message('{"b":2}')]),
    "crlf": (b"data: a\r\n\r\ndata: b\r\n\r\n", [message("a"), message("b")]),
    "cr": (b"data: a\r\rdata: b\r\r", [message("a"), message("b")]),
    "mixed": (b"data: a\r\n\ndata: b\n\r\ndata: c\r\r\n", [message("a"), message("b"), message("c")]),
    "bom": (b"\xef\xbb\xbfdata: a\n\n", [message("a")]),
    "a second bom is text": (b"data: \xef\xbb\xbfa\n\n", [message("\ufeffa")]),
    "comments": (b": hello\n\ndata: a\n: more\ndata: b\n\n:\n\n", [message("a\nb")]),
    "several lines": (b"data: a\ndata:\ndata: b\n\n", [message("a\n\nb")]),
    "no space, two spaces": (b"data:a\n\ndata:  b\n\n", [message("a"), message(" b")]),
    "an empty line of data": (b"data\n\n", [message("")]),
    "no data, no event": (b"event: x\n\ndata: a\n\n", [message("a")]),
    "named": (b"event: error\ndata: a\n\ndata: b\n\n", [message("a", event="error"), message("b")]),
    "named, then nameless": (b"event: \ndata: a\n\nevent: e\nid: 1\n\n", [message("a")]),
    "named, then more": (b"event: e\ndata: a\ndata: b\n\n", [message("a\nb", event="e")]),
    "named last": (b"data: a\nevent: e\n\n", [message("a", event="e")]),
    "ids": (b"id: 7\ndata: a\n\ndata: b\n\nid\ndata: c\n\n", [message("a"), message("b"), message("c")]),
    "an id with NUL": (b"id: 1\0\ndata: a\n\n", [message("a")]),
    "retry": (b"retry: 250\ndata: a\n\nretry: soon\ndata: b\n\n", [message("a"), message("b")]),
    "unknown fields": (b"foo: bar\ndata: a\ndatabase: c\n\n", [message("a")]),
    "unfinished": (b"data: a\n\ndata: b\n", [message("a")]),
    "blank lines": (b"\n\n\n\ndata: a\n\n\n\n\ndata: b\n\n", [message("a"), message("b")]),
    "other line ends are text": ("data: a\u2028b\x0bc\x85d\n\n".encode(), [message("a\u2028b\x0bc\x85d")]),
    "utf-8": ("data: grüße 🧵\n\n".encode(), [message("grüße 🧵")]),
    "broken utf-8": (b"data: a\xffb\n\n", [message("a\ufffdb")]),
}


@pytest.mark.parametrize("case", TABLE)
def test_whole_by_byte_and_cut_once_anywhere(case: str) -> None:  # fault 7
    stream, expected = TABLE[case]
    assert decode(stream) == expected
    assert decode(*(stream[at : at + 1] for at in range(len(stream)))) == expected
    for at in range(len(stream) + 1):
        assert decode(stream[:at], b"", stream[at:]) == expected


pieces = st.sampled_from(
    [b"data", b":", b" ", b"\n", b"\r", b"\r\n", b"\n\n", b"id: 1", b"event: e", b"x", "🧵".encode(), b"\xff"]
)


@given(st.lists(pieces, max_size=40).map(b"".join), st.lists(st.integers(0, 200), max_size=5))
def test_any_bytes_any_cuts(stream: bytes, cuts: list[int]) -> None:
    places = [0, *sorted(min(position, len(stream)) for position in cuts), len(stream)]
    chunks = [stream[a:b] for a, b in itertools.pairwise(places)]
    assert decode(*chunks) == decode(stream) == decode(*(stream[at : at + 1] for at in range(len(stream))))


@pytest.mark.parametrize("shape", ["one line", "many lines"])
def test_time_is_linear(shape: str) -> None:
    def cost(size: int) -> float:
        stream = b"data: " + b"x" * size if shape == "one line" else b"data: x\n" * (size // 8)
        began = time.process_time()
        decode(*(stream[at : at + 4] for at in range(0, len(stream), 4)))
        return time.process_time() - began

    cost(4_000)
    small, large = cost(40_000), cost(640_000)
    assert large < 90 * small  # quadratic would be 256 times


DOCUMENTS: dict[type[EventReader], bytes] = {
    AnthropicReader: b'{"type":"message","content":[{"type":"text","text":"caf\xe9"}],"stop_reason":"end_turn"}',
    ChatReader: b'{"choices":[{"message":{"content":"caf\xe9"},"finish_reason":"stop"}]}',
    GeminiReader: b'{"candidates":[{"content":{"parts":[{"text":"caf\xe9"}]},"finishReason":"STOP"}]}',
    ResponsesReader: b'{"status":"completed","output":[{"type":"message","content":[{"text":"caf\xe9"}]}]}',
}


@pytest.mark.parametrize("kind", DOCUMENTS)
def test_a_document_that_is_no_utf8_is_read_as_a_stream_is(kind: type[EventReader]) -> None:  # fault 9
    reader = kind("host", ModelInfo("p", "m"))
    deltas = [*reader.feed(DOCUMENTS[kind]), *reader.end()]
    assert deltas == [TextDelta("caf\ufffd"), FinishDelta("stop")]
