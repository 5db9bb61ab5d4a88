"""Hunks are those of the diff, and every choice of them gives the text that one would expect (W-03)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.diff.diff import apply_hunks, diff_texts, is_text, list_hunks, remove_hunks
from treadle.errors import ToolError

pieces = st.sampled_from([b"a", b"b", b"c", b"", b"\xff\xfe", b"x\r", "\N{PILE OF POO}".encode(), b"\x0c", b"\xe2\x80"])
texts = st.lists(pieces, max_size=40).map(b"\n".join)
numbered = st.integers(20, 60).map(lambda size: [f"line {n}\n".encode() for n in range(size)])


@st.composite
def edited_texts(draw: st.DrawFn) -> tuple[bytes, bytes]:
    """A text and the same with a few changes far apart: several hunks."""
    lines = draw(numbered)
    new = list(lines)
    for at in sorted(draw(st.sets(st.integers(0, len(lines) - 1), max_size=6)), reverse=True):
        new[at : at + draw(st.integers(0, 2))] = [b"new %d\r\n" % at] * draw(st.integers(0, 2))
    end = draw(st.sampled_from([b"", b"no end"]))
    return b"".join(lines), b"".join(new) + end


pairs = st.one_of(edited_texts(), st.tuples(texts, texts))


@given(pairs)
def test_all_hunks_give_the_new_text_and_none_the_old(pair: tuple[bytes, bytes]) -> None:
    old, new = pair
    every = range(1, len(list_hunks(old, new)) + 1)
    assert apply_hunks(old, new, every) == remove_hunks(old, new, ()) == new
    assert apply_hunks(old, new, ()) == remove_hunks(old, new, every) == old
    assert (not every) == (old == new)


@given(pairs, st.randoms())
def test_what_is_taken_is_what_is_not_left(pair: tuple[bytes, bytes], random: "object") -> None:
    old, new = pair
    all_hunks = list_hunks(old, new)
    chosen_numbers = {hunk.number for hunk in all_hunks if random.random() < 0.5}  # type: ignore[attr-defined]
    other_numbers = {hunk.number for hunk in all_hunks} - chosen_numbers
    mixed = remove_hunks(old, new, chosen_numbers)
    assert mixed == apply_hunks(old, new, other_numbers)
    # Taking the rest back as well, from there, brings back the old text: hunks keep their borders.
    assert mixed.count(b"\n") - old.count(b"\n") == sum(
        hunk.added - hunk.removed for hunk in all_hunks if hunk.number in other_numbers
    ) + _ends(mixed) - _ends(old)


def _ends(data: bytes) -> int:
    """A last line without its end is a line that no newline counts."""
    return -1 if data and not data.endswith(b"\n") else 0


@given(edited_texts())
def test_hunks_are_those_of_the_diff(pair: tuple[bytes, bytes]) -> None:
    old, new = pair
    file_diff = diff_texts("f", old.decode(), new.decode())
    all_hunks = list_hunks(old, new)
    assert [line for line in file_diff.text.split("\n") if line.startswith("@@")] == [hunk.header for hunk in all_hunks]
    assert file_diff.text.split("\n")[2:] == [line for hunk in all_hunks for line in (hunk.header, *hunk.lines)]
    assert file_diff.stat.added == sum(hunk.added for hunk in all_hunks)
    assert file_diff.stat.removed == sum(hunk.removed for hunk in all_hunks)


def test_a_hunk_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ToolError, match="no hunk 0, 2: the difference has 1"):
        remove_hunks(b"a\n", b"b\n", [0, 1, 2])


def test_line_ends_and_a_missing_last_one_stay() -> None:
    old = b"a\r\nb\r\n" + b"same\r\n" * 9 + b"z"
    new = b"A\r\nb\r\n" + b"same\r\n" * 9 + b"z\r\n"
    assert remove_hunks(old, new, [1]) == b"a\r\nb\r\n" + b"same\r\n" * 9 + b"z\r\n"
    assert remove_hunks(old, new, [2]) == b"A\r\nb\r\n" + b"same\r\n" * 9 + b"z"


def test_far_changes_of_a_long_text_are_hunks_of_their_own() -> None:
    lines = [b"%d\n" % n for n in range(30_000)]
    new = list(lines)
    new[10], new[15_000], new[29_000] = b"one\n", b"two\n", b"three\n"
    all_hunks = list_hunks(b"".join(lines), b"".join(new))
    assert [(hunk.added, hunk.removed) for hunk in all_hunks] == [(1, 1)] * 3
    lines[15_000] = b"two\n"
    assert apply_hunks(b"".join(lines), b"".join(new), ()) == b"".join(lines)


def test_long_texts_without_any_line_of_their_own_are_compared_in_bounded_time() -> None:
    old, new = b"a\nb\n" * 20_000, b"b\nb\na\n" * 20_000
    assert apply_hunks(old, new, range(1, len(list_hunks(old, new)) + 1)) == new


def test_binary_is_no_text() -> None:
    assert is_text(b"\xff\n")
    assert is_text(b"")
    assert not is_text(b"a\0b")
