"""The pure core of edit_file: the replaced text, the kept text, and the errors (T-03)."""

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.adapters.tools.edit_corpus import CASES, Case
from treadle.adapters.tools.builtin.replacement import Replacement, replace
from treadle.errors import EditError


def test_the_corpus_is_large_and_its_cases_differ() -> None:
    assert len(CASES) >= 120
    assert len({(case.text, case.old, case.new, case.every, case.line) for case in CASES}) == len(CASES)


@pytest.mark.parametrize("case", CASES, ids=[case.title for case in CASES])
def test_corpus(case: Case) -> None:
    began = time.process_time()
    try:
        replacement = replace(case.text, case.old, case.new, case.every, case.line)
    except EditError as error:
        text = str(error)
        assert case.error, text
        assert [word for word in case.error if word not in text] == [], text
        assert len(text) < 6_000
    else:
        assert not case.error, replacement.text[:500]
        if len(case.text) < 10_000:
            assert replacement == Replacement(case.expected, case.match_kind, case.count)
        assert (replacement.text == case.expected, replacement.match_kind, replacement.count) == (
            True,
            case.match_kind,
            case.count,
        )
    assert time.process_time() - began < 10  # bounded: far less, but machines differ


letters = st.text(st.sampled_from('ab \t\n\r\ufeff“"1:'), max_size=14)


@given(letters, letters, letters, st.booleans())
@settings(deadline=None)
def test_it_replaces_or_explains(text: str, old: str, new: str, every: bool) -> None:
    try:
        replacement = replace(text, old, new, every)
    except EditError:
        # A passage that is there once, and is not to be replaced by itself, is never refused.
        assert not old.removeprefix("\ufeff") or old == new or text.find(old) != text.rfind(old) or old not in text
        return
    assert replacement.count == 1 or every
    assert (replacement.match_kind == "exact") == (old in text and not (old[0] == "\n" and "\r" + old in text))


plain = st.text(st.sampled_from("abc \n\t('"), max_size=30)


@given(plain, plain.filter(bool), plain)
@settings(deadline=None)
def test_a_unique_passage_is_replaced_as_str_replace_does(text: str, old: str, new: str) -> None:
    if old == new or text.find(old) == -1 or text.find(old) != text.rfind(old):
        return
    assert replace(text, old, new) == Replacement(text.replace(old, new), "exact", 1)
    assert replace(text, old, new, replace_all=True).text == text.replace(old, new)


lines = st.lists(st.sampled_from(["a", "b", "  a", "\tb", "a  ", "“q”", '"q"', ""]), min_size=1, max_size=5)


@given(lines, lines, lines, st.sampled_from(["\n", "\r\n"]))
@settings(deadline=None)
def test_nothing_outside_the_passage_changes(
    head_lines: list[str], old: list[str], tail_lines: list[str], end: str
) -> None:
    head = "".join(f"head {i} {line}{end}" for i, line in enumerate(head_lines))
    tail = "".join(f"tail {i} {line}{end}" for i, line in enumerate(tail_lines))
    text = head + "".join(f"old {line}{end}" for line in old) + tail
    old_str = "".join(f"  old {line}".replace("“", '"').replace("”", '"').rstrip() + "\n" for line in old)
    replacement = replace(text, old_str, "  NEW\n")
    assert replacement.text == f"{head}NEW{end}{tail}"
    assert replacement.match_kind == "indentation"


@given(st.lists(st.sampled_from(["a", "b", ""]), min_size=2, max_size=8), st.sampled_from(["x", "x\ny", "x\r\ny", ""]))
@settings(deadline=None)
def test_a_crlf_file_stays_one(middle: list[str], new: str) -> None:
    text = "\r\n".join(["start", *middle, "end"])
    new_text = replace(text, "start\n" + middle[0], new).text
    assert new_text.count("\n") == new_text.count("\r\n") == new_text.count("\r")


@given(st.lists(st.sampled_from(["a", "b", ""]), min_size=2, max_size=8), st.sampled_from(["x", "x\ny", "x\r\ny", ""]))
@settings(deadline=None)
def test_an_lf_file_stays_one(middle: list[str], new: str) -> None:
    text = "\n".join(["start", *middle, "end"])
    assert "\r" not in replace(text, "start\r\n" + middle[0], new).text
    assert "\r" not in replace(text, "start", new).text


@pytest.mark.parametrize(
    ("text", "old", "new", "result"),
    [
        ("a\nb\n", "b\n\n", "c\n", "a\nc\n"),
        ("a\nb\n", "b\n\n", "c\n\n", "a\nc\n"),
        ("a\n  b\n", "b\n\n", "c\n", "a\n  c\n"),
        ("a\r\nb\r\n", "b\r\n\r\n", "c\r\n", "a\r\nc\r\n"),
        ("a\nb", "b\n", "c\n", "a\nc"),
    ],
)
def test_the_final_newline_stays_if_old_str_has_a_blank_line_too_many(
    text: str, old: str, new: str, result: str
) -> None:
    assert replace(text, old, new).text == result  # T-03


def test_equal_lines_with_other_endings_are_asked_about() -> None:  # T-03
    text = "a\r\nb\r\nx\na\nb\n"
    with pytest.raises(EditError, match="occurs 2 times, beginning in lines 1, 4"):
        replace(text, "a\nb\n", "Z\n")
    assert replace(text, "a\nb\n", "Z\n", line=1).text == "Z\r\nx\na\nb\n"
    assert replace(text, "a\nb\n", "Z\n", line=4).text == "a\r\nb\r\nx\nZ\n"
    assert replace(text, "a\nb\n", "Z\n", replace_all=True).text == "Z\r\nx\nZ\n"
    assert replace(text, "a\r\nb\r\n", "Z\r\n").text == "Z\r\nx\na\nb\n"  # it names the endings itself


@pytest.mark.parametrize(("old", "result"), [("a\r", "Z\r\nb\r\n"), ("\nb", "aZ\r\n"), ("a\r\nb\r", "Z\r\n")])
def test_half_of_a_line_ending_is_not_replaced(old: str, result: str) -> None:  # T-03
    assert replace("a\r\nb\r\n", old, "Z").text == result
