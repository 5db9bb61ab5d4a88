"""`treadle doctor` as a person types it."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import forked
from tests.unit.adapters.sandbox.grounds import NOBODY, becoming, grounds, missing, python_for_everyone
from treadle.adapters.sandbox.trial_folders import ESCAPES
from treadle.library.housekeeping.command_trials import TRIALS

pytestmark = pytest.mark.thorough(one_of=8)


@pytest.fixture(scope="module")
def home() -> Iterator[Path]:
    with grounds() as place:
        yield place.folder


def doctor(home: Path, *words: str, **more: str) -> "subprocess.CompletedProcess[str]":
    environment = forked.ENVIRONMENT | {"HOME": os.environ["HOME"], "TREADLE_HOME": str(home)} | more
    return forked.run([sys.executable, "-m", "treadle", "doctor", *words], env=environment, timeout=280)


needs_bubblewrap = pytest.mark.skipif(bool(missing("bubblewrap")), reason="namespaces cannot be had here")


@pytest.mark.thorough(one_of=8)
@needs_bubblewrap
def test_the_overview(home: Path) -> None:
    result = doctor(home)
    assert result.returncode == 0, result.stdout
    lines = {line.split()[1]: line for line in result.stdout.splitlines()}
    assert list(lines) == ["python", "sqlite", "home", "sandbox", "secrets", "search", "git", "models"]
    assert lines["sandbox"].startswith("✓ sandbox  bubblewrap")


@needs_bubblewrap
def test_a_key_that_nobody_tried_is_not_called_well(home: Path) -> None:  # M-12
    result = doctor(home, GROQ_API_KEY="sk-test-never-tried")
    (models,) = [line for line in result.stdout.splitlines() if line.split()[1] == "models"]
    assert "groq (not asked; treadle models --remote asks)" in models


@pytest.mark.thorough(one_of=8)
@needs_bubblewrap
def test_the_table_of_the_sandbox(home: Path) -> None:
    result = doctor(home, "sandbox")
    assert result.returncode == 0, result.stdout
    lines = result.stdout.splitlines()
    assert lines[0].split()[0] == "bubblewrap"
    assert lines[0].split()[-1] == "none"
    assert len(lines) > len(ESCAPES) > 0
    for attempt, line in zip(ESCAPES, lines[1:], strict=False):
        assert line.startswith(attempt.text)
        assert line.removeprefix(attempt.text).split()[0] == "refused"
    assert lines[len(ESCAPES) + 2].split()[0] == "bubblewrap"
    for trial, line in zip(TRIALS, lines[len(ESCAPES) + 3 :], strict=False):
        assert line.startswith(trial.text)
    assert "in force: bubblewrap" in lines[-1]


@pytest.mark.thorough(one_of=8)
@needs_bubblewrap
def test_the_table_as_json(home: Path) -> None:
    result = doctor(home, "sandbox", "--json")
    report = json.loads(result.stdout)
    assert report["level"] == "bubblewrap"
    assert [each["level"] for each in report["reports"]] == ["bubblewrap", "landlock"]
    assert report["reports"][0]["holds"]
    assert_commands_are_refused(report)


@pytest.mark.thorough(one_of=8)
@needs_bubblewrap
def test_an_ordinary_user(home: Path) -> None:  # S-18
    if reason := missing("bubblewrap", NOBODY):
        pytest.skip(reason)
    user_home = home / "nobody"
    user_home.mkdir(exist_ok=True)
    os.chown(user_home, NOBODY, NOBODY)
    paths = os.pathsep.join(path for path in sys.path if path)
    environment = {
        "PATH": os.defpath,
        "HOME": str(user_home),
        "TREADLE_HOME": f"{user_home}/treadle",
        "PYTHONPATH": paths,
    }
    line = [python_for_everyone(), "-B", "-m", "treadle", "doctor", "sandbox", "--json"]
    result = subprocess.run(
        line, cwd="/", env=environment, capture_output=True, text=True, timeout=280, check=False, **becoming(NOBODY)
    )
    if "PermissionError" in result.stderr or "ModuleNotFoundError" in result.stderr:
        pytest.skip("this installation is not for everybody")
    assert_commands_are_refused(json.loads(result.stdout))


def assert_commands_are_refused(report: dict[str, Any]) -> None:
    for level, attempts in report["commands"].items():
        assert {"background", "pty", "live", "carried-variable", "git-directory", "cache-program", "cache-code"} <= {
            each["name"] for each in attempts
        }
        assert not {each["name"] for each in attempts if each["verdict"] == "allowed"}, level


@pytest.mark.thorough(one_of=8)
def test_a_demand_that_cannot_be_met_is_an_error(home: Path) -> None:
    result = doctor(home, TREADLE_SANDBOX="sandbox-exec")
    assert result.returncode == 1
    assert "✗ sandbox  commands are to run in the sandbox sandbox-exec" in result.stdout
    assert doctor(home, "sandbox", TREADLE_SANDBOX="sandbox-exec").returncode == 1


@pytest.mark.thorough(one_of=8)
def test_running_without_a_sandbox_is_shown(home: Path) -> None:
    result = doctor(home, TREADLE_SANDBOX="none")
    assert "· sandbox  none (the setting sandbox is none)" in result.stdout
    assert doctor(home, "sandbox", TREADLE_SANDBOX="none").returncode == 1
