"""Diffs that GNU patch can apply, and their counts."""

import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from treadle.diff.diff import compute_opcodes, count_lines, diff_texts, split_lines
from treadle.protocol.events import DiffStat

texts = st.lists(st.sampled_from(["a", "b", "c", ""]), max_size=30).map("\n".join)


@pytest.mark.skipif(shutil.which("git") is None, reason="needs git to apply the diff")
@given(texts, texts)
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_diff_applied_gives_the_new_text(tmp_path: Path, old: str, new: str) -> None:
    (tmp_path / "f").write_text(old)
    file_diff = diff_texts("f", old, new)
    if old == new:
        assert file_diff.stat == DiffStat(0, 0)
        return
    subprocess.run(["git", "apply", "-p0"], input=file_diff.text + "\n", text=True, cwd=tmp_path, check=True)
    assert (tmp_path / "f").read_text() == new if new else (tmp_path / "f").read_text() == ""


@given(texts, texts)
def test_counts_are_the_marked_lines(old: str, new: str) -> None:
    file_diff = diff_texts("f", old, new)
    body = file_diff.text.split("\n")[2:]
    assert file_diff.stat.added == sum(line.startswith("+") for line in body)
    assert file_diff.stat.removed == sum(line.startswith("-") for line in body)


@given(texts, texts)
def test_lines_are_counted_as_they_are_compared(old: str, new: str) -> None:
    changed_codes = [code for code in compute_opcodes(split_lines(old), split_lines(new)) if code[0] != "equal"]
    added_count, removed_count = (sum(code[last] - code[last - 1] for code in changed_codes) for last in (4, 2))
    assert count_lines(old, new) == DiffStat(added_count, removed_count)


def test_a_large_change_is_not_compared_line_by_line() -> None:
    old = "".join(f"{i}\n" for i in range(50_000))
    new = old.replace("7", "seven")
    file_diff = diff_texts("f", old, new)
    assert file_diff.stat.added == file_diff.stat.removed > 10_000
    assert len(file_diff.text) < 13_000
