"""Unified diffs read back."""

from treadle.lines.unified import Sides, sides


def test_hunks_of_several_files_among_other_words() -> None:
    text = "edit_file\n--- a/one\n+++ b/one\n@@ -1,2 +1,2 @@\n same\n-old\n+new\n\n--- /dev/null\n+++ b/two\n@@ -0,0 +1 @@\n+x"
    assert list(sides(text)) == [Sides("one", "same\nold\n", "same\nnew\n"), Sides("two", "", "x\n")]


def test_no_diff_has_no_hunks() -> None:
    assert not list(sides("run_command\n  command: ls -la\n- x\n+ y"))
