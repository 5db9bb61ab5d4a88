"""The benchmark of snapshots runs; its numbers are not judged here."""

import shutil

import pytest

from bench.snapshots import main


@pytest.mark.skipif(shutil.which("git") is None, reason="it is compared with git")
def test_a_smoke_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--quick"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("a tree of 200 files")
    assert [line.split()[0] for line in lines[2:] if line.strip()][-3:] == ["cold", "warm,", "warm,"]
