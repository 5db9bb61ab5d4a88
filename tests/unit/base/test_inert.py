"""No text can make a terminal do anything (S-12)."""

import sys
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.base.inert import escape_unprintable, make_inert, make_inert_line

ALLOWED = set("\n\t\u200c\u200d")
"""Line ends and tabs; and the joiners that some scripts and emoji are written with."""
LIVELY = {"Cc", "Cf", "Cs", "Co", "Zl", "Zp"}


@pytest.mark.thorough(one_of=8)
def test_of_all_characters_those_that_act_or_hide_are_escaped() -> None:
    for number in range(sys.maxunicode + 1):
        character = chr(number)
        lively = unicodedata.category(character) in LIVELY and character not in ALLOWED
        lively = lively or 0xE0100 <= number <= 0xE01EF  # selectors that can carry an invisible text
        inert_text = make_inert(character)
        if lively:
            assert inert_text.isascii(), hex(number)
            assert inert_text.startswith("\\"), hex(number)
        elif unicodedata.category(character) != "Cn":
            assert inert_text == character, hex(number)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("\x1b[2J\x1b]0;title\x07", "\\x1b[2J\\x1b]0;title\\x07"),
        ("\x9b31m", "\\x9b31m"),
        ("over\rwritten", "over\\rwritten"),
        ("a\r\nb\r\n", "a\nb\n"),
        ("back\x08\x08", "back\\x08\\x08"),
        ("user\u202etxt.exe", "user\\u202etxt.exe"),
        ("\ud800", "\\ud800"),
        ("schön 中文 👩\u200d🔧 नमस्ते", "schön 中文 👩\u200d🔧 नमस्ते"),
        ("tab\tand\nline", "tab\tand\nline"),
    ],
)
def test_examples(text: str, expected: str) -> None:
    assert make_inert(text) == expected


@given(st.text(st.characters()))
def test_once_is_enough_and_a_split_text_is_as_inert_as_a_whole_one(text: str) -> None:
    assert make_inert(make_inert(text)) == make_inert(text)
    for position in range(len(text)):
        pieces = make_inert(text[:position]) + make_inert(text[position:])
        assert make_inert(pieces) == pieces


@given(st.text(st.characters()), st.integers(2, 50))
def test_a_line_is_one_line_and_fits(text: str, width: int) -> None:
    line = make_inert_line(text, width)
    assert len(line) <= width
    assert len(line.splitlines()) <= 1
    assert "\n" not in line
    assert "\t" not in line


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("\x1b[31mred\x1b]8;;x\x07", "\\x1b[31mred\\x1b]8;;x\\x07"),
        ("a\u202eb\u2066c", "a\\u202eb\\u2066c"),
        ("a\r\nb\tc\u2028d", "a\\r\nb\tc\\u2028d"),
        ("\ud800\udfff", "\\ud800\\udfff"),
        ("no\xa0break 👩\u200d🔧", "no\\xa0break 👩\\u200d🔧"),
        ("schön 中文", "schön 中文"),
    ],
)
def test_what_is_recorded_holds_nothing_that_cannot_be_printed(text: str, expected: str) -> None:
    assert escape_unprintable(text) == expected
    assert escape_unprintable(text, keep="").isprintable()
    assert make_inert(escape_unprintable(text)) == escape_unprintable(text)
