"""The benchmark of long chats runs; its numbers are not judged here."""

import pytest

from bench.long_chats import main

pytestmark = pytest.mark.thorough


@pytest.mark.slow
def test_a_smoke_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--quick"]) == 0
    assert "show the long chat" in capsys.readouterr().out
