"""The laws of a three-way merge, and the same answers as git where there is only one (W-02)."""

import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from treadle.diff.merge import merge

texts = st.lists(st.sampled_from([b"a", b"b", b"c", b"", b"\xff", b"x\r"]), max_size=25).map(b"\n".join)


@st.composite
def versions(draw: st.DrawFn) -> tuple[bytes, bytes, bytes]:
    """A text whose lines are all different, and two changes of it that bring only new lines: one best answer."""
    lines = [b"line %d\n" % n for n in range(draw(st.integers(0, 20)))]
    return b"".join(lines), _change_lines(draw, lines, b"ours"), _change_lines(draw, lines, b"theirs")


def _change_lines(draw: st.DrawFn, lines: list[bytes], name: bytes) -> bytes:
    new = list(lines)
    for at in sorted(draw(st.sets(st.integers(0, len(lines)), max_size=3)), reverse=True):
        fresh = draw(st.sampled_from([name, b"both"]))
        count = draw(st.integers(0, 2))
        new[at : at + draw(st.integers(0, 2))] = [b"%s %d.%d\n" % (fresh, at, n) for n in range(count)]
    return b"".join(new)


@given(texts, texts)
def test_what_only_one_changed_is_taken(base: bytes, new: bytes) -> None:
    assert merge(base, new, base).data == merge(base, base, new).data == merge(base, new, new).data == new
    assert not merge(base, new, base).clashes


@given(texts, texts, texts)
def test_the_order_of_the_two_does_not_matter(base: bytes, one: bytes, two: bytes) -> None:
    left_merge, right = merge(base, one, two), merge(base, two, one)
    assert left_merge.data == right.data
    assert len(left_merge.clashes) == len(right.clashes)
    assert not left_merge.data or not left_merge.clashes  # no half answers


@given(texts, texts, texts)
def test_every_line_of_an_answer_was_somewhere(base: bytes, one: bytes, two: bytes) -> None:
    merged = merge(base, one, two)
    known_lines = {*base.splitlines(), *one.splitlines(), *two.splitlines()}
    assert set(merged.data.splitlines()) <= known_lines


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
@given(versions())
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_git_gives_the_same_answers(tmp_path: Path, three: tuple[bytes, bytes, bytes]) -> None:
    base, ours, theirs = three
    files = [tmp_path / name for name in ("ours", "base", "theirs")]
    for file, data in zip(files, (ours, base, theirs), strict=True):
        file.write_bytes(data)
    process = subprocess.run(["git", "merge-file", "-p", *map(str, files)], capture_output=True)
    merged = merge(base, ours, theirs)
    if process.returncode == 0:
        assert (merged.data, merged.clashes) == (process.stdout, ())
    else:
        assert merged.clashes


def test_changes_apart_from_each_other_both_survive() -> None:
    lines = [b"%d\n" % n for n in range(9)]
    one, two = list(lines), list(lines)
    one[1], two[7:] = b"one\n", [b"7", b""]
    assert merge(b"".join(lines), b"".join(one), b"".join(two)).data == b"0\none\n2\n3\n4\n5\n6\n7"


def test_a_clash_says_where_it_is() -> None:
    merged = merge(b"a\nb\nc\n", b"a\nx\nc\n", b"a\ny\nc\n")
    assert [(clash.first, clash.last) for clash in merged.clashes] == [(2, 3)]


def test_a_change_that_both_made_is_made_once() -> None:  # W-02: difflib read it as two changes
    assert merge(b"b\n}\n", b"b\n}\n}\n", b"a\nb\n}\n}\n").data == b"a\nb\n}\n}\n"


def test_two_changes_that_could_slide_onto_each_other_clash() -> None:
    """The second `12 13` of theirs may stand before or behind the line that ours added after 12."""
    assert merge(b"12\n13\n14\n", b"12\nx\n13\n14\n", b"12\n13\n12\n13\n14\n").clashes
