"""Lines of JSON, however they were cut, in linear time (fault 7)."""

import time
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.adapters.models.wire.reading import LineDecoder, split_lines


def lines(*chunks: bytes) -> list[bytes]:
    decoder = LineDecoder()
    complete_lines = [line for chunk in chunks for line in split_lines(decoder.feed(chunk))]
    return [*complete_lines, *filter(None, [decoder.end()])]


@pytest.mark.parametrize(
    ("stream", "expected"),
    [
        (b"", []),
        (b'{"a":1}\n{"b":2}\n', [b'{"a":1}', b'{"b":2}']),
        (b'{"a":1}\r\n\r\n{"b":2}\r\n', [b'{"a":1}', b'{"b":2}']),
        (b'\n\n  \t\n{"a":1}\n\n', [b'{"a":1}']),
        (b'{"a":1}\n{"b":2}', [b'{"a":1}', b'{"b":2}']),
        (b'\xef\xbb\xbf{"a":1}\n', [b'{"a":1}']),
        (b'\n\xef\xbb\xbf{"a":1}', [b'{"a":1}']),
        ('{"ü":"🧵"}\n'.encode(), ['{"ü":"🧵"}'.encode()]),
    ],
)
def test_lines_whole_and_split_anywhere(stream: bytes, expected: list[bytes]) -> None:
    assert lines(stream) == expected
    assert lines(*(stream[at : at + 1] for at in range(len(stream)))) == expected
    for at in range(len(stream)):
        assert lines(stream[:at], stream[at:]) == expected


def test_an_unfinished_line_comes_at_the_end_and_once() -> None:
    decoder = LineDecoder()
    assert decoder.feed(b'{"a"') == b""
    assert (decoder.end(), decoder.end()) == (b'{"a"', b"")


@given(st.binary(max_size=200), st.lists(st.integers(0, 200), max_size=8))
def test_any_bytes_cut_anywhere(stream: bytes, cuts: list[int]) -> None:
    places = [0, *sorted(cuts), len(stream)]
    assert lines(*(stream[a:b] for a, b in pairwise(places))) == lines(stream)


def test_one_long_line_in_small_pieces_takes_linear_time() -> None:
    decoder = LineDecoder()
    began = time.process_time()
    for _ in range(40_000):
        assert decoder.feed(b"x" * 100) == b""
    assert decoder.feed(b"\n") == b"x" * 4_000_000 + b"\n"
    assert time.process_time() - began < 2  # joining at each piece would copy 80 GB
