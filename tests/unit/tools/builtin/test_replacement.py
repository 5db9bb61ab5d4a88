"""The pure core of edit_file: what is replaced, what is kept, what the errors say (T-03)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.errors import EditError
from treadle.tools.builtin.replacement import Replacement, replace


@pytest.mark.parametrize(
    ("text", "old", "new", "made", "how"),
    [
        ("a b c", "b", "x", "a x c", "exact"),
        ("a b c", "b ", "", "a c", "exact"),
        ("a\r\nb\r\n", "b", "x\ny", "a\r\nx\r\ny\r\n", "exact"),
        ("a\r\nb\r\nc", "a\nb", "x\ny", "x\r\ny\r\nc", "line_endings"),
        ("a\r\nb\r\nc", "a\r\nb", "x\ny", "x\r\ny\r\nc", "exact"),
        ("a\nb\nc", "a\r\nb", "x\r\ny", "x\ny\nc", "line_endings"),
        ("a\nb\r\nc\n", "b\nc", "x\ny", "a\nx\r\ny\n", "line_endings"),
        ("a\nb\r\nc\nd\n", "a", "x\ny", "x\ny\nb\r\nc\nd\n", "exact"),
        ("\ufeffa\nb", "\ufeffa", "\ufeffx", "\ufeffx\nb", "exact"),
        ("\ufeffa\nb", "a\n", "x\n", "\ufeffx\nb", "exact"),
        ("a\nb", "\ufeffa", "x", "x\nb", "line_endings"),
        ("no newline", "newline", "end", "no end", "exact"),
        ("a.c abc", "a.c", "x", "x abc", "exact"),
        ("a\r\n.*\r\n", "a\n.*", r"\1", "\\1\r\n", "line_endings"),
    ],
)
def test_replaced_once(text: str, old: str, new: str, made: str, how: str) -> None:
    assert replace(text, old, new) == Replacement(made, how, 1)


def test_replace_all() -> None:
    assert replace("x x x", "x", "y", True) == Replacement("y y y", "exact", 3)
    assert replace("a\r\nb a\r\nb", "a\nb", "c", True) == Replacement("c c", "line_endings", 2)


@pytest.mark.parametrize(
    ("text", "old", "new", "words"),
    [
        ("a", "", "x", "old_str is empty"),
        ("a", "a", "a", "the same"),
        ("x\ny\nx\n", "x", "z", "occurs 2 times, beginning in lines 1, 3"),
        ("aaa", "aa", "b", "occurs 2 times"),
        ("x\r\ny\r\nx\r\ny", "x\ny", "z", "occurs 2 times, beginning in lines 1, 3"),
        ("one\nnew text\n", "old text!", "new text", "already there, in line 2"),
        ("one\r\nnew\r\ntext\r\n", "old", "new\ntext", "already there, in line 2"),
        ("def foo(a):\n    return a\n", "def fooo(a):\n    pass", "x", "nearest line is 1: def foo(a):"),
        ("zzz", "completely different", "x", "No line of the file resembles it"),
        ("", "a", "b", "No line"),
    ],
)
def test_errors_say_where_to_look(text: str, old: str, new: str, words: str) -> None:
    with pytest.raises(EditError, match=words.replace("(", r"\(").replace(")", r"\)")):
        replace(text, old, new)


def test_many_matches_are_named_in_bounds() -> None:
    with pytest.raises(EditError, match="and 4951 more") as caught:
        replace("x\n" * 10_000, "x", "y")
    assert len(str(caught.value)) < 1_000


pieces = st.text(st.sampled_from("ab\n\r\ufeff"), max_size=12)


@given(pieces, pieces, pieces, st.booleans())
def test_it_replaces_or_explains(text: str, old: str, new: str, every: bool) -> None:
    try:
        made = replace(text, old, new, every)
    except EditError:
        assert not (old and old != new and text.count(old) == 1 and text.find(old) == text.rfind(old))
        return
    assert made.count == 1 or every
    if made.how == "exact" and "\r" not in text + new:
        assert made.text == text.replace(old, new)


@given(st.lists(st.sampled_from(["a", "b", ""]), min_size=2, max_size=8), st.sampled_from(["x", "x\ny", ""]))
def test_a_crlf_file_stays_one(lines: list[str], new: str) -> None:
    text = "\r\n".join(["start", *lines, "end"])
    made = replace(text, "start\n" + lines[0], new).text
    assert made.count("\n") == made.count("\r\n")
