"""The examples of the page on models and stores of one's own are run, each as it stands."""

import inspect
from pathlib import Path

import pytest

from tests.docs.test_examples import blocks, execute
from treadle.testing.clock import ManualClock

PAGE = blocks("docs/guide/extending.md")


async def test_a_model(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TREADLE_HOME", str(tmp_path))
    await execute(PAGE["A model"], {})
    assert capsys.readouterr().out == "You said: Hello.\n"


async def test_a_store(tmp_path: Path) -> None:
    names = await execute(PAGE["A store"], {})
    contract = names["TestMyStore"]
    tests = [name for name, member in inspect.getmembers(contract) if name.startswith("test_")]
    assert len(tests) > 40  # pytest does the rest, as it does for the stores that come with Treadle
    store = await contract().open_store(ManualClock(), tmp_path)
    await store.close()
