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
from treadle.adapters.sandbox.report import ESCAPES
from treadle.library.housekeeping.command_trials import TRIALS


@pytest.fixture(scope="module")
def home() -> Iterator[Path]:
    with grounds() as place:
        yield place.folder


def doctor(home: Path, *words: str, **more: str) -> "subprocess.CompletedProcess[str]":
    environment = forked.ENVIRONMENT | {"HOME": os.environ["HOME"], "TREADLE_HOME": str(home)} | more
    return forked.run([sys.executable, "-m", "treadle", "doctor", *words], env=environment, timeout=280)


needs_bubblewrap = pytest.mark.skipif(bool(missing("bubblewrap")), reason="namespaces cannot be had here")


@needs_bubblewrap
def test_the_overview(home: Path) -> None:
    ended = doctor(home)
    assert ended.returncode == 0, ended.stdout
    lines = {line.split()[1]: line for line in ended.stdout.splitlines()}
    assert list(lines) == ["python", "sqlite", "home", "sandbox", "secrets", "search", "git", "models"]
    assert lines["sandbox"].startswith("✓ sandbox  bubblewrap")


@needs_bubblewrap
def test_a_key_that_nobody_tried_is_not_called_well(home: Path) -> None:  # M-12
    ended = doctor(home, GROQ_API_KEY="sk-test-never-tried")
    (models,) = [line for line in ended.stdout.splitlines() if line.split()[1] == "models"]
    assert "groq (not asked; treadle models --remote asks)" in models


@needs_bubblewrap
def test_the_table_of_the_sandbox(home: Path) -> None:
    ended = doctor(home, "sandbox")
    assert ended.returncode == 0, ended.stdout
    lines = ended.stdout.splitlines()
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


@needs_bubblewrap
def test_the_table_as_json(home: Path) -> None:
    ended = doctor(home, "sandbox", "--json")
    told = json.loads(ended.stdout)
    assert told["level"] == "bubblewrap"
    assert [each["level"] for each in told["reports"]] == ["bubblewrap", "landlock"]
    assert told["reports"][0]["holds"]
    assert_commands_are_refused(told)


@needs_bubblewrap
def test_an_ordinary_user(home: Path) -> None:  # S-18
    if why := missing("bubblewrap", NOBODY):
        pytest.skip(why)
    own = home / "nobody"
    own.mkdir(exist_ok=True)
    os.chown(own, NOBODY, NOBODY)
    paths = os.pathsep.join(path for path in sys.path if path)
    environment = {"PATH": os.defpath, "HOME": str(own), "TREADLE_HOME": f"{own}/treadle", "PYTHONPATH": paths}
    line = [python_for_everyone(), "-B", "-m", "treadle", "doctor", "sandbox", "--json"]
    ended = subprocess.run(
        line, cwd="/", env=environment, capture_output=True, text=True, timeout=280, check=False, **becoming(NOBODY)
    )
    if "PermissionError" in ended.stderr or "ModuleNotFoundError" in ended.stderr:
        pytest.skip("this installation is not for everybody")
    assert_commands_are_refused(json.loads(ended.stdout))


def assert_commands_are_refused(told: dict[str, Any]) -> None:
    for level, tried in told["commands"].items():
        assert {"background", "pty", "live", "carried-variable", "git-directory", "cache-program", "cache-code"} <= {
            each["name"] for each in tried
        }
        assert not {each["name"] for each in tried if each["verdict"] == "allowed"}, level


def test_a_demand_that_cannot_be_met_is_an_error(home: Path) -> None:
    ended = doctor(home, TREADLE_SANDBOX="sandbox-exec")
    assert ended.returncode == 1
    assert "✗ sandbox  commands are to run in the sandbox sandbox-exec" in ended.stdout
    assert doctor(home, "sandbox", TREADLE_SANDBOX="sandbox-exec").returncode == 1


def test_running_without_a_sandbox_is_shown(home: Path) -> None:
    ended = doctor(home, TREADLE_SANDBOX="none")
    assert "· sandbox  none (the setting sandbox is none)" in ended.stdout
    assert doctor(home, "sandbox", TREADLE_SANDBOX="none").returncode == 1
