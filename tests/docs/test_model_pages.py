"""The Python examples of the pages about models are run as they stand, against the providers' fake servers (E-05)."""

from pathlib import Path

import pytest

from tests.docs.test_examples import blocks, execute
from treadle.adapters.models import anthropic, ollama
from treadle.testing.fake_anthropic import FakeAnthropic, Reply
from treadle.testing.fake_ollama import FakeOllama


async def test_anthropic(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    with FakeAnthropic([Reply(thinking="hm", text="Nothing.")]) as fake:
        monkeypatch.setattr(anthropic, "BASE_URL", fake.base_url)
        await execute(blocks("docs/guide/models/anthropic.md")["Thinking"], {})
    assert capsys.readouterr().out == "Nothing.\n"
    assert fake.requests[0]["thinking"] == {"type": "enabled", "budget_tokens": 4096}


async def test_ollama(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    with FakeOllama([Reply(text="Nothing.")]) as fake:
        monkeypatch.setattr(ollama, "BASE_URL", fake.url)
        await execute(blocks("docs/guide/models/ollama.md")["From Python"], {})
    assert capsys.readouterr().out == "Nothing.\n32768 True\n"
    assert fake.requests[0]["think"] is False
