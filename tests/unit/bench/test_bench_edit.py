"""The bench of edit_file runs, and prints its ratios."""

import pytest

from bench.edit import main


def test_a_quick_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--quick"]) == 0
    printed = capsys.readouterr().out
    assert "edit_file ÷ it" in printed
    assert "÷ str.replace" in printed
