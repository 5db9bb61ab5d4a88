"""The bench of views starts commands both ways, and each way has its figure."""

import pytest

from bench import view
from tests.unit.adapters.sandbox.grounds import missing


@pytest.mark.thorough(one_of=8)
@pytest.mark.parametrize("options", [[], ["--supervised"]])
def test_every_way_has_its_figure(
    options: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if reason := missing("view", None):
        pytest.skip(reason)
    monkeypatch.setattr(view, "FILES", 100)
    monkeypatch.setattr(view, "COMMANDS", {"change 1 file": view.COMMANDS["change 1 file"]})
    assert view.main(["--quick", *options]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line[22:44].strip() for line in lines[1:]] == list(view.WAYS)
