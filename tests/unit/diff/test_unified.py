"""Unified diffs read back."""

from treadle.diff.diff import Sides, parse_sides


def test_hunks_of_several_files_among_other_words() -> None:
    one = "--- a/one\n+++ b/one\n@@ -1,3 +1,2 @@\n same\n-old\n--- x\n+new\n"
    two = "--- /dev/null\n+++ b/two\n@@ -0,0 +1 @@\n+x"
    file_sides = list(parse_sides(f"edit_file\n{one}\n{two}"))
    assert file_sides == [Sides("one", "same\nold\n-- x\n", "same\nnew\n"), Sides("two", "", "x\n")]


def test_no_diff_has_no_hunks() -> None:
    assert not list(parse_sides("run_command\n  command: ls -la\n- x\n+ y"))
