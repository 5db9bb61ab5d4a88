"""The bench of commits and undos runs, and prints its ratios."""

import pytest

from bench.undo import main

pytestmark = pytest.mark.thorough


def test_a_quick_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--quick"]) == 0
    printed = capsys.readouterr().out
    assert "old kept, copied, synced" in printed
    assert "copied back" in printed
