"""The Python example of the page about reasoning models is run as it stands, against a fake server (E-05)."""

from pathlib import Path

import pytest

from tests.docs.test_examples import blocks, execute
from treadle.adapters.models import openai_responses
from treadle.adapters.models.copilot import VARIABLES
from treadle.testing.fake_responses import FakeResponses, Reply

PAGES = Path(__file__).parents[2] / "docs" / "guide" / "models"


async def test_openai_responses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    with FakeResponses([Reply(thinking="hm", text="Nothing.")]) as fake:
        monkeypatch.setattr(openai_responses, "BASE_URL", fake.base_url)
        await execute(blocks("docs/guide/models/openai-responses.md")["Thinking"], {})
    assert capsys.readouterr().out == "Nothing.\n"
    assert fake.requests[0]["reasoning"] == {"effort": "high", "summary": "auto"}


def test_every_variable_of_copilot_is_on_its_page() -> None:
    page = (PAGES / "copilot.md").read_text(encoding="utf-8")
    for variable in (*VARIABLES, "COPILOT_GITHUB_API_URL", "COPILOT_BASE_URL"):
        assert f"`{variable}`" in page
