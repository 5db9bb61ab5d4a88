"""The Python example of the page about Gemini is run as it stands, against the fake server (E-05)."""

import re
from pathlib import Path

import pytest

from tests.docs.test_examples import blocks, execute
from treadle.adapters.models.gemini import adapter as gemini
from treadle.testing.fake_gemini import FakeGemini, Reply

ROOT = Path(__file__).parents[2]
PAGE = "docs/guide/models/gemini.md"


async def test_gemini(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    with FakeGemini([Reply(thinking="hm", text="Nothing.")]) as fake:
        monkeypatch.setattr(gemini, "BASE_URL", fake.base_url)
        await execute(blocks(PAGE)["Thinking"], {})
    assert capsys.readouterr().out == "Nothing.\n"
    assert fake.requests[0]["generationConfig"]["thinkingConfig"] == {"includeThoughts": True, "thinkingLevel": "high"}


def test_every_variable_is_on_the_page_and_in_the_reference() -> None:
    folder = ROOT / "src" / "treadle" / "adapters" / "models"
    source = "".join(file.read_text(encoding="utf-8") for file in folder.rglob("*.py"))
    read = set(re.findall(r"\"((?:GEMINI|GOOGLE)_[A-Z_]+)\"", source))
    assert len(read) == 9
    for page in (PAGE, "docs/reference/configuration.md"):
        text = (ROOT / page).read_text(encoding="utf-8")
        assert {name for name in read if f"`{name}`" not in text} == set()
