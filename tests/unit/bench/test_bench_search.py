"""The benchmark of the search tools runs, and compares what it says it does."""

import pytest

from bench.search import ALL_FILES, CASES, main

pytestmark = pytest.mark.thorough


def test_every_case_is_measured_beside_ripgrep(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--quick"]) == 0
    head, *rows = capsys.readouterr().out.splitlines()
    assert "tool ÷ rg" in head
    assert [row.split("  ")[0] for row in rows] == [case.title for case in (*CASES, ALL_FILES)]
