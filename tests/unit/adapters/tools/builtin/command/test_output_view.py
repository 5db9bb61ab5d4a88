"""The part of an output that the model sees (T-11)."""

import re
import time
from itertools import product

import pytest

from treadle.adapters.tools.builtin.command.output import (
    build_ends_view,
    build_whole_view,
    clean,
    keep_whole_characters,
)


@pytest.mark.parametrize("text", ["", "a", "a\n", "a\nb", "\n\n", "a\n\n", "grün ✓\n"])
def test_short_output_is_whole(text: str) -> None:
    view = build_whole_view(text.encode())
    assert view.text == text.removesuffix("\n")
    assert view.exact


@pytest.mark.parametrize("data", [b"a\xff", b"\x1b[31mred\x1b[0m\n", b"nul \0\n", b"dos\r\n", b"line\n" * 101])
def test_what_is_not_shown_byte_for_byte_is_said_to_be_so(data: bytes) -> None:
    assert not build_whole_view(data).exact


def test_head_and_tail_say_how_much_lies_between() -> None:
    data = "".join(f"line {number} ü\n" for number in range(1, 20_001)).encode()
    lines = build_ends_view(data[:20_000], data[-152_000:], 20_000, len(data)).text.split("\n")
    assert lines[0] == "line 1 ü"
    assert lines[14:17] == ["line 15 ü", "[19,900 lines truncated]", "line 19916 ü"]
    assert lines[-1] == "line 20000 ü"
    assert lines == build_whole_view(data).text.split("\n")


@pytest.mark.parametrize("width", [30_000, 1_000_000])
def test_few_long_lines_are_cut_in_their_middle(width: int) -> None:
    data = b"a" * width + b"\n" + b"b" * width + b"\n"
    for view in (build_whole_view(data), build_ends_view(data[:20_000], data[-152_000:], 2, len(data))):
        assert len(view.text) < 50_000
        assert view.text.startswith("aaa")
        assert f"\n[{len(data) - 1 - 10_000 - min(width, 38_000):,} bytes truncated]\n" in view.text
        assert view.text.endswith("bbb")


def test_the_middle_of_one_line_is_measured() -> None:  # T-11, fault 11
    size = 250_000_000
    text = build_ends_view(b"a" * 20_000, b"z" * 152_000, 1, size).text
    assert text == f"{'a' * 10_000}\n[{size - 48_000:,} bytes truncated]\n{'z' * 38_000}"


def test_long_lines_among_many_are_measured_too() -> None:
    data = b"".join(b"%d " % number + b"x" * 5_000 + b"\n" for number in range(1_000))
    text = build_ends_view(data[:20_000], data[-152_000:], 1_000, len(data)).text
    [(lines, size)] = re.findall(r"\[([\d,]+) lines truncated, ([\d,]+) bytes in all\]", text)
    assert size == f"{len(data) - 1 - 48_000:,}"
    assert lines == "966"


def test_escapes_are_stripped_and_nothing_else_is_lost() -> None:
    data = b"a\0b\xffc\x1b[31mred\x1b[0m\x1b]633;A\x07x\x1b]0;t\x1b\\y\x1bPq\x1b\\z\x07\n"
    assert clean(data) == "a␀b\\xffcredxyz␇\n"


def test_cuts_make_no_broken_characters() -> None:
    data = "aü✓😀".encode()
    for start, end in product(range(len(data) + 1), repeat=2):
        assert "\\x" not in clean(keep_whole_characters(data[start:end])), (start, end)
    assert keep_whole_characters(b"\xff\xfe\xfd\xfc") != b"", "what never was a character is still shown"


def test_cleaning_is_linear() -> None:
    start_time = time.monotonic()
    for piece in ("\x1b]", "\x1bP", "\x1b[", "\x1b", "\x1b[0"):
        clean((piece * 100_000).encode())
    assert time.monotonic() - start_time < 20
